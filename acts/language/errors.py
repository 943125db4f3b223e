"""Every error that the protocol raises on purpose. The type says whose fault it is.

ActsError
├── PlanError            the author of the Request: nothing ran
│   ├── ExpressionError  a malformed ``†`` expression; ``column`` counts from 1
│   ├── DecisionRefused  a decision that changes nothing
│   └── InvalidRequest   all problems of a Request at once
├── CallError            a Tool or its result: one Call fails, the plan continues
├── TooComplex           a check would take too long: refused, as the error of whoever asked for it
└── EngineError          the engine: a state that it must never reach

A ``Problem`` is one finding of the validator, as data: a CLI, an LLM and an editor each show it in their own way.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, fields
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Ten thousand problems help nobody, and exceed what the server keeps of a failure: 2 MB, else its type is lost too
MAX_PROBLEMS_REPORTED = 100
MAX_TEXT = 600  # characters of a message, hint or pointer
# Names that a wrong one is compared with, some 10 µs each, and characters of one: a comparison takes their product
MAX_COMPARED = 500
MAX_NAME = 100
MAX_SUMMARY = 200  # bytes of a summary; the server takes 400
# What shows nothing though it counts as printable: joiners, fillers, blanks, variation selectors, tags
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0000-\U000e0fff]"
)
# What may be more than text in a line of Markdown: HTML, code, images, links, addresses
_MARKUP: Final = re.compile(r"[<`]|\]\s*[(\[:]|//|www\.|@|mailto:", re.IGNORECASE)


class ActsError(Exception):
    """The root of all errors that the protocol raises on purpose."""


class PlanError(ActsError):
    """The Request is at fault; its author can fix it."""


class ExpressionError(PlanError):
    """A string that begins with ``†`` and is no expression; ``column`` is the place of the fault, from 1."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"{message} (column {column})")
        self.column = column


class DecisionRefused(PlanError):
    """A decision that changes nothing; the message says why."""


