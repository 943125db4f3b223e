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
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from acts.activities.models.interface import ModelError, ModelRequest, TokenCounts
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
        """The key, read anew: a secret that is rotated in its file is used from the next request on. Raises
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


@lru_cache(maxsize=8)
def read_endpoints(path: Path) -> Mapping[str, Endpoint]:
    """The endpoints of a file, by name. Raises EndpointsError: it cannot be read, or says something that is not
    allowed.
    """
    import yaml

    try:
        data = path.read_bytes()
        content = read_json(data, unique_keys=True) if path.suffix == ".json" else yaml.safe_load(data)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        text = truncate(" ".join(str(error).split()), 300)
        raise EndpointsError(f"{VARIABLE} names {path}, which is not a readable YAML or JSON file: {text}") from None
    if not isinstance(content, dict) or set(content) != {"endpoints"} or not isinstance(content["endpoints"], dict):
        raise EndpointsError(f"{path} is not {{endpoints: {{NAME: {{provider: …, url: …, keyEnv: …}}}}}}")
    entries = content["endpoints"]
    return MappingProxyType({name: _read_endpoint(path, name, entry) for name, entry in entries.items()})


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
    return read_endpoints(Path(path)) if path else MappingProxyType({})


def check_environment() -> None:
    """Check, when a worker starts, that the file can be read and every key is there. Raises EndpointsError."""
    for endpoint in from_environment().values():
        endpoint.read_key()


# -- models ------------------------------------------------------------------------

# Each has the module of its name here
PROVIDERS: Final = ("anthropic", "openai", "scripted")
_MODEL: Final = re.compile(r"([^:/]*)([:/])(.+)", re.DOTALL)


@dataclass(frozen=True)
class ModelAddress:
    """A model: the provider whose API it has, its name there, and the endpoint (None: the provider's own settings)."""

    provider: str
    name: str
    endpoint: Endpoint | None = None

    @property
    def price_lists(self) -> tuple[str, ...]:
        """The price lists that may have it, the best first."""
        return (self.provider,) if self.endpoint is None else self.endpoint.price_lists


def find_model(model: str) -> ModelAddress:
    """The address of ``provider:name`` or ``endpoint/name``. Raises ModelError: ``modelUnknown``."""
    match = _MODEL.fullmatch(model)
    first, mark, name = match.groups() if match else ("", "", "")
    if mark == ":" and first in PROVIDERS:
        return ModelAddress(first, name)
    try:
        endpoints = from_environment()
    except EndpointsError as error:
        raise ModelError("modelUnknown", str(error), retryable=False) from None
    if mark == "/" and first in endpoints:
        return ModelAddress(endpoints[first].provider, name, endpoints[first])
    choices = ", ".join([*(f"{p}:…" for p in PROVIDERS), *(f"{name}/…" for name in endpoints)])
    text = f"unknown model {truncate(model, 200)!r}; allowed: {choices}, as ACTS_MODELS of the worker names endpoints"
    raise ModelError("modelUnknown", text, retryable=False)


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
# OpenAI's own models, also behind a gateway that puts a prefix before their names: they see the schema of an answer
OPENAI_MODEL: Final = re.compile(r"(?:.*/)?(?:gpt-(\d+)(?:\.(\d+))?|chatgpt|o\d)", re.IGNORECASE)
# The first version with breakpoints; an older one rejects them
_FIRST_WITH_BREAKPOINTS: Final = (5, 6)
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


def has_breakpoints(model: str) -> bool:
    """True for a model whose prompt cache is read at breakpoints."""
    match = OPENAI_MODEL.match(model)
    if match is None or match[1] is None:
        return False
    return (int(match[1]), int(match[2] or 0)) >= _FIRST_WITH_BREAKPOINTS


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
    try:
        address = find_model(model)
    except ModelError:
        return None
    if address.provider == "scripted":
        return {"input": 0.0, "output": 0.0}
    samples = (
        TokenCounts(inputTokens=_SAMPLE_TOKENS),
        TokenCounts(inputTokens=_SAMPLE_TOKENS, cacheWriteTokens=_SAMPLE_TOKENS),
        TokenCounts(outputTokens=_SAMPLE_TOKENS),
    )
    plain, cached, output = (cost_of(address.price_lists, address.name, tokens) for tokens in samples)
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
        address = find_model(model)
    except ModelError:
        return None
    if address.endpoint is not None and address.endpoint.contextWindow is not None:
        return address.endpoint.contextWindow
    for provider in address.price_lists:
        with contextlib.suppress(LookupError):
            _, info = get_snapshot().find_provider_model(address.name, None, provider, None)
            return info.context_window
    return None
