"""``†`` expressions: their grammar, the trees that they become, what these yield, and where they are in JSON values.

An expression names values of the context, compares them and chooses one; a template puts them into a text. Every
(sub)expression is absent, null, or a value. A value replaces its whole expression and is never parsed again, so nothing
that a Tool returns can become an expression.

    expression  = disjunction [ "?" expression ":" expression ]
    disjunction = conjunction { "||" conjunction }
    conjunction = negation { "&&" negation }
    negation    = "!" negation | comparison
    comparison  = term [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) term ]
    term        = path | "(" expression ")" | "!" term | JSON
    path        = "†" kind { "." name | "[" digits "]" | "[" JSON-string "]" | "[*]" | "[†index]" }

A value begins with ``†``, a condition (of ``_when``) with anything. A template is text with expressions between ``†{``
and ``}``, whose paths may leave out their ``†``. A string without ``†`` is literal. The parser costs time linear in the
length of its text; errors name the column, from 1. Where values come from is not known here: readers pass a ``read``
function.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from itertools import product
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

from acts.language.admission import MAX_ALTERNATIVES, MAX_NAMES, MAX_PARENTHESES, MAX_PATHS, Work
from acts.language.errors import ExpressionError, Problem, truncate
from acts.language.strict_json import DECODER, write_json
from acts.language.values import (
    ABSENT,
    UNKNOWN,
    UNKNOWN_TEXT,
    Json,
    Place,
    defect,
    get,
    is_unicode,
    pointer,
    replace_parts,
)

MARK: Final = "†"
OPENING: Final = f"{MARK}{{"
CHOICE: Final = "?:"
COMPARISONS: Final = ("==", "!=", "<=", ">=", "<", ">")  # the longer ones first, as a parser tries them
# The kinds of the two paths that a Call with ``_each`` has for each of its elements
ITEM: Final = "item"
INDEX: Final = "index"
ELEMENT_KINDS: Final = frozenset({ITEM, INDEX})

# A name that a path may have without brackets and quotes; and one that may so in conditions and templates too
_PLAIN_NAME: Final = re.compile(r'[^.\[\]()|&"\s]+')
_PLAIN_EVERYWHERE: Final = re.compile(r'[^.\[\]()|&"\s=!<>{}]+')
_SPACE: Final = re.compile(r"\s*")
_KIND: Final = re.compile(r"[\w-]+")
_DIGITS: Final = re.compile(r"[0-9]{1,9}(?=\])")
_JSON_STARTS: Final = frozenset('"-0123456789[{')
_WORD: Final = re.compile(r"(?:true|false|null)\b")
# A number or a word between braces, where a kind may stand without its mark
_UNMARKED_LITERAL: Final = re.compile(r"(?:-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)(?![\w.\[-])")
_ESCAPED_INSIDE: Final = re.compile(rf"{MARK}{MARK}(?=[\w-])")
# What looks like a path inside a text: a kind, a dot, and mostly names
_EMBEDDED: Final = re.compile(rf"(?<!{MARK}){MARK}([\w-]+)(?:(\.)((?:[\w-]+(?:\.[\w-]+)*)?))?")
# Characters of a text. The same short ones come with every instance and every tick: 4,000 trees have 20 MB at most
_MAX_CACHED: Final = 100


@dataclass(frozen=True, slots=True)
class Path:
    """``†kind.name.name``. An index is a name of digits: ``.0`` and ``[0]`` are the same."""

    kind: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        quoted = [
            f".{n}" if _PLAIN_EVERYWHERE.fullmatch(n) else f"[{json.dumps(n, ensure_ascii=False)}]" for n in self.names
        ]
        return f"{MARK}{self.kind}{''.join(quoted)}"

    def holds(self, other: Path) -> bool:
        """True when ``other`` is this path or below it."""
        return self.kind == other.kind and other.names[: len(self.names)] == self.names

    def overlaps(self, other: Path) -> bool:
        return self.holds(other) or other.holds(self)

    def prefixes(self) -> list[Path]:
        """The paths above this one, the shortest first."""
        return [Path(self.kind, self.names[:depth]) for depth in range(len(self.names))]


Read = Callable[[Path], Json]
"""Gives the value at a path, or ABSENT."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A JSON value in a condition, or a text with escapes. ``text`` is its JSON: equal texts are equal literals."""

    text: str

    @property
    def value(self) -> Json:
        is_plain = self.text.startswith('"') and "\\" not in self.text
        return self.text[1:-1] if is_plain else json.loads(self.text)

    def __str__(self) -> str:
        return self.text


