"""Reads the Calls of a plan against their Tools and reports what is wrong with them.

A Call may carry only the meta-properties that its Tool's schema declares, with the values it
allows (``_instance`` is always allowed). ``_activity`` and ``_options`` belong to the Tool: they
are stripped from a Call, with a warning, before anything is checked.

A Call with errors is still read as far as possible, so that the checks of the whole plan see what
it reads and writes: one bad Call hides no problem of another one, and causes none.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from acts.language.errors import ExpressionError, Problem, TooComplex, format_choices
from acts.language.evaluation_work import count_parts
from acts.language.expression_parser import parse
from acts.language.messages import DATA_TYPES, TYPES
from acts.language.output_methods import METHODS
from acts.language.reference_uses import EmbeddedReference
from acts.language.references import MARK, Path, alternatives, count_alternatives
from acts.language.tools import CONTROL, META, TOOL_ONLY, Tool
from acts.language.values import ABSENT, Json, pointer, type_name
from acts.language.wire import TOO_COMPLEX
from acts.language.work_meter import WorkMeter
from acts.plan.call_expressions import CallExpressions, embedded_problems
from acts.plan.planned_call import PlannedCall, error_alternative

Outcomes = tuple[tuple[Path, ...], ...]

# The meta-properties that name where a Call writes
_OUTPUT_KEYS: Final = ("_outputPath", "_errorPath")
# Meta-properties that an error about another one does not offer
_UNLISTED: Final = ("_tool", *TOOL_ONLY)
# Kinds of Messages that no Call may write
_RESERVED_KINDS: Final = frozenset(TYPES) - frozenset(DATA_TYPES)
# Steps to read all Calls and check their values: 20,000 Calls that read three values each, about a second
MAX_PLAN_STEPS: Final = 1_000_000
# Steps of one Call beside those of its values; of a path that it reads and each two of its names; of one that it
# writes and each of its names, which has two entries in the graph. Measured, at 1 µs each
_CALL_STEPS: Final = 20
_READ_STEPS: Final = 7
_WRITE_STEPS: Final = 4
_WRITTEN_NAME_STEPS: Final = 3
# Parts of a list for ``_each`` that are read in a step
_PARTS_PER_STEP: Final = 4
_TOO_COMPLEX_HINT: Final = (
    "use fewer calls, alternatives and names of paths, simpler tools, or data that is referred to"
)
# After so many errors the other Calls are not read: a report shows a hundred
MAX_ERRORS: Final = 1_000
# Paths fixed by Tools of which a Call with a misspelt Tool is said to write each; with more, it may write anything
MAX_CONSTANT_OUTPUTS: Final = 100


class CallReader:
    """Reads the Calls of one plan; ``at`` is the place of the plan in the Request.

    ``tools_incomplete`` says that the context defines Tools beside ``tools`` that could not be read.
    ``problems`` collects what is wrong. ``unreadable`` holds the indexes of the Calls with errors,
    and ``writes_unknown`` tells that one of them could write anywhere.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        instances: Sequence[str],
        at: tuple[str | int, ...],
        *,
        tools_incomplete: bool = False,
    ) -> None:
        self.tools = tools
        self.tools_incomplete = tools_incomplete
        self.instances = frozenset(instances)
        self.at = at
        self.problems: list[Problem] = []
        self.unreadable: set[int] = set()
        self.writes_unknown = False
        self._embedded: list[tuple[PlannedCall, list[EmbeddedReference]]] = []
        self.meter = WorkMeter("reading the calls of the plan", MAX_PLAN_STEPS)
        self.list_parts: dict[int, int] = {}  # of the lists for ``_each``, by id: the Request holds them
        self._has_stopped = False

    def embedded_problems(self, kinds: Container[str]) -> list[Problem]:
        """The references inside texts of the Calls read so far, of kinds that the context or the plan has."""
        return [problem for call, found in self._embedded for problem in embedded_problems(call, found, kinds)]

    def read(self, raw: Json, index: int) -> PlannedCall | None:
        """The Call at ``index`` of the plan, as far as it can be read; None when it is no object, or not read."""
        if self._has_stopped:
            return None
        parser = _CallParser(self, raw, index)
        call: PlannedCall | None = None
        try:
            call = parser.parse()
        except TooComplex as error:
            parser.report(TOO_COMPLEX, str(error), hint=_TOO_COMPLEX_HINT)
            parser.writes_unknown = True
            self._has_stopped = self.meter.is_exhausted
        self.problems.extend(parser.problems)
        if call is not None and parser.expressions.embedded:
            self._embedded.append((call, parser.expressions.embedded))
        if any(p.fatal for p in parser.problems):
            self.unreadable.add(index)
            self._has_stopped |= len(self.unreadable) >= MAX_ERRORS
            self.writes_unknown |= parser.writes_unknown or self._has_stopped
        return call

    @cached_property
    def tool_names(self) -> str:
        """The names of the Tools, for an error."""
        return format_choices(self.tools)

    @cached_property
    def instance_names(self) -> str:
        """The ids of the instances, for an error."""
        return format_choices(self.instances)

    @cached_property
    def constant_outputs(self) -> tuple[Path, ...]:
        """Every path that a Tool fixes for its Calls: what a Call with a misspelt tool may write."""
        texts = [tool.consts[key] for tool in self.tools.values() for key in _OUTPUT_KEYS if key in tool.consts]
        outcomes = [outcome for text in texts[:MAX_CONSTANT_OUTPUTS] for outcome in _parse_outcomes(text) or ()]
        self.writes_unknown |= len(texts) > MAX_CONSTANT_OUTPUTS
        return tuple(dict.fromkeys(path for outcome in outcomes for path in outcome))


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
        self.writes_unknown = False
        self.expressions = CallExpressions(self.call, self.report)

    def parse(self) -> PlannedCall | None:
        """The Call as far as it can be read."""
        if not isinstance(self.raw, dict):
            self.report("invalidCall", f"a Call is an object with _tool, not {type_name(self.raw)}")
            self.writes_unknown = True
            return None
        defined = self._tool()
        tool = defined or Tool(str(self.raw.get("_tool")), {}, {}, {})
        if defined is not None:
            self._meta_properties(defined)
        outcomes, result_count, error = self._outcomes(defined)
        instance = self._instance()
        delegate = self.call.get("_delegate")
        uses, escapes = self.expressions.parameters()
        self._count_list()
        element_uses, element_escapes = self.expressions.elements()
        condition = self.expressions.condition()
        # Where the instance is unknown, so is what the Call could read
        reads = [] if "_instance" in self.refused else [*uses, *element_uses, *([condition] if condition else [])]
        call = PlannedCall(
            index=self.index, id=self.id, tool=tool, planned=self.raw, call=self.call,
            pointer=pointer(*self.plan.at, self.index), instance=instance, kind=tool.call_kind(delegate),
            delegate=delegate, reads=tuple(reads), escapes=(*escapes, *element_escapes), condition=condition,
            scopes=self.expressions.scopes(), outcomes=outcomes, result_outcome_count=result_count, error=error,
            method=self.call.get("_outputMethod", "set"),
        )  # fmt: skip
        self._count_steps(call)
        if defined is not None:
            self._check_parameters(call)
            self._check_literal_output(call)
        return call

    def _count_list(self) -> None:
        """Count what a list for ``_each`` takes to be read: a Tool may fix one for each of its Calls."""
        value = self.call.get("_each")
        if isinstance(value, list):
            parts = self.plan.list_parts.get(id(value))
            if parts is None:
                parts = self.plan.list_parts[id(value)] = count_parts(value)[0]
            self.plan.meter.spend(parts // _PARTS_PER_STEP)

    def _count_steps(self, call: PlannedCall) -> None:
        """Count what the Call takes in the graph and in the checks of the whole plan."""
        read = [path for use in call.reads for path in use.paths] + list(call.scopes)
        steps = _CALL_STEPS + sum(_READ_STEPS + len(path.names) // 2 for path in read)
        steps += sum(_WRITE_STEPS + _WRITTEN_NAME_STEPS * len(path.names) for path in call.writes)
        if call.is_branching:
            steps += sum(len(outcome) for outcome in call.outcomes)
        for use in call.reads:
            if not isinstance(use.tree, Path):
                steps += sum(count_alternatives(tree)[1] for tree in use.needed_expressions)
        self.plan.meter.spend(steps)

    def report(self, code: str, message: str, *at: str | int, hint: str | None = None, warn: bool = False) -> None:
        """Report a problem; ``at`` leads from the Call to the part that is wrong."""
        place = pointer(*self.plan.at, self.index, *at)
        self.problems.append(Problem(code, message, place, self.id, hint, "warning" if warn else "error"))

    # -- tool and meta-properties ----------------------------------------------

    def _tool(self) -> Tool | None:
        name = self.raw.get("_tool", ABSENT)
        if not isinstance(name, str):
            self.report("invalidCall", f"_tool is the name of a tool, not {type_name(name)}", "_tool")
        elif name not in self.plan.tools:
            text = f'unknown tool "{name}" in call {self.index + 1}; known: {self.plan.tool_names}'
            self.report("unknownTool", text, "_tool", hint="add a tool message to the context that defines it")
        return self.plan.tools.get(name) if isinstance(name, str) else None

    def _meta_properties(self, tool: Tool) -> None:
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

    def _outcomes(self, tool: Tool | None) -> tuple[Outcomes, int, int | None]:
        """Every outcome, how many of them a result may choose, and the one that takes a failure."""
        outcomes = self._alternatives("_outputPath")
        result_count, error = len(outcomes), error_alternative(outcomes)
        failure = self._alternatives("_errorPath")
        if "_errorPath" in self.refused:
            outcomes = (*outcomes, *failure)
        elif len(failure) > 1:
            self.report("invalidExpression", "_errorPath is one place, without ||", "_errorPath")
            outcomes = (*outcomes, *failure)
        elif failure:
            listed = [set(outcome) for outcome in outcomes]
            if set(failure[0]) in listed:
                error = listed.index(set(failure[0]))
            else:
                outcomes, error = (*outcomes, failure[0]), len(outcomes)
        if tool is None and "_outputPath" not in self.call:
            self.writes_unknown |= self.plan.tools_incomplete
            outcomes = (*outcomes, self.plan.constant_outputs)
        return outcomes, result_count, error

    def _alternatives(self, key: str) -> Outcomes:
        """The alternatives of an output path; of one that is reported already, what it would have written."""
        if key in self.refused:
            intended = _parse_outcomes(self.raw[key])
            self.writes_unknown |= intended is None
            return (*(intended or ()), *(_parse_outcomes(self.call.get(key)) or ()))
        if key not in self.call:
            return ()
        tree = self.expressions.parse(self.call[key], key)
        if tree is None:
            self.writes_unknown = True
            return ()
        outcomes = alternatives(tree)
        self._check_output_paths(self.call[key], outcomes, key)
        return outcomes

    def _check_output_paths(self, text: str, outcomes: Outcomes, key: str) -> None:
        for path in dict.fromkeys(p for outcome in outcomes for p in outcome):
            if path.kind in _RESERVED_KINDS:
                message = f"{path} would write {path.kind} messages; a Call writes data-like kinds only"
                hint = f"the kinds are {', '.join(DATA_TYPES)} or names of your own"
                self.report("forbiddenWrite", message, key, hint=hint)
        for one, other in dict.fromkeys(pair for outcome in outcomes for pair in _overlaps(outcome)):
            self.report("invalidExpression", f"{one} and {other} overlap; one value cannot be written to both", key)
        if "[" in text:
            self.report("invalidExpression", "an output path is made of names, without brackets", key)
        if any(MARK in name for outcome in outcomes for path in outcome for name in map(str, path.names)):
            message = f"{text} has {MARK} inside a name; an output path is written as it is, and nothing in it is read"
            one_list = "the results of a call with _each are one list, written once" if "_each" in self.call else None
            self.report("invalidExpression", message, key, hint=one_list)

    # -- values ----------------------------------------------------------------

    def _check_parameters(self, call: PlannedCall) -> None:
        for at, text in call.tool.parameters.open_defects(call.parameters, self.plan.meter):
            where = f'"{".".join(str(t) for t in at)}" of ' if at else ""
            self.report("schemaMismatch", f'{where}tool "{call.tool.name}": {text}', *at)

    def _check_literal_output(self, call: PlannedCall) -> None:
        """An ``_output`` is for a latent Call with one outcome, and fits the Tool's own."""
        if "_output" not in self.call:
            return
        if call.is_each:
            del self.call["_output"]
            text = "_output was dropped: a call with _each is answered once per element"
            self.report("droppedOutput", text, "_output", warn=True)
            return
        if call.kind != "latent":
            source = "an Activity" if call.kind == "activity" else "a delegate"
            del self.call["_output"]
            self.report("ignoredMeta", f"_output comes from {source} and was ignored", "_output", warn=True)
            return
        if call.is_branching:
            text = "_output is not allowed while _outputPath has several alternatives"
            self.report("forbiddenMeta", text, "_output", hint="name the one path that was chosen")
        if call.tool.output_check is not None:
            for at, text in call.tool.output_check.defects(self.call["_output"], self.plan.meter):
                self.report("schemaMismatch", f'_output of tool "{call.tool.name}": {text}', "_output", *at)


def _overlaps(outcome: tuple[Path, ...]) -> Iterator[tuple[Path, Path]]:
    """The pairs of paths of which one is at or above the other, in the order listed; linear in their names."""
    positions = {(path.kind, path.names): i for i, path in enumerate(outcome)}
    for i, path in enumerate(outcome if len(outcome) > 1 else ()):
        for depth in range(len(path.names)):
            above = positions.get((path.kind, path.names[:depth]))
            if above is not None:
                yield outcome[min(i, above)], outcome[max(i, above)]


def _parse_outcomes(text: Json) -> Outcomes | None:
    """The alternatives of an output path, or None when it cannot be parsed."""
    try:
        return alternatives(parse(text)) if isinstance(text, str) else None
    except ExpressionError:
        return None
