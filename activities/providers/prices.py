"""List prices of models in US dollars, and their context windows, from the installed package ``genai-prices``.

Nothing is fetched.
The package is imported on first use (0.2 s): call from a thread where an event loop would wait.
"""

from __future__ import annotations

from typing import Final

from activities.providers.interface import ModelError, TokenCounts
from activities.providers.select import split_model

# Prices may rise above some 200,000 tokens of input; a request of this size is priced by the first tier
_SAMPLE_TOKENS: Final = 1_000


def cost_of(provider: str, model: str, tokens: TokenCounts) -> float | None:
    """The cost of a request, or None where no price list has the model."""
    from genai_prices import Usage, calc_price

    usage = Usage(
        input_tokens=tokens.inputTokens,
        output_tokens=tokens.outputTokens,
        cache_read_tokens=tokens.cachedTokens,
        cache_write_tokens=tokens.cacheWriteTokens,
    )
    try:
        return float(calc_price(usage, model_ref=model, provider_id=provider).total_price)
    except (LookupError, ValueError):
        return None  # ValueError: counts that contradict each other, which some servers send


def price_per_token(model: str) -> dict[str, float] | None:
    """``{input, output}`` per token of ``provider:name``; None: no price list has it, or there is no such provider.

    The price of input is that of a token written to the prompt cache, the dearest kind: most of a prompt is. The
    answers of a script state their own cost, so a script reserves none.
    """
    try:
        provider, name = split_model(model)
    except ModelError:
        return None
    if provider == "scripted":
        return {"input": 0.0, "output": 0.0}
    samples = {
        "plain": TokenCounts(inputTokens=_SAMPLE_TOKENS),
        "cached": TokenCounts(inputTokens=_SAMPLE_TOKENS, cacheWriteTokens=_SAMPLE_TOKENS),
        "output": TokenCounts(outputTokens=_SAMPLE_TOKENS),
    }
    costs = {kind: cost_of(provider, name, tokens) for kind, tokens in samples.items()}
    plain, output = costs["plain"], costs["output"]
    if plain is None or output is None:
        return None
    return {"input": max(plain, costs["cached"] or 0.0) / _SAMPLE_TOKENS, "output": output / _SAMPLE_TOKENS}


def context_window(model: str) -> int | None:
    """The context window of ``provider:name`` in tokens; None where no price list has it."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        provider, name = split_model(model)
        _, info = get_snapshot().find_provider_model(name, None, provider, None)
    except (ModelError, LookupError):
        return None
    return info.context_window
