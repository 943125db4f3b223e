"""A model that answers from a file: for examples, tests and a first run without a key.

``scripted:NAME`` reads ``NAME.json`` in a folder of ``ACTS_SCRIPTS`` (separated like
``PATH``), or in the examples that ship. The file is::

    {"answers": [{"when": {"tick": 2, "tool": "translate", "says": ["…"], "lacks": ["…"]},
                  "solution": {…} | "output": …, "path": "†…" | "text": "…"
                      | "error": {"code", "message", "retryable"?},
                  "usage": {"inputTokens": 10, …}, "cost": 0.01}]}

The first answer counts whose ``when`` fits: all ``says`` stand in the request and no
``lacks`` does; ``tick`` and ``tool`` are what is asked about. So the same request has the
same answer, whatever was asked before. What no answer fits is refused.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from activities.providers.interface import ModelError, ModelRequest, ModelResponse, Progress, Usage
from acts.language.errors import format_choices, truncate
from acts.language.values import Json

if TYPE_CHECKING:
    from collections.abc import Iterator

SHIPPED: Final = Path(__file__).resolve().parent.parent.parent / "examples"
_NAME: Final = re.compile(r"[\w-]+(/[\w-]+)*")
# What a token of English or JSON is, roughly, where a script does not say
_BYTES_PER_TOKEN: Final = 4
_KEYS: Final = frozenset({"when", "solution", "output", "path", "text", "error", "usage", "cost", "comment"})


class Scripted:
    """The adapter of ``scripted:``."""

    async def ask(self, question: ModelRequest, progress: Progress) -> ModelResponse:
        """The answer that the script has for the request."""
        text = "\n".join(block.text for block in (*question.system, *question.user))
        text += "".join(f"\n{turn.answer}\n{turn.reply}" for turn in question.turns)
        for answer in _answers(question.model):
            if _fits(answer.get("when") or {}, question.topic, text):
                return _given(answer, text, progress)
        last = question.user[-1].text if question.user else ""
        raise ModelError(
            "notInScript",
            f'the script "{question.model}" has no answer for {question.topic or "this request"}: '
            f"add one whose `when` fits; the request ends with: {truncate(last, 300)}",
            retryable=False,
        )

    def price(self, model: str) -> bool:  # noqa: ARG002 - a script costs what it says, or nothing
        """A script has its price."""
        return True


def folders() -> list[Path]:
    """Where scripts are looked for, in this order."""
    named = [Path(p) for p in os.environ.get("ACTS_SCRIPTS", "").split(os.pathsep) if p]
    return [*named, SHIPPED]


def _file(name: str) -> Path:
    if _NAME.fullmatch(name):
        for folder in folders():
            file = folder / f"{name}.json"
            if file.is_file() and file.resolve().is_relative_to(folder.resolve()):
                return file
    there = sorted(f.relative_to(d).with_suffix("").as_posix() for d in folders() for f in d.glob("**/*script*.json"))
    raise ModelError(
        "modelUnknown",
        f'there is no script "{name}" in {", ".join(map(str, folders()))}; there are: {format_choices(there)}. '
        "ACTS_SCRIPTS names the folders",
        retryable=False,
    )


def _answers(name: str) -> Iterator[dict[str, Any]]:
    file = _file(name)
    try:
        script = json.loads(file.read_text(encoding="utf-8"))
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


def _fits(when: dict[str, Any], topic: str, text: str) -> bool:
    if "tick" in when and topic != f"tick {when['tick']}":
        return False
    if "tool" in when and topic != when["tool"]:
        return False
    return all(part in text for part in when.get("says", ())) and not any(
        part in text for part in when.get("lacks", ())
    )


def _given(answer: dict[str, Any], asked: str, progress: Progress) -> ModelResponse:
    given = answer.get("usage") or {}
    text, value = _said(answer)
    usage = Usage(
        inputTokens=given.get("inputTokens", _tokens(asked)),
        outputTokens=given.get("outputTokens", _tokens(text)),
        cachedTokens=given.get("cachedTokens", 0),
        reasoningTokens=given.get("reasoningTokens", 0),
    )
    cost = float(answer.get("cost", 0.0))
    error = answer.get("error")
    if error is not None:
        raise ModelError(
            error["code"], error["message"], retryable=bool(error.get("retryable")), usage=usage, cost=cost, text=text
        )
    if "text" in answer:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as found:
            why = f"the answer is not JSON: {found}"
            raise ModelError("modelNotJson", why, retryable=False, usage=usage, cost=cost, text=text) from found
    if isinstance(value, dict) and isinstance(value.get("calls"), list):
        for index, call in enumerate(value["calls"]):
            progress(index, call)
    return ModelResponse(text, value, usage, cost, requestId=None, model="scripted", strict=False)


def _said(answer: dict[str, Any]) -> tuple[str, Json]:
    """What the model writes, and the JSON that it is."""
    if "text" in answer:
        return str(answer["text"]), None
    value: Json = None
    if "solution" in answer:
        value = {"calls": [], "output": None, **answer["solution"]}
    else:
        value = {"output": answer.get("output"), "path": answer["path"]} if "path" in answer else answer.get("output")
    return json.dumps(value, ensure_ascii=False), value


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)
