"""What can go wrong, and who is to blame: the type says it.

ActsError
├── PlanError            the author of the Request: nothing ran
│   ├── ExpressionError  a malformed ``†`` expression; ``column`` is 1-based
│   └── InvalidRequest   every problem found, at once
├── CallError            a Tool, or what it returned: one Call fails, the plan goes on
└── EngineError          us: a state that must not be

A ``Problem`` is one finding of the validator. It is data, so that a CLI, an LLM and
an editor can each show it in their own way.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A message that lists ten thousand problems helps nobody and would not fit Temporal's
# limit for a failure (the server drops details above ~2 MB together with the type).
MAX_PROBLEMS_REPORTED = 100
MAX_TEXT = 600


class ActsError(Exception):
    """The root of all errors that the protocol raises on purpose."""


class PlanError(ActsError):
    """The Request is at fault; whoever wrote it can mend it."""


class ExpressionError(PlanError):
    """A string that begins with ``†`` and is not an expression.

    ``column`` counts characters of the string from 1.
    """

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"{message} (column {column})")
        self.reason = message
        self.column = column


class DecisionRefused(PlanError):
    """A decision that changes nothing; the message says why."""


class CallError(ActsError):
    """A Call failed: its Tool raised, or returned what cannot be stored.

    ``code`` is a word that a plan's error path can be matched on; ``message`` is for
    people; ``details`` is any JSON the Tool attached.
    """

    def __init__(self, code: str, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def to_json(self) -> dict[str, Any]:
        """``{"code", "message", "details"?}``: what an error path receives."""
        out: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details is not None:
            out["details"] = self.details
        return out


class EngineError(ActsError):
    """A state that the engine promises never to reach. Please report it."""


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
        """True when a plan with this problem must not start."""
        return self.severity == "error"

    def to_json(self) -> dict[str, Any]:
        """The wire form; keys without a value are left out."""
        out: dict[str, Any] = {"code": self.code, "message": self.message, "pointer": self.pointer}
        for key in ("call", "hint", "instance"):
            value = getattr(self, key)
            if value is not None:
                out[key] = value
        if self.severity != "error":
            out["severity"] = self.severity
        return out

    def text(self) -> str:
        """One line: where, what, how to mend it."""
        where = " ".join(x for x in (f"call {self.call}" if self.call else "", self.pointer) if x)
        line = f"{where}: {self.message}" if where else self.message
        return f"{line} ({self.hint})" if self.hint else line


class InvalidRequest(PlanError):
    """The Request does not validate. ``problems`` holds every one of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(summary(self.problems))

    def to_json(self) -> list[dict[str, Any]]:
        """The problems, capped: the first detail of the workflow's failure."""
        shown = [p.to_json() for p in self.problems[:MAX_PROBLEMS_REPORTED]]
        for item in shown:
            for key in ("message", "hint", "pointer", "call", "instance"):
                if key in item:
                    item[key] = truncate(item[key])
        return shown


def summary(problems: Iterable[Problem]) -> str:
    """All problems on lines of their own, worst first, capped."""
    ordered = sorted(problems, key=lambda p: not p.fatal)
    head = f"the request has {len(ordered)} problem{'s' if len(ordered) != 1 else ''}"
    lines = [f"- [{p.code}] {truncate(p.text())}" for p in ordered[:MAX_PROBLEMS_REPORTED]]
    if len(ordered) > MAX_PROBLEMS_REPORTED:
        lines.append(f"- … and {len(ordered) - MAX_PROBLEMS_REPORTED} more")
    return "\n".join([head + ":", *lines])


def truncate(text: str, limit: int = MAX_TEXT) -> str:
    """Text that fits a line of an error, a summary or a table."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def find_similar(wrong: str, names: Iterable[str]) -> str | None:
    """The name most like ``wrong``, if any is like it."""
    return next(iter(get_close_matches(wrong, list(names), 1)), None)


def suggest(wrong: str, names: Iterable[str]) -> str | None:
    """``did you mean "…"?``, if one of the names is like ``wrong``."""
    similar = find_similar(wrong, names)
    return None if similar is None else f'did you mean "{similar}"?'


def format_choices(names: Iterable[str], limit: int = 12) -> str:
    """``a, b, c`` or ``none``: the alternatives an error offers."""
    listed = sorted(names)
    if not listed:
        return "none"
    more = f", … ({len(listed)} in all)" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more
