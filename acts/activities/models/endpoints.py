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
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from acts.language.config import Strings, settings_text
from acts.language.errors import format_choices, truncate
from acts.language.strict_json import read_json

VARIABLE: Final = "ACTS_MODELS"
# It is followed by "/" in the name of a model, and a provider by ":"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
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

    def read_key(self) -> str | None:
        """The key, read anew: a secret that is rotated in its file is used from the next request on.

        Raises:
            EndpointsError: it is missing or empty.
        """
        if self.keyEnv is None and self.keyFile is None:
            return None
        source = f"keyEnv {self.keyEnv}" if self.keyEnv else f"keyFile {self.keyFile}"
        try:
            key = os.environ.get(self.keyEnv, "") if self.keyEnv else Path(self.keyFile or "").read_text("ascii")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise EndpointsError(f'the endpoint "{self.name}": {source} cannot be read: {reason}') from None
        if not key.strip():
            raise EndpointsError(f'the endpoint "{self.name}": {source} is not set, or empty')
        return key.strip()


def read_endpoints(path: Path) -> Mapping[str, Endpoint]:
    """The endpoints of a file, by name.

    Raises:
        EndpointsError: it cannot be read, or says something that is not allowed.
    """
    try:
        data = path.read_bytes()
        content = read_json(data, unique_keys=True) if path.suffix == ".json" else _read_yaml(data)
    except (OSError, ValueError) as error:
        text = truncate(" ".join(str(error).split()), 300)
        raise EndpointsError(f"{VARIABLE} names {path}, which is not a readable YAML or JSON file: {text}") from None
    if not isinstance(content, dict) or set(content) != {"endpoints"} or not isinstance(content["endpoints"], dict):
        raise EndpointsError(f"{path} is not {{endpoints: {{NAME: {{provider: …, url: …, keyEnv: …}}}}}}")
    entries = content["endpoints"]
    return MappingProxyType({name: _read_endpoint(path, name, entry) for name, entry in entries.items()})


def _read_yaml(data: bytes) -> Any:
    import yaml

    try:
        return yaml.safe_load(data)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(error) from None


def _read_endpoint(path: Path, name: Any, entry: Any) -> Endpoint:
    at = f'{path}: the endpoint "{truncate(str(name), 80)}"'
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(entry, dict):
        raise EndpointsError(f"{at}: a name has 1 to 64 letters, digits, ., - and _, and its value is an object")
    try:
        return Endpoint.model_validate_json(json.dumps({**entry, "name": name}))
    except ValidationError as error:
        allowed = format_choices(sorted({*Endpoint.model_fields} - {"name"}))
        raise EndpointsError(f"{at}: {settings_text(error)}. The keys are {allowed}") from None
    except (TypeError, ValueError) as error:
        raise EndpointsError(f"{at} has a value that JSON cannot have: {error}") from None


def from_environment() -> Mapping[str, Endpoint]:
    """The endpoints of the file that ``ACTS_MODELS`` names; it is read once. Raises EndpointsError."""
    path = os.environ.get(VARIABLE)
    return _read_once(path) if path else MappingProxyType({})


@lru_cache(maxsize=8)
def _read_once(path: str) -> Mapping[str, Endpoint]:
    return read_endpoints(Path(path))


def check_environment() -> None:
    """Check, when a worker starts, that the file can be read and every key is there. Raises EndpointsError."""
    for endpoint in from_environment().values():
        endpoint.read_key()
