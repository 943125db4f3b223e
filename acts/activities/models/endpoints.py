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

What is known of models in advance is here, too. Prices and windows come from the installed package ``genai-prices``;
nothing is fetched. It is imported on first use (0.2 s): call from a thread where an event loop would wait. The longest
answers and the efforts, which no list has, are in a table, by the beginning of a model's name, from the providers'
documentation. A model in no row gets what is asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError

from acts.activities.models.interface import ModelError, ModelRequest, TokenCounts
from acts.language.config import Strings, settings_text
from acts.language.errors import SettingsError, format_choices, truncate
from acts.language.strict_json import read_json

VARIABLE: Final = "ACTS_MODELS"
# It is followed by "/" in the name of a model, and a provider by ":"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
# The price lists of the clouds; the provider's own follows
_PRICES_OF_CLOUD: Final = {"bedrock": "aws", "vertex": "google", "azure": "azure"}
# Clients of the SDKs that call only one of the APIs; the default of the others depends on the address
_RESPONSES_CLOUDS: Final = ("bedrock", "vertex")
# The addresses of the providers themselves, and the variables by which the SDKs set up a client: address, key, and more
HOMES: Final = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com/v1"}
_VARIABLES: Final = {
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"),
}


class Quirks(BaseModel, frozen=True, extra="forbid", strict=True):
    """How a server differs. ``api`` and ``omit`` (fields of a request) are openai's; ``schema`` is the first form."""

    api: Literal["chat", "responses"] | None = None
    omit: Strings = ()
    first_form: Literal["strict", "unenforced", "words"] = Field(default="strict", alias="schema")


class Endpoint(BaseModel, frozen=True, extra="forbid", strict=True):
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
    def api(self) -> str | None:
        """OpenAI's API that it speaks, ``chat`` or ``responses``; None: the address decides."""
        return self.quirks.api or ("responses" if self.cloud in _RESPONSES_CLOUDS else None)

    def read_access(self) -> tuple[str | None, ...]:
        """The address and the key (and more, as the SDK has it), read anew: a secret that is rotated in its file is
        used from the next request on. Raises SettingsError: a key is missing or empty.
        """
        if self.keyEnv is None and self.keyFile is None:
            return self.url, None
        source = f"keyEnv {self.keyEnv}" if self.keyEnv else f"keyFile {self.keyFile}"
        try:
            key = os.environ.get(self.keyEnv, "") if self.keyEnv else Path(self.keyFile or "").read_text("ascii")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise SettingsError(f'the endpoint "{self.name}": {source} cannot be read: {reason}') from None
        if not key.strip():
            raise SettingsError(f'the endpoint "{self.name}": {source} is not set, or empty')
        return self.url, key.strip()


class OwnSettings(Endpoint):
    """A provider as the variables of its SDK describe it: what ``provider:name`` leads to."""

    provider: Literal["anthropic", "openai", "scripted"]  # type: ignore[assignment]

    @property
    def api(self) -> str | None:
        """The API that ``ACTS_OPENAI_API`` names."""
        return os.environ.get("ACTS_OPENAI_API")

    def read_access(self) -> tuple[str | None, ...]:
        """What the variables say. Raises SettingsError: the provider itself wants a key, and none is set."""
        base, *credentials = (os.environ.get(name) or None for name in _VARIABLES[self.provider])
        if not any(credentials) and is_home(self.provider, base or HOMES[self.provider]):
            raise SettingsError(f"no key: {_VARIABLES[self.provider][1]} is not set")
        return base, *credentials


def is_home(provider: str, base: str) -> bool:
    """True for an address of the provider itself, in any region."""
    host, home = urlsplit(base).hostname or "", urlsplit(HOMES[provider]).hostname
    return host == home or host.endswith(f".{home}")


@lru_cache(maxsize=8)
def read_endpoints(path: Path) -> Mapping[str, Endpoint]:
    """The endpoints of a file, by name. Raises SettingsError: it cannot be read, or says something that is not
    allowed.
    """
    import yaml

    try:
        data = path.read_bytes()
        content = read_json(data, unique_keys=True) if path.suffix == ".json" else yaml.safe_load(data)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        text = truncate(" ".join(str(error).split()), 300)
        raise SettingsError(f"{VARIABLE} names {path}, which is not a readable YAML or JSON file: {text}") from None
    if not isinstance(content, dict) or set(content) != {"endpoints"} or not isinstance(content["endpoints"], dict):
        raise SettingsError(f"{path} is not {{endpoints: {{NAME: {{provider: …, url: …, keyEnv: …}}}}}}")
    entries = content["endpoints"]
    return MappingProxyType({name: _read_endpoint(path, name, entry) for name, entry in entries.items()})


