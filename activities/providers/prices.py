"""List prices of models in US dollars, and their context windows, from the installed package ``genai-prices``.

Nothing is fetched.
The package is imported on first use (0.2 s): call from a thread where an event loop would wait.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from activities.providers.interface import ModelError, TokenCounts
from activities.providers.select import find_model

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
        try:
            return float(calc_price(usage, model_ref=model, provider_id=provider).total_price)
        except (LookupError, ValueError):
            continue  # ValueError: counts that contradict each other, which some servers send
    return None


def price_per_token(model: str) -> dict[str, float] | None:
    """``{input, output}`` per token of a model; None: no price list has it, or there is no such provider or endpoint.

    The price of input is that of a token written to the prompt cache, the dearest kind: most of a prompt is. The
    answers of a script state their own cost, so a script reserves none.
    """
    try:
        address = find_model(model)
    except ModelError:
        return None
    if address.provider == "scripted":
        return {"input": 0.0, "output": 0.0}
    samples = {
        "plain": TokenCounts(inputTokens=_SAMPLE_TOKENS),
        "cached": TokenCounts(inputTokens=_SAMPLE_TOKENS, cacheWriteTokens=_SAMPLE_TOKENS),
        "output": TokenCounts(outputTokens=_SAMPLE_TOKENS),
    }
    costs = {kind: cost_of(address.price_lists, address.name, tokens) for kind, tokens in samples.items()}
    plain, output = costs["plain"], costs["output"]
    if plain is None or output is None:
        return None
    return {"input": max(plain, costs["cached"] or 0.0) / _SAMPLE_TOKENS, "output": output / _SAMPLE_TOKENS}


def highest_price(models: Sequence[str]) -> dict[str, float] | None:
    """``{input, output}`` per token of the dearest of several models; None where the first has no price."""
    prices = [price_per_token(model) for model in models]
    if not prices or prices[0] is None:
        return None
    priced = [price for price in prices if price is not None]
    return {kind: max(price[kind] for price in priced) for kind in ("input", "output")}


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
