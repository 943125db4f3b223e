"""A conversation in the form of OpenAI's APIs, and where its prompt cache is written and read.

* Models since GPT-5.6 read their cache only at the breakpoints of a request, and charge for writing more than for
  reading anew. So each turn of the user ends with a breakpoint, as it did in the request before, and the one that the
  API would put at the very end is off (``prompt_cache_options``).
* A server other than OpenAI may constrain an answer by a schema that its model never sees; there the system text has
  the schema too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from activities.providers.interface import ModelRequest, ModelTurn
from activities.providers.response_stream import ResponseStream

# OpenAI's own models, also behind a gateway that puts a prefix before their names
_OPENAI_MODEL: Final = re.compile(r"(?:.*/)?(?:gpt-(\d+)(?:\.(\d+))?|chatgpt|o\d)", re.IGNORECASE)
# The first version with breakpoints; an older one rejects them
_FIRST_WITH_BREAKPOINTS: Final = (5, 6)
# For a match the API considers the latest 80
_MAX_BREAKPOINTS: Final = 80
_MARK: Final = "prompt_cache_breakpoint"


def is_openai_model(model: str) -> bool:
    """True for a model of OpenAI: it sees the schema of its answer."""
    return _OPENAI_MODEL.match(model) is not None


def has_breakpoints(model: str) -> bool:
    """True for a model whose prompt cache is read at breakpoints."""
    match = _OPENAI_MODEL.match(model)
    if match is None or match[1] is None:
        return False
    return (int(match[1]), int(match[2] or 0)) >= _FIRST_WITH_BREAKPOINTS


def system_text(stream: ResponseStream, *, is_schema_shown: bool = True) -> str:
    """The text of the system channel; the schema in words where no strict one is sent, or the model does not see it."""
    texts = [b.text for b in stream.request.system if b.text.strip()]
    words = stream.instructions or ("" if is_schema_shown else stream.schema_in_words)
    return "\n\n".join([*texts, words] if words else texts)


def responses_turns(request: ModelRequest) -> list[dict[str, Any]]:
    """The ``input`` of the Responses API."""
    marked = _marked_turns(request)
    # Models with breakpoints also expect the phase of their earlier messages
    phase = {"phase": "final_answer"} if has_breakpoints(request.model) else {}
    out: list[dict[str, Any]] = []
    for index, turn in enumerate(request.all_turns):
        parts = _parts(turn, "input_text", is_marked=index in marked) if turn.plain_text is None else turn.plain_text
        out.append({"role": turn.role, "content": parts, **(phase if turn.role == "assistant" else {})})
    return out


def chat_turns(request: ModelRequest) -> list[dict[str, Any]]:
    """The ``messages`` of Chat Completions; plain text without a breakpoint: not every server accepts parts."""
    marked = _marked_turns(request)
    return [
        {"role": turn.role, "content": _parts(turn, "text", is_marked=True)}
        if index in marked
        else {"role": turn.role, "content": "\n\n".join(block.text for block in turn.blocks)}
        for index, turn in enumerate(request.all_turns)
    ]


def _marked_turns(request: ModelRequest) -> set[int]:
    """The indexes of the turns with a breakpoint, the latest."""
    turns: Sequence[ModelTurn] = request.all_turns if has_breakpoints(request.model) else ()
    return set([i for i, turn in enumerate(turns) if any(b.is_cached for b in turn.blocks)][-_MAX_BREAKPOINTS:])


def _parts(turn: ModelTurn, kind: str, *, is_marked: bool) -> list[dict[str, Any]]:
    mark = {_MARK: {"mode": "explicit"}}
    return [{"type": kind, "text": b.text, **(mark if is_marked and b.is_cached else {})} for b in turn.blocks]


def remove_breakpoints(body: dict[str, Any]) -> None:
    """Take the marks out of a request, for a server that rejects them."""
    for message in (*body.get("input", ()), *body.get("messages", ())):
        message.pop("phase", None)
        for part in message["content"] if isinstance(message["content"], list) else ():
            part.pop(_MARK, None)