def _read_endpoint(path: Path, name: Any, entry: Any) -> Endpoint:
    at = f'{path}: the endpoint "{truncate(str(name), 80)}"'
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(entry, dict):
        raise SettingsError(f"{at}: a name has 1 to 64 letters, digits, ., - and _, and its value is an object")
    try:
        return Endpoint.model_validate_json(json.dumps({**entry, "name": name}))
    except ValidationError as error:
        allowed = format_choices(sorted({*Endpoint.model_fields} - {"name"}))
        raise SettingsError(f"{at}: {settings_text(error)}. The keys are {allowed}") from None
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{at} has a value that JSON cannot have: {error}") from None


def from_environment() -> Mapping[str, Endpoint]:
    """The endpoints of the file that ``ACTS_MODELS`` names; it is read once. Raises SettingsError."""
    path = os.environ.get(VARIABLE)
    return read_endpoints(Path(path)) if path else MappingProxyType({})


def check_environment() -> None:
    """Check, when a worker starts, that the file can be read and every key is there. Raises SettingsError."""
    for endpoint in from_environment().values():
        endpoint.read_access()


def read_keys() -> list[str]:
    """The keys of all endpoints and providers that can be read now: what nobody may be told."""
    keys: list[str | None] = []
    for endpoint in (*from_environment().values(), PROVIDERS["anthropic"], PROVIDERS["openai"]):
        with contextlib.suppress(SettingsError):
            keys += endpoint.read_access()[1:]
    return [key for key in keys if key]


# -- models ------------------------------------------------------------------------

# Each has the module of its name here
PROVIDERS: Final = {name: OwnSettings(name=name, provider=name) for name in ("anthropic", "openai", "scripted")}
_MODEL: Final = re.compile(r"([^:/]*)([:/])(.+)", re.DOTALL)


def find_model(model: str) -> tuple[Endpoint, str]:
    """Where ``provider:name`` or ``endpoint/name`` is, and its name there. Raises ModelError: ``modelUnknown``."""
    match = _MODEL.fullmatch(model)
    first, mark, name = match.groups() if match else ("", "", "")
    if mark == ":" and first in PROVIDERS:
        return PROVIDERS[first], name
    try:
        endpoints = from_environment()
    except SettingsError as error:
        raise ModelError("modelUnknown", str(error), retryable=False) from None
    if mark == "/" and first in endpoints:
        return endpoints[first], name
    choices = ", ".join([*(f"{p}:…" for p in PROVIDERS), *(f"{name}/…" for name in endpoints)])
    text = f"unknown model {truncate(model, 200)!r}; allowed: {choices}, as ACTS_MODELS of the worker names endpoints"
    raise ModelError("modelUnknown", text, retryable=False)


def lacks_batches(model: str) -> bool:
    """True for a script, and for a model of a cloud, which has other batches; what is unknown fails when asked."""
    with contextlib.suppress(ModelError):
        return (endpoint := find_model(model)[0]).cloud is not None or endpoint.provider not in HOMES
    return False


# All efforts of ``config.effort``, the least first
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_Efforts = tuple[str, ...] | None
# (name, longest answer in tokens, efforts): the first that matches counts; no efforts: it takes none, None: any
_MODELS: Final[tuple[tuple[str, int, _Efforts], ...]] = (
    (r"claude-opus-4-[01]($|-)|claude-opus-4-\d{8}", 32_000, ()),
    (r"claude-(sonnet|haiku)-4-5|claude-sonnet-4-0|claude-sonnet-4-\d{8}", 64_000, ()),
    (r"claude-opus-4-5", 64_000, ("low", "medium", "high")),
    (r"claude-(opus|sonnet)-4-6", 128_000, ("low", "medium", "high", "max")),
    (r"claude-", 128_000, ("low", "medium", "high", "xhigh", "max")),
    (r"gpt-4o|chatgpt-4o", 16_384, ()),
    (r"gpt-4", 32_768, ()),
    (r"o1|o3|o4", 100_000, ("low", "medium", "high")),
    (r"gpt-5($|-)", 128_000, ("minimal", "low", "medium", "high")),
    (r"gpt-[5-9]", 128_000, None),
)
# Models that reason take no temperature
_WITHOUT_TEMPERATURE: Final = re.compile(r"o1|o3|o4|gpt-5($|-(?!chat))")
_OF_OPENAI: Final = re.compile(r"gpt-\d|chatgpt|o\d")
# GPT-5.6 and later; an older one rejects breakpoints
_WITH_BREAKPOINTS: Final = re.compile(r"gpt-(5\.([6-9]|\d\d)|[6-9]|\d\d)")
# How Bedrock names the models of others
_PREFIX: Final = re.compile(r"^(?:[a-z-]+\.)?(?:anthropic|openai)\.")


def _facts_of(model: str) -> tuple[int | None, _Efforts]:
    name = _bare_name(model)
    return next(((longest, efforts) for p, longest, efforts in _MODELS if re.match(p, name)), (None, None))


