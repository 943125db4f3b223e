"""A planned Call (what it reads, where it writes, what answers it, what its elements are made of), and its reader.

A Call may carry only the meta-properties that its Tool's schema declares, with the values it allows (``_instance``
is always allowed). ``_activity`` and ``_options`` belong to the Tool: they are stripped from a Call, with a warning,
before anything is checked. Each expression is parsed once. The names that it may refer to are not known here, with one
exception: ``†item`` and ``†index`` are the element of a Call with ``_each``, in its parameters and nowhere else.

A Call with errors is still read as far as possible, so that the checks of the whole plan see what it reads and
writes: one bad Call hides no problem of another one, and causes none. What becomes of a Call is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from acts.language import references
from acts.language.admission import PLAN, Meter, Work, measure_json
from acts.language.config import Approve, Rule, join_rules
from acts.language.errors import (
    MAX_SUMMARY,
    CallError,
    ExpressionError,
    Problem,
    TooComplex,
    did_you_mean,
    find_similar,
    format_choices,
    suggest,
    truncate,
)
from acts.language.messages import DATA_TYPES, METHODS, TYPES
from acts.language.references import MARK, OPENING, Expression, Path, Read, ReferenceUse, alternatives, evaluate, parse
from acts.language.spelling import expression_hint
from acts.language.tools import CONTROL, META, TOOL_ONLY, CallKind, Tool
from acts.language.values import ABSENT, UNKNOWN, Json, Place, get, pointer, type_name, with_article
from acts.language.wire import (
    ANONYMOUS,
    DELEGATE_SUFFIX,
    INNER_PLAN,
    LIMIT_EXCEEDED,
    RULES_DIFFER,
    TOO_COMPLEX,
    UNRESOLVED,
    WAIT,
    WRONG_KIND,
)

# The kind of a call that is a child of the run: the child walks the Calls of some instances
UNIT: Final = "instance"
# The results of all elements are one value, and that of a Call has to fit one payload of 2 MB
MAX_ELEMENTS: Final = 10_000
# Expressions that each element reads: 2,000 elements may start in one workflow task, at 2 µs for each expression
MAX_ELEMENT_EXPRESSIONS: Final = 256
# After so many Calls with errors the others are not read: a report shows a hundred problems
MAX_ERRORS: Final = 1_000
# Parameters of a Call that walks a plan of its own, which are for its child: their references are not of this plan
_OF_CHILD: Final = ("plan", "until")
# Meta-properties that are for the engine alone
_NOT_SENT: Final = ("_output", "_when", "_each")
# In a ``||`` without an ``_errorPath`` a failure takes the alternative whose last path has one of these as last name
_ERROR_WORDS: Final = frozenset({"error", "errors", "failed", "failure"})
_ERROR_ENDINGS: Final = ("Error", "Failed")
# Parameters of a Call that are compared with one that is missing
MAX_COMPARED: Final = 50
# Steps of a Call beside those of its paths
_CALL_STEPS: Final = 20

Outcomes = tuple[tuple[Path, ...], ...]


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A Call of a plan. ``id`` is ``<position from 1>:<tool>``, ``index`` the position from 0.

    ``planned`` is the Call's own JSON, ``call`` the same with the Tool's constants and without what only the Tool
    decides. ``reads`` are the expressions and escaped texts of it; ``condition`` is that of ``_when``.

    ``outcomes`` are the alternatives of ``_outputPath``, each a conjunction of paths, and after them an ``_errorPath``
    of its own. A result takes one of the first ``result_outcome_count``, a failure the one at the index ``error``
    (None: a failure is not written).

    ``name`` tells apart the Calls of instances that are walked together. A *unit* is no Call: it is a child that walks
    all Calls of the instances in ``members``. An *element* is one start of a Call with ``_each``: ``element`` is its
    index, its id ends in ``[index]``, and it writes nothing itself.
    """

    index: int
    id: str
    tool: Tool
    planned: dict[str, Any]
    call: dict[str, Any]
    pointer: str
    instance: str | None
    kind: CallKind
    delegate: str | None
    reads: tuple[ReferenceUse, ...]
    scopes: tuple[Path, ...]
    outcomes: Outcomes
    result_outcome_count: int
    error: int | None
    method: str
    condition: ReferenceUse | None = None
    name: str = ""
    members: tuple[str, ...] = ()
    element: int | None = None
    # The Call's name within a walk: unique where several instances have Calls of the same id
    key: str = field(init=False, compare=False)
    is_each: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.name or self.id)
        object.__setattr__(self, "is_each", "_each" in self.call and self.element is None)

    @property
    def is_grouped(self) -> bool:
        """True where an element is a group: ``{"of": list, "size": n}``."""
        return isinstance(self.call["_each"], dict)

    @property
    def parameters(self) -> dict[str, Any]:
        return {k: v for k, v in self.call.items() if k not in META}

    @property
    def sent(self) -> dict[str, Any]:
        """What its Activity, its model or its delegate is given of the Call, with its expressions in place."""
        return {k: v for k, v in self.call.items() if k not in _NOT_SENT}

    @property
    def is_wait(self) -> bool:
        """True where nothing runs: the Call ends at a time."""
        return self.tool.activity == WAIT

    @property
    def own_parameters(self) -> dict[str, Any]:
        """The parameters whose references are of this plan."""
        hidden = _OF_CHILD if self.walks_plan else ()
        return {k: v for k, v in self.parameters.items() if k not in hidden}

    @property
    def parameter_uses(self) -> list[ReferenceUse]:
        return [use for use in self.reads if use.at[0] not in META]

    def resolve(self, read: Read, work: Work | None = None) -> tuple[dict[str, Any], list[ReferenceUse]]:
        """What is sent of the Call, every expression replaced by what it yields, and the uses that are absent."""
        return references.resolve_references(self.sent, self.parameter_uses, read, work)

    def element_node(self, index: int) -> PlannedCall:
        name = f"{self.name}[{index}]" if self.name else ""
        return replace(
            self, id=f"{self.id}[{index}]", name=name, element=index, outcomes=self.outcomes[:1],
            result_outcome_count=min(1, self.result_outcome_count), error=None,
        )  # fmt: skip

    @property
    def writes(self) -> tuple[Path, ...]:
        if len(self.outcomes) == 1 == len(self.outcomes[0]):
            return self.outcomes[0]
        return tuple(dict.fromkeys(p for outcome in self.outcomes for p in outcome))

    @property
    def is_detached(self) -> bool:
        """True for fire-and-forget: the Call is started, and its result is dropped."""
        return not self.outcomes and self.kind in ("activity", "delegate") and not self.is_wait

    @property
    def walks_plan(self) -> bool:
        """True where a child walks the plan that the Call holds, or names."""
        return self.tool.walks_plan

    @property
    def runs_activity(self) -> bool:
        """True when an Activity answers, here or in an anonymous delegate: its result may choose an outcome."""
        return self.kind == "activity" or (self.delegate == ANONYMOUS and bool(self.tool.activity))

    @property
    def literal_output(self) -> Json:
        return self.call.get("_output", ABSENT) if self.kind == "latent" else ABSENT

    @property
    def result_outcomes(self) -> Outcomes:
        return self.outcomes[: self.result_outcome_count]

    @property
    def outcome_texts(self) -> list[str]:
        return [references.conjunction(outcome) for outcome in self.result_outcomes]

    @property
    def label(self) -> str:
        """``tool → path``, for the summary of the Call's activity or child: see ``heading``."""
        name = self.tool.name if self.element is None else f"{self.tool.name}[{self.element}]"
        text = " → ".join(filter(None, (name, " || ".join(self.outcome_texts))))
        text = f"instance {self.id}" if self.kind == UNIT else text
        return truncate(text if self.instance is None else f"{text} [{self.instance}]", MAX_SUMMARY)