class Step(Enum):
    """What a path does with a list, beside taking an item by its number."""

    EVERY = "[*]"
    CURRENT = f"[{MARK}{INDEX}]"


@dataclass(frozen=True, slots=True)
class Projection:
    """Parts of a list: ``†state.orders[*].id`` of each element, ``†state.orders[†index].id`` of the one at a position.

    ``steps`` are what follows the list, a Step first.
    """

    source: Path
    steps: tuple[str | Step, ...]

    def __str__(self) -> str:
        names = [step.value if isinstance(step, Step) else str(Path("", (step,)))[1:] for step in self.steps]
        return f"{self.source}{''.join(names)}"

    @property
    def makes_list(self) -> bool:
        return Step.EVERY in self.steps

    @property
    def of_first(self) -> Path:
        """The path of what it reads of the first element."""
        return Path(self.source.kind, (*self.source.names, *("0" if isinstance(s, Step) else s for s in self.steps)))


@dataclass(frozen=True, slots=True)
class Operation:
    """Terms with a sign: ``||`` is the first that is a value, ``&&`` the last when all are, ``!``, or a comparison;
    ``?:`` is the second if the first holds, else the third.
    """

    sign: str
    terms: tuple[Expression, ...]

    def __str__(self) -> str:
        enclosed = {"?:": (CHOICE,), "||": (CHOICE,), "&&": (CHOICE, "||")}
        every = (CHOICE, "||", "&&", *COMPARISONS)
        inner = enclosed.get(self.sign, every if self.sign == "!" else (*every, "!"))
        texts = [f"({t})" if isinstance(t, Operation) and t.sign in inner else str(t) for t in self.terms]
        if self.sign == CHOICE:
            return f"{texts[0]} ? {texts[1]} : {texts[2]}"
        return f" {self.sign} ".join(texts) if len(texts) > 1 else f"{self.sign}{texts[0]}"

    @property
    def accepts_absence(self) -> bool:
        """True for ``== null``: the one comparison that holds of what is absent."""
        return self.sign == "==" and Literal("null") in self.terms


@dataclass(frozen=True, slots=True)
class TextTemplate:
    """``Dear †{user.name}``: texts and expressions, in their order."""

    parts: tuple[str | Expression, ...]

    def __str__(self) -> str:
        return "".join(p if isinstance(p, str) else f"{MARK}{{{p}}}" for p in self.parts)


Expression = Path | Projection | Literal | Operation | TextTemplate


def operands(tree: Expression) -> tuple[Expression, ...]:
    if isinstance(tree, TextTemplate):
        return tuple(part for part in tree.parts if not isinstance(part, str))
    if isinstance(tree, Projection):
        return (tree.source, Path(INDEX)) if Step.CURRENT in tree.steps else (tree.source,)
    return tree.terms if isinstance(tree, Operation) else ()


def subtrees(tree: Expression) -> Iterator[Expression]:
    """An expression and all that it is made of."""
    yield tree
    for part in operands(tree):
        yield from subtrees(part)


def unescape_inside(text: str) -> str:
    """A text in which ``††x`` stands for a plain ``†x``; the beginning of a whole string is not read here."""
    return _ESCAPED_INSIDE.sub(MARK, text) if MARK * 2 in text else text


def escape_literal(text: str) -> str:
    """How a Call writes a text in which nothing is read: ``parse_marked`` yields it as it is."""
    return re.sub(rf"^{MARK}|{MARK}(?=[\w{{-])", MARK * 2, text)


# -- what a tree yields --------------------------------------------------------


def evaluate(tree: Expression, read: Read, work: Work | None = None, *, in_condition: bool = False) -> Json:
    """What an expression yields: ABSENT, None, or a value; ``work`` counts, and raises TooComplex. To ``&&`` and ``||``
    false is a value, but where they join conditions, or are a part of one: there it does not hold.
    """
    if isinstance(tree, Path):
        return read(tree)
    if isinstance(tree, Literal):
        return tree.value
    if not isinstance(tree, Operation):
        work = work or Work()
        return _fill(tree, read, work) if isinstance(tree, TextTemplate) else _project(tree, read, work)
    if tree.sign == CHOICE:
        chosen = choose(tree, read, work)
        return UNKNOWN if chosen is UNKNOWN else evaluate(chosen, read, work, in_condition=in_condition)
    if tree.sign not in ("||", "&&"):
        return holds(tree, read, work)
    in_condition = in_condition or joins_conditions(tree)
    nothing = (ABSENT, None, False) if in_condition else (ABSENT, None)
    results = [evaluate(term, read, work, in_condition=in_condition) for term in tree.terms]
    values = [result for result in results if not any(result is one for one in nothing)]
    if tree.sign == "||":
        return values[0] if values else next(one for one in nothing[::-1] if one in results)
    if len(values) < len(results):
        return next(one for one in nothing if one in results)
    return UNKNOWN if in_condition and UNKNOWN in results else results[-1]


