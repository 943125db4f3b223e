"""Every problem of a Request at once, before anything runs.

``validate_request`` turns a Request into a ``ValidatedPlan`` (Tools, Calls, graph, context), the
only thing that is ever walked. ``validate`` returns the problems alone. Nothing here runs a plan,
and nothing here looks up Tools or definitions: callers pass what they loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from acts.language.config import MAX_PARALLEL
from acts.language.errors import InvalidRequest, Problem, TooComplex, format_choices
from acts.language.messages import INSTANCES, Request
from acts.language.references import Path
from acts.language.request_reader import read_request
from acts.language.schemas import CheckMemo, find_schema_problem
from acts.language.tools import MAX_SCHEMAS_STEPS, Tool, read_tools
from acts.language.values import ABSENT, Json, Place, pointer
from acts.language.wire import TOO_COMPLEX
from acts.language.work_meter import WorkMeter
from acts.plan.call_reader import CallReader
from acts.plan.context_log import Log
from acts.plan.dangling_references import ReferenceCheck
from acts.plan.graph import Graph, PlanListing, WriterChain, order_calls, unsatisfied_reads
from acts.plan.instance_classes import classify_instances
from acts.plan.kind_schemas import KindSchemas
from acts.plan.lint import lint
from acts.plan.planned_call import PlannedCall

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

# A plan is part of the run's input, which Temporal limits to 2 MB: about as many Calls of the
# smallest size. More belong into instances or several plans.
MAX_CALLS: Final = 20_000


@dataclass(frozen=True)
class ValidatedPlan:
    """A Request that may run. ``literal_outputs`` are the ranks whose ``_output`` is the result.

    The graph of a template (a plan that runs once per instance) is that of its first instance.
    ``unsplit`` is the plan as written, where this one is the part that a single run walks.
    ``undecided`` are the ranks of the Calls that must not start yet, because the plan is still being
    written and a Call that is added may write what they read.
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
        """The Calls in plan order: ``nodes[rank]``."""
        return self.graph.order

    @cached_property
    def kind_schemas(self) -> KindSchemas:
        """What the schemas of the context say of the paths that Calls write."""
        return KindSchemas(self.request.data())

    @cached_property
    def check_memo(self) -> CheckMemo:
        """What checks of large values found while this plan is walked."""
        return CheckMemo()

    def create_log(self) -> Log:
        """A new log of the context before the plan, for a walk to write to."""
        return Log(self.request.data(), is_checked=True)

    @cached_property
    def initial_log(self) -> Log:
        """The context before the plan, shared: only to be read."""
        return self.create_log()

    @property
    def max_parallel(self) -> int:
        """How many Calls may run at once."""
        return min(self.request.config.maxParallel, MAX_PARALLEL)


def validate(raw: Json, registry: Mapping[str, Json] | None = None, served: Iterable[str] = ()) -> list[Problem]:
    """The problems of a Request, errors and warnings.

    ``registry`` holds the schemas of the Tools registered with the worker, by name; ``served``
    the names of its Activities.
    """
    try:
        plan = validate_request(raw, registry, served)
        return [*plan.warnings, *lint(plan.graph, plan.initial_log)]
    except InvalidRequest as error:
        return list(error.problems)


def validate_request(
    raw: Json, registry: Mapping[str, Json] | None = None, served: Iterable[str] = ()
) -> ValidatedPlan:
    """The plan of a Request, ready to be walked; the parameters are those of ``validate``.

    Raises:
        InvalidRequest: with every problem, warnings included.
    """
    return validate_parsed(read_request(raw), registry, served)