def find_rule(
    call: PlannedCall, approve: Approve, fits: Callable[[str], bool | None] = lambda _: True
) -> tuple[str, Rule] | None:
    """What a human is asked about a Call (``answer``, ``call``, ``scopes``), and by which rule; None: nobody is.

    ``fits`` tells of one rule after the other whether its condition holds; as it stands, each may. Where it holds of
    some elements, or nobody can tell (None), the next rule holds, too. Raises CallError: nobody may decide by all.
    """
    tool, rules = call.tool, approve.all_rules
    if call.kind == "person" and tool.person is not None:
        return "answer", tool.person.rule.model_copy(update={"selfApproval": approve.selfApproval})
    name = (call.delegate or "").removesuffix(DELEGATE_SUFFIX)  # with and without it, the same definition is read
    names = (tool.name, tool.answer, tool.activity, name, f"{name}{DELEGATE_SUFFIX}")
    asks, chooses = tool.approval or call.call.get("_approval") is True, call.scopes and "_scopes" not in tool.consts
    asking: list[tuple[str, Rule]] = []
    for rule in rules:
        is_named = rule.calls if isinstance(rule.calls, bool) else any(name in rule.calls for name in names)
        what = "call" if is_named or (asks and rule is rules[-1]) else "scopes" if rule.scopes and chooses else None
        holding = what is not None and (rule.when is None or fits(rule.when))
        asking += [] if what is None or holding is False else [(what, rule)]
        if holding:
            break
    if len(asking) < 2:  # noqa: PLR2004
        return asking[0] if asking else None
    if (joined := join_rules([rule for _, rule in asking])) is None:
        text = f"several rules of config.approve may hold of {call.id}, and nobody decides by all of them"
        raise CallError(RULES_DIFFER, f"{text}: make a call for what falls under each, with all that their when reads")
    return asking[0][0], joined