def joins_conditions(tree: Expression) -> bool:
    """True for ``&&`` and ``||`` with a comparison or a ``!`` among what they join."""
    if not isinstance(tree, Operation) or tree.sign not in ("||", "&&"):
        return False
    signs = ("!", *COMPARISONS)
    return any(isinstance(term, Operation) and (term.sign in signs or joins_conditions(term)) for term in tree.terms)


def choose(choice: Operation, read: Read, work: Work | None = None) -> Any:
    """The term of ``c ? a : b`` that is its value, or UNKNOWN where a dry run cannot say."""
    condition, then, otherwise = choice.terms
    is_met = holds(condition, read, work)
    return UNKNOWN if is_met is UNKNOWN else then if is_met else otherwise


def _project(projection: Projection, read: Read, work: Work) -> Json:
    def follow(value: Json, steps: tuple[str | Step, ...]) -> Json:
        for at, step in enumerate(steps):
            if step is Step.EVERY:
                if not isinstance(value, list):
                    return UNKNOWN if value is UNKNOWN else ABSENT
                work.steps.spend(len(value) * (1 + (len(steps) - at) // 4))  # what an element has may be deep inside
                parts = [follow(item, steps[at + 1 :]) for item in value]
                return [None if part is ABSENT else part for part in parts]
            name = read(Path(INDEX)) if step is Step.CURRENT else step
            if name is UNKNOWN:
                return UNKNOWN
            value = get(value, (str(name),))
            if value is ABSENT:
                break
        return value

    return follow(read(projection.source), projection.steps)


def _fill(template: TextTemplate, read: Read, work: Work) -> Json:
    values = [unescape_inside(p) if isinstance(p, str) else evaluate(p, read, work) for p in template.parts]
    if any(value is ABSENT for value in values):
        return ABSENT
    texts: list[str] = []
    length = 0
    for value in values:
        text = value or ""  # strings as they are, null as nothing, anything else as compact JSON
        if isinstance(value, (dict, list)):
            text = work.write_text(value)
        elif value is not None and not isinstance(value, str):
            text = UNKNOWN_TEXT if value is UNKNOWN or value is UNKNOWN_TEXT else json.dumps(value)
        if text is UNKNOWN_TEXT:
            return UNKNOWN_TEXT
        length = work.add_text(length, len(text))
        texts.append(text)
    return "".join(texts)


def holds(tree: Expression, read: Read, work: Work | None = None) -> Any:
    """Whether a condition holds: True, False, or UNKNOWN where a dry run cannot say.

    An operand of ``!``, ``&&`` and ``||`` holds when it yields a value other than false. Raises as ``evaluate``.
    """
    work = work or Work()
    if not isinstance(tree, Operation):
        value = evaluate(tree, read, work)
        return UNKNOWN if value is UNKNOWN else value is not ABSENT and value is not None and value is not False
    if tree.sign in COMPARISONS:
        return _compare(tree, read, work)
    if tree.sign == CHOICE:
        chosen = choose(tree, read, work)
        return UNKNOWN if chosen is UNKNOWN else holds(chosen, read, work)
    results = [holds(term, read, work) for term in tree.terms]
    if tree.sign == "!":
        return UNKNOWN if results[0] is UNKNOWN else not results[0]
    decisive = tree.sign == "||"  # one operand that holds decides ``||``, one that does not ``&&``
    if decisive in results:
        return decisive
    return UNKNOWN if UNKNOWN in results else not decisive


def _compare(comparison: Operation, read: Read, work: Work) -> Any:
    sides = [evaluate(term, read, work) for term in comparison.terms]
    if comparison.accepts_absence:
        sides = [None if side is ABSENT else side for side in sides]
    left, right = sides
    if left is ABSENT or right is ABSENT:
        return work.incomparable
    sign = comparison.sign
    if sign in ("==", "!="):
        are_equal = work.compare(left, right)
        return UNKNOWN if are_equal is None else are_equal is (sign == "==")
    if not (work.is_known(left) and work.is_known(right)):
        return UNKNOWN
    types = (int, float) if isinstance(left, (int, float)) else str
    if not all(isinstance(side, types) and not isinstance(side, bool) for side in sides):
        return work.incomparable
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]


def paths(tree: Expression) -> tuple[Path, ...]:
    return (tree,) if isinstance(tree, Path) else tuple([path for term in operands(tree) for path in paths(term)])


def is_provided(tree: Expression, has: Callable[[Path], bool]) -> bool:
    """Return True when ``has`` is true of every path of one alternative of the expression."""
    if isinstance(tree, Path):
        return has(tree)
    if isinstance(tree, Operation) and tree.sign == CHOICE:
        return is_provided(tree.terms[0], has) and any(is_provided(term, has) for term in tree.terms[1:])
    is_any = isinstance(tree, Operation) and tree.sign == "||"
    return (any if is_any else all)(is_provided(term, has) for term in operands(tree))


def may_yield(tree: Expression, has: Callable[[Path], bool]) -> bool:
    """Return True when an expression is not certainly absent where only the paths that ``has`` tells have a value."""
    if isinstance(tree, Path):
        return has(tree)
    if not isinstance(tree, Operation) or tree.sign == "&&":
        return all(may_yield(term, has) for term in operands(tree))
    terms = tree.terms[1:] if tree.sign == CHOICE else tree.terms
    return tree.sign not in ("||", CHOICE) or any(may_yield(term, has) for term in terms)


def alternatives(tree: Expression) -> tuple[tuple[Path, ...], ...]:
    """Return the alternatives of an expression as conjunctions; raises ExpressionError when they are too many."""
    if not isinstance(tree, Path) and len(paths(tree)) > MAX_PATHS:
        raise ExpressionError(f"more than {MAX_PATHS} paths", 1)
    return _combine(tree)


def _combine(tree: Expression) -> tuple[tuple[Path, ...], ...]:
    if isinstance(tree, Path):
        return ((tree,),)
    sign = tree.sign if isinstance(tree, Operation) else None
    parts = [_combine(term) for term in operands(tree)]
    if sign == CHOICE:
        parts = [parts[0], parts[1] + parts[2]]
    is_any = sign == "||"
    if (sum if is_any else math.prod)(map(len, parts)) > MAX_ALTERNATIVES:
        raise ExpressionError(f"more than {MAX_ALTERNATIVES} alternatives", 1)
    if is_any:
        return tuple([option for part in parts for option in part])
    return tuple(tuple(dict.fromkeys(path for option in choice for path in option)) for choice in product(*parts))


def conjunction(paths_: Iterable[Path]) -> str:
    return " && ".join(map(str, paths_))


# -- the parser ----------------------------------------------------------------


def parse(text: str, *, is_condition: bool = False) -> Expression:
    """The tree of an expression, or of a condition. Raises ExpressionError: with the column of the fault."""
    return (parse_cached if len(text) <= _MAX_CACHED else _parse)(text, is_condition=is_condition)


parse_condition: Final = partial(parse, is_condition=True)


def parse_output(text: str) -> Expression:
    """The tree of an output path: paths with ``||`` and ``&&``. Raises ExpressionError."""
    tree = parse(text)
    if not _is_plain(tree):
        raise ExpressionError("an output path is made of paths, || and && alone", 1)
    return tree


def _parse(text: str, *, is_condition: bool) -> Expression:
    parser = _Parser(text, is_condition=is_condition)
    tree = parser.expression(0)
    parser.skip_space()
    if parser.at < len(text):
        parser.fail_at_rest()
    return tree


parse_cached: Final = lru_cache(maxsize=4_000)(_parse)


@lru_cache(maxsize=16)  # those of a Call, which is read and then checked; each may have 2 MB
def parse_text_template(text: str) -> TextTemplate:
    """The parts of a template, one text alone where it has no expression; raises ExpressionError."""
    parts: list[str | Expression] = []
    trees: dict[str, Expression] = {}  # a long text may repeat one expression thousands of times
    pending: list[str] = []
    at = 0
    if text.startswith(MARK * 2) and not text.startswith(MARK + OPENING):  # as in any string: ††x is †x
        pending, at = [MARK], 2
    while (opening := text.find(OPENING, at)) >= 0:
        start = opening + len(OPENING)
        if opening > at and text[opening - 1] == MARK:
            pending += [text[at : opening - 1], OPENING]
            at = start
            continue
        end = text.find("}", start)
        tree = trees.get(text[start : end + 1])
        if tree is None:
            tree, end = _parse_braces(text, start)
            trees[text[start : end + 1]] = tree
        parts += ["".join([*pending, text[at:opening]]), tree]
        pending, at = [], end + 1
    parts.append("".join([*pending, text[at:]]))
    return TextTemplate(tuple(part for part in parts if part))


def _parse_braces(text: str, start: int) -> tuple[Expression, int]:
    """The expression of a template that begins at ``start``, and where its closing brace is."""
    parser = _Parser(text, start, in_braces=True)
    parser.skip_space()
    tree = parser.expression(0) if parser.at < len(text) else None
    parser.skip_space()
    if tree is None or parser.at == len(text):
        raise ExpressionError("the brace is not closed", start - 1)
    if text[parser.at] != "}":
        parser.fail_at_rest()
    return tree, parser.at


class _Parser:
    """A recursive-descent parser; ``at`` is the next character."""

    def __init__(self, text: str, at: int = 0, *, is_condition: bool = False, in_braces: bool = False) -> None:
        self.text, self.at = text, at
        self.marks_are_optional = in_braces
        # In conditions and braces, operators need no space around them: a name that contains one is in brackets there
        self.plain_name = _PLAIN_EVERYWHERE if is_condition or in_braces else _PLAIN_NAME

    def fail(self, reason: str) -> NoReturn:
        raise ExpressionError(reason, self.at + 1)

    def fail_at_rest(self) -> NoReturn:
        sign = self.text[self.at]
        if self._operator():
            self.fail("a comparison has two sides; join two comparisons with &&")
        if sign == "=":
            self.fail("a single = compares nothing; equality is ==")
        self.fail(f"unexpected {sign!r}; an expression continues with ., [, ||, &&, ? or a comparison")

    def skip_space(self) -> None:
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]

    def accept(self, token: str) -> bool:
        self.skip_space()
        is_next = self.text.startswith(token, self.at)
        self.at += len(token) if is_next else 0
        return is_next

    def expression(self, depth: int) -> Expression:
        condition = self.any_of(depth)
        if not self.accept("?"):
            return condition
        if depth > MAX_PARENTHESES:
            self.fail(f"choices nest deeper than {MAX_PARENTHESES}")
        then = self.expression(depth + 1)
        if not self.accept(":"):
            self.fail('a choice is written "c ? a : b", with spaces around the colon')
        return Operation(CHOICE, (condition, then, self.expression(depth + 1)))

    def any_of(self, depth: int, sign: str = "||") -> Expression:
        terms: list[Expression] = []
        while not terms or self.accept(sign):
            terms.append(self.any_of(depth, "&&") if sign == "||" else self.negation(depth))
        return terms[0] if len(terms) == 1 else Operation(sign, tuple(terms))

    def negation(self, depth: int) -> Expression:
        if depth <= MAX_PARENTHESES and self.accept("!"):  # of a whole comparison
            return Operation("!", (self.negation(depth + 1),))
        return self.comparison(depth)

    def comparison(self, depth: int) -> Expression:
        left = self.term(depth)
        operator = self._operator()
        if operator is None:
            return left
        self.at += len(operator)
        return Operation(operator, (left, self.term(depth)))

    def _operator(self) -> str | None:
        self.skip_space()
        if self.text[self.at : self.at + 1] not in "=!<>":  # most expressions have none, and many parentheses
            return None
        return next((sign for sign in COMPARISONS if self.text.startswith(sign, self.at)), None)

    def term(self, depth: int) -> Expression:
        if depth > MAX_PARENTHESES:
            self.fail(f"parentheses nest deeper than {MAX_PARENTHESES}")
        if self.accept("("):
            inner = self.expression(depth + 1)
            if not self.accept(")"):
                self.fail("a parenthesis is not closed")
            return inner
        if self.accept("!"):
            return Operation("!", (self.term(depth + 1),))
        if self._is_at_literal():
            return self.literal()
        if not self.accept(MARK) and not (self.marks_are_optional and _KIND.match(self.text, self.at)):
            rest = repr(self.text[self.at]) if self.at < len(self.text) else "the end"
            self.fail(f"expected a path like {MARK}state.name, found {rest}")
        return self.path()

    def _is_at_literal(self) -> bool:
        sign = self.text[self.at : self.at + 1]
        if self.marks_are_optional and sign not in '"[{':
            return _UNMARKED_LITERAL.match(self.text, self.at) is not None
        return sign in _JSON_STARTS or _WORD.match(self.text, self.at) is not None

    def literal(self) -> Literal:
        """A JSON value, written again so that equal values are equal literals."""
        value, end = self._json("this is no valid JSON value")
        problem = defect(value)
        if problem:
            self.fail(f"this JSON value cannot be stored: {problem[1]}")
        self.at = end
        return Literal(write_json(value).decode())

    def _json(self, reason: str) -> tuple[Json, int]:
        try:
            return DECODER.raw_decode(self.text, self.at)
        except (ValueError, RecursionError):
            self.fail(reason)

    def path(self) -> Path | Projection:
        kind = _KIND.match(self.text, self.at)
        if not kind:
            self.fail(f"a kind (letters, digits, _ and -) must follow {MARK}")
        self.at = kind.end()
        names: list[str | Step] = []
        while self.at < len(self.text) and self.text[self.at] in ".[":
            self.at += 1
            name = None if self.text[self.at - 1] == "[" else self.plain_name.match(self.text, self.at)
            if name:
                self.at = name.end()
            elif self.text[self.at - 1] == ".":
                self.fail('a name must follow "."; names with special characters are written ["like this"]')
            names.append(name.group() if name else self.bracket())
            if len(names) > MAX_NAMES:
                self.fail(f"a path has at most {MAX_NAMES} names")
        first = next((at for at, name in enumerate(names) if isinstance(name, Step)), len(names))
        source = Path(kind.group(), tuple(map(str, names[:first])))
        return Projection(source, tuple(names[first:])) if first < len(names) else source

    def bracket(self) -> str | Step:
        for step in Step:
            if self.text.startswith(step.value, self.at - 1):
                self.at += len(step.value) - 1
                return step
        digits = _DIGITS.match(self.text, self.at)
        if digits:
            self.at = digits.end() + 1
            return str(int(digits.group()))
        if not self.text.startswith('"', self.at):
            self.fail(f"brackets hold an index, *, {MARK}{INDEX} or a JSON string")
        name, end = self._json("the JSON string in brackets is not closed or not valid")
        if not is_unicode(name):
            self.fail("the name is not valid Unicode: it holds a lone surrogate")
        self.at = end
        if not self.text.startswith("]", self.at):
            self.fail("a bracket is not closed")
        self.at += 1
        return str(name)


