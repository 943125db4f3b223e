"""The file that ``ACTS_MODELS`` names: the model endpoints of a worker. ``config.model: "NAME/MODEL"`` selects one.

    endpoints:
      NAME:
        provider: openai                   # the API it speaks: anthropic, openai
        cloud: bedrock                     # of the SDK's clients: azure, bedrock, vertex
        url: http://127.0.0.1:11434/v1
        keyEnv: NAME_OF_A_VARIABLE         # or keyFile: a file, read anew for each request; never the key itself
        region: …, project: …, apiVersion: …
        prices: openrouter                 # the list of ``genai-prices`` that has its prices, or none
        contextWindow: 32768               # tokens, where no list has the model
        quirks: {api: chat, omit: [prompt_cache_key], schema: words}

JSON is read, too. Keys are closed. Nothing here imports an SDK or makes a request.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from acts.language.config import Strings
from acts.language.errors import format_choices, truncate
from acts.language.strict_json import read_json

VARIABLE: Final = "ACTS_MODELS"
# A file of settings is small; a device or a pipe is not read for ever
MAX_FILE_BYTES: Final = 1024 * 1024
_MAX_KEY_BYTES: Final = 64 * 1024
# It is followed by "/" in the name of a model, and a provider by ":"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# (provider, cloud): the module that its SDK imports when it makes the credentials, and the extra that installs it
_EXTRAS: Final = {
    ("anthropic", "bedrock"): ("boto3", "anthropic[bedrock]"),
    ("anthropic", "vertex"): ("google.auth", "anthropic[vertex]"),
    ("openai", "bedrock"): ("botocore", "openai[bedrock]"),
    ("openai", "vertex"): ("google.auth", "openai[vertex]"),
}
# Settings that each kind of endpoint cannot do without
_REQUIRED: Final[dict[tuple[str, str | None], tuple[str, ...]]] = {
    ("anthropic", "bedrock"): ("region",),
    ("anthropic", "vertex"): ("region", "project"),
    ("anthropic", "azure"): ("url",),
    ("openai", "bedrock"): ("region",),
    ("openai", "vertex"): ("region", "project"),
    ("openai", "azure"): ("url", "apiVersion"),
}
# The price lists of the clouds; the provider's own follows
_PRICES_OF_CLOUD: Final = {"bedrock": "aws", "vertex": "google", "azure": "azure"}
# Clients of the SDKs that call only one of the APIs; the default of the others depends on the address
_RESPONSES_CLOUDS: Final = ("bedrock", "vertex")


class EndpointsError(Exception):
    """The file of ``ACTS_MODELS`` cannot be used: names the file, the endpoint and the key, never a secret."""


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Quirks(_Settings):
    """How a server differs. ``api`` and ``omit`` (fields of a request) are openai's; ``schema`` is the first form."""

    api: Literal["chat", "responses"] | None = None
    omit: Strings = ()
    first_form: Literal["strict", "unenforced", "words"] = Field(default="strict", alias="schema")


