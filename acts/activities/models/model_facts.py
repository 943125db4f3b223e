"""What is known of models in advance: prices and context windows, the longest answers, the efforts.

Prices and windows come from the installed package ``genai-prices``; nothing is fetched. It is imported on first use
(0.2 s): call from a thread where an event loop would wait. The rest no list has, so it is in a table here, by the
beginning of a model's name, from the providers' documentation. A model in no row gets what is asked for.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from acts.activities.models.interface import ModelError, ModelRequest, TokenCounts
from acts.activities.models.select import find_model

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""All efforts of ``config.effort``, the least first."""

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
# OpenAI's own models, also behind a gateway that puts a prefix before their names
_OPENAI_MODEL: Final = re.compile(r"(?:.*/)?(?:gpt-(\d+)(?:\.(\d+))?|chatgpt|o\d)", re.IGNORECASE)
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


def is_openai_model(model: str) -> bool:
    """True for a model of OpenAI: it sees the schema of its answer."""
    return _OPENAI_MODEL.match(model) is not None


def has_breakpoints(model: str) -> bool:
    """True for a model whose prompt cache is read at breakpoints."""
    match = _OPENAI_MODEL.match(model)
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
        effort = _nearest_effort(effort, efforts)
        sent = "left out" if effort is None else f'sent as "{effort}"'
        notes.append(f'effort "{request.effort}" was {sent}: {model} takes {", ".join(efforts) or "none"}')
    if temperature is not None and _WITHOUT_TEMPERATURE.match(_bare_name(model)):
        notes.append(f"temperature {temperature:g} was left out: {model} takes none")
        temperature = None
    return replace(request, maxOutputTokens=cap, effort=effort, temperature=temperature), tuple(notes)


def _nearest_effort(effort: str, allowed: Sequence[str]) -> str | None:
    """The allowed effort that is nearest, the lower of two."""
    place = EFFORTS.index(effort)
    return min(allowed, key=lambda name: abs(EFFORTS.index(name) - place), default=None)


# -- prices and windows --------------------------------------------------------------

# Prices may rise above some 200,000 tokens of input; a request of this size is priced by the first tier
_SAMPLE_TOKENS: Final = 1_000


def cost_of(lists: Sequence[str], model: str, tokens: TokenCounts) -> float | None:
    """The cost of a request by the first of the price lists that has the model; None where none has it."""
    from genai_prices import Usage, calc_price

    usage = Usage(
        input_tokens=tokens.inputTokens,
        output_tokens=tokens.outputTokens,
        cache_read_tokens=tokens.cachedTokens,
        cache_write_tokens=tokens.cacheWriteTokens,
    )
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