@dataclass(frozen=True)
class ElementReading:
    """What the elements of a Call are made of.

    ``items`` are the elements, ``call`` what they share, with the expressions of ``uses`` in place; ``values`` are what
    these and the ``condition`` of each element read besides, and ``context`` what the Call's scopes show. ``skipped``
    are the elements for which it does not hold. One unknown element stands for all in a dry run that does not know the
    list (``is_known`` is False).
    """

    items: list[Json]
    call: dict[str, Any]
    uses: tuple[ReferenceUse, ...] = ()
    values: dict[Path, Json] = field(default_factory=dict)
    context: list[dict[str, Any]] = field(default_factory=list)
    is_known: bool = True
    work: Work = field(default_factory=Work, compare=False)
    condition: ReferenceUse | None = None

    @cached_property
    def skipped(self) -> frozenset[int]:
        """Raises TooComplex."""
        if self.condition is None:
            return frozenset()
        tree = self.condition.tree
        self.work.steps.spend(3 * len(self.items) * len(references.paths(tree)))
        indexes = range(len(self.items))
        return frozenset(index for index in indexes if references.holds(tree, self._reader(index), self.work) is False)

    def resolve(self, index: int) -> dict[str, Any]:
        """The Call of one element. Raises CallError: an expression yields nothing for it, or its texts are too long."""
        read = self._reader(index)
        try:
            call, missing = references.resolve_references(self.call, self.uses, read, self.work)
        except TooComplex as error:
            raise CallError(TOO_COMPLEX, str(error)) from error
        if missing:
            texts = ", ".join(dict.fromkeys(text for use in missing for text in use.absent_texts(read)))
            raise CallError(UNRESOLVED, f"there is no value at {texts}")
        return dict(call)

    def find_partly_missing(self) -> list[ReferenceUse]:
        """The expressions that yield nothing for some element and read a path that the context lacks.

        What an element alone lacks is the failure of that element. Raises TooComplex for too many in all elements.
        """
        mixed = [use for use in self.uses if any(self.values[path] is ABSENT for path in use.paths)]
        self.work.steps.spend(3 * len(self.items) * sum(len(references.paths(use.tree)) for use in mixed))
        left = (index for index in range(len(self.items)) if index not in self.skipped)
        readers = [self._reader(index) for index in left] if mixed else []
        pairs = [(use, tree) for use in mixed for tree in use.expressions]
        absent = (use for use, tree in pairs if any(evaluate(tree, read) is ABSENT for read in readers))
        return list(dict.fromkeys(absent))

    def _reader(self, index: int) -> Read:
        item = self.items[index]

        def read(path: Path) -> Json:
            if path in self.values:
                return self.values[path]
            return get(item if path.kind == references.ITEM else index, path.names)

        return read


