"""What the evaluation of expressions takes, counted: the text of templates, comparisons, values put into many places,
and why values do not fit their schemas.

Laws of this file: it counts and stops, and knows no expression. A walk has one object for all of its Calls: a small
Call may put a large value into a text, compare two large values, or pass one value in a thousand places, and ten
thousand Calls may do so in one workflow task. What is charged depends on the values alone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from acts.language.byte_cache import ByteCache
from acts.language.errors import TooComplex
from acts.language.strict_json import json_size
from acts.language.values import ABSENT, UNKNOWN, UNKNOWN_TEXT, Json, is_equal
from acts.language.work_meter import WorkMeter

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

# Characters of the text of one template, and of what one Call is sent beyond one copy of each value: no payload has
# room for more than 2 MiB
MAX_TEXT: Final = 2 * 1024 * 1024
MAX_REPEATED_BYTES: Final = 4 * 1024 * 1024
# Bytes of repeated values that are measured in one workflow task: a quarter of a second. After that, one counts as the
# most that a payload has room for: each Call of a long plan may read the whole of a list that each of them makes longer
MAX_MEASURED_BYTES: Final = 16 * 1024 * 1024
UNMEASURED_BYTES: Final = 2 * 1024 * 1024
# Bytes of values that are checked with a schema in one workflow task, each in a list or an object of its Call's own,
# which no other Call's check answers for: a second
MAX_CHECKED_BYTES: Final = 256 * 1024 * 1024
# Characters of the texts of all templates of a walk that are longer than a page: they wait in memory until their Calls
# start, and take a second to write. A run continues as new before it has sent as much
MAX_TEXTS: Final = 64 * 1024 * 1024
PAGE_OF_TEXT: Final = 1_000
# Parts of lists and objects that the conditions of a walk look at: a second
MAX_COMPARED_PARTS: Final = 2_000_000
# Paths by which the elements of Calls with ``_each`` are looked through for missing values, 3 µs each: a second
MAX_ELEMENT_READS: Final = 300_000
# Calls, and effects of messages, that are folded again in one workflow task because a message meets what Calls wrote,
# 2 µs each: a second; a message is folded again with at most 20,000 Calls
MAX_REFOLDED: Final = 500_000
# Steps of all checks of one workflow task: a second
MAX_CHECKS_OF_TASK: Final = 200_000
# JSON is written at 20 MB/s, and text copied at 1,000: a character of it is so many steps, the first time
JSON_STEPS: Final = 4
# Characters of JSON texts that are kept: what many Calls put into a text is written once
MAX_KEPT_TEXT: Final = 8 * 1024 * 1024
_ENTRY_BYTES: Final = 200
# A key and a value of an object, whose text is not known
PART_BYTES: Final = 50
# Parts of a value that are looked at before its text is written: a dry run knows no part of most results
FIRST_PARTS: Final = 100
# Values whose size is remembered; a walk's log holds them anyway
MAX_REMEMBERED: Final = 10_000


class EvaluationWork:
    """The work of one walk, or of one evaluation outside of any. Each method raises ``TooComplex`` beyond its limit.

    ``checking`` counts the steps of checks with schemas. Values that do not fit are not explained beyond its limit.
    """

    def __init__(self) -> None:
        self.texts = WorkMeter("writing the texts of the templates of this plan", MAX_TEXTS)
        self.comparisons = WorkMeter("comparing the values in the conditions of this plan", MAX_COMPARED_PARTS)
        self.element_reads = WorkMeter("reading the elements of the calls with _each of this plan", MAX_ELEMENT_READS)
        self.checking = WorkMeter("checking the values of this workflow task with their schemas", MAX_CHECKS_OF_TASK)
        self.checked = WorkMeter("checking what the calls of this workflow task put around values", MAX_CHECKED_BYTES)
        self.refolding = WorkMeter("folding messages before what the calls of this plan have written", MAX_REFOLDED)
        self._checked: set[Hashable] = set()
        self._texts: ByteCache[tuple[Json, Any]] = ByteCache(MAX_KEPT_TEXT)
        self._sizes: dict[int, tuple[Json, int]] = {}
        self._measured_bytes = 0
        self._parts: dict[int, tuple[Json, int, bool]] = {}
        self._equal: dict[tuple[int, int], tuple[Json, Json, bool]] = {}

    def begin_task(self) -> None:
        """The next workflow task has steps of its own."""
        self.checking.spent = 0
        self.checked.spent = 0
        self._checked.clear()
        self.refolding.spent = 0
        self._measured_bytes = 0
        self._sizes.clear()

    def add_text(self, length: int, added: int) -> int:
        """Count a part of the text of a template; returns its length with the part."""
        if length + added > MAX_TEXT:
            raise TooComplex(f"the text of a template is longer than the {MAX_TEXT:,} characters allowed")
        over = length + added - max(length, PAGE_OF_TEXT)
        if over > 0:
            self.texts.spend(over)
        return length + added

    def write_text(self, value: Json) -> Any:
        """A list or an object inside a text: compact JSON, or UNKNOWN_TEXT when a part of it is not known.

        Keys are sorted: the order of keys has no meaning, and may differ between two ways to the same value.
        """
        entry = self._texts.get(id(value))
        if entry is None or entry[0] is not value:
            self.texts.spend(0)  # nothing is written once the limit is reached
            if _begins_unknown(value):
                return UNKNOWN_TEXT
            entry = self._texts.put(id(value), *self._write_json(value))
        return entry[1]

    def _write_json(self, value: Json) -> tuple[tuple[Json, Any], int]:
        """A value with its text, for the cache, and the bytes that this takes there."""
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        except TypeError:  # a part of it is UNKNOWN, behind many that are known
            count = count_parts(value)[0]
            self.texts.spend(JSON_STEPS * count)
            return (value, UNKNOWN_TEXT), _ENTRY_BYTES + PART_BYTES * count
        self.texts.spend(JSON_STEPS * max(0, len(text) - PAGE_OF_TEXT))
        return (value, text), _ENTRY_BYTES + len(text)

    def add_repeated(self, bytes_so_far: int, value: Json) -> int:
        """Count a value that one Call has once more; returns the bytes of all of these."""
        total = bytes_so_far + self._size(value)
        if total > MAX_REPEATED_BYTES:
            raise TooComplex(
                "the call repeats the values that it reads: they are more than "
                f"the {MAX_REPEATED_BYTES:,} bytes allowed with every reference replaced"
            )
        return total

    def add_check(self, identity: Hashable, values: Iterable[Json]) -> None:
        """Count the check of a list or an object that holds ``values``, the first time in a workflow task."""
        if identity not in self._checked:
            self._checked.add(identity)
            self.checked.spend(sum(map(self._size, values)))

    def _size(self, value: Json) -> int:
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, (dict, list)):
            return 0
        entry = self._sizes.get(id(value))
        if entry is None or entry[0] is not value:
            if self._measured_bytes >= MAX_MEASURED_BYTES:
                return UNMEASURED_BYTES
            if len(self._sizes) >= MAX_REMEMBERED:
                self._sizes.clear()
            entry = self._sizes[id(value)] = value, json_size(value)
            self._measured_bytes += entry[1]
        return entry[1]

    def compare(self, one: Json, other: Json) -> bool | None:
        """Whether two values are equal; None where one of them has a part that is not known."""
        if not (isinstance(one, (dict, list)) or isinstance(other, (dict, list))):
            return None if _is_unknown(one) or _is_unknown(other) else is_equal(one, other)
        parts, has_unknown = self._count_parts(one)
        parts_of_other, other_has_unknown = self._count_parts(other)
        if has_unknown or other_has_unknown:
            return None
        if one is other or parts != parts_of_other:
            return one is other
        key = (id(one), id(other))
        entry = self._equal.get(key)
        if entry is None or entry[0] is not one or entry[1] is not other:
            self.comparisons.spend(parts)
            if len(self._equal) >= MAX_REMEMBERED:
                self._equal.clear()
            entry = self._equal[key] = one, other, is_equal(one, other)
        return entry[2]

    def is_known(self, value: Json) -> bool:
        """True when no part of the value is unknown."""
        return not self._count_parts(value)[1]

    def _count_parts(self, value: Json) -> tuple[int, bool]:
        """How many parts a value has, itself included, and whether one of them is not known."""
        if not isinstance(value, (dict, list)):
            return 1, _is_unknown(value)
        entry = self._parts.get(id(value))
        if entry is None or entry[0] is not value:
            self.comparisons.spend(0)  # nothing is counted once the limit is reached
            count, has_unknown = count_parts(value)
            self.comparisons.spend(count)
            if len(self._parts) >= MAX_REMEMBERED:
                self._parts.clear()
            entry = self._parts[id(value)] = value, count, has_unknown
        return entry[1], entry[2]


def _is_unknown(value: Json) -> bool:
    return value is UNKNOWN or value is UNKNOWN_TEXT


def _begins_unknown(value: Json) -> bool:
    """True when one of the first parts of a value is not known: its text need not be tried."""
    rest: list[Iterator[Json]] = [iter((value,))]
    for _ in range(FIRST_PARTS):
        part = next(rest[-1], ABSENT)
        if _is_unknown(part):
            return True
        if isinstance(part, (dict, list)):
            rest.append(iter(part.values() if isinstance(part, dict) else part))
        elif part is ABSENT:
            rest.pop()
            if not rest:
                return False
    return False


def count_parts(value: Json) -> tuple[int, bool]:
    """How many parts a value has, itself included, and whether one of them is not known."""
    count, has_unknown = 0, False
    stack = [value]
    while stack:
        part = stack.pop()
        count += 1
        if isinstance(part, dict):
            stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)
        elif _is_unknown(part):
            has_unknown = True
    return count, has_unknown
