"""What a request to a model may use: its tokens and its cost, estimated before it is made.

A run reserves this much of its budget for a request. Pure arithmetic on byte counts: the prompt itself is built by the
activity. Prices come in as numbers, because the price list belongs to the activities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from acts.planner.rules import LATENT_RULES_BYTES, PLANNER_RULES_BYTES

# The cap on an answer where ``config.maxOutputTokens`` sets none: enough for some hundred Calls, thinking included.
# The adapters of Anthropic and OpenAI send it. An OpenAI-like server of one's own is sent no cap, because this one may
# exceed the window of a small model; estimates use it there too, and for ``scripted:`` models.
DEFAULT_MAX_OUTPUT_TOKENS: Final = 32_000
# A cut answer is asked for again with so many times the cap: three attempts cover a factor of 16
_CAP_GROWTH: Final = 4
# The longest answer that a model is asked for where nobody knows its limit: the most that any model gives
LONGEST_ANSWER_TOKENS: Final = 128_000
# Seconds before the first word (a schema is compiled for up to 180), and tokens per second of a slow model
_START_SECONDS: Final = 240.0
_SLOW_TOKENS_PER_SECOND: Final = 40.0
# The time limit of short answers: providers' own limits are at ten minutes and more
_LEAST_ANSWER_SECONDS: Final = 900.0
# The context window of a model that no list knows, in tokens: what most models offered as local servers have at least
DEFAULT_WINDOW_TOKENS: Final = 128_000
# Of a window, the part that a conversation may fill: the rest is for the Tools, the schema, thinking and the answer
_CONVERSATION_SHARE: Final = 0.6
# Headings and the line of a last answer; the tags of a message take no more than the names in its JSON
_FRAME_BYTES: Final = 120


@dataclass(frozen=True, slots=True)
class Reservation:
    """What a request may use. ``cost`` is in US dollars, None where the model has no known price."""

    tokens: int
    cost: float | None


def bytes_per_token(model: str) -> float:
    """UTF-8 bytes of a prompt per token of a model. Anthropic's have their name at any endpoint.

    An estimate: Anthropic publishes no tokenizer, and OpenAI's are downloaded on first use. Anthropic's models since
    Opus 4.7 make about 30% more tokens of the same text than the others.
    """
    return 2.7 if model.startswith("anthropic:") or "claude" in model else 3.5


def answer_seconds(max_output_tokens: int | None) -> float:
    cap = DEFAULT_MAX_OUTPUT_TOKENS if max_output_tokens is None else max_output_tokens
    return max(_LEAST_ANSWER_SECONDS, _START_SECONDS + cap / _SLOW_TOKENS_PER_SECOND)


def higher_cap(cap: int | None, longest: int | None) -> int | None:
    """The cap of the request after an answer that was cut at ``cap``; None: the model gives no longer one.

    ``longest`` is the longest answer of the model, ``cap`` None where none was sent.
    """
    if cap is None:
        return DEFAULT_MAX_OUTPUT_TOKENS
    most = longest or max(LONGEST_ANSWER_TOKENS, cap)
    return min(cap * _CAP_GROWTH, most) if cap < most else None


def conversation_room(model: str, window_tokens: int | None) -> float:
    return (window_tokens or DEFAULT_WINDOW_TOKENS) * _CONVERSATION_SHARE * bytes_per_token(model)


def estimate_request(
    model: str, prompt_bytes: int, max_output_tokens: int | None, price: tuple[float, float] | None
) -> Reservation:
    """What one request to ``provider:name`` may use; ``price`` is in US dollars per token of input and of output."""
    output_tokens = DEFAULT_MAX_OUTPUT_TOKENS if max_output_tokens is None else max_output_tokens
    input_tokens = math.ceil(prompt_bytes / bytes_per_token(model))
    cost = None if price is None else input_tokens * price[0] + output_tokens * price[1]
    return Reservation(input_tokens + output_tokens, cost)


def estimate_prompt_bytes(messages_bytes: int, tools_bytes: int, *, latent: bool = False) -> int:
    """An upper estimate of a request's UTF-8 bytes, without building it.

    ``messages_bytes`` are those of the JSON of the messages that are shown (their provenance is not); ``tools_bytes``
    those of the schemas of the Tools and of the output. These count twice: the prompt describes them, and the schema of
    the answer repeats them. ``latent``: the request of one latent Call, whose rules are short.
    """
    rules = LATENT_RULES_BYTES if latent else PLANNER_RULES_BYTES
    return rules + _FRAME_BYTES + messages_bytes + 2 * tools_bytes
