"""Reads the Calls of a plan against their Tools, with their expressions, and reports what is wrong with them.

A Call may carry only the meta-properties that its Tool's schema declares, with the values it allows (``_instance``
is always allowed). ``_activity`` and ``_options`` belong to the Tool: they are stripped from a Call, with a warning,
before anything is checked. Each expression is parsed once. What it may refer to is not known here, with one
exception: ``†item`` and ``†index`` are the element of a Call with ``_each``, in its parameters and nowhere else.

A Call with errors is still read as far as possible, so that the checks of the whole plan see what it reads and
writes: one bad Call hides no problem of another one, and causes none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from acts.language.admission import PLAN, Meter, measure_json
from acts.language.errors import ExpressionError, Problem, TooComplex, format_choices, truncate
from acts.language.messages import DATA_TYPES, TYPES
from acts.language.output_methods import METHODS
from acts.language.reference_uses import (
    INDEX,
    ITEM,
    ReferenceUse,
    parse_marked,
    scan_marked,
)
from acts.language.references import (
    MARK,
    OPENING,
    Expression,
    Path,
    alternatives,
    is_text_template,
    parse,
    parse_condition,
)
from acts.language.tools import CONTROL, META, TOOL_ONLY, Tool
from acts.language.values import ABSENT, Json, Place, pointer, type_name
from acts.language.wire import TOO_COMPLEX
from acts.plan.calls import MAX_ELEMENTS, PlannedCall, error_alternative

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WHEN: Final = "_when"
EACH: Final = "_each"
# Expressions that each element reads: 2,000 elements may start in one workflow task, at 2 µs for each expression
MAX_ELEMENT_EXPRESSIONS: Final = 256
# After so many Calls with errors the others are not read: a report shows a hundred problems
MAX_ERRORS: Final = 1_000
# Steps of a Call beside those of its paths
_CALL_STEPS: Final = 20
# Meta-properties that an error about another one does not offer
_UNLISTED: Final = ("_tool", *TOOL_ONLY)
# Kinds of Messages that no Call may write
_RESERVED_KINDS: Final = frozenset(TYPES) - frozenset(DATA_TYPES)

Outcomes = tuple[tuple[Path, ...], ...]


class CallReader:
    """Reads the Calls of one plan; ``at`` is the place of the plan in the Request.

    ``tools_incomplete`` says that the context defines Tools beside ``tools`` that could not be read.
    ``problems`` collects what is wrong. ``unreadable`` holds the indexes of the Calls with errors,
    and ``writes_unknown`` tells that one of them could write anywhere.
    """

    def __init__(
        self, tools: Mapping[str, Tool], instances: Sequence[str], at: Place, *, tools_incomplete: bool = False
    ) -> None:
        self.tools = tools
        self.instances = frozenset(instances)
        self.at = at
        self.problems: list[Problem] = []
        self.unreadable: set[int] = set()
        self.writes_unknown = False
        self.meter = Meter(PLAN)
        # A Call of an unknown Tool may write what a Tool that it means fixes for its Calls
        self.tools_fix_paths = tools_incomplete or any(
            key in tool.consts for tool in tools.values() for key in ("_outputPath", "_errorPath")
        )
        self.tool_names = format_choices(tools)
        self.instance_names = format_choices(instances)
        self._has_stopped = False

    def read(self, raw: Json, index: int) -> PlannedCall | None:
        """The Call at ``index`` of the plan, as far as it can be read; None when it is no object, or not read."""
        if self._has_stopped:
            return None
        parser = _CallParser(self, raw, index)
        call: PlannedCall | None = None
        try:
            call = parser.parse()
        except TooComplex as error:
            hint = "use fewer calls, alternatives and names of paths, simpler tools, or data that is referred to"
            parser.report(TOO_COMPLEX, str(error), hint=hint)
            parser.writes_unknown = True
            self._has_stopped = self.meter.rest < 0
        self.problems += parser.problems
        if any(problem.fatal for problem in parser.problems):
            self.unreadable.add(index)
            self._has_stopped |= len(self.unreadable) >= MAX_ERRORS
            self.writes_unknown |= parser.writes_unknown or self._has_stopped
        return call


class _CallParser:
    """Parses one Call."""

    def __init__(self, plan: CallReader, raw: Json, index: int) -> None:
        name = raw.get("_tool") if isinstance(raw, dict) else None
        self.plan = plan
        self.raw = raw
        self.index = index
        self.id = f"{index + 1}:{name}" if isinstance(name, str) else str(index + 1)
        self.call: dict[str, Any] = dict(raw) if isinstance(raw, dict) else {}
        self.refused: set[str] = set()  # meta-properties whose value is reported already
        self.problems: list[Problem] = []
        self.uses: list[ReferenceUse] = []
        self.writes_unknown = False

    def parse(self) -> PlannedCall | None:
        """The Call as far as it can be read."""
        if not isinstance(self.raw, dict):
            self.report("invalidCall", f"a Call is an object with _tool, not {type_name(self.raw)}")
            self.writes_unknown = True
            return None
        defined = self._tool()
        tool = defined or Tool(str(self.raw.get("_tool")), {}, {}, {})
        if defined is not None:
            self._check_meta_properties(defined)
        outcomes, result_count, error = self._outcomes()
        self.writes_unknown |= defined is None and "_outputPath" not in self.call and self.plan.tools_fix_paths
        instance = self._instance()
        delegate = self.call.get("_delegate")
        self._read_parameters()
        self._read_elements()
        condition = self._read_condition()
        if condition is not None:
            self.uses.append(condition)
        # Where the instance is unknown, so is what the Call could read
        reads = () if "_instance" in self.refused else tuple(self.uses)
        call = PlannedCall(
            index=self.index, id=self.id, tool=tool, planned=self.raw, call=self.call,
            pointer=pointer(*self.plan.at, self.index), instance=instance, kind=tool.call_kind(delegate),
            delegate=delegate, reads=reads, condition=condition,
            scopes=self._scopes(), outcomes=outcomes, result_outcome_count=result_count, error=error,
            method=self.call.get("_outputMethod", "set"),
        )  # fmt: skip
        self._count_steps(call)
        if defined is not None:
            self._check_parameters(call)
            self._check_literal_output(call)
        return call

    def report(self, code: str, message: str, *at: str | int, hint: str | None = None, warn: bool = False) -> None:
        """Report a problem; ``at`` leads from the Call to the part that is wrong."""
        place = pointer(*self.plan.at, self.index, *at)
        self.problems.append(Problem(code, message, place, self.id, hint, "warning" if warn else "error"))

    def _count_steps(self, call: PlannedCall) -> None:
        """Count what the Call takes in the graph and in the checks of the whole plan."""
        paths = [*(path for use in call.reads for path in use.paths), *call.scopes, *call.writes]
        steps = _CALL_STEPS + sum(6 + 2 * len(path.names) for path in paths) + sum(map(len, call.outcomes))
        terms = (tree for use in call.reads for tree in use.needed_expressions if not isinstance(tree, Path))
        self.plan.meter.spend(steps + sum(len(option) for tree in terms for option in alternatives(tree)))

    # -- tool and meta-properties ----------------------------------------------

    def _tool(self) -> Tool | None:
        name = self.raw.get("_tool", ABSENT)
        if not isinstance(name, str):
            self.report("invalidCall", f"_tool is the name of a tool, not {type_name(name)}", "_tool")
            return None
        if name not in self.plan.tools:
            text = f'unknown tool "{name}" in call {self.index + 1}; known: {self.plan.tool_names}'
            self.report("unknownTool", text, "_tool", hint="add a tool message to the context that defines it")
        return self.plan.tools.get(name)

    def _check_meta_properties(self, tool: Tool) -> None:
        """Strip what is the Tool's business, check the rest, and apply the Tool's constants."""
        for key in TOOL_ONLY:
            if key in self.call:
                del self.call[key]
                self.report("ignoredMeta", f"{key} is decided by the tool and was ignored", key, warn=True)
        for key in [k for k in self.call if k.startswith("_") and k not in ("_tool", "_instance")]:
            self._check_meta_property(key, tool)
        for key, value in tool.consts.items():
            if key not in TOOL_ONLY and key != "_tool":
                self.call.setdefault(key, value)
        for key in tool.required_meta:
            if key not in self.call and key not in self.refused:
                self.report("schemaMismatch", f'tool "{tool.name}" requires {key}', key)

    def _check_meta_property(self, key: str, tool: Tool) -> None:
        if key not in META:
            text = f'unknown meta-property "{key}"; known: {", ".join(META)}'
            self.report("forbiddenMeta", text, key, hint="names that begin with _ are reserved")
            return
        if key in CONTROL and key not in tool.meta:
            return
        if tool.meta.get(key, False) is False:
            declared = format_choices(k for k, v in tool.meta.items() if v is not False and k not in _UNLISTED)
            text = f'tool "{tool.name}" does not allow {key}; it declares: {declared}'
            hint = f"add {key} to the tool's properties to allow it" if key not in tool.meta else None
            self.report("forbiddenMeta", text, key, hint=hint)
            return
        if key == "_output":
            return
        defects = tool.meta_check(key).defects(self.call[key], self.plan.meter)
        for at, text in defects:
            self.report("forbiddenMeta", f'{key} of tool "{tool.name}": {text}', key, *at)
        if not defects and key == "_outputMethod" and self.call[key] not in METHODS:
            self.report("forbiddenMeta", f"{key} {self.call[key]!r}; allowed: {', '.join(METHODS)}", key)
            self.call[key] = "set"
        if defects:  # one problem is enough: what follows the value finds no more
            self.refused.add(key)
            del self.call[key]

    def _instance(self) -> str | None:
        value = self.call.get("_instance")
        if value is None or (isinstance(value, str) and value in self.plan.instances):
            return value
        self.refused.add("_instance")
        text = f"unknown instance {value!r}; known: {self.plan.instance_names}"
        hint = "an instance is defined by a data-like message with that _instance"
        self.report("unknownInstance", text, "_instance", hint=hint)
        return None

    # -- outcomes --------------------------------------------------------------

    def _outcomes(self) -> tuple[Outcomes, int, int | None]:
        """Every outcome, how many of them a result may choose, and the one that takes a failure."""
        outcomes = self._alternatives("_outputPath")
        result_count, error = len(outcomes), error_alternative(outcomes)
        failure = self._alternatives("_errorPath")
        if "_errorPath" in self.refused:
            return (*outcomes, *failure), result_count, error
        if len(failure) > 1:
            self.report("invalidExpression", "_errorPath is one place, without ||", "_errorPath")
            return (*outcomes, *failure), result_count, error
        if not failure:
            return outcomes, result_count, error
        listed = [set(outcome) for outcome in outcomes]
        if set(failure[0]) in listed:
            return outcomes, result_count, listed.index(set(failure[0]))
        return (*outcomes, failure[0]), result_count, len(outcomes)

    def _alternatives(self, key: str) -> Outcomes:
        """The alternatives of an output path; of one that is reported already, what it would have written."""
        if key in self.refused:
            intended = _parse_outcomes(self.raw[key])
            self.writes_unknown |= intended is None
            return (*(intended or ()), *(_parse_outcomes(self.call.get(key)) or ()))
        if key not in self.call:
            return ()
        use = self._read(parse, self.call[key], key)
        if use is None:
            self.writes_unknown = True
            return ()
        outcomes = alternatives(use.tree)
        self._check_output_paths(self.call[key], outcomes, key)
        return outcomes

    def _check_output_paths(self, text: str, outcomes: Outcomes, key: str) -> None:
        for path in dict.fromkeys(p for outcome in outcomes for p in outcome):
            if path.kind in _RESERVED_KINDS:
                message = f"{path} would write {path.kind} messages; a Call writes data-like kinds only"
                hint = f"the kinds are {', '.join(DATA_TYPES)} or names of your own"
                self.report("forbiddenWrite", message, key, hint=hint)
        pairs = [
            (above, path) for outcome in outcomes for path in outcome for above in path.prefixes() if above in outcome
        ]
        for one, other in dict.fromkeys(pairs):
            self.report("invalidExpression", f"{one} and {other} overlap; one value cannot be written to both", key)
        if "[" in text or any(MARK in name for outcome in outcomes for path in outcome for name in path.names):
            message = (
                f"{text} is no output path: its names are plain, without brackets and without {MARK} inside a name"
            )
            self.report("invalidExpression", message, key)

    # -- expressions -----------------------------------------------------------

    def _read(self, parse_text: Callable[[str], Expression], text: Json, *at: str | int) -> ReferenceUse | None:
        """The use of an expression; None when it is malformed, which is reported."""
        if not isinstance(text, str):
            self.report("invalidExpression", f"an expression is a string, not {type_name(text)}", *at)
            return None
        is_read = at[0] not in ("_outputPath", "_errorPath")
        try:
            use = ReferenceUse.of(at, text, parse_text(text), each=is_read and EACH in self.call)
            for term in use.needed_expressions:
                alternatives(term)
        except ExpressionError as error:
            start = (
                f'plain text that begins with {MARK} is written "{MARK}{MARK}…", a plain {OPENING} "{MARK}{OPENING}"'
            )
            hint = f'to put a value into a text, write "{OPENING}state.name}} …"; {start}'
            self.report("invalidExpression", f"{error} in {truncate(text, 200)!r}", *at, hint=hint)
            return None
        if use.is_of_element and at[0] in META:
            message = f"{MARK}{ITEM} is an element of {EACH}; {at[0]} is read once, for all elements"
            self.report("invalidExpression", message, *at, hint="use it in parameters")
        return use

    def _add_uses(self, value: Json, key: str) -> None:
        """Read the expressions, templates and escaped texts inside a value."""
        uses = [self._read(parse_marked, text, *at) for at, text in scan_marked(value, key)]
        self.uses += [use for use in uses if use is not None]

    def _read_parameters(self) -> None:
        for key, value in self.call.items():
            if key not in META:
                self._add_uses(value, key)
        # Two thousand elements may start at once
        count = sum(len(use.expressions) for use in self.uses if use.is_of_element)
        if count > MAX_ELEMENT_EXPRESSIONS:
            text = f"the parameters have {count:,} expressions with {MARK}{ITEM} or {MARK}{INDEX}"
            text = f"{text}; at most {MAX_ELEMENT_EXPRESSIONS} are allowed, since each element reads them"
            self.report(TOO_COMPLEX, text, EACH, hint="pass the whole element, and let the tool take it apart")

    def _read_condition(self) -> ReferenceUse | None:
        """The condition under which the Call runs."""
        value = self.call.get(WHEN, ABSENT)
        if value is ABSENT:
            return None
        return self._read(parse_condition, json.dumps(value) if isinstance(value, bool) else value, WHEN)

    def _read_elements(self) -> None:
        """Read ``_each``: an expression that yields the list, or a literal list with expressions inside."""
        value = self.call.get(EACH, ABSENT)
        if isinstance(value, list):
            self.plan.meter.spend(measure_json(value)[0] // 20)  # a Tool may fix a list for each of its Calls
            self._add_uses(value, EACH)
            if len(value) > MAX_ELEMENTS:
                text = f"{EACH} has {len(value):,} elements; at most {MAX_ELEMENTS:,} are allowed"
                self.report("limitExceeded", text, EACH, hint="split the list, or use instances")
        elif isinstance(value, str) and is_text_template(value):
            text = f"{EACH} needs a list, and a template yields a string"
            self.report("invalidExpression", text, EACH, hint=f'write "{MARK}state.items" without braces')
        elif value is not ABSENT and (use := self._read(parse, value, EACH)) is not None:
            self.uses.append(use)

    def _scopes(self) -> tuple[Path, ...]:
        """The scopes, without repeats."""
        items = self.call.get("_scopes", [])
        if not isinstance(items, list):
            self.report("forbiddenMeta", f"_scopes is a list of kinds and paths, not {type_name(items)}", "_scopes")
            return ()
        scopes: dict[Path, None] = {}
        for i, item in enumerate(items):
            text = item if not isinstance(item, str) or item.startswith(MARK) else MARK + item
            use = self._read(parse, text, "_scopes", i)
            if use is not None and isinstance(use.tree, Path):
                scopes[use.tree] = None
            elif use is not None:
                self.report("invalidExpression", f"a scope is one kind or path, not {item!r}", "_scopes", i)
        return tuple(scopes)

    # -- values ----------------------------------------------------------------

    def _check_parameters(self, call: PlannedCall) -> None:
        for at, text in call.tool.parameters.open_defects(call.parameters, self.plan.meter):
            where = f'"{".".join(str(t) for t in at)}" of ' if at else ""
            self.report("schemaMismatch", f'{where}tool "{call.tool.name}": {text}', *at)

    def _check_literal_output(self, call: PlannedCall) -> None:
        """An ``_output`` is for a latent Call with one outcome, and fits the Tool's own."""
        if "_output" not in self.call:
            return
        if call.is_each or call.kind != "latent":
            del self.call["_output"]
            source = "an Activity" if call.kind == "activity" else "a delegate"
            code, text = "ignoredMeta", f"_output comes from {source} and was ignored"
            if call.is_each:
                code, text = "droppedOutput", "_output was dropped: a call with _each is answered once per element"
            self.report(code, text, "_output", warn=True)
            return
        if call.is_branching:
            text = "_output is not allowed while _outputPath has several alternatives"
            self.report("forbiddenMeta", text, "_output", hint="name the one path that was chosen")
        if call.tool.output_check is not None:
            for at, text in call.tool.output_check.defects(self.call["_output"], self.plan.meter):
                self.report("schemaMismatch", f'_output of tool "{call.tool.name}": {text}', "_output", *at)


def _parse_outcomes(text: Json) -> Outcomes | None:
    """The alternatives of an output path, or None when it cannot be parsed."""
    try:
        return alternatives(parse(text)) if isinstance(text, str) else None
    except ExpressionError:
        return None
