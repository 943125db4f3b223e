"""Every problem of a Request at once, before anything runs.

``prepare`` turns a Request into what the walk needs (Tools, Calls, graph, log); the
walk is only ever given what passed. ``validate`` gives the problems alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from acts.language.errors import InvalidRequest, Problem, format_choices
from acts.language.messages import Data, Request, read_request
from acts.language.references import Path
from acts.language.schemas import part_of, schema_defect
from acts.language.tools import Tool, read_tools
from acts.language.values import ABSENT, Json, Names, get, pointer
from acts.plan.call_reader import CallReader
from acts.plan.context_log import Log
from acts.plan.dangling_references import ReferenceCheck
from acts.plan.graph import Graph, PlanListing, WriterChain, order_calls, unsatisfied_reads
from acts.plan.instance_classes import classify_instances
from acts.plan.lint import lint
from acts.plan.planned_call import PlannedCall

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

# The plan travels in the run's input, which Temporal bounds at 2 MB: about this many
# Calls of the least size. More belongs into instances or several plans.
MAX_CALLS: Final = 20_000
# Above this, running calls of one workflow meet Temporal's limit of pending activities
MAX_PARALLEL: Final = 2_000


@dataclass(frozen=True)
class ValidatedPlan:
    """A Request that may run. ``given`` are the ranks whose ``_output`` is taken as it stands.

    Of a template (a plan that runs once per instance) the graph is that of the first
    instance. ``whole`` is the plan as it was written, where this is what one run of several
    walks of it.
    """

    request: Request
    tools: Mapping[str, Tool]
    graph: Graph
    given: frozenset[int]
    warnings: tuple[Problem, ...]
    whole: ValidatedPlan | None = None

    @property
    def nodes(self) -> tuple[PlannedCall, ...]:
        """The Calls in plan order: ``nodes[rank]``."""
        return self.graph.order

    def log(self) -> Log:
        """A fresh log of the context as it stands before the plan, for a walk to write to."""
        return Log(self.request.data())

    @cached_property
    def start(self) -> Log:
        """The context as it stands before the plan, to be read only."""
        return self.log()

    @property
    def max_parallel(self) -> int:
        """How many Calls may run at once."""
        return min(self.request.config.maxParallel, MAX_PARALLEL)


def validate(raw: Json, registry: Mapping[str, Json] | None = None, served: Iterable[str] = ()) -> list[Problem]:
    """The problems of a Request, errors and warnings; empty when there are none.

    ``registry`` are the Tools registered with the worker (name to schema), ``served``
    the names of the Activities it has.
    """
    try:
        prepared = validate_request(raw, registry, served)
        return [*prepared.warnings, *lint(prepared.graph, prepared.start)]
    except InvalidRequest as error:
        return list(error.problems)


def validate_request(
    raw: Json, registry: Mapping[str, Json] | None = None, served: Iterable[str] = ()
) -> ValidatedPlan:
    """What the walk needs, from a Request that holds a plan.

    Raises:
        InvalidRequest: with every problem found, warnings among them.
    """
    return validate_parsed(read_request(raw), registry, served)


def validate_parsed(
    request: Request, registry: Mapping[str, Json] | None = None, served: Iterable[str] = (),
    places: Sequence[int] | None = None,
) -> ValidatedPlan:  # fmt: skip
    """``prepare`` for a Request that was read already."""
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
    return validate_plan(request, tools.by_name, Log(request.data()), ("context", plan.index, "plan"), problems, places)


def validate_plan(
    request: Request, tools: Mapping[str, Tool], log: Log, at: tuple[str | int, ...], found: Sequence[Problem] = (),
    places: Sequence[int] | None = None,
) -> ValidatedPlan:  # fmt: skip
    """The latest plan of a Request, checked against its Tools and the log of its context.

    ``at`` is where its Calls stand, ``found`` what is wrong already, ``places`` where its Calls stood in
    the plan that they were taken from.

    Raises:
        InvalidRequest: with every problem, those of ``found`` among them.
    """
    problems = list(found)
    plan = request.plan
    if plan is None:
        raise InvalidRequest(problems)
    tools_incomplete = any(p.fatal and p.code in ("invalidTool", "unknownTool") for p in found)
    reader = CallReader(tools, request.instances(), at, tools_incomplete=tools_incomplete)
    raw_calls = enumerate(plan.calls[:MAX_CALLS]) if places is None else zip(places, plan.calls, strict=True)
    calls = [call for i, raw in raw_calls if (call := reader.read(raw, i)) is not None]
    problems.extend(_limits(request, len(plan.calls), at, template=is_template(request, calls)))
    # What an unreadable message would have defined is not missing
    consequences = ("unknownTool", "unknownInstance") if request.is_partial else ()
    problems.extend(p for p in (*reader.problems, *log.problems) if p.code not in consequences)
    graph, graph_problems = _check_graph(
        request, calls, log, writes_unknown=reader.writes_unknown or request.is_partial or len(plan.calls) > MAX_CALLS
    )
    problems.extend(graph_problems)
    problems.extend(_state_writes(request, graph))
    given, dropped = literal_outputs(graph, plan.mode)
    problems.extend(dropped)
    problems.extend(_model(request, graph, given, reader.unreadable))
    if any(p.fatal for p in problems):
        raise InvalidRequest(problems)
    return ValidatedPlan(request, tools, graph, given, tuple(problems))


def is_template(request: Request, nodes: Iterable[PlannedCall]) -> bool:
    """True when the plan is run once for each instance: no Call of it names one."""
    return bool(request.instances()) and all(n.call.get("_instance") is None for n in nodes)


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
    paths = (path for read in listing.open_reads for option in read.options for path in option)
    graphs: dict[frozenset[int], tuple[Graph, list[Problem]]] = {}
    reports: dict[tuple[str, str], tuple[Problem, list[str]]] = {}
    for alike in classify_instances(instances, paths, log):

        def has(path: Path, _: str | None, held: frozenset[Path] = alike.held) -> bool:
            return path in held

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
    """What is wrong with a Request beside its Tools and its plan: schemas, and settings that are lowered."""
    out = []
    if request.schema is not None and (why := schema_defect(request.schema)):
        out.append(Problem("invalidSchema", why, "/schema"))
    out.extend(
        Problem("invalidSchema", why, pointer("context", message.index, "schema"))
        for message in request.data()
        if message.schema is not None and (why := schema_defect(message.schema))
    )
    if request.config.maxParallel > MAX_PARALLEL:
        text = f"maxParallel {request.config.maxParallel} was lowered to {MAX_PARALLEL}"
        out.append(Problem("limitLowered", text, "/config/maxParallel", severity="warning"))
    return out


def _limits(request: Request, count: int, at: tuple[str | int, ...], *, template: bool) -> list[Problem]:
    out = []
    if count > MAX_CALLS:
        text = f"the plan has {count} calls; at most {MAX_CALLS} are allowed"
        hint = "split it, or run one plan over many instances"
        out.append(Problem("limitExceeded", text, pointer(*at), hint=hint))
    allowed = request.config.budget.calls
    if allowed is not None and count > allowed:
        out.append(Problem("limitExceeded", f"the plan has {count} calls; the budget allows {allowed}", pointer(*at)))
    elif allowed is not None and template and count * len(request.instances()) > allowed:
        times = f"{count} calls for each of {len(request.instances())} instances"
        out.append(Problem("limitExceeded", f"the plan has {times}; the budget allows {allowed}", pointer(*at)))
    return out


def state_schema(data: Sequence[Data], path: Path) -> Json:
    """What the schemas of a kind say of one of its paths: a schema, False, or None.

    Only plain ``properties`` are followed; anything else says nothing (None).
    """
    for message in reversed(data):
        if message.kind == path.kind and message.schema is not None:
            found = _schema_at(message.schema, path.names)
            return part_of(found, message.schema) if isinstance(message.schema, dict) else found
    return None


def _schema_at(schema: Json, names: Names) -> Json:
    for name in names:
        if not isinstance(schema, dict):
            return schema if schema is False else None
        if {"$ref", "anyOf", "oneOf", "allOf", "if", "patternProperties", "nullable"} & set(schema):
            return None
        kind = schema.get("type", "object")
        if kind not in ("object", ["object"]) and "object" not in kind:
            return False
        inner = get(schema, ("properties", name))
        schema = schema.get("additionalProperties", None) if inner is ABSENT else inner
        if schema is True:
            return None
    return schema


def _state_writes(request: Request, graph: Graph) -> list[Problem]:
    schemas = [m for m in request.data() if m.schema is not None]
    if not schemas:
        return []
    out = []
    for node in graph.order:
        for path in node.writes:
            if state_schema(schemas, path) is False:
                key = "_outputPath" if path in [p for o in node.result_outcomes for p in o] else "_errorPath"
                text = f"the schema of {path.kind} does not allow {path}"
                hint = "write where the schema has a property"
                out.append(Problem("forbiddenWrite", text, f"{node.pointer}/{key}", node.id, hint))
    return out


def literal_outputs(graph: Graph, mode: str) -> tuple[frozenset[int], list[Problem]]:
    """The latent Calls whose ``_output`` counts; a guess about what is to come does not."""
    given: dict[int, None] = {}
    leading: dict[int, int] = {}  # by chain: how many of its first entries are given
    out = []

    def settled(chain: WriterChain, count: int) -> bool:
        at = leading.get(id(chain), 0)
        while at < count and chain.entries[at] in given:
            at += 1
        leading[id(chain)] = at
        return at >= count

    for rank, node in enumerate(graph.order):
        if node.given is ABSENT:
            continue
        if mode == "lazy":
            why = "a lazy plan only plans"
        elif all(settled(chain, count) for chain, count in graph.waits[rank]):
            given[rank] = None
            continue
        else:
            why = "it depends on a result that was not there yet"
        out.append(
            Problem(
                "droppedOutput", f"_output was dropped: {why}", f"{node.pointer}/_output", node.id, severity="warning"
            )
        )
    return frozenset(given), out


def _model(request: Request, graph: Graph, given: frozenset[int], unreadable: Container[int]) -> list[Problem]:
    out = []
    for rank, node in enumerate(graph.order):
        if node.kind != "latent" or rank in given or node.index in unreadable:
            continue
        if not node.outcomes:
            out.append(
                Problem(
                    "thought",
                    "a latent call without _outputPath is never run",
                    node.pointer,
                    node.id,
                    severity="warning",
                )
            )
        elif request.config.model is None:
            out.append(Problem("noModel", f'"{node.tool.name}" has no Activity, and the run has no model to answer it',
                               node.pointer, node.id, "set config.model, or give the tool an _activity"))  # fmt: skip
    return out
