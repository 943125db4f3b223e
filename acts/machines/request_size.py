"""What one request to a model may cost, as a grant reserves it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from acts.language.strict_json import json_size
from acts.machines.ledger import RequestSize
from acts.planner.conversation import data_bytes
from acts.planner.request_estimate import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    bytes_per_token,
    estimate_prompt_bytes,
    estimate_request,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.language.config import Config
    from acts.language.messages import Message
    from acts.language.tools import Tool
    from acts.planner.turns import Turn
    from acts.tree.records import GrantedRequest

# The shortest answer that is worth a request: a small Solution
LEAST_OUTPUT_TOKENS: Final = 256
# What a latent Call names is shown in part where it exceeds the model's window: a million tokens are some 4 MB
MAX_NAMED_BYTES: Final = 4 * 1024 * 1024


class ContextBytes:
    """The bytes of a context as a model is shown it, at most. It only grows, so each message is measured once."""

    def __init__(self) -> None:
        self._messages = self._turns = 0
        self._bytes = 0

    def count(self, context: Sequence[Message], turns: Sequence[Turn] = ()) -> int:
        """The bytes of this context and these turns, which begin with those that were counted last."""
        if len(context) < self._messages or len(turns) < self._turns:
            self._messages = self._turns = self._bytes = 0
        self._bytes += sum(data_bytes(message) for message in context[self._messages :])
        self._bytes += sum(json_size(turn.to_json()) for turn in turns[self._turns :])
        self._messages, self._turns = len(context), len(turns)
        return self._bytes


def planner_request_size(
    config: Config, price: tuple[float, float] | None, context_bytes: int, tools: Mapping[str, Tool],
    least_cap: int | None = None,
) -> RequestSize:  # fmt: skip
    """The size of the request of a tick; its cap is ``least_cap`` or more, where an answer before it was cut."""
    tools_bytes = sum(json_size(tool.schema) for tool in tools.values())
    return _size(config, price, estimate_prompt_bytes(context_bytes, tools_bytes), least_cap)


def latent_request_size(config: Config, price: tuple[float, float] | None, shown_bytes: int) -> RequestSize:
    """The size of the request of a latent Call: it is shown the context, its parameters and its Tool."""
    return _size(config, price, estimate_prompt_bytes(shown_bytes, 0, latent=True))


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
