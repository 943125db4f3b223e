"""What one request to a model may cost, as a grant reserves it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from acts.language.messages import Data
from acts.language.strict_json import json_size
from acts.machines.budget import RequestSize
from acts.planner.notation import LARGE_VALUE_BYTES
from acts.planner.request_estimate import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    bytes_per_token,
    estimate_prompt_bytes,
    estimate_request,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.language.config import Config
    from acts.language.messages import Message
    from acts.language.tools import Tool
    from acts.language.values import Json
    from acts.tree.records import GrantedRequest, Turn

# The shortest answer that is worth a request: a small Solution
LEAST_OUTPUT_TOKENS: Final = 256
# What a latent Call names is shown in part where it exceeds the model's window: a million tokens are some 4 MB
MAX_NAMED_BYTES: Final = 4 * 1024 * 1024


def context_bytes(context: Iterable[Message], turns: Iterable[Turn] = ()) -> int:
    """The bytes of a context and of turns as a model is shown them, at most."""
    return sum(map(_most_bytes, context)) + sum(json_size(turn.to_json()) for turn in turns)


def _most_bytes(message: Message) -> int:
    """The bytes that a message takes in a prompt, at most: provenance, which is not shown, covers the tags."""
    size = json_size(message.raw)
    return min(size, LARGE_VALUE_BYTES) if isinstance(message, Data) else size


def planner_request_size(
    config: Config, price: tuple[float, float] | None, context_bytes: int, tools: Mapping[str, Tool],
    least_cap: int | None = None,
) -> RequestSize:  # fmt: skip
    """The size of the request of a tick; its cap is ``least_cap`` or more, where an answer before it was cut."""
    tools_bytes = sum(json_size(tool.schema) for tool in tools.values())
    return _size(config, price, estimate_prompt_bytes(context_bytes, tools_bytes), least_cap)


def latent_request_size(
    config: Config, price: tuple[float, float] | None, context_bytes: int, calls: Iterable[Sequence[Json]]
) -> RequestSize:
    """The size of the largest of these requests of latent Calls: each is shown the context, and parts of its own."""
    largest = min(max(map(json_size, calls)), MAX_NAMED_BYTES)
    return _size(config, price, estimate_prompt_bytes(context_bytes + largest, 0, latent=True))


def _size(
    config: Config, price: tuple[float, float] | None, prompt_bytes: int, least_cap: int | None = None
) -> RequestSize:
    cap = max(config.maxOutputTokens or DEFAULT_MAX_OUTPUT_TOKENS, least_cap or 0)
    # Of the models that may be asked, the one that makes the most tokens of a text
    model = min(config.models, key=bytes_per_token, default="")
    least = estimate_request(model, prompt_bytes, min(cap, LEAST_OUTPUT_TOKENS), price)
    most = estimate_request(model, prompt_bytes, cap, price)
    return RequestSize(least.tokens, most.tokens, least.cost or 0.0, most.cost or 0.0)


def output_cap(
    config: Config, price: tuple[float, float] | None, grant: GrantedRequest, least_cap: int | None = None
) -> int | None:
    """The cap on an answer within a grant, in tokens: that of the settings, or less where the grant is short.

    ``least_cap`` is that of the settings after an answer that was cut.
    """
    cap = max(config.maxOutputTokens or DEFAULT_MAX_OUTPUT_TOKENS, least_cap or 0)
    short = grant.tokensShort
    if grant.costShort and price is not None and price[1] > 0:
        short = max(short, math.ceil(grant.costShort / price[1]))
    if not short:
        return config.maxOutputTokens if least_cap is None else cap
    return max(1, cap - short)