def validate_parsed(
    request: Request, registry: Mapping[str, Json] | None = None, served: Iterable[str] = (),
    indexes: Sequence[int] | None = None, *, is_complete: bool = True,
) -> ValidatedPlan:  # fmt: skip
    """``validate_request`` for a Request that is parsed already; the rest is as in ``validate_plan``."""
    problems = list(request.problems)
    tools = read_tools(request, registry or {}, frozenset(served).__contains__)
    problems.extend(tools.problems)
    problems.extend(settings_problems_of(request))
    plan = request.plan
    if plan is None and not request.is_partial:
        problems.append(Problem("noPlan", "the context holds no plan message", "/context",
                                hint='add {"type": "plan", "plan": [ … calls … ]}'))  # fmt: skip
    if plan is None:
        raise InvalidRequest(problems)
    at = ("context", plan.index, "plan")
    return validate_plan(request, tools.by_name, Log(request.data()), at, problems, indexes, is_complete=is_complete)


def validate_plan(
    request: Request, tools: Mapping[str, Tool], log: Log, at: Place, earlier_problems: Sequence[Problem] = (),
    indexes: Sequence[int] | None = None, *, is_complete: bool = True,
) -> ValidatedPlan:  # fmt: skip
    """The latest plan of a Request, checked against its Tools and its context (``log``).

    ``at`` is the place of its Calls in the Request. ``indexes`` are the positions that its Calls
    have in a larger plan, if they are a part of one: they keep the ids that they have there.
    A plan that is not ``is_complete`` is the beginning of one: a reference that nothing satisfies yet
    makes its Call undecided.

    Raises:
        InvalidRequest: with every problem, ``earlier_problems`` included.
    """
    problems = list(earlier_problems)
    plan = request.plan
    if plan is None:
        raise InvalidRequest(problems)
    tools_incomplete = any(p.fatal and p.code in ("invalidTool", "unknownTool") for p in earlier_problems)
    reader = CallReader(tools, request.instances(), at, tools_incomplete=tools_incomplete)
    raw_calls = enumerate(plan.calls[:MAX_CALLS]) if indexes is None else zip(indexes, plan.calls, strict=True)
    calls = [call for i, raw in raw_calls if (call := reader.read(raw, i)) is not None]
    problems.extend(_check_limits(request, len(plan.calls), at, template=is_template(request, calls)))
    # What an unreadable message would have defined is not missing
    consequences = ("unknownTool", "unknownInstance") if request.is_partial else ()
    if request.set is not None:  # whose one error is that a Call names an instance at all
        consequences = (*consequences, "unknownInstance")
    problems.extend(p for p in (*reader.problems, *log.problems) if p.code not in consequences)
    kinds = {message.kind for message in request.data()} | {path.kind for call in calls for path in call.writes}
    problems.extend(reader.embedded_problems(kinds))
    writes_unknown = reader.writes_unknown or request.is_partial or len(plan.calls) > MAX_CALLS or not is_complete
    graph, graph_problems = _check_graph(request, calls, log, writes_unknown=writes_unknown)
    problems.extend(graph_problems)
    problems.extend(_check_state_writes(KindSchemas(request.data()), graph))
    literal_ranks, dropped = find_literal_outputs(graph, plan.mode)
    problems.extend(dropped)
    problems.extend(_check_latent_calls(request, graph, literal_ranks, reader.unreadable))
    if any(p.fatal for p in problems):
        raise InvalidRequest(problems)
    undecided = frozenset() if is_complete else _undecided_ranks(graph, calls, log)
    return ValidatedPlan(request, tools, graph, literal_ranks, tuple(problems), undecided=undecided)


def _undecided_ranks(graph: Graph, calls: Sequence[PlannedCall], log: Log) -> frozenset[int]:
    """The ranks of the Calls that the forward rule applies to, or would: a Call listed later may change them."""
    listing = PlanListing(calls)
    positions = {read.position for read in unsatisfied_reads(listing, log.has_initially)}
    indexes = {calls[position].index for position in positions}
    return frozenset(rank for rank, call in enumerate(graph.order) if call.index in indexes)


def is_template(request: Request, calls: Iterable[PlannedCall]) -> bool:
    """True when the plan runs once per instance: there are instances, and no Call names one."""
    return bool(request.instances()) and all(call.call.get("_instance") is None for call in calls)


