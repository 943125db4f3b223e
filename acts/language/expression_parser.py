"""The grammar of expressions, conditions and templates: from text to a tree, in one pass.

    expression  = conjunction { "||" conjunction }
    conjunction = term { "&&" term }
    term        = path | "(" expression ")"
    path        = "†" kind { "." name | "[" digits "]" | "[" JSON-string "]" }

In a condition a term of a conjunction may be a comparison, and there are negations and JSON literals:

    conjunction = comparison { "&&" comparison }
    comparison  = term [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) term ]
    term        = path | "!" term | JSON | "(" expression ")"

A template is text with expressions between ``†{`` and ``}``, whose paths may leave out their ``†``.
Every parser costs time linear in the length of its text. Errors name the column, from 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NoReturn

from acts.language.byte_cache import ByteCache
from acts.language.errors import ExpressionError
from acts.language.references import (
    COMPARISONS,
    MARK,
    PLAIN_NAME,
    AllOf,
    AnyOf,
    Comparison,
    Expression,
    Literal,
    Not,
    Path,
    TextTemplate,
)
from acts.language.strict_json import DECODER, write_json
from acts.language.values import MAX_DEPTH, Json, defect, is_unicode

OPENING: Final = f"{MARK}{{"

# Characters. The same short texts come with every instance and every tick; long ones would fill the memory
MAX_CACHED: Final = 500
# Bytes of the parsed texts of one grammar in memory: some 15,000 of ordinary length
_TREES_BYTES: Final = 16 * 1024 * 1024
# Bytes of a tree, and of it for each character of its text: "†a&&" is a path, and a place in a tuple
_TREE_BYTES: Final = 200
_CHARACTER_BYTES: Final = 50
# Nobody nests so deep by hand: each level of parentheses is a few frames of recursion
MAX_PARENTHESES: Final = 64
# A value at a path is nested as deep as the path is long, and JSON nests 100 deep at most
MAX_NAMES: Final = 60

_KIND: Final = re.compile(r"[\w-]+")
_DIGITS: Final = re.compile(r"[0-9]{1,9}(?=\])")
_SPACE: Final = re.compile(r"\s*")
_OPERATOR_STARTS: Final = frozenset(sign[0] for sign in COMPARISONS)
_JSON_STARTS: Final = frozenset('"-0123456789[{')
_WORD: Final = re.compile(r"(?:true|false|null)\b")


@dataclass(frozen=True, slots=True, eq=False)
class _Grammar:
    """What differs between the three kinds of text. ``name`` matches a name without brackets and quotes.

    ``trees`` holds what was parsed, by text.
    """

    name: re.Pattern[str]
    has_conditions: bool = False
    marks_are_optional: bool = False
    continuation: str = "., [, || or &&"
    trees: ByteCache[Expression] = field(default_factory=lambda: ByteCache(_TREES_BYTES))


_EXPRESSION: Final = _Grammar(PLAIN_NAME)
# Operators need no space around them, so a name that contains one is written in brackets
_CONDITION: Final = _Grammar(
    re.compile(r'[^.\[\]()|&"\s=!<>]+'), has_conditions=True, continuation="., [, ||, && or a comparison"
)
_IN_TEMPLATE: Final = _Grammar(
    re.compile(r'[^.\[\]()|&"\s{}]+'), marks_are_optional=True, continuation="., [, ||, && or the closing }"
)


def parse(text: str) -> Expression:
    """The tree of an expression.

    Raises:
        ExpressionError: with the column of the fault.
    """
    return _parse_cached(text, _EXPRESSION) if len(text) <= MAX_CACHED else _parse_whole(text, _EXPRESSION)


def parse_condition(text: str) -> Expression:
    """The tree of a condition. Raises as ``parse``."""
    return _parse_cached(text, _CONDITION) if len(text) <= MAX_CACHED else _parse_whole(text, _CONDITION)


def clear_caches() -> None:
    """Forget every parsed text."""
    for grammar in (_EXPRESSION, _CONDITION):
        grammar.trees.clear()


def _parse_cached(text: str, grammar: _Grammar) -> Expression:
    tree = grammar.trees.get(text)
    if tree is None:
        tree = grammar.trees.put(text, _parse_whole(text, grammar), _TREE_BYTES + _CHARACTER_BYTES * len(text))
    return tree


def _parse_whole(text: str, grammar: _Grammar) -> Expression:
    parser = _Parser(text, grammar)
    tree = parser.any_of(0)
    parser.skip_space()
    if parser.at < len(text):
        parser.fail_at_rest()
    return tree


def is_text_template(text: str) -> bool:
    """True for a string that contains ``†{``."""
    return OPENING in text


def has_expression(text: str) -> bool:
    """True for a template that contains an expression, well-formed or not: an opening brace that is not escaped."""
    at = 2 if text.startswith(MARK * 2) and not text.startswith(MARK + OPENING) else 0
    while (opening := text.find(OPENING, at)) >= 0:
        if opening == at or text[opening - 1] != MARK:
            return True
        at = opening + len(OPENING)
    return False


def parse_text_template(text: str) -> TextTemplate:
    """The parts of a template; one text alone where it has escapes (``††{``) and no expression.

    Raises:
        ExpressionError: with the column of the fault.
    """
    parts: list[str | Expression] = []
    pending: list[str] = []
    at = 0
    if text.startswith(MARK * 2) and not text.startswith(MARK + OPENING):  # as in any string: ††x is †x
        pending.append(MARK)
        at = 2
    while (opening := text.find(OPENING, at)) >= 0:
        start = opening + len(OPENING)
        if opening > at and text[opening - 1] == MARK:
            pending += [text[at : opening - 1], OPENING]
            at = start
            continue
        pending.append(text[at:opening])
        parts += [joined] if (joined := "".join(pending)) else []
        pending.clear()
        tree, at = _parse_braces(text, start)
        parts.append(tree)
    pending.append(text[at:])
    rest = "".join(pending)
    return TextTemplate((*parts, rest) if rest or not parts else tuple(parts))


def _parse_braces(text: str, start: int) -> tuple[Expression, int]:
    """The expression that begins at ``start``, and where the text goes on after its brace."""
    parser = _Parser(text, _IN_TEMPLATE, start)
    parser.skip_space()
    if parser.at == len(text):
        raise ExpressionError("the brace is not closed", start - 1)
    tree = parser.any_of(0)
    parser.skip_space()
    if parser.at == len(text):
        raise ExpressionError("the brace is not closed", start - 1)
    if text[parser.at] != "}":
        parser.fail_at_rest()
    return tree, parser.at + 1


class _Parser:
    """A recursive-descent parser; ``at`` is the next character."""

    def __init__(self, text: str, grammar: _Grammar, at: int = 0) -> None:
        self.text, self.grammar, self.at = text, grammar, at

    def fail(self, reason: str) -> NoReturn:
        raise ExpressionError(reason, self.at + 1)

    def fail_at_rest(self) -> NoReturn:
        """What comes next cannot continue an expression."""
        sign = self.text[self.at]
        if self.grammar.has_conditions and self._operator():
            self.fail("a comparison has two sides; join two comparisons with &&")
        if self.grammar.has_conditions and sign == "=":
            self.fail("a single = compares nothing; equality is ==")
        self.fail(f"unexpected {sign!r}; an expression continues with {self.grammar.continuation}")

    def skip_space(self) -> None:
        if self.text[self.at : self.at + 1].isspace():
            match = _SPACE.match(self.text, self.at)
            self.at = match.end() if match else self.at

    def accept(self, token: str) -> bool:
        """True when ``token`` comes next, after spaces; it is consumed."""
        if not self.text.startswith(token, self.at):
            before = self.at
            self.skip_space()
            if self.at == before or not self.text.startswith(token, self.at):
                return False
        self.at += len(token)
        return True

    def any_of(self, depth: int) -> Expression:
        terms = [self.all_of(depth)]
        while self.accept("||"):
            terms.append(self.all_of(depth))
        return terms[0] if len(terms) == 1 else AnyOf(tuple(terms))

    def all_of(self, depth: int) -> Expression:
        terms = [self.comparison(depth)]
        while self.accept("&&"):
            terms.append(self.comparison(depth))
        return terms[0] if len(terms) == 1 else AllOf(tuple(terms))

    def comparison(self, depth: int) -> Expression:
        left = self.term(depth)
        operator = self._operator() if self.grammar.has_conditions else None
        if operator is None:
            return left
        self.at += len(operator)
        return Comparison(operator, left, self.term(depth))

    def _operator(self) -> str | None:
        self.skip_space()
        if self.text[self.at : self.at + 1] not in _OPERATOR_STARTS:  # most expressions have none, and many parentheses
            return None
        return next((sign for sign in COMPARISONS if self.text.startswith(sign, self.at)), None)

    def term(self, depth: int) -> Expression:
        if depth > MAX_PARENTHESES:
            self.fail(f"parentheses nest deeper than {MAX_PARENTHESES}")
        if self.accept("("):
            inner = self.any_of(depth + 1)
            if not self.accept(")"):
                self.fail("a parenthesis is not closed")
            return inner
        if self.grammar.has_conditions:
            if self.accept("!"):
                return Not(self.term(depth + 1))
            if self.text[self.at : self.at + 1] in _JSON_STARTS or _WORD.match(self.text, self.at):
                return self.literal()
        if not self.accept(MARK) and not (self.grammar.marks_are_optional and _KIND.match(self.text, self.at)):
            self.fail_for_path()
        return self.path()

    def fail_for_path(self) -> NoReturn:
        """What comes next is no path."""
        rest = repr(self.text[self.at]) if self.at < len(self.text) else "the end"
        example = "state.name" if self.grammar.marks_are_optional else f"{MARK}state.name"
        others = ", a JSON value or !" if self.grammar.has_conditions else ""
        self.fail(f"expected a path like {example}{others}, found {rest}")

    def literal(self) -> Literal:
        """A JSON value, written again so that equal values are equal literals."""
        value, end = self._json("this is no valid JSON value")
        problem = defect(value, MAX_DEPTH)
        if problem:
            self.fail(f"this JSON value cannot be stored: {problem[1]}")
        self.at = end
        return Literal(write_json(value).decode())

    def _json(self, reason: str) -> tuple[Json, int]:
        try:
            return DECODER.raw_decode(self.text, self.at)
        except (ValueError, RecursionError):
            self.fail(reason)

    def path(self) -> Path:
        kind = _KIND.match(self.text, self.at)
        if not kind:
            self.fail(f"a kind (letters, digits, _ and -) must follow {MARK}")
        self.at = kind.end()
        names: list[str] = []
        while self.at < len(self.text) and self.text[self.at] in ".[":
            names.append(self.name() if self.text[self.at] == "." else self.bracket())
            if len(names) > MAX_NAMES:
                self.fail(f"a path has at most {MAX_NAMES} names")
        return Path(kind.group(), tuple(names))

    def name(self) -> str:
        self.at += 1
        name = self.grammar.name.match(self.text, self.at)
        if not name:
            self.fail('a name must follow "."; names with special characters are written ["like this"]')
        self.at = name.end()
        return name.group()

    def bracket(self) -> str:
        self.at += 1
        digits = _DIGITS.match(self.text, self.at)
        if digits:
            self.at = digits.end() + 1
            return str(int(digits.group()))
        if not self.text.startswith('"', self.at):
            self.fail("brackets hold an index or a JSON string")
        name, end = self._json("the JSON string in brackets is not closed or not valid")
        if not is_unicode(name):
            self.fail("the name is not valid Unicode: it holds a lone surrogate")
        self.at = end
        if not self.text.startswith("]", self.at):
            self.fail("a bracket is not closed")
        self.at += 1
        return str(name)
