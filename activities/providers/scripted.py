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
from typing import TYPE_CHECKING, Any, Final

from activities.providers.interface import CallReceiver, ModelError, ModelRequest, ModelResponse, TokenCounts
from activities.providers.provider_keywords import compact_json
from acts.language.errors import format_choices, truncate
from acts.language.strict_json import read_json
from acts.language.values import Json

if TYPE_CHECKING:
    from collections.abc import Iterator

SHIPPED: Final = Path(__file__).resolve().parent.parent.parent / "examples"
_NAME: Final = re.compile(r"[\w-]+(/[\w-]+)*")
# Roughly a token of English or JSON, where a script states no number
_BYTES_PER_TOKEN: Final = 4
_KEYS: Final = frozenset({"when", "solution", "output", "path", "text", "error", "usage", "cost", "comment"})


class Scripted:
    """Adapter of ``scripted:…``."""

    async def ask(self, request: ModelRequest, on_call: CallReceiver | None = None) -> ModelResponse:
        """The answer that the script has for the request."""
        blocks = [*request.system, *(block for turn in request.all_turns for block in turn.blocks)]
        words = "\n".join([*(b.text for b in blocks if not b.is_rules), compact_json(request.schema)])
        for answer in _read_answers(request.model):
            if _matches(answer.get("when") or {}, request.topic, words):
                return _respond(answer, "\n".join(b.text for b in blocks), on_call)
        last = blocks[-1].text if blocks else ""
        raise ModelError(
            "notInScript",
            f'the script "{request.model}" has no answer for {request.topic or "this request"}: '
            f"add one whose `when` fits; the request ends with: {truncate(last, 300)}",
            retryable=False,
        )


def script_folders() -> list[Path]:
    """The folders of scripts, in the order in which they are searched."""
    folders = [Path(p) for p in os.environ.get("ACTS_SCRIPTS", "").split(os.pathsep) if p]
    return [*folders, SHIPPED]


def _find_script(name: str) -> Path:
    if _NAME.fullmatch(name):
        for folder in script_folders():
            file = folder / f"{name}.json"
            if file.is_file() and file.resolve().is_relative_to(folder.resolve()):
                return file
    folders = script_folders()
    names = sorted(f.relative_to(d).with_suffix("").as_posix() for d in folders for f in d.glob("**/*script*.json"))
    raise ModelError(
        "modelUnknown",
        f'there is no script "{name}" in {", ".join(map(str, folders))}; there are: {format_choices(names)}. '
        "ACTS_SCRIPTS names the folders",
        retryable=False,
    )


def _read_answers(name: str) -> Iterator[dict[str, Any]]:
    file = _find_script(name)
    try:
        script = read_json(file.read_bytes())
        answers = script["answers"]
        wrong = next((i for i, a in enumerate(answers) if set(a) - _KEYS), None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = f'{file} is not a script: {type(error).__name__}: {error}. It is {{"answers": [{{"when", "solution"}}]}}'
        raise ModelError("modelUnknown", text, retryable=False) from error
    if wrong is not None:
        unknown, allowed = format_choices(set(answers[wrong]) - _KEYS), format_choices(sorted(_KEYS))
        text = f"{file}, answer {wrong}: unknown key {unknown}; known: {allowed}"
        raise ModelError("modelUnknown", text, retryable=False)
    yield from answers


def _matches(when: dict[str, Any], topic: str, text: str) -> bool:
    if "tick" in when and topic != f"tick {when['tick']}":
        return False
    if "tool" in when and topic != when["tool"]:
        return False
    return all(part in text for part in when.get("says", ())) and not any(
        part in text for part in when.get("lacks", ())
    )


def _respond(answer: dict[str, Any], prompt: str, on_call: CallReceiver | None) -> ModelResponse:
    usage = answer.get("usage") or {}
    text, value = _write(answer)
    tokens = TokenCounts(
        inputTokens=usage.get("inputTokens", _estimate_tokens(prompt)),
        outputTokens=usage.get("outputTokens", _estimate_tokens(text)),
        cachedTokens=usage.get("cachedTokens", 0),
        reasoningTokens=usage.get("reasoningTokens", 0),
    )
    cost = float(answer.get("cost", 0.0))
    error = answer.get("error")
    if error is not None:
        is_retryable = bool(error.get("retryable"))
        raise ModelError(error["code"], error["message"], retryable=is_retryable, tokens=tokens, cost=cost, text=text)
    if "text" in answer:
        try:
            value = read_json(text)
        except ValueError as reason:
            message = f"the answer is not JSON: {reason}"
            raise ModelError("modelNotJson", message, retryable=False, tokens=tokens, cost=cost, text=text) from reason
    if on_call is not None and isinstance(value, dict) and isinstance(value.get("calls"), list):
        for index, call in enumerate(value["calls"]):
            on_call(index, call)
    return ModelResponse(text, value, tokens, cost, requestId=None, model="scripted", strict=False)


def _write(answer: dict[str, Any]) -> tuple[str, Json]:
    """The text that the model writes, and its JSON (None where the script states the text)."""
    if "text" in answer:
        return str(answer["text"]), None
    value: Json = answer.get("output")
    if "solution" in answer:
        value = {"calls": [], "output": None, **answer["solution"]}
    elif "path" in answer:
        value = {"output": value, "path": answer["path"]}
    return json.dumps(value, ensure_ascii=False), value


def _estimate_tokens(text: str) -> int:
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)