def _check_graph(
    request: Request, calls: Sequence[PlannedCall], log: Log, *, writes_unknown: bool
) -> tuple[Graph, list[Problem]]:
    """The graph, its cycles, and the references that nothing satisfies.

    With ``writes_unknown`` a Call that could not be read may write anything, so no reference is reported.
    """
    if is_template(request, calls):
        return _check_template(request, calls, log, writes_unknown=writes_unknown)
    listing = PlanListing(calls)
    unsatisfied = unsatisfied_reads(listing, log.has_initially)
    graph, problems = order_calls(listing, unsatisfied)
    if not writes_unknown:
        problems += ReferenceCheck(listing, log, _reference_severity(request)).problems(unsatisfied, log.has_initially)
    return graph, problems


def _check_template(
    request: Request, calls: Sequence[PlannedCall], log: Log, *, writes_unknown: bool
) -> tuple[Graph, list[Problem]]:
    """The graph of the first instance, and the problems of all of them, each reported once."""
    instances = request.instances()
    listing = PlanListing([replace(call, instance=instances[0]) for call in calls])
    check = ReferenceCheck(listing, log, _reference_severity(request))
    paths = (path for read in listing.open_reads for path in read.paths if path in read.unwritten)
    graphs: dict[frozenset[int], tuple[Graph, list[Problem]]] = {}
    reports: dict[tuple[str, str], tuple[Problem, list[str]]] = {}
    for alike in classify_instances(instances, paths, log):

        def has(path: Path, _: str | None, present: frozenset[Path] = alike.present) -> bool:
            return path in present

        unsatisfied = unsatisfied_reads(listing, has)
        forward = frozenset(id(read) for read in unsatisfied if listing.later_waits(read))
        if forward not in graphs:
            graphs[forward] = order_calls(listing, unsatisfied)
        first = alike.instances[0]
        for problem in graphs[forward][1] + ([] if writes_unknown else check.problems(unsatisfied, has, first)):
            report = reports.setdefault((problem.code, problem.pointer), (replace(problem, instance=first), []))
            report[1].extend(alike.instances)
    graph, _ = next(iter(graphs.values()))
    return graph, [_of_some(problem, affected, len(instances)) for problem, affected in reports.values()]


def _reference_severity(request: Request) -> str:
    return "warning" if request.config.missing == "wait" else "error"


def _of_some(problem: Problem, affected: Sequence[str], instances: int) -> Problem:
    """A template's problem: one that only some instances have is theirs, and keeps no other from running."""
    if len(affected) == instances or problem.code != "unknownReference":
        return problem
    text = f"{problem.message}, in {len(affected)} of {instances} instances: {format_choices(affected)}"
    return replace(problem, message=text, severity="warning")


def settings_problems_of(request: Request) -> list[Problem]:
    """The problems of a Request beside its Tools and its plan: schemas, and settings that are lowered."""
    schemas: list[tuple[Json, Place]] = [(request.schema, ("schema",))]
    schemas += [(message.schema, ("context", message.index, "schema")) for message in request.data()]
    problems: list[Problem] = []
    meter = WorkMeter("reading the schemas of the context", MAX_SCHEMAS_STEPS)
    for schema, place in schemas:
        try:
            problem = None if schema is None else find_schema_problem(schema, place, "invalidSchema", meter=meter)
        except TooComplex as error:
            problems.append(Problem(TOO_COMPLEX, str(error), pointer(*place)))
            break
        if problem is not None:
            problems.append(problem)
    if request.config.maxParallel > MAX_PARALLEL:
        text = f"maxParallel {request.config.maxParallel} was lowered to {MAX_PARALLEL}"
        problems.append(Problem("limitLowered", text, "/config/maxParallel", severity="warning"))
    return problems


