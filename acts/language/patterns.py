r"""Patterns of JSON Schema, in an engine whose time is linear in the text: no pattern can make it backtrack.

``jsonschema-rs`` runs them in Rust's ``regex``, and reads them as ECMA-262 has them (``\d`` is ASCII, ``\p{L}`` is
known). No pattern from outside runs in Python's ``re``. What the engine cannot take (look-around, back-references)
is refused with the reason. A pattern with counted repetitions is expanded, so its size is bounded too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import jsonschema_rs

from acts.language.byte_cache import ByteCache
from acts.language.errors import truncate

# Characters that one text may be compared with, repetitions written out: ``[a-z]{2,40}`` has 40. The time for one
# character of a text grows with them, 8 ns each at worst
MAX_POSITIONS: Final = 10_000
# Bytes that a compiled pattern may take, tried in this order, with the steps of compiling it: 0.1, 1, 4 and 20 ms.
# Nearly all take less than the first; ``\p{L}+`` less than the second, ``.{1,1000}`` less than the third,
# ``[\s\S]{0,4000}`` less than the last
_SIZES: Final = {16 * 1024: 50, 256 * 1024: 500, 1024 * 1024: 2_000, 4 * 1024 * 1024: 10_000}
_MEDIUM: Final = 256 * 1024
_LARGEST: Final = max(_SIZES)
# Bytes of the automaton that the engine builds while it matches; beyond them it goes on more slowly
_AUTOMATON_BYTES: Final = 1024 * 1024
# Bytes of all compiled patterns that are kept
_CACHE_BYTES: Final = 16 * 1024 * 1024
# Positions times characters of one step of a meter
_PER_STEP: Final = 250

OPTIONS: Final = jsonschema_rs.RegexOptions(size_limit=_LARGEST, dfa_size_limit=_AUTOMATON_BYTES)
"""For a validator of a whole schema: its patterns run in the same engine."""

_LOOK_AROUND: Final = re.compile(r"\(\?<?[=!]")
_BACK_REFERENCE: Final = re.compile(r"\\(?:[1-9]|k<)")
_REPETITION: Final = re.compile(r"\{([0-9]{1,9})(,([0-9]{0,9}))?\}")
_GROUP_START: Final = re.compile(r"\((?:\?(?:P?<\w{1,60}>|[a-z-]{0,8}:))?")
_ESCAPE: Final = re.compile(r"\\(?:[pPu]\{[^}]{0,60}\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c.|.)", re.DOTALL)


class PatternError(ValueError):
    """A pattern that cannot be used, and why; ``is_too_large`` where it breaks a limit. ``steps`` found that out."""

    def __init__(self, reason: str, *, is_too_large: bool = False, steps: int = _SIZES[_LARGEST]) -> None:
        super().__init__(reason)
        self.is_too_large = is_too_large
        self.steps = steps


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern. ``size`` is the most bytes that it takes, ``positions`` as for ``MAX_POSITIONS``."""

    text: str
    positions: int
    size: int
    _validator: Any

    def matches(self, text: str) -> bool:
        """True when the pattern is found in the text."""
        return bool(self._validator.is_valid(text))

    def steps(self, characters: int) -> int:
        """The steps of a match with a text of so many characters, at worst."""
        return 1 + self.positions * characters // _PER_STEP

    @property
    def compile_steps(self) -> int:
        """The steps of compiling it."""
        return _SIZES[self.size]


_compiled: Final[ByteCache[Pattern]] = ByteCache(_CACHE_BYTES)


def compile_pattern(text: str) -> Pattern:
    """The pattern of a text.

    Raises:
        PatternError: it is no regular expression, or one that the engine cannot take.
    """
    return _compiled.get(text) or _compile(text)


def _compile(text: str) -> Pattern:
    positions = count_positions(text)
    if positions > MAX_POSITIONS:
        reason = f"the pattern {_show(text)} stands for {positions:,} characters, its repetitions written out"
        raise PatternError(f"{reason}; at most {MAX_POSITIONS:,} are allowed: say it by maxLength", is_too_large=True)
    for size in _SIZES:
        validator = _build(text, size)
        if validator is not None:
            return _compiled.put(text, Pattern(text, positions, size, validator), size)
        if size == min(_SIZES) and _build(_REPETITION.sub("?", text), _MEDIUM) is None:
            raise PatternError(f"the pattern {_show(text)} {_reason_of_refusal(text)}", steps=_SIZES[_MEDIUM])
    reason = f"the pattern {_show(text)} takes more than {_LARGEST:,} bytes when it is compiled"
    raise PatternError(f"{reason}: say it by maxLength, or with fewer repetitions", is_too_large=True)


def _build(text: str, size: int) -> Any:
    """The validator of a pattern in so many bytes, or None where it takes more or is no pattern."""
    options = jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=_AUTOMATON_BYTES)
    try:
        return jsonschema_rs.Draft202012Validator({"pattern": text}, pattern_options=options)
    except ValueError:
        return None


def _reason_of_refusal(text: str) -> str:
    """What the engine does not take in a pattern, for the end of a sentence."""
    if _LOOK_AROUND.search(text):
        return "has look-around ((?=…), (?!…) …), whose time has no bound: use allOf with several patterns, or not"
    if _BACK_REFERENCE.search(text):
        return r"has a back-reference (\1, \k<name>), whose time has no bound"
    return "is not a regular expression as ECMA-262 has it"


def _show(text: str) -> str:
    return repr(truncate(text, 80))


def count_positions(text: str) -> int:
    """How many characters a pattern stands for, its counted repetitions written out; an estimate from above.

    Linear in the text; what is no pattern gives some number.
    """
    outer: list[int] = []
    total = last = at = 0
    while at < len(text):
        char = text[at]
        if char == "\\" and (escape := _ESCAPE.match(text, at)):
            at, last = escape.end(), 1
        elif char == "[":
            at, last = _end_of_class(text, at), 1
        elif char == "(" and (start := _GROUP_START.match(text, at)):
            outer.append(total)
            at, total, last = start.end(), 0, 0
            continue
        elif char == ")" and outer:
            at, last, total = at + 1, total, outer.pop()
        elif char == "{" and (repetition := _REPETITION.match(text, at)):
            low, high = int(repetition[1]), int(repetition[3] or 0)
            total += last * (max(low + bool(repetition[2]), high, 1) - 1)
            at, last = repetition.end(), 0
            continue
        else:
            at, last = at + 1, int(char not in "*+?|^$")
        total = min(total + last, 10**12)
    return max(1, sum(outer) + total)


def _end_of_class(text: str, start: int) -> int:
    """The place after the character class that begins at ``start``."""
    at = start + 1
    while at < len(text) and text[at] != "]":
        at += 2 if text[at] == "\\" else 1
    return at + 1