def read_elements(
    node: PlannedCall, read: Read, context: list[dict[str, Any]], work: Work
) -> tuple[ElementReading, list[ReferenceUse]]:
    """What elements are made of, and the expressions that yield nothing for all; raises CallError and TooComplex."""
    uses = [use for use in node.reads if use.at[0] == "_each"]
    each, missing = references.resolve_references({"_each": node.call["_each"]}, uses, read, work)
    own = tuple(use for use in node.parameter_uses if use.is_of_element)
    shared = [use for use in node.parameter_uses if not use.is_of_element]
    call, more = references.resolve_references(node.sent, shared, read, work)
    missing += more
    if missing:
        return ElementReading([], call), missing
    listed, size = (each["_each"]["of"], each["_each"]["size"]) if node.is_grouped else (each["_each"], None)
    is_known = listed is not UNKNOWN
    items = listed if is_known else [UNKNOWN]
    if not isinstance(items, list):
        written = node.call["_each"]["of"] if node.is_grouped else node.call["_each"]
        text = f"_each needs a list; {written} is {with_article(type_name(items))}"
        raise CallError(WRONG_KIND, text)
    if size is not None and is_known:
        items = [items[start : start + size] for start in range(0, len(items), size)]
    if len(items) > MAX_ELEMENTS:
        raise CallError(LIMIT_EXCEEDED, f"_each has {len(items):,} elements; at most {MAX_ELEMENTS:,} are allowed")
    condition = node.condition if node.condition is not None and node.condition.is_of_element else None
    decided = () if condition is None else (condition,)
    values = {path: read(path) for use in (*own, *decided) for path in use.paths}
    return ElementReading(items, call, own, values, context, is_known, work, condition), []


class CallReader:
    """Reads the Calls of one plan; ``at`` is the place of the plan in the Request.

    ``tools_incomplete`` says that the context defines Tools that could not be read. ``unreadable`` holds the indexes of
    the Calls with errors, and ``writes_unknown`` tells that one of them could write anywhere.
    """

    def __init__(
        self, tools: Mapping[str, Tool], instances: Sequence[str], at: Place, meter: Meter | None = None, *,
        tools_incomplete: bool = False,
    ) -> None:  # fmt: skip
        self.tools = tools
        self.instances = frozenset(instances)
        self.at = at
        self.problems: list[Problem] = []
        self.unreadable: set[int] = set()
        self.writes_unknown = False
        self.meter = meter or Meter(PLAN)
        # A Call of an unknown Tool may write what a Tool that it means fixes for its Calls
        self.tools_fix_paths = tools_incomplete or any(
            key in tool.consts for tool in tools.values() for key in ("_outputPath", "_errorPath")
        )
        self.tool_names, self.instance_names = format_choices(tools), format_choices(instances)
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


_EXPRESSIONS: Final = ("_outputPath", "_errorPath", "_each")


