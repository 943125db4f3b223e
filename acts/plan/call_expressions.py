"""Reads the expressions of one Call: those of its parameters, its condition, its elements and its scopes.

Each is parsed here, once, and what is wrong with it is reported with its place in the Call. What an
expression may refer to is not known here, with one exception: ``†item`` and ``†index`` are the element of
a Call with ``_each``, in its parameters and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from acts.language.errors import ExpressionError, Problem, truncate
from acts.language.expression_parser import OPENING, is_text_template, parse, parse_condition
from acts.language.reference_uses import (
    ELEMENT_KINDS,
    INDEX,
    ITEM,
    EmbeddedReference,
    Escape,
    ReferenceUse,
    find_embedded,
    parse_marked,
    scan_marked,
)
from acts.language.references import MARK, Expression, Literal, Path, TextTemplate, count_alternatives, operands
from acts.language.tools import META
from acts.language.values import Json, Place, pointer, type_name
from acts.language.wire import TOO_COMPLEX

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from acts.plan.planned_call import PlannedCall

WHEN: Final = "_when"
EACH: Final = "_each"
# The results of all elements are one value, and that of a Call has to fit one payload of 2 MB
MAX_ELEMENTS: Final = 10_000
# Expressions that each element reads: 2,000 elements may start in one workflow task, at 2 µs for each expression
MAX_ELEMENT_EXPRESSIONS: Final = 256
# Parts of the lists and objects that are copied for each element: 80 kB of memory, 2,000 times
MAX_ELEMENT_COPY: Final = 10_000
# Malformed expressions of a Call that are reported, each with a place and a hint: nobody reads more
MAX_MALFORMED: Final = 100


class Report(Protocol):
    """Reports a problem of the Call; ``at`` leads from the Call to the part that is wrong."""

    def __call__(self, code: str, message: str, *at: str | int, hint: str | None = None) -> None: ...


class CallExpressions:
    """The expressions of one Call, its Tool's constants included."""

    def __init__(self, call: Mapping[str, Json], report: Report) -> None:
        self._call, self._report = call, report
        self.embedded: list[EmbeddedReference] = []
        self._malformed = 0

    @property
    def _is_each(self) -> bool:
        return EACH in self._call

    def parse(self, text: Json, *at: str | int) -> Expression | None:
        """The tree of an expression that stands alone; None when it is malformed, which is reported."""
        if not isinstance(text, str):
            self._report("invalidExpression", f"an expression is a string, not {type_name(text)}", *at)
            return None
        try:
            tree = parse(text)
            count_alternatives(tree)
        except ExpressionError as error:
            self._report_malformed(error, text, *at)
            return None
        return tree

    def _report_malformed(self, error: ExpressionError, text: str, *at: str | int) -> None:
        hint = f'a plain string that begins with {MARK} is written "{MARK}{MARK}…"'
        if is_text_template(text):
            hint = f'a plain {OPENING} inside a text is written "{MARK}{OPENING}"'
        elif text.startswith(MARK) and " " in text.strip():
            hint = f'to put a value into a text, write "{OPENING}state.name}} …"; {hint}'
        excerpt = repr(truncate(text, 200))
        self._report("invalidExpression", f"{error} in {excerpt}", *at, hint=hint)

    def parameters(self) -> tuple[list[ReferenceUse], list[Escape]]:
        """The expressions and templates of the parameters, and their texts with escapes."""
        uses: list[ReferenceUse] = []
        escapes: list[Escape] = []
        for key, value in self._call.items():
            if key not in META:
                self._read_strings(value, key, uses, escapes)
        self._limit_elements(uses)
        return uses, escapes

    def _limit_elements(self, uses: Iterable[ReferenceUse]) -> None:
        """Report a Call whose elements take much each: two thousand of them may start at once."""
        own = [use for use in uses if use.is_of_element]
        expressions = sum(len(use.expressions) for use in own)
        if expressions > MAX_ELEMENT_EXPRESSIONS:
            text = f"the parameters have {expressions:,} expressions with {MARK}{ITEM} or {MARK}{INDEX}"
            text = f"{text}; at most {MAX_ELEMENT_EXPRESSIONS} are allowed, since each element reads them"
            self._report(TOO_COMPLEX, text, EACH, hint="pass the whole element, and let the tool take it apart")
        copied = sum(map(len, self._containers_around(own)))
        if copied > MAX_ELEMENT_COPY:
            text = f"each element would copy {copied:,} parts of lists and objects around its expressions"
            text = f"{text}; at most {MAX_ELEMENT_COPY:,} are allowed"
            self._report(TOO_COMPLEX, text, EACH, hint=f"put {MARK}{ITEM} beside the large value, not into it")

    def _containers_around(self, uses: Iterable[ReferenceUse]) -> Iterable[Any]:
        """The lists and objects of the parameters in which these expressions are."""
        around: dict[int, Any] = {}
        for use in uses:
            value: Any = self._call
            for token in use.at[:-1]:
                value = value[token]
                around[id(value)] = value
        return around.values()

    def _read_strings(self, value: Json, key: str, uses: list[ReferenceUse], escapes: list[Escape]) -> None:
        for at, text in scan_marked(value, key):
            if self._malformed > MAX_MALFORMED:
                return
            try:
                tree = parse_marked(text)
                for part in (
                    () if isinstance(tree, str) else operands(tree) if isinstance(tree, TextTemplate) else (tree,)
                ):
                    count_alternatives(part)
            except ExpressionError as error:
                self._malformed += 1
                if self._malformed <= MAX_MALFORMED:
                    self._report_malformed(error, text, *at)
                else:
                    others = f"more than {MAX_MALFORMED} expressions of this call are invalid; the others were not read"
                    self._report("invalidExpression", others)
                continue
            self.embedded += find_embedded(at, text, tree)
            if isinstance(tree, str):
                if tree != text:
                    escapes.append((at, tree))
                continue
            uses.append(self._use(at, text, tree))

    def _use(self, at: Place, text: str, tree: Expression) -> ReferenceUse:
        """The use of a tree; ``†item`` is reported where there is no element yet."""
        use = ReferenceUse.of(at, text, tree, each=self._is_each)
        if use.is_of_element and at[0] in META:
            text = f"{MARK}{ITEM} is an element of {EACH}; {at[0]} is read once, for all elements"
            self._report("invalidExpression", text, *at, hint="use it in parameters")
        return use

    def condition(self) -> ReferenceUse | None:
        """The condition under which the Call runs."""
        value = self._call.get(WHEN)
        if WHEN not in self._call:
            return None
        if isinstance(value, bool):
            text = "true" if value else "false"
            return ReferenceUse.of((WHEN,), text, Literal(text))
        if not isinstance(value, str):
            self._report("invalidExpression", f"a condition is a string, true or false, not {type_name(value)}", WHEN)
            return None
        try:
            tree = parse_condition(value)
            for needed in ReferenceUse.of((WHEN,), value, tree).needed_expressions:
                count_alternatives(needed)
        except ExpressionError as error:
            hint = 'a condition is like "†state.score >= 0.8 && !†state.blocked"'
            self._report("invalidExpression", f"{error} in {truncate(value, 200)!r}", WHEN, hint=hint)
            return None
        return self._use((WHEN,), value, tree)

    def elements(self) -> tuple[list[ReferenceUse], list[Escape]]:
        """The expressions of ``_each``: one that yields the list, or those inside a literal list."""
        uses: list[ReferenceUse] = []
        escapes: list[Escape] = []
        value = self._call.get(EACH)
        if isinstance(value, list):
            self._read_strings(value, EACH, uses, escapes)
            if len(value) > MAX_ELEMENTS:
                text = f"{EACH} has {len(value):,} elements; at most {MAX_ELEMENTS:,} are allowed"
                self._report("limitExceeded", text, EACH, hint="split the list, or use instances")
        elif self._is_each and not isinstance(value, str):
            actual = type_name(value)
            self._report("schemaMismatch", f"{EACH} is a list, or an expression that yields one, not {actual}", EACH)
        elif isinstance(value, str) and is_text_template(value):
            text = f"{EACH} needs a list, and a template yields a string"
            self._report("invalidExpression", text, EACH, hint=f'write "{MARK}state.items" without braces')
        elif isinstance(value, str) and (tree := self.parse(value, EACH)) is not None:
            uses.append(self._use((EACH,), value, tree))
        return uses, escapes

    def scopes(self) -> tuple[Path, ...]:
        """The scopes, without repeats."""
        items = self._call.get("_scopes", [])
        if not isinstance(items, list):
            self._report("forbiddenMeta", f"_scopes is a list of kinds and paths, not {type_name(items)}", "_scopes")
            return ()
        scopes = []
        for i, item in enumerate(items):
            text = item if not isinstance(item, str) or item.startswith(MARK) else MARK + item
            tree = self.parse(text, "_scopes", i)
            if isinstance(tree, Path) and self._is_each and tree.kind in ELEMENT_KINDS:
                text = f"{tree} is an element of {EACH}, and a scope is a part of the context"
                self._report("invalidExpression", text, "_scopes", i, hint=f"pass {tree} in a parameter")
            elif isinstance(tree, Path):
                scopes.append(tree)
            elif tree is not None:
                self._report("invalidExpression", f"a scope is one kind or path, not {item!r}", "_scopes", i)
        return tuple(dict.fromkeys(scopes))


def embedded_problems(call: PlannedCall, embedded: Iterable[EmbeddedReference], kinds: Container[str]) -> list[Problem]:
    """One problem for each text of a Call with a reference inside, of a kind that the context or the plan has."""
    problems: dict[Place, Problem] = {}
    for reference in embedded:
        if reference.at in problems or not reference.is_mistaken(kinds, each=call.is_each):
            continue
        problems[reference.at] = reference.to_problem(call.pointer + pointer(*reference.at), call.id)
    return list(problems.values())
