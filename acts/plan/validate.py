"""Every problem of a Request at once, before anything runs.

``validate_request`` turns a Request into a ``ValidatedPlan`` (Tools, Calls, graph, context), the only thing that is
ever walked. ``validate`` returns the problems alone, with the warnings of ``lint``, which a run does not compute.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final

from acts.language import errors, references, wire
from acts.language.admission import PLAN, SUBSCHEMAS, Meter
from acts.language.config import MAX_PARALLEL
from acts.language.errors import (
    ExpressionError,
    InvalidRequest,
    Problem,
    TooComplex,
    brief,
    did_you_mean,
    find_similar,
    format_choices,
    suggest,
    truncate,
)
from acts.language.messages import (
    DATA_TYPES,
    GROWING_METHODS,
    INSTANCES,
    TYPES,
    Data,
    PlanMessage,
    Request,
    read_request,
)
from acts.language.references import ELEMENT_KINDS, Expression, Literal, Operation, Path
from acts.language.schemas import Checker, find_schema_problem, is_self_contained, judge_schema, with_defs
from acts.language.spelling import expression_hint, propose_text
from acts.language.tools import FAILURES, META, Tool, hint_words, read_tools
from acts.language.values import (
    ABSENT,
    UNKNOWN,
    Json,
    Names,
    Place,
    get,
    nest,
    pointer,
    replace_parts,
    shape,
    type_name,
    with_article,
)
from acts.plan.calls import CallReader, PlannedCall
from acts.plan.context_log import START, Log
from acts.plan.graph import ChainFold, Graph, PlanListing, WriterIndex, order_calls, paths_read, unsatisfied_reads

if TYPE_CHECKING:
    from acts.language.config import Rule
    from acts.language.references import ReferenceUse
    from acts.plan.graph import Has, OpenRead

# A plan is part of the run's input, which Temporal limits to 2 MB: about as many Calls of the smallest size
MAX_CALLS: Final = 20_000
# Subschemas that may be compiled once more for one path
MAX_COPIED_PARTS: Final = 500
# Groups of instances for which a template is checked; the others are checked when they run
MAX_GROUPS: Final = 100
# After each of so many Calls the state is folded once more for ``until``: two seconds for all of them
MAX_UNTIL_CALLS: Final = 2_000
# What a plan inside another takes to be checked, beside its Calls
_INNER_STEPS: Final = 50
PLAN_NAME: Final = re.compile(r"[\w-][\w.-]{0,99}")
# Strings that read nothing: of more, the check says no more, as of Calls with errors
MAX_LACKING: Final = 1_000
# Names, and Calls, that a hint compares with a reference; and paths that it, and that a problem lists
_COMPARED: Final = 50
_WRITES_LISTED: Final = 6
_PATHS_LISTED: Final = 20
# The codes of a failure that a Tool need not declare
_OTHER_CODES: Final = wire.ENGINE_CODES | {wire.EACH_FAILED, wire.TOO_COMPLEX, wire.REJECTED, wire.VALUE_LOST}
# What a path hardly has in a name
_OPERATORS: Final = frozenset(f"=!<>?{references.MARK}")
# Keywords that say more of a property than ``properties`` does
_UNFOLLOWED: Final = frozenset({"$ref", "anyOf", "oneOf", "allOf", "if", "patternProperties", "nullable"})


class KindSchemas:
    """The schemas of a context by kind; those that are no valid schemas are left out."""

    def __init__(self, data: Iterable[Data]) -> None:
        schemas = {message.kind: message.schema for message in data if message.schema is not None}
        self._by_kind = {kind: schema for kind, schema in schemas.items() if judge_schema(schema).reason is None}
        self._checks: dict[Path, Checker | None] = {}

    def __bool__(self) -> bool:
        return bool(self._by_kind)

    def forbids(self, path: Path) -> bool:
        return _schema_at(self._by_kind.get(path.kind), path.names) is False

    def check_at(self, path: Path) -> Checker | None:
        """The check of the values at a path; None where no schema says anything."""
        if path not in self._checks:
            schema = self._by_kind.get(path.kind)
            own = part = _schema_at(schema, path.names)
            if isinstance(part, dict) and isinstance(schema, dict):
                own = with_defs(part, schema)
            is_small = own is part or judge_schema(schema).parts <= MAX_COPIED_PARTS
            is_checked = isinstance(own, dict) and is_self_contained(own) and is_small
            self._checks[path] = Checker(own) if is_checked else None
        return self._checks[path]


def _schema_at(schema: Json, names: Names) -> Json:
    """The part of a schema for a path: False where it allows nothing, None where it says nothing."""
    for name in names:
        if not isinstance(schema, dict):
            return schema if schema is False else None
        if not _UNFOLLOWED.isdisjoint(schema):
            return None
        kind = schema.get("type", "object")
        if kind not in ("object", ["object"]) and "object" not in kind:
            return False
        inner = get(schema, ("properties", name))
        schema = schema.get("additionalProperties", None) if inner is ABSENT else inner
        if schema is True:
            return None
    return schema


def group_instances(data: Iterable[Data]) -> list[list[str]]:
    """The instances in groups with values at the same paths before the plan, in the order of their first ones."""
    shapes: dict[str, list[Hashable]] = {}
    for message in data:
        if message.instance is not None:
            own = (message.kind, message.path, message.method, shape(message.payload))
            shapes.setdefault(message.instance, []).append(own)
    groups: dict[Hashable, list[str]] = {}
    for instance, own_shapes in shapes.items():
        groups.setdefault(tuple(own_shapes), []).append(instance)
    return list(groups.values())


@dataclass(frozen=True)
class ValidatedPlan:
    """A Request that may run. ``literal_outputs`` are the ranks whose ``_output`` is the result.

    The graph of a template (a plan that runs once per instance) is that of its first one. ``unsplit`` is the plan as
    written, where this one is the part that a run walks. ``undecided`` are the ranks of the Calls that must not start
    yet: the plan is still being written, and a Call that is added may write what they read.
    """

    request: Request
    tools: Mapping[str, Tool]
    graph: Graph
    literal_outputs: frozenset[int]
    warnings: tuple[Problem, ...]
    unsplit: ValidatedPlan | None = None
    undecided: frozenset[int] = frozenset()

    @property
    def nodes(self) -> tuple[PlannedCall, ...]:
        return self.graph.order

    @cached_property
    def kind_schemas(self) -> KindSchemas:
        return KindSchemas(self.request.data())

    def create_log(self) -> Log:
        """A new log of the context before the plan, for a walk to write to."""
        return Log(self.request.data(), is_checked=True)

    @cached_property
    def initial_log(self) -> Log:
        return self.create_log()

    @property
    def max_parallel(self) -> int:
        return min(self.request.config.maxParallel, MAX_PARALLEL)


def validate(raw: Json, registry: Mapping[str, Json] | None = None, served: Iterable[str] = ()) -> list[Problem]:
    """The problems of a Request, errors and warnings.

    ``registry`` holds the schemas of the Tools registered with the worker, by name; ``served`` its Activities' names.
    """
    try:
        plan = validate_request(raw, registry, served)
        return [*plan.warnings, *lint(plan)]
    except InvalidRequest as error:
        return list(error.problems)


def validate_request(
    raw: Json, registry: Mapping[str, Json] | None = None, served: Iterable[str] = ()
) -> ValidatedPlan:
    """The plan of a Request, ready to be walked, as in ``validate``; raises InvalidRequest with every problem."""
    return validate_parsed(read_request(raw), registry, served)


def validate_parsed(
    request: Request, registry: Mapping[str, Json] | None = None, served: Iterable[str] = (),
    indexes: Sequence[int] | None = None, *, is_complete: bool = True,
) -> ValidatedPlan:  # fmt: skip
    """``validate_request`` for a Request that is parsed already; the rest is as in ``validate_plan``."""
    tools = read_tools(request, registry or {}, frozenset(served).__contains__)
    problems = [*request.problems, *tools.problems, *settings_problems_of(request)]
    log = Log(request.data())
    return validate_plan(request, tools.by_name, log, None, problems, indexes, is_complete=is_complete)


def validate_plan(
    request: Request, tools: Mapping[str, Tool], log: Log, at: Place | None, earlier_problems: Sequence[Problem] = (),
    indexes: Sequence[int] | None = None, meter: Meter | None = None, *, is_complete: bool = True,
) -> ValidatedPlan:  # fmt: skip
    """The latest plan of a Request, checked against its Tools and its context (``log``).

    ``at`` is the place of its Calls, None: that of the plan message. ``indexes`` are the positions that its Calls have
    in a larger plan, if they are a part of one: they keep the ids that they have there. In the beginning of a plan
    (``is_complete`` is False) a reference that nothing satisfies yet makes its Call undecided. Raises InvalidRequest.
    """
    problems = list(earlier_problems)
    plan = request.plan
    if plan is None:
        text, hint = "the context holds no plan message", 'add {"type": "plan", "plan": [ … calls … ]}'
        problems += [] if request.is_partial else [Problem("noPlan", text, "/context", hint=hint)]
        raise InvalidRequest(problems)
    at = ("context", plan.index, "plan") if at is None else at
    tools_incomplete = any(p.fatal and p.code in ("invalidTool", "unknownTool") for p in earlier_problems)
    reader = CallReader(tools, request.instances(), at, meter, tools_incomplete=tools_incomplete)
    raw_calls = enumerate(plan.calls[:MAX_CALLS]) if indexes is None else zip(indexes, plan.calls, strict=True)
    calls = [call for i, raw in raw_calls if (call := reader.read(raw, i)) is not None]
    problems += undo_problems(tools, (call.tool for call in calls))
    problems += _check_limits(request, plan.calls, at, template=is_template(request, calls))
    # What an unreadable message would have defined is not missing
    consequences = ("unknownTool", "unknownInstance") if request.is_partial else ()
    if request.set is not None:  # whose one error is that a Call names an instance at all
        consequences = (*consequences, "unknownInstance")
    problems += (p for p in (*reader.problems, *log.problems) if p.code not in consequences)
    kinds = {message.kind for message in request.data()} | {path.kind for call in calls for path in call.writes}
    for call in calls:
        embedded = [references.find_embedded(use, kinds, each=call.is_each) for use in call.reads]
        problems += [replace(p, pointer=call.pointer + p.pointer, call=call.id) for p in embedded if p is not None]
    for call in (call for call in calls if call.walks_plan):
        problems += _check_inner_plan(call, request, tools, (*at, call.index), reader.meter)
    writes_unknown = reader.writes_unknown or request.is_partial or len(plan.calls) > MAX_CALLS or not is_complete
    graph, graph_problems = _check_graph(request, calls, log, writes_unknown=writes_unknown)
    literal_ranks, dropped = find_literal_outputs(graph, plan.mode)
    problems += (*graph_problems, *dropped, *_check_calls(request, graph, literal_ranks, reader.unreadable))
    if any(p.fatal for p in problems):
        raise InvalidRequest(problems)
    undecided: frozenset[int] = frozenset()
    if not is_complete:  # the forward rule applies to them, or would: a Call listed later may change them
        waiting = {calls[read.position].index for read in unsatisfied_reads(PlanListing(calls), log.has_initially)}
        undecided = frozenset(rank for rank, call in enumerate(graph.order) if call.index in waiting)
    return ValidatedPlan(request, tools, graph, literal_ranks, tuple(problems), undecided=undecided)


def _check_inner_plan(
    call: PlannedCall, request: Request, tools: Mapping[str, Tool], at: Place, meter: Meter
) -> Iterator[Problem]:
    """The problems of the plan that a Call holds, with what its child will have: ``input``, and what its scopes name.

    One that it names is read by the child; so is all else that only the child can know.
    """
    plan, until, condition = call.call.get("plan"), call.call.get("until"), None
    if isinstance(until, str):
        try:
            condition = references.parse_condition(until)
        except ExpressionError as error:
            hint = expression_hint(until, references.parse_condition)
            text = f"{error} in {truncate(until, 200)!r}"
            yield Problem("invalidExpression", text, pointer(*at, "until"), call.id, hint)
    elif "repeat" in call.call:
        text = 'a plan is walked again until its "until" holds, and it has none'
        yield Problem("schemaMismatch", text, pointer(*at, "repeat"), call.id, '"until": "†state.shipped"')
    if isinstance(plan, str) and not PLAN_NAME.fullmatch(plan):
        text = f"plan is a list of calls, or the name of a plan that the worker has; {truncate(plan, 100)!r} is neither"
        yield Problem("schemaMismatch", text, pointer(*at, "plan"), call.id, "what runs is fixed in the plan itself")
    if not isinstance(plan, list):
        return
    data = tuple(_inner_data(call))
    config = request.config.model_copy(update={"resume": None})
    own = PlanMessage(len(data), "plan", {}, tuple(plan))
    inner = replace(request, context=(*data, own), config=config)
    try:
        meter.spend(_INNER_STEPS + len(tools))
        prepared = validate_plan(inner, tools, Log(data), (*at, "plan"), meter=meter)
        problems = prepared.warnings
    except InvalidRequest as error:
        problems, condition = error.problems, None
    except TooComplex as error:
        yield Problem(wire.TOO_COMPLEX, str(error), pointer(*at, "plan"), call.id)
        return
    # It is null the first time: a condition on it is meant
    problems_left = (p for p in problems if p.fatal or f"{references.MARK}input.previous" not in p.message)
    yield from (replace(p, call=f"{call.id}/{p.call}") for p in problems_left)
    if condition is not None:
        of_until = _until_problems(condition, prepared.graph)
        yield from (Problem(p.code, p.message, pointer(*at, "until"), call.id, p.hint, p.severity) for p in of_until)


def _until_problems(until: Expression, graph: Graph) -> Iterator[Problem]:
    nodes, read = graph.order, references.paths(until)
    chains = [chain for path in read for chain in graph.writers.overlapping(path, None)]
    if len(nodes) > MAX_UNTIL_CALLS:
        text = f"its until is read after each of {len(nodes):,} calls; at most {MAX_UNTIL_CALLS:,} are allowed"
        yield Problem("limitExceeded", text)
    if not chains:
        text = f"no call of this plan writes what until reads: {truncate(str(until), 200)}"
        writes = list(dict.fromkeys(str(path) for node in nodes for path in node.writes))[:_WRITES_LISTED]
        yield Problem("unknownReference", text, hint=f"it writes: {', '.join(writes) or 'nothing'}")
    adding = (nodes[rank] for chain in chains for rank in chain.entries[1:2] if nodes[rank].method in GROWING_METHODS)
    if (late := next(adding, None)) is not None:
        where = f"what {late.id} adds to {late.writes[0]}"
        text = f"{where} takes effect in plan order: until waits for the calls before it"
        hint = "give each call a path of its own, and let until read these"
        yield Problem("lateUntil", text, hint=hint, severity="warning")


def _inner_data(call: PlannedCall) -> Iterator[Data]:
    uses = [use for use in call.reads if use.at[0] == "input"]
    payload = replace_parts({"input": call.call.get("input", {})}, ((use.at, UNKNOWN) for use in uses))
    own = payload["input"]
    if "repeat" in call.call and isinstance(own, dict):
        own = {**own, "previous": None}  # as it is when the plan is first walked
    for index, path in enumerate((Path("input"), *call.scopes)):
        value = own if index == 0 else nest(path.names, UNKNOWN)
        yield Data(index, path.kind if path.kind in DATA_TYPES else "data", {}, path.kind, value)


def is_template(request: Request, calls: Iterable[PlannedCall]) -> bool:
    return request.is_template(call.call for call in calls)


def _check_graph(
    request: Request, calls: Sequence[PlannedCall], log: Log, *, writes_unknown: bool
) -> tuple[Graph, list[Problem]]:
    """The graph (of the first group of instances), its cycles, and the references that nothing satisfies, once each.

    With ``writes_unknown`` a Call that could not be read may write anything, so no reference is reported.
    """
    groups: Sequence[Sequence[str | None]] = [[None]]
    listing = PlanListing(calls)
    if is_template(request, calls):
        groups = group_instances(request.data())
        listing = PlanListing([replace(call, instance=groups[0][0]) for call in calls])
    check = _ReferenceCheck(listing, log, "warning" if request.config.missing == "wait" else "error")
    graphs: dict[frozenset[int], tuple[Graph, list[Problem]]] = {}
    reports: dict[tuple[str, str], tuple[Problem, list[str | None]]] = {}
    for members in groups[:MAX_GROUPS]:
        has: Has = partial(_has, log, members[0])
        unsatisfied = unsatisfied_reads(listing, has)
        forward = frozenset(id(read) for read in unsatisfied if listing.later_waits(read))
        if forward not in graphs:
            graphs[forward] = order_calls(listing, unsatisfied)
        dangling = [] if writes_unknown else check.problems(unsatisfied, has, members[0])
        for problem in graphs[forward][1] + dangling:
            report = reports.setdefault((problem.code, problem.pointer), (replace(problem, instance=members[0]), []))
            report[1].extend(members)
    problems, count = [], sum(map(len, groups))
    for problem, affected in reports.values():
        if len(affected) < count and problem.code == "unknownReference":  # it keeps no other instance from running
            text = f"{problem.message}, in {len(affected)} of {count} instances: {format_choices(map(str, affected))}"
            problems.append(replace(problem, message=text, severity="warning"))
        else:
            problems.append(problem)
    return next(iter(graphs.values()))[0], problems


def _has(log: Log, instance: str | None, path: Path, own: str | None) -> bool:
    return log.has_initially(path, instance or own)


class _ReferenceCheck:
    """Checks the references of one plan; ``log`` is its context, for the hints."""

    def __init__(self, listing: PlanListing, log: Log, severity: str) -> None:
        self._listing, self._log, self._severity = listing, log, severity
        self._hints_left = errors.MAX_PROBLEMS_REPORTED  # no report shows more of them

    def problems(self, unsatisfied: Iterable[OpenRead], has: Has, instance: str | None) -> list[Problem]:
        """One ``unknownReference`` for each read that no Call satisfies; hints show the context of ``instance``."""
        listing = self._listing
        lacking: dict[tuple[int, Place], tuple[ReferenceUse, list[tuple[Path, ...]]]] = {}
        for read in unsatisfied:
            if len(lacking) >= MAX_LACKING:
                break

            def is_available(path: Path, read: OpenRead = read) -> bool:
                return listing.is_written_by_another(path, read.position) or has(
                    path, listing.calls[read.position].instance
                )

            if not read.is_satisfied(is_available):
                missing = tuple(path for path in read.paths if not is_available(path))
                lacking.setdefault((read.position, read.use.at), (read.use, []))[1].append(missing)
        return [self._problem(at, use, missing, instance) for (at, _), (use, missing) in lacking.items()]

    def _problem(
        self, position: int, use: ReferenceUse, missing: Sequence[tuple[Path, ...]], instance: str | None
    ) -> Problem:
        """The problem of one string; ``missing`` are the paths of each of its expressions that lacks some."""
        call = self._listing.calls[position]
        texts = [" or ".join(map(str, paths[:_PATHS_LISTED])) for paths in missing[:_PATHS_LISTED]]
        text = f"nothing in the context or the plan provides {', nor '.join(texts)}"
        self._hints_left -= 1
        hint = self._hint(missing[0][0], position, instance or call.instance) if self._hints_left >= 0 else None
        # A condition that reads nothing is false: its Call is skipped. A comparison of nothing yields something, too
        unread = {path for paths in missing for path in paths}
        lacks_value = all(references.may_yield(tree, lambda path: path not in unread) for tree in use.expressions)
        severity = "warning" if use is call.condition or lacks_value else self._severity
        return Problem("unknownReference", text, call.pointer + pointer(*use.at), call.id, hint, severity)

    def _hint(self, path: Path, position: int, instance: str | None) -> str:
        if not _OPERATORS.isdisjoint("".join(path.names)):
            return "in a value, an operator stands between spaces; else it is a part of the name before it"
        if path.kind in ELEMENT_KINDS:
            return f"{path} is an element of a list in the parameters of a call with _each, and nowhere else"
        near, text = self._context_near(path, instance)
        others = (call for i, call in enumerate(self._listing.calls[:_COMPARED]) if i != position)
        writes = list(dict.fromkeys(w for call in others for w in call.writes))
        if writes:
            text += f"; the plan writes: {', '.join(map(str, writes[:_WRITES_LISTED]))}"
        # The path that has a similar name where it first differs from the wrong one
        tokens, by_depth = (path.kind, *path.names), dict[int, dict[str, Path]]()
        for one in (*near, *writes):
            pairs = enumerate(zip(tokens, (one.kind, *one.names), strict=False))
            depth, name = next(((depth, other) for depth, (token, other) in pairs if token != other), (0, ""))
            by_depth.setdefault(depth, {})[name] = one
        for depth, named in sorted(by_depth.items(), reverse=True):
            if (similar := find_similar(tokens[depth], named)) is not None:
                return f'did you mean "{named[similar]}"? {text}'
        if path.kind == "input" and len(path.names) == 1:
            text = f"a run has an input where it is given one: --input {path.names[0]}=VALUE; {text}"
        elif path.kind not in TYPES and Path(path.kind) not in near and len(path.names) == 1:
            text = f"--set FILE gives each row of a file as {references.MARK}{path.kind}; {text}"
        return text

    def _context_near(self, path: Path, instance: str | None) -> tuple[list[Path], str]:
        for place in reversed(path.prefixes()):
            value = self._log.read(place, START, instance)
            if isinstance(value, dict):
                near = [Path(place.kind, (*place.names, name)) for name in islice(value, _COMPARED)]
                return near, f"{place} has: {format_choices(value)}"
            if value is not ABSENT:
                size = f" of {len(value)}" if isinstance(value, list) else ""
                return [], f"{place} is {with_article(type_name(value))}{size}"
        kinds = self._log.view_of(instance).kinds()
        return list(map(Path, kinds)), f"kinds in the context: {format_choices(kinds)}"


def approve_problems(request: Request, tools: Mapping[str, Tool]) -> list[Problem]:
    """The names in ``approve`` that no Tool and no Activity has: nothing would ever ask; and conditions of rules that
    cannot be read, or name no parameter of the Tools that the rule is about.

    Names are warnings when a Tool may delegate: a Tool of a definition may have the name. The run that undoes another
    has the rules of that one, and need not have its Tools.
    """
    approve = request.config.approve
    may_delegate = any("_delegate" in (tool.schema.get("properties") or {}) for tool in tools.values())
    names = ((tool.name, tool.answer, tool.activity, tool.consts.get("_delegate")) for tool in tools.values())
    answerers = {name for answers in names for name in answers if isinstance(name, str) and name}
    severity = "warning" if may_delegate else "error"
    places: list[tuple[Place, bool | tuple[str, ...]]] = [(("calls",), approve.calls)]
    places += [(("rules", at, "calls"), rule.calls) for at, rule in enumerate(approve.rules)]
    unknown = [
        Problem("unknownTool", f'no tool and no activity is called "{name}"', pointer("config", "approve", *place, at),
                hint=suggest(name, answerers) or f"known: {format_choices(sorted(answerers))}", severity=severity)
        for place, listed in places
        for at, name in enumerate(listed if isinstance(listed, tuple) else ())
        if name not in answerers and request.config.undoes is None
    ]  # fmt: skip
    return unknown + [p for at, rule in enumerate(approve.rules) if (p := _when_problem(at, rule, tools)) is not None]


def _when_problem(at: int, rule: Rule, tools: Mapping[str, Tool]) -> Problem | None:
    """What is wrong with the condition of a rule: one that nothing can meet would never ask."""
    place = pointer("config", "approve", "rules", at, "when")
    try:
        paths = references.paths(references.parse_condition(rule.when or "true"))
    except ExpressionError as error:
        hint = expression_hint(rule.when or "", references.parse_condition)
        return Problem("invalidExpression", f"{error} in {truncate(rule.when or '', 200)!r}", place, hint=hint)
    listed = rule.calls if isinstance(rule.calls, tuple) else ()
    schemas = [tool.schema for tool in tools.values() if tool.name in listed]
    names = {name for schema in schemas for name in schema.get("properties") or {}} - {*META}
    is_open = len(schemas) < len(listed) or not names or any(_UNFOLLOWED & schema.keys() for schema in schemas)
    for path in paths:
        if path.kind != "call":
            return Problem("invalidExpression", f"{path}: a rule sees nothing but the call", place, hint="†call.amount")
        if not is_open and path.names and path.names[0] not in {*names, *META}:
            text = f'{path}: no tool of this rule has "{path.names[0]}", so the rule would never ask'
            return Problem("unknownParameter", text, place, hint=suggest(path.names[0], names))
    return None


def undo_problems(tools: Mapping[str, Tool], used: Iterable[Tool]) -> list[Problem]:
    """What is wrong with the Calls that would undo those of these Tools: a Tool that is not there, does not take the
    parameters, has no effect, or is undone by a Call that it undoes.
    """
    problems, meter, first = list[Problem](), Meter(PLAN), dict[str, str]()  # by Tool: from which it was met first
    for tool in {tool.name: tool for tool in used if tool.undo is not None}.values():
        undo = tool.undo or {}
        name, start, place = undo["_tool"], f'_undo of "{tool.name}"', pointer("tools", tool.name, "_undo")
        if (other := tools.get(name)) is None:
            hint = suggest(name, tools) or "add a tool message to the context that defines it"
            text = f'{start}: unknown tool "{name}"; known: {format_choices(tools)}'
            problems.append(Problem("unknownTool", text, place, hint=hint))
            continue
        try:
            defects = other.parameters.open_defects({k: v for k, v in undo.items() if k != "_tool"}, meter)
        except TooComplex as error:
            problems.append(Problem(wire.TOO_COMPLEX, f"{start}: {error}", place))
            break
        for at, text in defects:
            problems.append(Problem("schemaMismatch", f'{start}: tool "{name}": {text}', place + pointer(*at)))
        if other.call_kind(other.consts.get("_delegate")) == "latent":
            text = f'{start}: nothing but a model is behind "{name}", and no answer of a model undoes anything'
            problems.append(Problem("invalidTool", text, place))
        met = tool.name
        while met in tools and met not in first:
            first[met] = tool.name
            met = (tools[met].undo or {}).get("_tool", "")
        if first.get(met) == tool.name:
            text = f'{start} leads in a circle: the call that undoes one of "{met}" is undone by one of it'
            problems.append(Problem("cycle", text, place, hint="what undoes is not undone"))
    return problems


def settings_problems_of(request: Request) -> list[Problem]:
    """The problems of a Request beside its Tools and its plan: schemas, and settings that are lowered."""
    schemas: list[tuple[Json, Place]] = [(request.schema, ("schema",))]
    schemas += [(message.schema, ("context", message.index, "schema")) for message in request.data()]
    problems: list[Problem] = []
    meter = Meter(SUBSCHEMAS)
    for schema, place in schemas:
        try:
            problem = None if schema is None else find_schema_problem(schema, place, "invalidSchema", meter=meter)
        except TooComplex as error:
            problems.append(Problem(wire.TOO_COMPLEX, str(error), pointer(*place)))
            break
        problems += [] if problem is None else [problem]
    if request.config.maxParallel > MAX_PARALLEL:
        text = f"maxParallel {request.config.maxParallel} was lowered to {MAX_PARALLEL}"
        problems.append(Problem("limitLowered", text, "/config/maxParallel", severity="warning"))
    return problems


def _check_limits(request: Request, plan: Sequence[Json], at: Place, *, template: bool) -> list[Problem]:
    """The number of Calls; of a set, that its plan is a template and that nothing concerns all instances at once."""
    problems, count = [], len(plan)
    if count > MAX_CALLS:
        text = f"the plan has {count} calls; at most {MAX_CALLS} are allowed"
        hint = "split it, or run one plan over many instances"
        problems.append(Problem("limitExceeded", text, pointer(*at), hint=hint))
    allowed, resume, text = request.config.budget.calls, request.config.resume, f"the plan has {count} calls"
    if template and (allowed is None or count <= allowed):
        text, count = f"{text} for each of {len(request.instances())} instances", count * len(request.instances())
    if request.set is None:
        if allowed is not None and count > allowed:
            problems.append(Problem("limitExceeded", f"{text}; the budget allows {allowed}", pointer(*at)))
        if resume is not None and resume.only == "errors":
            text, hint = (
                'only "errors" is for the rows of a set',
                'of a batch, "failed" names the instances that failed',
            )
            problems.append(Problem("invalidSetting", text, "/config/resume/only", hint=hint))
        return problems
    for index, call in enumerate(plan):
        if isinstance(call, dict) and call.get("_instance") is not None:
            text = "the plan of a set is a template: each of its calls runs for every row, and names no instance"
            problems.append(Problem("invalidSet", text, pointer(*at, index, "_instance"), hint="leave _instance out"))
    if resume is not None and resume.keep != "completed":
        text = "a run over a set takes over whole rows: what completed before a call of a row is not known"
        hint = 'leave "keep" out; with "ids": "new" the rows that run have new _ids'
        problems.append(Problem("invalidSetting", text, "/config/resume/keep", hint=hint))
    return problems


def set_refusal(request: Request, what: str) -> list[Problem]:
    """The problem of a Request with a set that ``what`` is started with: only a Plan that a person starts takes one."""
    if request.set is None:
        return []
    text = f"{what} takes no set of instances ({INSTANCES}): its rows are for a plan that is started by itself"
    hint = "start a Plan; to judge each row by a model, give its plan a latent call or a delegate"
    return [Problem("invalidSet", text, pointer("context", request.set.index, INSTANCES), hint=hint)]


def _find_plain_references(plan: ValidatedPlan) -> Iterator[Problem]:
    """A warning for each text that was probably meant to be a reference: nothing replaces what has no ``†``."""
    graph, log = plan.graph, plan.initial_log
    kinds = {message.kind for message in plan.request.data()}
    kinds |= {path.kind for call in graph.order for path in call.writes}
    for call in graph.order:
        all_kinds = {*kinds, "input", *(ELEMENT_KINDS if call.is_each else ())}
        for at, text in references.scan_strings(call.own_parameters):
            proposal = None if references.is_reference(text) else propose_text(text, all_kinds)
            if proposal is None:
                continue
            right, is_braced = proposal
            if not is_braced and isinstance(path := references.parse(right), Path) and path.kind in kinds:
                is_written = any(graph.writers.overlapping(path, call.instance))
                if not is_written and not log.has_initially(path, call.instance):
                    continue  # the name of something else
            message = f"{brief(text)} is plain text, which nothing replaces"
            hint = did_you_mean(truncate(right, 200))
            yield Problem("plainReference", message, call.pointer + pointer(*at), call.id, hint, "warning")


def _find_hidden_typos(plan: ValidatedPlan) -> Iterator[Problem]:
    """A warning for each path that nothing provides beside a literal, which takes its place without a word.

    An input may be left out, and that is what the literal is for.
    """
    for call in plan.graph.order:
        for use in call.reads:
            defaulted = (
                term for term in references.subtrees(use.tree) if isinstance(term, Operation) and term.sign == "||"
            )
            trees = [tree for tree in defaulted if any(isinstance(term, Literal) for term in tree.terms)]
            for path in dict.fromkeys(path for tree in trees for path in references.paths(tree)):
                is_element = use.is_of_element and path.kind in ELEMENT_KINDS
                is_written = is_element or any(plan.graph.writers.overlapping(path, call.instance))
                if not (path.kind == "input" or is_written or plan.initial_log.has_initially(path, call.instance)):
                    text = f"nothing in the context or the plan provides {path}: the literal beside it is the value"
                    place = call.pointer + pointer(*use.at)
                    yield Problem("unknownReference", text, place, call.id, severity="warning")


def find_literal_outputs(graph: Graph, mode: str) -> tuple[frozenset[int], list[Problem]]:
    """The ranks of latent Calls whose ``_output`` is their result, and a warning for each other: it was a guess."""
    literal: set[int] = set()
    fold = ChainFold(True, lambda all_literal, rank: all_literal and rank in literal)
    problems = []
    for rank, call in enumerate(graph.order):
        if call.literal_output is ABSENT:
            continue
        if mode == "lazy":
            reason = "a lazy plan only plans"
        elif all(fold.at(*wait) for wait in graph.waits[rank]):
            literal.add(rank)
            continue
        else:
            reason = "it depends on a result that was not there yet"
        place = f"{call.pointer}/_output"
        problems.append(Problem("droppedOutput", f"_output was dropped: {reason}", place, call.id, severity="warning"))
    return frozenset(literal), problems


def _check_calls(
    request: Request, graph: Graph, literal_ranks: Container[int], unreadable: Container[int]
) -> list[Problem]:
    """A Call writes where the schemas allow it; a latent one needs a model, and an output path to be worth it."""
    problems, schemas = [], KindSchemas(request.data())
    for rank, call in enumerate(graph.order):
        for path in call.writes if schemas else ():
            if schemas.forbids(path):
                key = "_outputPath" if path in [p for o in call.result_outcomes for p in o] else "_errorPath"
                text = f"the schema of {path.kind} does not allow {path}"
                hint = "write where the schema has a property"
                problems.append(Problem("forbiddenWrite", text, f"{call.pointer}/{key}", call.id, hint))
        if call.kind != "latent" or rank in literal_ranks or call.index in unreadable:
            continue
        if not call.outcomes:
            text = "a latent call without _outputPath is never run"
            problems.append(Problem("thought", text, call.pointer, call.id, severity="warning"))
        elif request.config.latent_model is None:
            text = f'"{call.tool.name}" has no Activity, and the run has no model to answer it'
            hint = "set config.model, or give the tool an _activity"
            problems.append(Problem("noModel", text, call.pointer, call.id, hint))
    return problems


def lint(plan: ValidatedPlan) -> list[Problem]:
    """The warnings of a valid plan: dropped and partial results, writes that are set again before they are read, and
    what is probably misspelt. A run does not look for them.
    """
    graph = plan.graph
    # Fire-and-forget Calls of Tools with a result that no Call of the plan writes: a path may be missing
    text = "this call has no _outputPath, so nobody waits for it and its result is dropped"
    hint = "give it an _outputPath, unless that is what you want"
    writing = {call.tool.name for call in graph.order if call.outcomes}
    dropping = (c for c in graph.order if c.is_detached and c.tool.output is not None and c.tool.name not in writing)
    problems = [Problem("droppedResult", text, call.pointer, call.id, hint, "warning") for call in dropping]
    text, hint = "nobody knows when this call completes, so nothing undoes it", "give it an _outputPath"
    lost = (call for call in graph.order if call.is_detached and call.tool.undo is not None)
    problems += [Problem("neverUndone", text, call.pointer, call.id, hint, "warning") for call in lost]
    readers = WriterIndex()  # the same index, of what Calls read
    certain: set[int] = set()  # the Calls that run whatever the outcomes are
    fold = ChainFold(True, lambda are, rank: are and rank in certain and len(graph.order[rank].outcomes) == 1)
    for rank, call in enumerate(graph.order):
        readers.add(call, rank, paths_read(call))
        if call.condition is None and all(fold.at(*wait) for wait in graph.waits[rank]):
            certain.add(rank)
    problems += [*_partial_reads(graph), *_undeclared_failures(graph), *_misspelt_parameters(graph)]
    problems += islice(_find_plain_references(plan), errors.MAX_PROBLEMS_REPORTED)
    problems += islice(_find_hidden_typos(plan), errors.MAX_PROBLEMS_REPORTED)
    for chain in graph.writers.exact.values():
        for earlier, later in pairwise(chain.entries):
            call, next_call = graph.order[earlier], graph.order[later]
            is_set = next_call.method == "set" and len(next_call.outcomes) == 1 and later in certain
            if not is_set or next_call.instance != call.instance:
                continue
            positions = (
                (bisect.bisect_right(reading.entries, earlier), bisect.bisect_right(reading.entries, later))
                for reading in readers.overlapping(chain.path, call.instance)
            )
            if all(first == last for first, last in positions):  # nobody reads between the two, nor the later one
                text = f"{chain.path} is set again by {next_call.id} before anything can read it"
                problems.append(Problem("lostWrite", text, call.pointer, call.id, severity="warning"))
    return problems


def _undeclared_failures(graph: Graph) -> Iterator[Problem]:
    """A warning for each comparison with the code of a failure that the Tools which fail there do not declare."""
    declared: dict[Path, set[str] | None] = {}  # by path of a code; None: a Tool says nothing of its failures
    for call in graph.order:
        codes = call.tool.schema.get(FAILURES)
        for path in () if call.error is None else call.outcomes[call.error]:
            place = Path(path.kind, (*path.names, "code"))
            others = declared.setdefault(place, set())
            declared[place] = {*others, *codes} if others is not None and isinstance(codes, dict) else None
    for reader, use in [(call, use) for call in graph.order for use in call.reads]:
        for path, code in _compared_texts(use.tree):
            if (codes := declared.get(path)) is not None and code not in codes | _OTHER_CODES:
                text = f'no call fails with the code "{code}" at {path}; declared: {format_choices(sorted(codes))}'
                hint = suggest(code, codes) or "declare it in the failures of the tool"
                yield Problem("unknownFailure", text, reader.pointer + pointer(*use.at), reader.id, hint, "warning")


def _compared_texts(root: Expression) -> Iterator[tuple[Path, str]]:
    """The paths that an expression compares with texts, and these texts."""
    for tree in references.subtrees(root):
        if isinstance(tree, Operation) and tree.sign in ("==", "!="):
            paths_ = [term for term in tree.terms if isinstance(term, Path)]
            texts = [term.value for term in tree.terms if isinstance(term, Literal)]
            yield from ((path, text) for path in paths_ for text in texts if isinstance(text, str))


def _misspelt_parameters(graph: Graph) -> Iterator[Problem]:
    """A warning for each parameter that its Tool does not declare, where a similar one is left out."""
    declared = {call.tool.name: call.tool.parameters.schema.get("properties") or {} for call in graph.order}
    pairs = ((call, key) for call in graph.order for key in call.parameters if key not in declared[call.tool.name])
    for call, key in islice(pairs, errors.MAX_PROBLEMS_REPORTED):
        names = [name for name in declared[call.tool.name] if name not in call.parameters]
        if (hint := suggest(key, names)) is not None:
            text, place = f'"{key}" is no parameter of "{call.tool.name}"', call.pointer + pointer(key)
            yield Problem("undeclaredParameter", text, place, call.id, hint, "warning")


def _partial_reads(graph: Graph) -> Iterator[Problem]:
    """A warning for each Call with effects that reads a path to which several Calls write, should one of them fail.

    A Call with a condition says itself what must be there, and one with an error path deals with its failure.
    """
    two = ChainFold[tuple[int, ...]](
        (), lambda ranks, rank: ranks if ranks[1:] or graph.order[rank].error is not None else (*ranks, rank)
    )
    hint = "say in its _when what must be there, or give them error paths"
    for rank, call in enumerate(graph.order):
        has_effects = call.kind != "latent" and "read-only" not in hint_words(call.tool.schema)
        for path in paths_read(call) if has_effects and call.condition is None else ():
            chains = graph.writers.overlapping(path, call.instance)
            counted = [(chain, bisect.bisect_left(chain.entries, rank)) for chain in chains]
            first, *others = sorted({writer for wait in counted for writer in two.at(*wait)}) or [0]
            if others:
                one, other = graph.order[first].id, graph.order[others[0]].id
                text = f"several calls write to {path}: if {one} or {other} fails, this one runs on what is there"
                yield Problem("partialRead", text, call.pointer, call.id, hint, "warning")
                break
