"""A model that answers from a file: for examples, tests and a first run without a key.

``scripted:NAME`` reads ``NAME.json`` in a folder of ``ACTS_SCRIPTS`` (separated like ``PATH``), or in the examples that
ship. The file is::

    {"answers": [{"when": {"tick": 2, "tool": "translate", "says": ["…"], "lacks": ["…"]},
                  "solution": {…} | "output": …, "path": "†…" | "text": "…"
                      | "error": {"code", "message", "retryable"?},
                  "usage": {"inputTokens": 10, …}, "cost": 0.01}]}

The first answer whose ``when`` fits is given: the request contains all ``says`` and no ``lacks`` (anywhere but in the
engine's own rules: in Tools, instructions, conversation, or the schema of the answer); ``tick`` or ``tool`` is its
topic. So equal requests get equal answers, in any order. A request that no answer fits fails.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ValidationError

from acts.activities.models.interface import CallReceiver, ModelError, ModelRequest, ModelResponse, TokenCounts
from acts.activities.models.schema import compact_json
from acts.activities.models.words import tell
from acts.language.config import settings_text
from acts.language.errors import format_choices, truncate
from acts.language.spelling import read_plain
from acts.language.strict_json import read_json
from acts.language.values import Json

_ACTS: Final = Path(__file__).resolve().parents[2]
# The demo's; those of the examples are in a checkout only
SHIPPED: Final = (_ACTS / "cli" / "demo", _ACTS.parent / "examples")
_NAME: Final = re.compile(r"[\w-]+(/[\w-]+)*")
# Roughly a token of English or JSON, where a script states no number
_BYTES_PER_TOKEN: Final = 4
_PIECE: Final = 32  # characters that it writes at a time
_Count = Literal["inputTokens", "outputTokens", "cachedTokens", "cacheWriteTokens", "reasoningTokens"]


class _When(BaseModel, extra="forbid"):
    tick: int | None = None
    tool: str | None = None
    says: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


class _Error(BaseModel, extra="forbid"):
    code: str
    message: str
    retryable: bool = False


class _Answer(BaseModel, extra="forbid"):
    when: _When = _When()
    solution: dict[str, Any] | None = None
    output: Any = None
    path: Any = None  # like a model, a script may answer with what is no path
    text: str | None = None
    error: _Error | None = None
    usage: dict[_Count, int] = {}
    cost: float = 0.0
    comment: Any = None


class _Script(BaseModel, extra="forbid"):
    answers: list[_Answer]
    comment: Any = None


async def ask(request: ModelRequest, on_call: CallReceiver | None, _endpoint: object = None) -> ModelResponse:
    """The answer that the script ``request.model`` has for the request."""
    blocks = [*request.system, *(block for turn in request.text_turns for block in turn.blocks)]
    words = "\n".join([*(b.text for b in blocks if not b.is_rules), compact_json(request.schema)])
    for answer in _read_script(request.model).answers:
        when = answer.when
        is_topic = (when.tick is None or request.topic == f"tick {when.tick}") and when.tool in (None, request.topic)
        if is_topic and all(w in words for w in when.says) and not any(w in words for w in when.lacks):
            match request.schema:
                case {"required": ["output", "path"], "properties": {"path": {"enum": [only]}}} if answer.path is None:
                    answer.path = only  # the one outcome needs no name
            return _respond(answer, "\n".join(b.text for b in blocks), on_call)
    text = f'the script "{request.model}" has no answer for {request.topic or "this request"}: add one that fits'
    end = truncate(blocks[-1].text if blocks else "", 300)
    raise ModelError("notInScript", f"{text}; the request ends with: {end}", retryable=False)


def _find_script(name: str) -> Path:
    folders = [*(Path(p) for p in os.environ.get("ACTS_SCRIPTS", "").split(os.pathsep) if p), *SHIPPED]
    for folder in folders if _NAME.fullmatch(name) else ():
        file = folder / f"{name}.json"
        if file.is_file() and file.resolve().is_relative_to(folder.resolve()):
            return file
    names = sorted(f.relative_to(d).with_suffix("").as_posix() for d in folders for f in d.glob("**/*script*.json"))
    text = f'there is no script "{name}" in {", ".join(map(str, folders))}; there are: {format_choices(names)}'
    raise ModelError("modelUnknown", f"{text}. ACTS_SCRIPTS names the folders", retryable=False)


def _read_script(name: str) -> _Script:
    file = _find_script(name)
    try:
        return _Script.model_validate(read_plain(read_json(file.read_bytes())))
    except ValidationError as error:
        reason = settings_text(error)
    except (OSError, ValueError) as error:
        reason = str(error)
    raise ModelError("modelUnknown", f"{file} is not a script (docs/agents.md): {reason}", retryable=False)


def _respond(answer: _Answer, prompt: str, on_call: CallReceiver | None) -> ModelResponse:
    value: Json = answer.output if answer.path is None else {"output": answer.output, "path": answer.path}
    if answer.solution is not None:
        value = {"calls": [], "output": None, **answer.solution}
    text = json.dumps(value, ensure_ascii=False) if answer.text is None else answer.text
    for start in range(0, len(text), _PIECE):
        tell(text[start : start + _PIECE])
    read, written = (-(-len(part.encode()) // _BYTES_PER_TOKEN) for part in (prompt, text))
    tokens = TokenCounts(**{"inputTokens": read, "outputTokens": written, **answer.usage})
    used: dict[str, Any] = {"tokens": tokens, "cost": answer.cost, "text": text}
    if (error := answer.error) is not None:
        raise ModelError(error.code, error.message, retryable=error.retryable, **used)
    if answer.text is not None:
        try:
            value = read_json(text)
        except ValueError as reason:
            raise ModelError("modelNotJson", f"the answer is not JSON: {reason}", retryable=False, **used) from reason
    if on_call is not None and isinstance(value, dict):
        for index, call in enumerate(value.get("calls", ())):
            on_call(index, call)
    return ModelResponse(text, value, tokens, answer.cost, model="scripted", form="")