def is_reference(value: Json) -> bool:
    """True for a string that is an expression (``†x``, neither ``††x`` nor a template)."""
    return isinstance(value, str) and value[:1] == MARK and value[1:2] != MARK and OPENING not in value


def parse_marked(text: str) -> Expression:
    """What a string with a ``†`` stands for: an expression, a template, or a literal text; raises ExpressionError."""
    if is_reference(text):
        return parse(text)
    if OPENING in text:
        template = parse_text_template(text)
        if operands(template):
            return template
        text = unescape_inside("".join(map(str, template.parts)))
    else:  # ``††x`` is the string ``†x``, at the beginning of a text and inside it
        text = MARK + unescape_inside(text[2:]) if text.startswith(MARK * 2) else unescape_inside(text)
    return Literal(encode_basestring(text))


def unread_value(text: str) -> Json:
    """The value of a planned string while nothing is read: UNKNOWN, UNKNOWN_TEXT, or its text."""
    if MARK not in text:
        return text
    if is_reference(text):
        return UNKNOWN
    try:
        tree = parse_marked(text)
    except ExpressionError:
        return UNKNOWN_TEXT
    return tree.value if isinstance(tree, Literal) else UNKNOWN_TEXT


@dataclass(frozen=True, slots=True)
class ReferenceUse:
    """One expression, template, condition or escaped text inside a JSON value. ``at`` leads to it: keys and indexes.

    ``paths`` are those of the context: in a Call with ``_each``, all but ``†item`` and ``†index``.
    """

    at: Place
    text: str
    tree: Expression
    paths: tuple[Path, ...]
    is_of_element: bool = False

    @classmethod
    def of(cls, at: Place, text: str, tree: Expression, *, each: bool = False) -> ReferenceUse:
        """The use of a tree; ``each``: in the parameters of a Call with ``_each``."""
        every = paths(tree)
        own = tuple(path for path in every if path.kind not in ELEMENT_KINDS) if each else every
        return cls(at, text, tree, own, len(own) < len(every))

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The expressions that are read one by one: those of a template, else the tree itself."""
        return operands(self.tree) if isinstance(self.tree, TextTemplate) else (self.tree,)

    def absent_texts(self, read: Read) -> list[str]:
        """What of a use that is absent to name: of a template the expressions that are, not the text around them."""
        if not isinstance(self.tree, TextTemplate):
            return [self.text]
        return [str(tree) for tree in self.expressions if evaluate(tree, read) is ABSENT]

    @property
    def needed_expressions(self) -> tuple[Expression, ...]:
        """The joined expressions that must yield something for a value, or for a condition that holds."""
        if isinstance(self.tree, (Path, Literal)):
            return ()
        return tuple(term for tree in self.expressions for term in _needed_terms(tree))


def _needed_terms(tree: Expression) -> Iterator[Expression]:
    """The terms of a condition without which it cannot hold; a plain expression is its own."""
    if _is_plain(tree):
        yield tree
    elif isinstance(tree, Operation) and tree.sign not in ("||", "!") and not tree.accepts_absence:
        for part in tree.terms:
            yield from _needed_terms(part)


def _is_plain(tree: Expression) -> bool:
    is_joined = isinstance(tree, Operation) and tree.sign in ("||", "&&")
    return all(map(_is_plain, operands(tree))) if is_joined else isinstance(tree, Path)


def scan_strings(value: Json, *at: str | int) -> Iterator[tuple[Place, str]]:
    """Yield each string of ``value``, with its place."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, (dict, list)):
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(child, (str, dict, list)):
                yield from scan_strings(child, *at, key)


