"""What one request to a model may cost, as a grant reserves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acts.machines.budget import RequestSize
from acts.planner.request_estimate import DEFAULT_MAX_OUTPUT_TOKENS, estimate_request, prompt_bytes_estimate

if TYPE_CHECKING:
    from acts.language.config import Config

# The shortest answer that is worth a request: a small Solution
LEAST_OUTPUT_TOKENS: Final = 256


def request_size(
    config: Config, price: tuple[float, float] | None, context_bytes: int, tools_bytes: int = 0
) -> RequestSize:
    """The size of a request that shows a model so many bytes of context."""
    prompt = prompt_bytes_estimate(context_bytes, tools_bytes)
    cap = config.maxOutputTokens or DEFAULT_MAX_OUTPUT_TOKENS
    least = estimate_request(prompt, min(cap, LEAST_OUTPUT_TOKENS), price)
    most = estimate_request(prompt, cap, price)
    return RequestSize(least.tokens, most.tokens, least.cost or 0.0, most.cost or 0.0)
