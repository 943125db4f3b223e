"""The dry run of a plan: waves, outcomes, type problems, and what it is expected to take. Runs nothing.

* ``Walk`` and ``place_result`` alone decide what happens in a dry run. Results are unknown, and nothing is guessed: a
  Call that fails here fails in every run with these outcomes; an error is a proof, a warning a possibility. A failure
  is an outcome where it has a place to be written. The work is bounded: combinations may be left out (``truncated``).
* The forecast is of requests to models and money. Every figure is a range over the combinations of outcomes, and holds
  for those that were left out (``truncated``), too; what delegates do is not known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from itertools import count, islice
from typing import Any, Final, NamedTuple

from acts.language.admission import DRY_RUN, LIMITS, Meter
from acts.language.errors import MAX_PROBLEMS_REPORTED, CallError, InvalidRequest, Problem, TooComplex
from acts.language.messages import Data, wrap_message
from acts.language.references import Path, conjunction
from acts.language.schemas import follow
from acts.language.tools import hint_words, is_server_tool
from acts.language.values import UNKNOWN, Json, deep_merge, nest, pointer
from acts.language.wire import SCHEMA_MISMATCH, TOO_COMPLEX
from acts.machines.call_state import CallState
from acts.machines.commands import Command, StartCall
from acts.machines.walk import Walk
from acts.plan.calls import MAX_ELEMENTS, PlannedCall, find_rule
from acts.plan.context_log import place_result
from acts.plan.graph import ChainFold, Graph
from acts.plan.validate import ValidatedPlan, is_template, lint, validate_request
from acts.simulation.type_flow import TypeProblem, find_type_problems

# The estimated US dollars of one request to a model, or None where no price is known
Price = Callable[[str], float | None]
# How often Calls with ``_each`` are started, at least and at most, by rank
Lengths = Mapping[int, tuple[int, int]]

# What a forecast is made of, as ``simulate_prepared`` names it
FIGURES: Final = ("requests", "delegates", "cost")
# Recursive schemas have no end, and a person reads no more than this
MAX_SAMPLE_PARTS: Final = 1_000
MAX_SAMPLE_DEPTH: Final = 12
_SCALARS: Final = {"string": "sample", "integer": 0, "number": 0, "boolean": True}


def simulate(
    raw: Json, registry: Mapping[str, Json] | None = None, served: Iterable[str] = (), price: Price | None = None
) -> dict[str, Any]:
    """What a Request's plan would do, as JSON; see ``simulate_prepared``. Raises InvalidRequest: the Request does not
    validate, or its plan is too large for a dry run (``tooComplex``).
    """
    prepared = validate_request(raw, registry, served)
    try:
        return simulate_prepared(prepared, price)
    except TooComplex as error:
        plan = prepared.request.plan
        place = pointer("context", plan.index, "plan") if plan is not None else ""
        hint = "use fewer calls and shorter paths; the plan can be run all the same"
        raise InvalidRequest([Problem(TOO_COMPLEX, str(error), place, hint=hint)]) from error


def _may_act(node: PlannedCall) -> bool:
    """A server of MCP only says of its own tools that they are read-only."""
    is_declared = "read-only" in hint_words(node.tool.schema) and not is_server_tool(node.tool.schema)
    return node.kind not in ("latent", "person") and not is_declared


def simulate_prepared(
    prepared: ValidatedPlan, price: Price | None = None, *, max_steps: int | None = None
) -> dict[str, Any]:
    """What a plan would do::

        {waves: [[call id]], criticalPath: [call id],
         calls: [{id, tool, how, activity?, taskQueue?, delegate?, given?, reads, writes,
                  scopes, when?, elements?: {min, max}, instance?, hints?, undo?, approval, background}],
         outcomes: {combinations: [{choices: {call id: path}, conditions?: {call id: boolean}, run: [call id],
                                    skipped: [call id], failed?: [call id], waiting?: [call id]}], truncated},
         samples: {tool: example of its _output, null where it says nothing},
         outside: [call id],
         requests: {min, max}, delegates: {min, max}, cost: {min, max} | null,
         problems: [{code, message, pointer, severity?, call?, hint?, …}],
         instances?, set?}

    ``outside`` are the Calls that may change something outside of the run: delegates, and those with an Activity that
    is not declared to be read-only; a latent Call only reads. ``elements`` is how often a Call with ``_each`` is made,
    ``conditions`` what a combination takes those to be that cannot be known. ``waiting`` are Calls that need what only
    ``provide`` can bring.
    A template is walked for its first instance; its figures are those of all ``instances``, or of one row of a ``set``.
    What ``delegates`` do is not in the figures. The critical path is the one with most Calls. ``max_steps`` is in place
    of ``MAX_STEPS``; TooComplex: one walk of the plan takes more steps than that.
    """
    Meter(DRY_RUN).spend(count_steps(prepared))
    type_problems = find_type_problems(prepared)
    dry = DryRuns(prepared, {p.rank for p in type_problems if p.problem.fatal}, max_steps)
    ids = [n.id for n in prepared.nodes]
    literal, approve = prepared.literal_outputs, prepared.request.config.approve
    approvals = [  # whether a human confirms the Call
        bool(n.kind != "latent" or n.outcomes) and find_rule(n, approve) is not None
        for rank, n in enumerate(prepared.nodes)
    ]
    template, own = is_template(prepared.request, prepared.nodes), prepared.request.set
    lengths = _list_lengths(prepared, dry.runs)
    listed = sorted(range(len(ids)), key=lambda rank: prepared.nodes[rank].index)
    outside = [r for r in listed if r not in literal and _may_act(prepared.nodes[r])]
    figures = _estimate_plan(prepared, dry, price, lengths)
    return {
        "waves": [[ids[rank] for rank in wave] for wave in find_waves(prepared.graph)],
        "criticalPath": [ids[rank] for rank in find_longest_path(prepared.graph)[1]],
        "calls": [_call_item(prepared, rank, lengths, approval=approvals[rank], template=template) for rank in listed],
        "outside": [ids[rank] for rank in outside],
        "outcomes": {"combinations": [run.to_json(ids) for run in dry.runs], "truncated": dry.truncated},
        "samples": {
            name: sample(tool.output)
            for name, tool in {n.tool.name: n.tool for n in prepared.nodes}.items()
            if tool.output is not None
        },
        **figures,
        "problems": _problem_items(prepared, dry, type_problems),
        **({"set": {"source": own.source}} if own is not None else {}),
        **({"instances": len(prepared.request.instances())} if template and own is None else {}),
    }


def _call_item(
    prepared: ValidatedPlan, rank: int, lengths: Mapping[int, tuple[int, int]], *, approval: bool, template: bool
) -> dict[str, Any]:
    node = prepared.nodes[rank]
    is_activity = node.kind == "activity"
    item = {
        "id": node.id, "tool": node.tool.name, "how": node.kind,
        "activity": node.tool.activity if is_activity else None,
        "taskQueue": node.tool.options.taskQueue if is_activity else None,
        "delegate": node.delegate if node.kind == "delegate" else None,
        "who": (list(node.tool.person.who) or None) if node.tool.person is not None else None,
        "given": True if rank in prepared.literal_outputs else None, "hints": hint_words(node.tool.schema) or None,
        "undo": node.tool.undo,
        "reads": list(dict.fromkeys(str(p) for read in node.reads for p in read.paths)),
        "writes": list(map(str, node.writes)), "scopes": list(map(str, node.scopes)),
        "when": None if node.condition is None else node.condition.text,
        "elements": dict(zip(("min", "max"), lengths[rank], strict=True)) if node.is_each else None,
        "instance": None if template else node.instance, "background": node.is_detached,
        "approval": approval and node.kind != "person",
    }  # fmt: skip
    return {key: value for key, value in item.items() if value is not None}


def _problem_items(prepared: ValidatedPlan, dry: DryRuns, type_problems: Sequence[TypeProblem]) -> list[dict[str, Any]]:
    """All problems, errors first, at most MAX_PROBLEMS_REPORTED of them."""
    warnings = [*prepared.warnings, *lint(prepared)]
    for node, options in zip(prepared.nodes, dry.options, strict=True):
        for index in sorted(set(range(len(node.outcomes))) - set(options)):
            text = "it overlaps another alternative"
            hint = "give each alternative a path that no other one holds or lies below"
            if node.is_each:
                text = "that of a call with _each is one list"
                hint = "it goes to the first alternative, a failure to the one that is named for it"
            text = f"no result can choose {conjunction(node.outcomes[index])}: {text}"
            place = f"{node.pointer}/_outputPath"
            warnings.append(Problem("unreachableOutcome", text, place, node.id, hint, "warning"))
    items = [p.to_json() for p in warnings] + [p.to_json() for p in type_problems]
    items += [p.to_json() for p in _idle_calls(prepared, dry)]
    items.sort(key=lambda p: p.get("severity") == "warning")
    more = len(items) - MAX_PROBLEMS_REPORTED
    if more > 0:
        note = Problem("moreProblems", f"… and {more} more problems", severity="warning")
        items[MAX_PROBLEMS_REPORTED:] = [note.to_json()]
    return items


def find_unreachable(prepared: ValidatedPlan) -> list[Problem]:
    """A warning for each Call that no outcome reaches; none where the plan is too large, or has too many, to tell."""
    if count_steps(prepared) > QUICK_STEPS or all(n.condition is None and len(n.outcomes) <= 1 for n in prepared.nodes):
        return []
    dry = DryRuns(prepared, set(), QUICK_STEPS)
    return [problem for problem in _idle_calls(prepared, dry) if problem.code == "unreachable"]


def _idle_calls(prepared: ValidatedPlan, dry: DryRuns) -> Iterable[Problem]:
    """Calls that fail, and Calls that never run and of which the validation has not said so."""
    reported = {p.call for p in prepared.warnings if p.code == "thought"}
    completed = {rank for run in dry.runs for rank in run.states.get("run", ())}
    writers = {
        rank for run in dry.runs for state in ("failed", "waiting") for rank in run.states.get(state, ())
    } | completed
    errors = {rank: error for run in dry.runs[::-1] for rank, error in run.errors.items()}
    for rank, node in enumerate(prepared.nodes):
        if rank in errors:
            always = rank not in completed and not dry.truncated
            text = errors[rank] if always else f"for some outcomes: {errors[rank]}"
            yield Problem("willFail", text, node.pointer, node.id, severity="error" if always else "warning")
        elif not dry.truncated and rank not in writers and node.id not in reported:
            text = "this call is skipped whatever the outcomes are"
            yield Problem("unreachable", text, node.pointer, node.id, severity="warning")


def _list_lengths(prepared: ValidatedPlan, runs: Sequence[OutcomeRun]) -> dict[int, tuple[int, int]]:
    """The least and the greatest length of the list of each Call with ``_each``, by rank: what all dry runs know."""
    out = {}
    for rank in (rank for rank, node in enumerate(prepared.nodes) if node.is_each):
        lengths = [run.elements.get(rank) for run in runs if rank in run.started or rank in run.elements]
        certain = [length for length in lengths if length is not None]
        is_known = certain and len(certain) == len(lengths)
        out[rank] = (min(certain), max(certain)) if is_known else (0, MAX_ELEMENTS)
    return out


def sample(schema: Json) -> Json:
    """A value of the form of a JSON schema, to be changed by who needs one; None for what is no schema."""
    try:
        return _sample(schema, schema, count(1))
    except (LookupError, TypeError, AttributeError):  # a run below may have reported anything
        return None


def _sample(schema: Json, root: Json, parts: Iterator[int], depth: int = 0) -> Json:
    """A sample of a part of a schema, null where it says nothing. Patterns, formats and bounds are not followed."""
    if not isinstance(schema, dict) or depth > MAX_SAMPLE_DEPTH or next(parts) > MAX_SAMPLE_PARTS:
        return None
    for key in ("const", "default", "enum", "examples"):
        if key in schema:
            return schema[key] if key in ("const", "default") else schema[key][0]
    is_typed = "type" in schema or "properties" in schema
    choices: Json = None if is_typed else schema.get("oneOf") or schema.get("anyOf")
    if isinstance(schema.get("$ref"), str) or choices:
        other = follow(root, schema["$ref"]) if isinstance(schema.get("$ref"), str) else choices[0]
        return _sample(other, root, parts, depth + 1)
    kind: Json = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    value: Json = _SCALARS.get(str(kind))
    if kind == "object" and ("properties" in schema or schema.get("additionalProperties") is False):
        value = {k: _sample(v, root, parts, depth + 1) for k, v in schema.get("properties", {}).items()}
    elif kind == "array":
        items = schema.get("prefixItems") or [schema.get("items", True)]
        value = [_sample(part, root, parts, depth + 1) for part in items]
    for part in schema.get("allOf") or ():
        more = _sample(part, root, parts, depth + 1)
        if value is None:
            value = more
        elif isinstance(value, dict) and isinstance(more, dict):
            value = {**value, **more}
    return value


def _estimate_plan(prepared: ValidatedPlan, dry: DryRuns, price: Price | None, lengths: Lengths) -> dict[str, Any]:
    """The figures of ``simulate_prepared``."""
    nodes, literal = prepared.nodes, prepared.literal_outputs
    times = len(prepared.request.instances()) if is_template(prepared.request, nodes) else 1
    started = [ranks for run in dry.runs for ranks in (run.started, (*run.started, *run.states.get("waiting", ())))]
    if dry.truncated:  # between nothing and everything
        started += [(), tuple(r for r, n in enumerate(nodes) if r not in literal and (n.outcomes or n.is_detached))]
    requests, delegates = (
        _range(
            times * sum(lengths.get(rank, (1, 1))[bound] for rank in ranks if nodes[rank].kind == kind)
            for ranks in started for bound in (0, 1)
        )
        for kind in ("latent", "delegate")
    )  # fmt: skip
    config = prepared.request.config
    each = 0.0 if not requests["max"] else price(config.latent_model) if price and config.latent_model else None
    return {
        "requests": requests,
        "delegates": delegates,
        "cost": None if each is None else {k: round(n * config.models.price * each, 6) for k, n in requests.items()},
    }


def _range(numbers: Iterable[int]) -> dict[str, int]:
    values = list(numbers)
    return {"min": min(values), "max": max(values)}


def find_longest_path(graph: Graph) -> tuple[list[int], list[int]]:
    """The wave of each Call, from 1: the one after the last that it waits for; the ranks on the way to the last."""
    ends: list[int] = []
    before: list[int | None] = []

    def later(last: int | None, rank: int | None) -> int | None:
        return rank if last is None or (rank is not None and ends[rank] > ends[last]) else last

    fold: ChainFold[int | None] = ChainFold(None, later)
    for waits in graph.waits:
        last: int | None = None
        for chain, number in waits:
            last = later(last, fold.at(chain, number))
        ends.append(1 if last is None else ends[last] + 1)
        before.append(last)
    at, path = max(range(len(ends)), key=ends.__getitem__, default=None), list[int]()
    while at is not None:
        path.append(at)
        at = before[at]
    return ends, path[::-1]


def find_waves(graph: Graph) -> list[list[int]]:
    """The ranks of the Calls that may run side by side, wave after wave."""
    ends, _ = find_longest_path(graph)
    waves: list[list[int]] = [[] for _ in range(max(ends, default=0))]
    for rank, end in enumerate(ends):
        waves[end - 1].append(rank)
    return waves


# A result where there is only an error path: it is written nowhere
SUCCESS: Final = -1
# Alternatives of a Call up to which each is tried; of more, every one counts as possible
MAX_TRIED_OUTCOMES: Final = 16


def _message_at(paths: Sequence[Path]) -> dict[str, Any]:
    """A Message with an unknown value at each of these paths of one kind."""
    return wrap_message(paths[0].kind, reduce(deep_merge, (nest(path.names, UNKNOWN) for path in paths)))


# Nobody reads more
MAX_COMBINATIONS: Final = 64
# Looks at Calls and paths in all combinations together, 5 to 8 µs each
MAX_STEPS: Final = LIMITS[DRY_RUN].most
# Looks at Calls, paths and names in all combinations together, 5 to 8 µs each: half a second, also of a workflow task
QUICK_STEPS: Final = 60_000
# Characters of a text, and steps of evaluating values, that take as long as a step here
_TEXT_PER_STEP: Final = 400
_WORK_PER_STEP: Final = 5
# Steps of a Call, and of its list for ``_each``
_CALL_STEPS: Final = 8
_EACH_STEPS: Final = 25
# Elements of a result that a dry run builds; of more it knows nothing
MAX_LIST: Final = 100
_NOW: Final = ""  # nobody reads the dates of a dry run
_REPORTED_STATES: Final = {"completed": "run", "detached": "run", "skipped": "skipped", "failed": "failed"}


class UnknownFailure(CallError):
    def to_json(self) -> Any:
        return UNKNOWN


class Decision(NamedTuple):
    """What a dry run had to assume: one of ``options`` possibilities. Decisions are in the order of the run."""

    rank: int
    choice: int
    options: int
    is_condition: bool = False


class OutcomeRun:
    """One dry run: the outcomes taken, as text, its own failures, and by rank what it took conditions to be."""

    def __init__(self, walk: Walk, decisions: Sequence[Decision], started: Iterable[int], doomed: set[int]) -> None:
        self.decisions, self.started = decisions, tuple(started)
        self.states: dict[str, list[int]] = {}
        self.errors: dict[int, str] = {}
        for rank, call in enumerate(walk.calls):
            self.states.setdefault(_REPORTED_STATES.get(call.state, "waiting"), []).append(rank)
            if call.state == "failed" and rank not in doomed:
                # An UnknownFailure has no error of its own: it fails here because it cannot be written
                readable = isinstance(call.error, dict)
                text = str(call.error["message"]) if readable and call.error else "its error cannot be written"
                self.errors[rank] = text
        branching = sorted({*(decision.rank for decision in decisions if not decision.is_condition), *doomed})
        self.choices = {
            rank: conjunction(walk.nodes[rank].outcomes[outcome])
            for rank in branching
            if (outcome := walk.calls[rank].outcome) is not None and walk.calls[rank].state == "completed"
        }
        self.conditions = {decision.rank: decision.choice == 0 for decision in decisions if decision.is_condition}
        lengths = enumerate(map(_known_length, walk.calls))
        self.elements = {rank: length for rank, length in lengths if length is not None}

    def to_json(self, ids: Sequence[str]) -> dict[str, Any]:
        named = {state: [ids[rank] for rank in ranks] for state, ranks in self.states.items()}
        out: dict[str, Any] = {"choices": {ids[rank]: path for rank, path in self.choices.items()}}
        if self.conditions:
            out["conditions"] = {ids[rank]: holds for rank, holds in self.conditions.items()}
        return {**out, "run": [], "skipped": [], **named}


def count_steps(prepared: ValidatedPlan) -> int:
    """The looks at messages, Calls, paths and their names that one dry run takes."""
    steps = 5 * sum(message.instance is None for message in prepared.request.data())
    for node in prepared.nodes:
        paths = [path for paths in (*(use.paths for use in node.reads), *node.outcomes) for path in paths]
        steps += _CALL_STEPS + len(node.scopes) + _EACH_STEPS * node.is_each + sum(3 + len(p.names) for p in paths)
    return steps


class DryRuns:
    """A dry run of a plan for each combination of outcomes; ``truncated`` says that some were left out.

    ``doomed`` are the ranks of Calls that cannot be started. ``options`` are the indexes of the outcomes that a Call
    can take, by rank: the first, a failure's, those that a Message can choose; a model can choose any.
    """

    def __init__(self, prepared: ValidatedPlan, doomed: set[int], max_steps: int | None = None) -> None:
        self._choosing: dict[tuple[Any, ...], dict[int, list[Path]]] = {}
        self.options = [self._options(node) for node in prepared.nodes]
        self._doomed, self._steps_of_run, self._steps = doomed, count_steps(prepared), 0
        # Without the data of instances that no Call is for, so that a run of a template costs one instance
        request, visible = prepared.request, {None, *(n.instance for n in prepared.nodes)}
        context = (
            m for m in request.context if not isinstance(m, Data) or m.instance in visible or m.schema is not None
        )
        self._prepared = replace(prepared, request=replace(request, context=tuple(context)))
        self.truncated = False
        self.runs = self._explore(MAX_STEPS if max_steps is None else max_steps)

    def _options(self, node: PlannedCall) -> tuple[int, ...]:
        if node.outcomes and not node.result_outcome_count:
            return SUCCESS, 0
        if node.kind == "latent" and not node.is_each:
            return tuple(range(len(node.outcomes)))
        choosing = self._choosing_paths(node) if len(node.outcomes) > 1 else {}
        return tuple(i for i in range(len(node.outcomes)) if i in (0, node.error) or i in choosing)

    def _choosing_paths(self, node: PlannedCall) -> dict[int, list[Path]]:
        """By outcome, the paths at which a Message writes that chooses it: all of one kind."""
        if node.is_each:
            return {}
        key = (node.outcomes, node.result_outcome_count, node.runs_activity, is_server_tool(node.tool.schema))
        if key not in self._choosing:
            choices = self._choosing[key] = {}
            for outcome, paths in enumerate(node.result_outcomes):
                of_kind = [path for path in paths if path.kind == paths[0].kind]
                with suppress(CallError):
                    takes_all = len(node.outcomes) > MAX_TRIED_OUTCOMES
                    if takes_all or place_result(node, _message_at(of_kind))[0] == outcome:
                        choices[outcome] = of_kind
        return self._choosing[key]

    def _explore(self, max_steps: int) -> list[OutcomeRun]:
        """The first outcomes come first, then what differs from them in one choice, in two …

        A run repeats the choices of an earlier one up to some Call, and takes another outcome there: none comes twice.
        """
        prefixes: deque[tuple[int, ...]] = deque([()])
        runs: dict[tuple[Any, ...], OutcomeRun] = {}
        number = 0
        while prefixes:
            if number == MAX_COMBINATIONS or (number and self._steps + self._steps // number > max_steps):
                self.truncated = True
                break
            prefix = prefixes.popleft()
            run = self._run(prefix)
            number += 1
            runs.setdefault((tuple(run.choices.items()), tuple(run.conditions.items()), run.started), run)
            choices = tuple(decision.choice for decision in run.decisions)
            more = (
                (*choices[:at], other)
                for at in range(len(prefix), len(choices))
                for other in range(1, run.decisions[at].options)
            )
            prefixes.extend(islice(more, MAX_COMBINATIONS - len(prefixes)))
            self.truncated = self.truncated or next(more, None) is not None
        return list(runs.values())

    def _run(self, prefix: tuple[int, ...]) -> OutcomeRun:
        """Walk with these choices, and with the first possibilities after them."""
        decisions: list[Decision] = []

        def decide(rank: int, options: int, *, is_condition: bool = False) -> int:
            choice = prefix[len(decisions)] if len(decisions) < len(prefix) else 0
            decisions.append(Decision(rank, choice, options, is_condition))
            return choice

        walk = Walk(self._prepared, lambda node: node.id, assume=lambda rank: decide(rank, 2, is_condition=True) == 0)
        started: list[int] = []
        commands = deque(walk.begin(_NOW))
        while commands:
            command = commands.popleft()
            if not isinstance(command, StartCall):
                continue
            rank = walk.by_key[command.node.key].rank
            if rank in self._doomed:
                commands.extend(walk.failed(walk.nodes[rank].key, UnknownFailure(SCHEMA_MISMATCH, ""), _NOW))
                continue
            started.append(rank)
            options = self.options[rank]
            choice = decide(rank, len(options)) if len(options) > 1 else 0
            commands.extend(self._settle(walk, rank, options[choice] if options else None))
        steps = walk.work.task_steps + walk.work.steps.spent
        work = walk.work.texts.spent // _TEXT_PER_STEP + steps // _WORK_PER_STEP
        self._steps += self._steps_of_run + work
        return OutcomeRun(walk, decisions, started, self._doomed)

    def _settle(self, walk: Walk, rank: int, outcome: int | None) -> list[Command]:
        """Let a Call end with an outcome (None: it is fire-and-forget)."""
        node = walk.nodes[rank]
        if outcome is None:
            return walk.completed(node.key, None, _NOW)
        if outcome == node.error:
            return walk.failed(node.key, UnknownFailure("unknown", ""), _NOW)
        if node.is_each:
            length = _known_length(walk.calls[rank])
            results = UNKNOWN if length is None or length > MAX_LIST else [UNKNOWN] * length
            return walk.completed(node.key, results, _NOW)
        if node.kind == "latent":
            return walk.completed(node.key, UNKNOWN, _NOW, outcome if outcome > 0 else None)
        paths = self._choosing_paths(node).get(outcome) if outcome > 0 else None
        return walk.completed(node.key, _message_at(paths) if paths else UNKNOWN, _NOW)


def _known_length(call: CallState) -> int | None:
    elements = call.elements
    is_known = elements is not None and (elements.reading is None or elements.reading.is_known)
    return elements.total if elements is not None and is_known else None