def scan_marked(value: Json, *at: str | int) -> Iterator[tuple[Place, str]]:
    """Yield each string of ``value`` that contains ``†``, with its place."""
    return ((place, text) for place, text in scan_strings(value, *at) if MARK in text)


def scan(value: Json, *at: str | int) -> Iterator[tuple[Place, str]]:
    return ((place, text) for place, text in scan_marked(value, *at) if is_reference(text) or OPENING in text)


def resolve_references(
    value: Json, uses: Iterable[ReferenceUse], read: Read, work: Work | None = None
) -> tuple[Json, list[ReferenceUse]]:
    """``value`` with each of its ``uses`` replaced by what it yields, and the uses that are absent.

    What is absent keeps its text. ``value`` is not changed: what holds no replacement is shared with it. Raises
    TooComplex: the texts or the values that are repeated in it are more than is allowed (see ``Work``).
    """
    work = work or Work()
    replacements: list[tuple[Place, Json]] = []
    missing = []
    present: set[Any] = set()
    repeated = 0
    for use in uses:
        result = evaluate(use.tree, read, work)
        if result is ABSENT:
            missing.append(use)
            continue
        replacements.append((use.at, result))
        # A projection makes its list anew, whatever is repeated in it
        identity = Projection if any(isinstance(tree, Projection) for tree in subtrees(use.tree)) else id(result)
        if identity in present:
            repeated = work.add_repeated(repeated, result)
        present.add(identity)
    return replace_parts(value, replacements), missing


def find_embedded(use: ReferenceUse, kinds: Container[str], *, each: bool = False) -> Problem | None:
    """The problem of a string with what a reader would take for a reference in plain text; ``each``: as in ``of``."""
    parts: tuple[Any, ...] = use.tree.parts if isinstance(use.tree, TextTemplate) else ()
    if isinstance(use.tree, Literal):
        parts = (use.text.removeprefix(MARK * 2),)
    for match in (match for part in parts if isinstance(part, str) for match in _EMBEDDED.finditer(part)):
        kind, dot, names = match.groups()
        if (dot and kind in kinds) or (each and kind in ELEMENT_KINDS):
            path = f"{kind}.{names}" if names else kind
            corrected = truncate(use.text.replace(MARK + path, f"{OPENING}{path}}}", 1), 200)
            hint = f'a template puts a value into a text: "{corrected}"; plain text is written {MARK}{MARK}{path}'
            message = f"{MARK}{path} is inside a text, where nothing replaces it"
            return Problem("embeddedReference", message, pointer(*use.at), hint=hint)
    return None