class _CallParser:
    def __init__(self, plan: CallReader, raw: Json, index: int) -> None:
        self.plan, self.raw, self.index = plan, raw, index
        self.call: dict[str, Any] = dict(raw) if isinstance(raw, dict) else {}
        name = self.call.get("_tool")
        self.id = f"{index + 1}:{name}" if isinstance(name, str) else str(index + 1)
        self.refused: set[str] = set()  # meta-properties whose value is reported already
        self.problems: list[Problem] = []
        self.uses: list[ReferenceUse] = []
        self.option_steps = 0  # what the alternatives of the expressions take in the graph
        self.writes_unknown = False

    def parse(self) -> PlannedCall | None:
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
        if tool.walks_plan and isinstance(self.call.get("plan"), str):
            delegate = f"{INNER_PLAN}/{self.call['plan']}"
        self._read_parameters(_OF_CHILD if tool.walks_plan else ())
        self._read_elements()
        condition, when = None, self.call.get("_when", ABSENT)
        if when is not ABSENT:
            text = json.dumps(when) if isinstance(when, bool) else when
            condition = self._add_use(references.parse_condition, text, "_when")
        # Where the instance is unknown, so is what the Call could read
        reads = () if "_instance" in self.refused else tuple(self.uses)
        call = PlannedCall(
            index=self.index, id=self.id, tool=tool, planned=self.raw, call=self.call,
            pointer=pointer(*self.plan.at, self.index), instance=instance, kind=tool.call_kind(delegate),
            delegate=delegate, reads=reads, condition=condition,
            scopes=self._scopes(), outcomes=outcomes, result_outcome_count=result_count, error=error,
            method=self.call.get("_outputMethod", "set"),
        )  # fmt: skip
        # What the Call takes in the graph and in the checks of the whole plan
        paths = [*[path for use in call.reads for path in use.paths], *call.scopes, *call.writes]
        steps = _CALL_STEPS + sum([6 + 2 * len(path.names) for path in paths]) + sum(map(len, call.outcomes))
        self.plan.meter.spend(steps + self.option_steps)
        if defined is not None:
            for at, text in tool.parameters.open_defects(call.parameters, self.plan.meter):
                where = f'"{".".join(str(t) for t in at)}" of ' if at else ""
                hint = None if at else self._required_hint(text)
                self.report("schemaMismatch", f'{where}tool "{tool.name}": {text}', *at, hint=hint)
            self._check_literal_output(call)
        return call

    def report(self, code: str, message: str, *at: str | int, hint: str | None = None, warn: bool = False) -> None:
        place = pointer(*self.plan.at, self.index, *at)
        self.problems.append(Problem(code, message, place, self.id, hint, "warning" if warn else "error"))

    def _required_hint(self, defect: str) -> str | None:
        """A parameter whose name is like that of a missing one: the Call may mean it."""
        missing, is_required, _ = defect.partition(" is a required property")
        names = [key for key in self.call if not key.startswith("_")]
        similar = find_similar(missing.strip("'"), names) if is_required and len(names) <= MAX_COMPARED else None
        return None if similar is None else f'is "{similar}" meant to be "{missing}"?'.replace("'", "")

    def _tool(self) -> Tool | None:
        name = self.raw.get("_tool", ABSENT)
        if not isinstance(name, str):
            self.report("invalidCall", f"_tool is the name of a tool, not {type_name(name)}", "_tool")
            return None
        if name not in self.plan.tools:
            text = f'unknown tool "{name}" in call {self.index + 1}; known: {self.plan.tool_names}'
            hint = suggest(name, self.plan.tools) or "add a tool message to the context that defines it"
            self.report("unknownTool", text, "_tool", hint=hint)
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
            similar, value = find_similar(key, META), self.call.pop(key)
            rule = "names that begin with _ are reserved"
            self.report("forbiddenMeta", text, key, hint=rule if similar is None else did_you_mean(similar))
            is_allowed = similar in CONTROL or tool.meta.get(str(similar), False) is not False
            if similar is not None and is_allowed and similar not in self.call:  # no more errors come of the one
                self.call[similar] = value
                self._check_meta_property(similar, tool)
            return
        if key in CONTROL and key not in tool.meta:
            return
        if tool.meta.get(key, False) is False:
            listed = (k for k, v in tool.meta.items() if v is not False and k not in ("_tool", *TOOL_ONLY))
            text = f'tool "{tool.name}" does not allow {key}; it declares: {format_choices(listed)}'
            hint = f"add {key} to the tool's properties to allow it" if key not in tool.meta else None
            self.report("forbiddenMeta", text, key, hint=hint)
            return
        if key == "_output":
            return
        defects = tool.meta_checks[key].defects(self.call[key], self.plan.meter)
        value = self.call[key]
        is_expression = bool(defects) and key in _EXPRESSIONS and isinstance(value, str)
        hint = expression_hint(value, parse) if is_expression else None
        for at, text in defects:
            self.report("forbiddenMeta", f'{key} of tool "{tool.name}": {text}', key, *at, hint=hint)
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

    def _outcomes(self) -> tuple[Outcomes, int, int | None]:
        """Every outcome, how many of them a result may choose, and the one that takes a failure."""
        outcomes, error = self._alternatives("_outputPath"), None
        for index, outcome in enumerate(outcomes if len(outcomes) > 1 else ()):
            name = (outcome[-1].names or ("",))[-1]
            if error is None and (name in _ERROR_WORDS or name.endswith(_ERROR_ENDINGS)):
                error = index
        failure = self._alternatives("_errorPath")
        if "_errorPath" not in self.refused and len(failure) > 1:
            self.report("invalidExpression", "_errorPath is one place, without ||", "_errorPath")
        elif "_errorPath" not in self.refused and failure:
            listed = [set(outcome) for outcome in outcomes]
            if set(failure[0]) in listed:
                return outcomes, len(outcomes), listed.index(set(failure[0]))
            error = len(outcomes)
        return (*outcomes, *failure), len(outcomes), error

    def _alternatives(self, key: str) -> Outcomes:
        """The alternatives of an output path; of one that is reported already, what it would have written."""
        if key in self.refused:
            intended = _parse_outcomes(self.raw[key])
            self.writes_unknown |= intended is None
            return (*(intended or ()), *(_parse_outcomes(self.call.get(key)) or ()))
        if key not in self.call:
            return ()
        use = self._read(references.parse_output, self.call[key], key)
        if use is None:
            self.writes_unknown = True
            return ()
        outcomes = alternatives(use.tree)
        self._check_output_paths(self.call[key], outcomes, key)
        return outcomes

    def _check_output_paths(self, text: str, outcomes: Outcomes, key: str) -> None:
        for path in dict.fromkeys([p for outcome in outcomes for p in outcome]):
            if path.kind in TYPES and path.kind not in DATA_TYPES:
                message = f"{path} would write {path.kind} messages; a Call writes data-like kinds only"
                hint = f"the kinds are {', '.join(DATA_TYPES)} or names of your own"
                self.report("forbiddenWrite", message, key, hint=hint)
        joined = [outcome for outcome in outcomes if len(outcome) > 1]
        pairs = [
            (above, path) for outcome in joined for path in outcome for above in path.prefixes() if above in outcome
        ]
        for one, other in dict.fromkeys(pairs):
            self.report("invalidExpression", f"{one} and {other} overlap; one value cannot be written to both", key)
        if "[" in text or MARK in "".join([name for outcome in outcomes for path in outcome for name in path.names]):
            rule = f"its names are plain, without brackets and without {MARK} inside a name"
            self.report("invalidExpression", f"{text} is no output path: {rule}", key)

    def _read(self, parse_text: Callable[[str], Expression], text: Json, *at: str | int) -> ReferenceUse | None:
        """The use of an expression; None when it is malformed, which is reported."""
        if not isinstance(text, str):
            self.report("invalidExpression", f"an expression is a string, not {type_name(text)}", *at)
            return None
        is_read = at[0] not in ("_outputPath", "_errorPath")
        try:
            use = ReferenceUse.of(at, text, parse_text(text), each=is_read and "_each" in self.call)
            self.option_steps += sum(len(option) for term in use.needed_expressions for option in alternatives(term))
        except ExpressionError as error:
            start = f'begins with {MARK} is written "{MARK}{MARK}…", a plain {OPENING} "{MARK}{OPENING}"'
            hint = f'to put a value into a text, write "{OPENING}state.name}} …"; plain text that {start}'
            hint = (expression_hint(text, parse_text) if at[0] in META else None) or hint
            self.report("invalidExpression", f"{error} in {truncate(text, 200)!r}", *at, hint=hint)
            return None
        if use.is_of_element and at[0] in META and at[0] != "_when":
            message = f"{MARK}item is an element of _each; {at[0]} is read once, for all elements"
            self.report("invalidExpression", message, *at, hint="use it in parameters and in _when")
            return None
        return use

    def _add_use(self, parse_text: Callable[[str], Expression], text: Json, *at: str | int) -> ReferenceUse | None:
        use = self._read(parse_text, text, *at)
        self.uses += [] if use is None else [use]
        return use

    def _read_parameters(self, hidden: Container[str]) -> None:
        own = {k: v for k, v in self.call.items() if k not in META and k not in hidden}
        for at, text in references.scan_marked(own):
            self._add_use(references.parse_marked, text, *at)
        count = sum(len(use.expressions) for use in self.uses if use.is_of_element)
        if count > MAX_ELEMENT_EXPRESSIONS:
            text = f"the parameters have {count:,} expressions with {MARK}item or {MARK}index"
            text = f"{text}; at most {MAX_ELEMENT_EXPRESSIONS} are allowed, since each element reads them"
            self.report(TOO_COMPLEX, text, "_each", hint="pass the whole element, and let the tool take it apart")

    def _read_elements(self) -> None:
        value = self.call.get("_each", ABSENT)
        at: tuple[str, ...] = ("_each",)
        if isinstance(value, dict):
            size = value.get("size")
            is_size = isinstance(size, int) and not isinstance(size, bool) and 0 < size <= MAX_ELEMENTS
            if value.keys() != {"of", "size"} or not is_size:
                text = f'_each as an object is {{"of": a list, "size": 1 to {MAX_ELEMENTS:,}}}: groups of up to so many'
                self.report("invalidExpression", text, "_each")
                del self.call["_each"]
                return
            value, at = value["of"], ("_each", "of")
        if isinstance(value, list):
            self.plan.meter.spend(measure_json(value)[0] // 20)  # a Tool may fix a list for each of its Calls
            for place, text in references.scan_marked(value, *at):
                self._add_use(references.parse_marked, text, *place)
            if len(value) > MAX_ELEMENTS:
                text = f"_each has {len(value):,} elements; at most {MAX_ELEMENTS:,} are allowed"
                self.report("limitExceeded", text, "_each", hint="split the list, or use instances")
        elif isinstance(value, str) and OPENING in value:
            text = "_each needs a list, and a template yields a string"
            self.report("invalidExpression", text, "_each", hint=f'write "{MARK}state.items" without braces')
        elif value is not ABSENT:
            self._add_use(parse, value, *at)

    def _scopes(self) -> tuple[Path, ...]:
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

    def _check_literal_output(self, call: PlannedCall) -> None:
        """An ``_output`` is for a latent Call with one outcome, and fits the Tool's own."""
        if "_output" not in self.call:
            return
        if call.is_each or call.kind != "latent":
            del self.call["_output"]
            source = {"activity": "an Activity", "person": "a person"}.get(call.kind, "a delegate")
            code, text = "ignoredMeta", f"_output comes from {source} and was ignored"
            if call.is_each:
                code, text = "droppedOutput", "_output was dropped: a call with _each is answered once per element"
            self.report(code, text, "_output", warn=True)
            return
        if call.result_outcome_count > 1:
            text = "_output is not allowed while _outputPath has several alternatives"
            self.report("forbiddenMeta", text, "_output", hint="name the one path that was chosen")
        if call.tool.output_check is not None:
            for at, text in call.tool.output_check.defects(self.call["_output"], self.plan.meter):
                self.report("schemaMismatch", f'_output of tool "{call.tool.name}": {text}', "_output", *at)


def _parse_outcomes(text: Json) -> Outcomes | None:
    """The alternatives of an output path, or None when it cannot be parsed."""
    try:
        return alternatives(references.parse_output(text)) if isinstance(text, str) else None
    except ExpressionError:
        return None