class Endpoint(_Settings):
    """One endpoint. Without ``keyEnv`` and ``keyFile``: a cloud's own credentials, or none at a server of one's own."""

    name: str
    provider: Literal["anthropic", "openai"]
    cloud: Literal["azure", "bedrock", "vertex"] | None = None
    url: str | None = Field(default=None, pattern=r"^https?://[^\s/]+")
    keyEnv: str | None = Field(default=None, pattern=r"^[A-Z_][A-Z0-9_]*$")
    keyFile: str | None = Field(default=None, min_length=1)
    region: str | None = Field(default=None, pattern=r"^[a-z0-9-]+$")
    project: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.:-]+$")
    apiVersion: str | None = Field(default=None, min_length=1)
    prices: str | None = None
    contextWindow: int | None = Field(default=None, ge=1_000)
    quirks: Quirks = Quirks()

    @model_validator(mode="after")
    def _check_settings(self) -> Endpoint:
        kind = f"{self.provider} at {self.cloud}" if self.cloud else self.provider
        if self.keyEnv and self.keyFile:
            raise ValueError('"keyEnv" and "keyFile" exclude each other')
        missing = [name for name in _REQUIRED.get((self.provider, self.cloud), ()) if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{kind} needs {format_choices(missing)}")
        if self.cloud == "azure" and not self.has_key:
            raise ValueError(f'{kind} needs "keyEnv" or "keyFile"')
        if self.cloud is None:
            unused = [name for name in ("region", "project", "apiVersion") if getattr(self, name) is not None]
            if unused:
                raise ValueError(f'{format_choices(unused)} belongs to a "cloud": azure, bedrock or vertex')
            if self.url is None and not self.has_key:
                raise ValueError(f'{kind} needs "keyEnv" or "keyFile", or the "url" of a server of your own')
        if self.provider == "anthropic" and (self.quirks.api or self.quirks.omit):
            raise ValueError('"quirks": "api" and "omit" are for openai')
        return self

    @property
    def has_key(self) -> bool:
        """True when the file names a key."""
        return self.keyEnv is not None or self.keyFile is not None

    @property
    def price_lists(self) -> tuple[str, ...]:
        """The price lists that may have its models, the best first."""
        if self.prices is not None:
            return () if self.prices == "none" else (self.prices,)
        return (_PRICES_OF_CLOUD[self.cloud], self.provider) if self.cloud else (self.provider,)

    @property
    def api(self) -> Literal["chat", "responses"] | None:
        """OpenAI's API that it speaks; None: the address decides."""
        return self.quirks.api or ("responses" if self.cloud in _RESPONSES_CLOUDS else None)

    def read_key(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """The key, read anew: a secret that is rotated in its file is used from the next request on.

        Raises:
            EndpointsError: it is missing or empty.
        """
        if self.keyEnv is not None:
            key = environment.get(self.keyEnv, "").strip()
            if not key:
                raise EndpointsError(f'the endpoint "{self.name}": keyEnv names {self.keyEnv}, which is not set')
            return key
        if self.keyFile is None:
            return None
        try:
            with Path(self.keyFile).open("rb") as file:
                key = file.read(_MAX_KEY_BYTES).decode("ascii").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            text = f'the endpoint "{self.name}": keyFile {self.keyFile} cannot be read: {reason}'
            raise EndpointsError(text) from None
        if not key:
            raise EndpointsError(f'the endpoint "{self.name}": keyFile {self.keyFile} is empty')
        return key

    def require_extra(self) -> None:
        """Check that what the SDK's client needs is installed.

        Raises:
            EndpointsError: it is not; the message names the extra.
        """
        module, extra = _EXTRAS.get((self.provider, self.cloud or ""), ("", ""))
        # With a bearer token nothing is signed; the stream of Anthropic's models at Bedrock is in a format of AWS
        is_needed = not self.has_key or (self.provider, self.cloud) == ("anthropic", "bedrock")
        if module and is_needed and not _is_installed(module):
            text = f'the endpoint "{self.name}": {self.provider} at {self.cloud} needs {module}'
            raise EndpointsError(f"{text}, which is not installed: pip install '{extra}'")


def read_endpoints(path: Path) -> Mapping[str, Endpoint]:
    """The endpoints of a file, by name.

    Raises:
        EndpointsError: it cannot be read, or says something that is not allowed.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise EndpointsError(f"{VARIABLE} names {path}, which has more than {MAX_FILE_BYTES:,} bytes")
        content = read_json(data, unique_keys=True) if path.suffix == ".json" else _read_yaml(data)
    except (OSError, ValueError) as error:
        text = truncate(" ".join(str(error).split()), 300)
        raise EndpointsError(f"{VARIABLE} names {path}, which is not a readable YAML or JSON file: {text}") from None
    entries = content.get("endpoints") if isinstance(content, dict) else None
    unknown = sorted(set(content) - {"endpoints"}) if isinstance(content, dict) else []
    if not isinstance(entries, dict) or unknown:
        what = f"the unknown key {format_choices(unknown)}" if unknown else 'no object "endpoints"'
        raise EndpointsError(f"{path} has {what}; it is {{endpoints: {{NAME: {{provider: …, url: …, keyEnv: …}}}}}}")
    return MappingProxyType({name: _read_endpoint(path, name, entry) for name, entry in entries.items()})


def _read_yaml(data: bytes) -> Any:
    import yaml

    try:
        return yaml.safe_load(data)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(error) from None


def _read_endpoint(path: Path, name: Any, entry: Any) -> Endpoint:
    at = f'{path}: the endpoint "{truncate(str(name), 80)}"'
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise EndpointsError(f"{at}: a name is 1 to 64 letters, digits, ., - and _, and begins with a letter or digit")
    if not isinstance(entry, dict):
        raise EndpointsError(f"{at} is not an object")
    try:
        return Endpoint.model_validate_json(json.dumps({**entry, "name": name}))
    except (TypeError, ValueError) as error:
        if not isinstance(error, ValidationError):
            raise EndpointsError(f"{at} has a value that JSON cannot have: {error}") from None
        details = error.errors(include_url=False, include_input=False)
        raise EndpointsError(f"{at}: {'; '.join(_defect(d) for d in details[:10])}") from None


def _defect(detail: Any) -> str:
    """One defect in words; a value is never quoted: it may be a key."""
    place = ".".join(map(str, detail["loc"]))
    if detail["type"] == "extra_forbidden":
        closed = Quirks if place.startswith("quirks.") else Endpoint
        names = sorted(field.alias or key for key, field in closed.model_fields.items() if key != "name")
        hint = "; name the key's variable in keyEnv, or its file in keyFile" if "key" in place.lower() else ""
        return f"the key {place} is unknown; allowed: {format_choices(names)}{hint}"
    text = detail["msg"].removeprefix("Value error, ")
    return f"{place}: {text}" if place else text


def from_environment() -> Mapping[str, Endpoint]:
    """The endpoints of the file that ``ACTS_MODELS`` names; it is read once. Raises EndpointsError."""
    path = os.environ.get(VARIABLE)
    return _read_once(path) if path else MappingProxyType({})


@lru_cache(maxsize=8)
def _read_once(path: str) -> Mapping[str, Endpoint]:
    return read_endpoints(Path(path))


def check_environment() -> None:
    """Check, when a worker starts, that every endpoint can be used as far as this machine knows.

    Raises:
        EndpointsError: the file has an error, a key is missing, or a package is.
    """
    for endpoint in from_environment().values():
        endpoint.read_key()
        endpoint.require_extra()


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False