def _bare_name(model: str) -> str:
    """The name without the prefixes of gateways and clouds: ``openai/…``, ``us.anthropic.…``, ``provider:…``."""
    name = _PREFIX.sub("", model.rpartition("/")[2].lower())
    head, _, rest = name.partition(":")
    # After a name, a colon begins its version or size
    return rest if rest and head.isalpha() else name


def max_output_tokens(model: str) -> int | None:
    """The longest answer that a model gives, in tokens; None where no row has it."""
    return _facts_of(model)[0]


def is_of_openai(model: str) -> bool:
    """True for OpenAI's own models, also behind a gateway: they see the schema of an answer."""
    return _OF_OPENAI.match(_bare_name(model)) is not None


def has_breakpoints(model: str) -> bool:
    """True for a model whose prompt cache is read at breakpoints."""
    return _WITH_BREAKPOINTS.match(_bare_name(model)) is not None


def adapt_settings(request: ModelRequest, default_cap: int | None) -> tuple[ModelRequest, tuple[str, ...]]:
    """The request as its model takes it, and notes about what differs from the settings.

    ``default_cap`` is the cap of a request that sets none; None: none is sent.
    """
    notes: list[str] = []
    model, effort, temperature = request.model, request.effort, request.temperature
    cap, (most, efforts) = request.maxOutputTokens or default_cap, _facts_of(model)
    if cap is not None and most is not None and cap > most:
        if request.maxOutputTokens is not None:
            notes.append(f"maxOutputTokens {cap:,} was lowered to {most:,}, the most that {model} writes")
        cap = most
    if effort is not None and efforts is not None and effort not in efforts:
        place = EFFORTS.index(effort)  # the nearest, the lower of two
        effort = min(efforts, key=lambda name: abs(EFFORTS.index(name) - place), default=None)
        sent = "left out" if effort is None else f'sent as "{effort}"'
        notes.append(f'effort "{request.effort}" was {sent}: {model} takes {", ".join(efforts) or "none"}')
    if temperature is not None and _WITHOUT_TEMPERATURE.match(_bare_name(model)):
        notes.append(f"temperature {temperature:g} was left out: {model} takes none")
        temperature = None
    return replace(request, maxOutputTokens=cap, effort=effort, temperature=temperature), tuple(notes)


# -- prices and windows --------------------------------------------------------------

# Prices may rise above some 200,000 tokens of input; a request of this size is priced by the first tier
_SAMPLE_TOKENS: Final = 1_000


def cost_of(lists: Sequence[str], model: str, tokens: TokenCounts) -> float | None:
    """The cost of a request by the first of the price lists that has the model; None where none has it."""
    from genai_prices import Usage, calc_price

    usage = Usage(
        input_tokens=tokens.inputTokens, output_tokens=tokens.outputTokens,
        cache_read_tokens=tokens.cachedTokens, cache_write_tokens=tokens.cacheWriteTokens,
    )  # fmt: skip
    for provider in lists:
        # ValueError: counts that contradict each other, which some servers send
        with contextlib.suppress(LookupError, ValueError):
            return float(calc_price(usage, model_ref=model, provider_id=provider).total_price)
    return None


def price_per_token(model: str) -> dict[str, float] | None:
    """``{input, output}`` per token of a model; None: no price list has it, or there is no such provider or endpoint.

    Input is priced as tokens written to the prompt cache, the dearest kind: most of a prompt is. The
    answers of a script state their own cost, so a script reserves none.
    """
    if model.startswith("scripted:"):
        return {"input": 0.0, "output": 0.0}
    try:
        endpoint, name = find_model(model)
    except ModelError:
        return None
    samples = (
        TokenCounts(inputTokens=_SAMPLE_TOKENS),
        TokenCounts(inputTokens=_SAMPLE_TOKENS, cacheWriteTokens=_SAMPLE_TOKENS),
        TokenCounts(outputTokens=_SAMPLE_TOKENS),
    )
    plain, cached, output = (cost_of(endpoint.price_lists, name, tokens) for tokens in samples)
    if plain is None or output is None:
        return None
    return {"input": max(plain, cached or 0.0) / _SAMPLE_TOKENS, "output": output / _SAMPLE_TOKENS}


def highest_price(models: Sequence[str]) -> dict[str, float] | None:
    """``{input, output}`` per token of the dearest of several models; None where the first has no price."""
    prices = [price_per_token(model) for model in models]
    priced = [price for price in prices if price is not None]
    return {kind: max(p[kind] for p in priced) for kind in ("input", "output")} if priced and prices[0] else None


def context_window(model: str) -> int | None:
    """The context window of a model in tokens, by its endpoint's settings or a price list; None: neither has it."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        endpoint, name = find_model(model)
    except ModelError:
        return None
    for provider in endpoint.price_lists if endpoint.contextWindow is None else ():
        with contextlib.suppress(LookupError):
            _, info = get_snapshot().find_provider_model(name, None, provider, None)
            return info.context_window
    return endpoint.contextWindow