def _check_limits(request: Request, count: int, at: Place, *, template: bool) -> list[Problem]:
    problems = []
    if count > MAX_CALLS:
        text = f"the plan has {count} calls; at most {MAX_CALLS} are allowed"
        hint = "split it, or run one plan over many instances"
        problems.append(Problem("limitExceeded", text, pointer(*at), hint=hint))
    allowed, instances = request.config.budget.calls, len(request.instances())
    calls = f"{count} calls"
    if template and (allowed is None or count <= allowed):
        calls, count = f"{count} calls for each of {instances} instances", count * instances
    if request.set is not None:
        problems.extend(_check_set(request, at))
    elif allowed is not None and count > allowed:
        text = f"the plan has {calls}; the budget allows {allowed}"
        problems.append(Problem("limitExceeded", text, pointer(*at)))
    return problems


def set_refusal(request: Request, what: str) -> list[Problem]:
    """The problem of a Request with a set that ``what`` is started with: only a Plan that a person starts takes one."""
    own = request.set
    if own is None:
        return []
    text = f"{what} takes no set of instances ({INSTANCES}): its rows are for a plan that is started by itself"
    hint = "start a Plan; to judge each row by a model, give its plan a latent call or a delegate"
    return [Problem("invalidSet", text, pointer("context", own.index, INSTANCES), hint=hint)]


def _check_set(request: Request, at: Place) -> list[Problem]:
    """The plan of a set is a template; what else concerns all instances at once cannot be."""
    problems, plan = [], request.plan
    for index, call in enumerate(plan.calls if plan is not None else ()):
        if isinstance(call, dict) and call.get("_instance") is not None:
            text = "the plan of a set is a template: each of its calls runs for every row, and names no instance"
            problems.append(Problem("invalidSet", text, pointer(*at, index, "_instance"), hint="leave _instance out"))
    resume = request.config.resume
    if resume is not None and resume.keep != "completed":
        text = "a run over a set takes over whole rows: what completed before a call of a row is not known"
        hint = 'leave "keep" out; with "ids": "new" the rows that run have new _ids'
        problems.append(Problem("invalidSetting", text, "/config/resume/keep", hint=hint))
    return problems


def _check_state_writes(schemas: KindSchemas, graph: Graph) -> list[Problem]:
    problems = []
    for call in graph.order if schemas else ():
        for path in call.writes:
            if schemas.forbids(path):
                key = "_outputPath" if path in [p for o in call.result_outcomes for p in o] else "_errorPath"
                text = f"the schema of {path.kind} does not allow {path}"
                hint = "write where the schema has a property"
                problems.append(Problem("forbiddenWrite", text, f"{call.pointer}/{key}", call.id, hint))
    return problems


def find_literal_outputs(graph: Graph, mode: str) -> tuple[frozenset[int], list[Problem]]:
    """The ranks of the latent Calls whose ``_output`` is their result, and a warning for each other one.

    An ``_output`` that depends on a result of a Call that has not run was a guess.
    """
    literal: set[int] = set()
    prefixes: dict[int, int] = {}  # by chain: how many of its first entries are literal

    def is_literal(chain: WriterChain, count: int) -> bool:
        prefix = prefixes.get(id(chain), 0)
        while prefix < count and chain.entries[prefix] in literal:
            prefix += 1
        prefixes[id(chain)] = prefix
        return prefix >= count

    problems = []
    for rank, call in enumerate(graph.order):
        if call.literal_output is ABSENT:
            continue
        if mode == "lazy":
            reason = "a lazy plan only plans"
        elif all(is_literal(chain, count) for chain, count in graph.waits[rank]):
            literal.add(rank)
            continue
        else:
            reason = "it depends on a result that was not there yet"
        place = f"{call.pointer}/_output"
        problems.append(Problem("droppedOutput", f"_output was dropped: {reason}", place, call.id, severity="warning"))
    return frozenset(literal), problems


def _check_latent_calls(
    request: Request, graph: Graph, literal_ranks: Container[int], unreadable: Container[int]
) -> list[Problem]:
    """A latent Call needs a model to answer it, and an output path to be worth a request."""
    problems = []
    for rank, call in enumerate(graph.order):
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