class CallError(ActsError):
    """A Call failed: its Tool raised, or returned a value that cannot be stored.

    ``code`` is a word that a plan can match on its error path; ``message`` is for people; ``details`` is any JSON.
    ``place`` is the file and line of a Tool in Python, for people alone.
    """

    def __init__(self, code: str, message: str, details: Any = None, place: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.details, self.place = code, message, details, place

    def to_json(self) -> dict[str, Any]:
        """``{"code", "message", "details"?}``, as written to an error path."""
        details = {} if self.details is None else {"details": self.details}
        return {"code": self.code, "message": self.message, **details}


class TooComplex(ActsError):
    """A check would take longer than a limit allows; the message names what, and the limit."""


class SettingsError(Exception):
    """A setting of the environment, or what it names, cannot be used: names both, what is there and what is allowed."""


class EngineError(ActsError):
    """The engine reached a state that it promises never to reach. Please report it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. ``pointer`` is a JSON pointer into the Request; ``call`` a call id."""

    code: str
    message: str
    pointer: str = ""
    call: str | None = None
    hint: str | None = None
    severity: str = "error"
    instance: str | None = None

    @property
    def fatal(self) -> bool:
        return self.severity == "error"

    def to_json(self) -> dict[str, Any]:
        """The wire form. Keys without a value are left out, and so is the severity of an error."""
        out = {"code": self.code, "message": self.message, "pointer": self.pointer}
        severity = None if self.fatal else self.severity
        more = {"call": self.call, "hint": self.hint, "instance": self.instance, "severity": severity}
        return out | {key: value for key, value in more.items() if value is not None}

    @classmethod
    def from_json(cls, item: dict[str, Any]) -> Problem:
        keys = [field.name for field in fields(cls)]
        return cls(**{"code": "unknown", "message": "", **{k: item[k] for k in keys if k in item}})

    def text(self) -> str:
        where = " ".join(x for x in (f"call {self.call}" if self.call else "", self.pointer) if x)
        line = f"{where}: {self.message}" if where else self.message
        return f"{line} ({self.hint})" if self.hint else line


class InvalidRequest(PlanError):
    """The Request does not validate. ``problems`` holds all of its problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(summary(self.problems))

    def to_json(self) -> list[dict[str, Any]]:
        """The first MAX_PROBLEMS_REPORTED problems, texts truncated: the first detail of the workflow's failure."""
        return [{k: truncate(v) for k, v in p.to_json().items()} for p in self.problems[:MAX_PROBLEMS_REPORTED]]


def summary(problems: Iterable[Problem]) -> str:
    """The first MAX_PROBLEMS_REPORTED problems, one per line, errors before warnings."""
    ordered = sorted(problems, key=lambda p: not p.fatal)
    head = f"the request has {len(ordered)} problem{'s' if len(ordered) != 1 else ''}"
    lines = [f"- [{p.code}] {truncate(p.text())}" for p in ordered[:MAX_PROBLEMS_REPORTED]]
    if len(ordered) > MAX_PROBLEMS_REPORTED:
        lines.append(f"- … and {len(ordered) - MAX_PROBLEMS_REPORTED} more")
    return "\n".join([head + ":", *lines])


def truncate(text: str, limit: int = MAX_TEXT) -> str:
    """The text, or its first ``limit`` characters, the last of them an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def visible(text: str, keep: str = "") -> str:
    """Text with JSON's escapes for all but ``keep`` that nobody sees, or that changes how the rest reads."""

    def show(match: re.Match[str]) -> str:
        char = match[0]
        return char if char in keep or (char.isprintable() and not _BLANK.match(char)) else json.dumps(char)[1:-1]

    return re.sub("[^ -~]", show, text)


def clean(text: object, limit: int | None = None) -> str:
    """Text on one line, of at most ``limit`` characters; see ``visible``."""
    line = visible(re.sub("[\n\t]", " ", str(text)))
    return line if limit is None else truncate(line, limit)


def shell(*words: object) -> str:
    """A command to be copied."""
    return " ".join(shlex.quote(clean(word)) for word in words)


def one_line(text: str) -> str:
    return visible(" ".join(re.split("[ \t\r\n]+", text.strip(" \t\r\n"))))


def heading(text: str, limit: int = MAX_SUMMARY) -> str:
    """Text of users as a summary, a line of Markdown: code, where it could be markup or a link."""
    line = one_line(text)
    mark = "`" if _MARKUP.search(line) else ""
    data, room = line.replace("`", "'").encode(errors="replace"), limit - 2 * len(mark)
    cut = data.decode() if len(data) <= room else data[: room - 3].decode(errors="ignore") + "…"
    return f"{mark}{cut}{mark}"


def find_similar(wrong: str, names: Iterable[str]) -> str | None:
    """The most similar of the first names, or None when none is similar; long ones are similar to none."""
    if len(wrong) > MAX_NAME:
        return None
    short = [name for name in islice(names, MAX_COMPARED) if len(name) <= MAX_NAME]
    return next(iter(get_close_matches(wrong, short, 1)), None)


def suggest(wrong: str, names: Iterable[str]) -> str | None:
    similar = find_similar(wrong, names)
    return None if similar is None else did_you_mean(similar)


def did_you_mean(right: str) -> str:
    return f'did you mean "{right}"?'


def format_choices(names: Iterable[str], limit: int = 12) -> str:
    """``a, b, c``, or ``none``: the alternatives that an error offers, sorted."""
    choices = sorted(names)
    if not choices:
        return "none"
    more = f", … ({len(choices)} in all)" if len(choices) > limit else ""
    return ", ".join(choices[:limit]) + more


def begin_json(value: Any, limit: int) -> str:
    """The beginning of a value as JSON for people: more than ``limit`` characters of it if there are more."""
    if isinstance(value, str):
        return json.dumps(value[: limit + 1], ensure_ascii=False)
    text = ""
    for part in json.JSONEncoder(ensure_ascii=False, default=lambda _: "†…").iterencode(value):  # of what is not known
        text += part
        if len(text) > limit:
            break
    return text


def brief(value: Any, limit: int = 80) -> str:
    return truncate(begin_json(value, limit).replace('"', "'"), limit)


def install_hint(extra: str) -> str:
    """The command that installs an extra of this package, from a registry or a checkout alike."""
    return f"pip install 'acts-engine[{extra}]'"
