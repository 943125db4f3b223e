"""How much may come in, and how much work it may make: one table of limits, each with its reason and an advice.

What is read from outside (a Request, a definition, a Solution, an edit, a provided Message) is admitted once, where it
is read, and behind these doors code is plain. Only what no door can know is counted while a plan is walked: the sizes
of the values that references yield (``Work``). Work is counted in steps of about a microsecond, never in time: every
run and every replay stops at the same place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from acts.language.errors import TooComplex
from acts.language.values import UNKNOWN, UNKNOWN_TEXT, Json, is_equal

# Alternatives of one expression: ``(a||b)&&(c||d)&&…`` doubles them per term, and nobody writes so many by hand
MAX_ALTERNATIVES: Final = 64
# Paths of one expression: its alternatives are compared with each other, path by path
MAX_PATHS: Final = 256
# Names of one path: a value there is nested as deep as the path is long, and JSON nests 100 deep at most
MAX_NAMES: Final = 60
# Levels of parentheses in one expression: each is a few frames of recursion
MAX_PARENTHESES: Final = 64
# Characters of the text of one template: no payload has room for more
MAX_TEXT: Final = 2 * 1024 * 1024
# Bytes of what one Call is sent beyond one copy of each value
MAX_REPEATED_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limit:
    """``subject`` is what takes the steps, ``advice`` what to do when they are too many."""

    subject: str
    most: int
    advice: str


TOOLS: Final = "tools"
SUBSCHEMAS: Final = "subschemas"
PLAN: Final = "plan"
DRY_RUN: Final = "dry run"
TEXTS: Final = "texts"
TASK: Final = "task"
LIMITS: Final = {
    # 10,000 Tools of one context, at 50 µs each
    TOOLS: Limit("reading the tools of the context", 10_000, "define fewer Tools; a delegate has Tools of its own"),
    # The caches of compiled schemas have room for so many of one Request
    SUBSCHEMAS: Limit("reading the schemas of the request", 70_000, "simplify the schemas, or leave some out"),
    # A second: 20,000 Calls of ordinary size
    PLAN: Limit("reading the calls of the plan", 1_000_000, "use fewer references and alternatives, or several plans"),
    # Two seconds; a chain of 20,000 Calls takes them
    DRY_RUN: Limit("a dry run of the plan", 300_000, "validate the plan, and simulate a part of it"),
    # Characters of the texts of a walk, which wait in memory until their Calls start
    TEXTS: Limit("writing the texts of the templates of this plan", 64 * 1024 * 1024, "pass values by reference"),
    # A second and a half of the ten that a workflow task has
    TASK: Limit("evaluating the values of one call or message", 1_500_000, "compare, repeat or write smaller values"),
}


class Meter:
    __slots__ = ("limit", "spent")

    def __init__(self, name: str) -> None:
        self.limit = LIMITS[name]
        self.spent = 0

    @property
    def rest(self) -> int:
        """What is left; below 0 every further step raises."""
        return self.limit.most - self.spent

    def spend(self, steps: int) -> None:
        """Count steps; raises TooComplex when they are more than the limit in all."""
        self.spent += steps
        limit = self.limit
        if self.spent > limit.most:
            raise TooComplex(f"{limit.subject} takes more than the {limit.most:,} steps allowed; {limit.advice}")


# Bytes of JSON that are written, compared or looked through in a step
_BYTES_PER_STEP: Final = 20
# Values whose size is remembered; a walk's log holds them anyway
_MAX_REMEMBERED: Final = 10_000


class Work:
    """The work of one walk, or of one evaluation outside of any. Each method raises ``TooComplex`` beyond its limit.

    ``incomparable`` is what a comparison yields that has an absent side, or an order of values that have none.
    """

    def __init__(self, *, incomparable: Json = False) -> None:
        self.incomparable = incomparable
        self.texts = Meter(TEXTS)
        self.steps = Meter(TASK)  # of one Call
        self.task_steps = 0  # of the Calls before it in this workflow task
        self._sizes: dict[int, tuple[Json, int, bool]] = {}

    def begin_task(self) -> None:
        """Give the next workflow task steps of its own."""
        self.steps.spent = self.task_steps = 0

    def begin_call(self) -> None:
        """Give the next Call steps of its own: whether it has too many depends on nothing else."""
        self.task_steps += self.steps.spent
        self.steps.spent = 0

    @property
    def is_spent(self) -> bool:
        """True where this workflow task has done its share; what is left can wait for the next one."""
        return self.task_steps + self.steps.spent > self.steps.limit.most

    def add_text(self, length: int, added: int) -> int:
        """Count a part of the text of a template; returns its length with the part."""
        if length + added > MAX_TEXT:
            raise TooComplex(f"the text of a template is longer than the {MAX_TEXT:,} characters allowed")
        self.texts.spend(added)
        return length + added

    def write_text(self, value: Json) -> Any:
        """Return a list or an object as compact JSON, or UNKNOWN_TEXT when a part of it is not known.

        Keys are sorted: their order has no meaning, and may differ between two ways to the same value.
        """
        size, has_unknown = self._measure(value)
        if has_unknown:
            return UNKNOWN_TEXT
        self.texts.spend(0)  # nothing is written once the limit is reached
        self.steps.spend(size // _BYTES_PER_STEP)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)

    def add_repeated(self, bytes_so_far: int, value: Json) -> int:
        """Count a value that one Call has once more; returns the bytes of all of these."""
        total = bytes_so_far + self._measure(value)[0]
        if total > MAX_REPEATED_BYTES:
            raise TooComplex(
                "the call repeats the values that it reads: they are more than "
                f"the {MAX_REPEATED_BYTES:,} bytes allowed with every reference replaced"
            )
        return total

    def compare(self, one: Json, other: Json) -> bool | None:
        """Return whether two values are equal; None where one of them has a part that is not known."""
        size, has_unknown = self._measure(one)
        size_of_other, other_has_unknown = self._measure(other)
        if has_unknown or other_has_unknown:
            return None
        if one is not other:
            self.steps.spend(min(size, size_of_other) // _BYTES_PER_STEP)
        return is_equal(one, other)

    def is_known(self, value: Json) -> bool:
        return not self._measure(value)[1]

    def _measure(self, value: Json) -> tuple[int, bool]:
        """Return the size of a value, and whether a part of it is unknown; each list and object is measured once."""
        if not isinstance(value, (dict, list)):
            return measure_json(value)
        entry = self._sizes.get(id(value))
        if entry is None or entry[0] is not value:
            self.steps.spend(0)  # nothing is measured once the limit is reached
            size, has_unknown = measure_json(value)
            self.steps.spend(size // _BYTES_PER_STEP)
            if len(self._sizes) >= _MAX_REMEMBERED:
                self._sizes.clear()
            entry = self._sizes[id(value)] = value, size, has_unknown
        return entry[1], entry[2]


def measure_json(value: Json) -> tuple[int, bool]:
    """Return about the bytes of a value as JSON, without writing it, and whether a part of it is unknown."""
    size, has_unknown = 0, False
    stack = [value]
    while stack:
        part = stack.pop()
        size += 4
        if isinstance(part, dict):
            size += sum(map(len, part)) + 4 * len(part)
            stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)
        elif isinstance(part, str):
            size += len(part)
        elif part is UNKNOWN or part is UNKNOWN_TEXT:
            has_unknown = True
    return size, has_unknown
