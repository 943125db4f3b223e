"""Which outcomes a Call can take, and a dry run for each combination of the outcomes of a plan.

* ``Walk`` and ``place_result`` alone decide what happens. Results are unknown, and nothing is guessed. So a Call that
  fails here fails in every run with these outcomes.
* A failure is an outcome where it has a place to be written: an error path or alternative.
* The work is bounded, and the caller is told when combinations are left out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from acts.language.admission import DRY_RUN, LIMITS
from acts.language.errors import CallError
from acts.language.messages import Data, wrap_message
from acts.language.references import conjunction
from acts.language.tools import is_server_tool
from acts.language.values import UNKNOWN, deep_merge, nest
from acts.language.wire import SCHEMA_MISMATCH
from acts.machines.commands import Command, StartCall
from acts.machines.walk import Walk
from acts.plan.context_log import place_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acts.language.references import Path
    from acts.machines.call_state import CallState
    from acts.plan.calls import PlannedCall
    from acts.plan.validate import ValidatedPlan


SUCCESS: Final = -1
"""A result where there is only an error path: it is written nowhere."""


# Alternatives of a Call up to which each is tried; of more, every one counts as possible
MAX_TRIED_OUTCOMES: Final = 16


class PossibleOutcomes:
    """The outcomes that the Calls of one plan can take."""

    def __init__(self) -> None:
        self._choosing: dict[tuple[Any, ...], dict[int, list[Path]]] = {}

    def find(self, node: PlannedCall) -> tuple[int, ...]:
        """The indexes: the first, a failure's, those that a Message can choose; a model can choose any."""
        if node.outcomes and not node.result_outcome_count:
            return SUCCESS, 0
        if node.kind == "latent" and not node.is_each:
            return tuple(range(len(node.outcomes)))
        choosing = self.choosing_paths(node) if len(node.outcomes) > 1 else {}
        return tuple(i for i in range(len(node.outcomes)) if i in (0, node.error) or i in choosing)

    def find_impossible(self, node: PlannedCall) -> list[int]:
        """The indexes that no result can choose."""
        return sorted(set(range(len(node.outcomes))) - set(self.find(node)))

    def choosing_paths(self, node: PlannedCall) -> dict[int, list[Path]]:
        """By outcome, the paths at which a Message writes that chooses it: all of one kind."""
        if node.is_each:
            return {}
        key = (node.outcomes, node.result_outcome_count, node.runs_activity, is_server_tool(node.tool.schema))
        if key not in self._choosing:
            paths = ([path for path in paths if path.kind == paths[0].kind] for paths in node.result_outcomes)
            messages = ((outcome, of_kind, build_message(of_kind)) for outcome, of_kind in enumerate(paths))
            takes_all = len(node.outcomes) > MAX_TRIED_OUTCOMES
            self._choosing[key] = {i: of_kind for i, of_kind, m in messages if takes_all or _chooses(node, m, i)}
        return self._choosing[key]


def build_message(paths: Sequence[Path]) -> dict[str, Any]:
    """A Message with an unknown value at each of these paths of one kind."""
    payload = nest(paths[0].names, UNKNOWN)
    for path in paths[1:]:
        payload = deep_merge(payload, nest(path.names, UNKNOWN))
    return wrap_message(paths[0].kind, payload)


def _chooses(node: PlannedCall, message: dict[str, Any], outcome: int) -> bool:
    try:
        return place_result(node, message)[0] == outcome
    except CallError:
        return False


# As the protocol has it: nobody reads more
MAX_COMBINATIONS: Final = 64
# Looks at Calls and paths in all combinations together, 5 to 8 µs each
MAX_STEPS: Final = LIMITS[DRY_RUN].most
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
    """A failure of which nothing is known."""

    def to_json(self) -> Any:
        return UNKNOWN


@dataclass(frozen=True, slots=True)
class Decision:
    """What a dry run had to assume: one of ``options`` possibilities. Decisions are in the order of the run."""

    rank: int
    choice: int
    options: int
    is_condition: bool = False


@dataclass(frozen=True, slots=True)
class OutcomeRun:
    """One dry run.

    ``choices`` are the outcomes taken, by rank, as text; ``errors`` the failures that the run itself produced.
    ``conditions`` says of each condition that cannot be known what it was taken to be; ``elements`` how many elements
    a list has that is known.
    """

    decisions: tuple[Decision, ...]
    choices: dict[int, str]
    started: tuple[int, ...]
    states: dict[str, list[int]]
    errors: dict[int, str]
    conditions: dict[int, bool]
    elements: dict[int, int]

    def to_json(self, ids: Sequence[str]) -> dict[str, Any]:
        named = {state: [ids[rank] for rank in ranks] for state, ranks in self.states.items()}
        out: dict[str, Any] = {"choices": {ids[rank]: path for rank, path in self.choices.items()}}
        if self.conditions:
            out["conditions"] = {ids[rank]: holds for rank, holds in self.conditions.items()}
        return {**out, "run": [], "skipped": [], **named}


def explore_outcomes(
    prepared: ValidatedPlan, outcomes: PossibleOutcomes, doomed: set[int], max_steps: int | None = None
) -> tuple[list[OutcomeRun], bool]:
    """A dry run per combination of outcomes, and whether some were left out.

    ``doomed`` are the ranks of Calls that cannot be started; ``max_steps`` is in place of MAX_STEPS. The first
    outcomes come first, then what differs from them in one choice, in two … A run repeats the choices of an earlier
    one up to some Call, takes another outcome there and the first ones after it; so no combination comes twice.
    """
    runner = DryRunner(prepared, outcomes, doomed)
    prefixes: deque[tuple[int, ...]] = deque([()])
    runs: dict[tuple[Any, ...], OutcomeRun] = {}
    count, truncated = 0, False
    allowed = MAX_STEPS if max_steps is None else max_steps
    while prefixes:
        if count == MAX_COMBINATIONS or (count and runner.steps + runner.steps // count > allowed):
            return list(runs.values()), True
        prefix = prefixes.popleft()
        run = runner.run(prefix)
        count += 1
        runs.setdefault((tuple(run.choices.items()), tuple(run.conditions.items()), run.started), run)
        choices = tuple(decision.choice for decision in run.decisions)
        more = (
            (*choices[:at], other)
            for at in range(len(prefix), len(choices))
            for other in range(1, run.decisions[at].options)
        )
        prefixes.extend(islice(more, MAX_COMBINATIONS - len(prefixes)))
        truncated = truncated or next(more, None) is not None
    return list(runs.values()), truncated


def count_steps(prepared: ValidatedPlan) -> int:
    """The looks at messages, Calls, paths and their names that one dry run takes."""
    steps = 5 * sum(message.instance is None for message in prepared.request.data())
    for node in prepared.nodes:
        paths = [path for paths in (*(use.paths for use in node.reads), *node.outcomes) for path in paths]
        steps += _CALL_STEPS + len(node.scopes) + _EACH_STEPS * node.is_each + sum(3 + len(p.names) for p in paths)
    return steps


class DryRunner:
    """Walks one plan again and again; ``options`` are the outcomes that each Call can take, by rank.

    ``steps`` are those of the runs so far, texts and comparisons included.
    """

    def __init__(self, prepared: ValidatedPlan, outcomes: PossibleOutcomes, doomed: set[int]) -> None:
        self.options = [outcomes.find(node) for node in prepared.nodes]
        self._outcomes = outcomes
        self._prepared = _without_unread_data(prepared)
        self._doomed = doomed
        self._steps_of_run = count_steps(prepared)
        self.steps = 0

    def run(self, prefix: tuple[int, ...]) -> OutcomeRun:
        """Walk with these choices, and with the first possibilities after them."""
        decisions: list[Decision] = []

        def decide(rank: int, options: int, *, is_condition: bool = False) -> int:
            choice = prefix[len(decisions)] if len(decisions) < len(prefix) else 0
            decisions.append(Decision(rank, choice, options, is_condition))
            return choice

        def assume(rank: int) -> bool:
            return decide(rank, 2, is_condition=True) == 0

        walk = Walk(self._prepared, lambda node: node.id, assume=assume)
        started: list[int] = []
        commands = deque(walk.begin(_NOW))
        while commands:
            command = commands.popleft()
            if not isinstance(command, StartCall):
                continue
            rank = walk.by_key[command.node.key].rank
            options = self.options[rank]
            if rank in self._doomed:
                commands.extend(walk.failed(walk.nodes[rank].key, UnknownFailure(SCHEMA_MISMATCH, ""), _NOW))
                continue
            started.append(rank)
            choice = decide(rank, len(options)) if len(options) > 1 else 0
            commands.extend(self._settle(walk, rank, options[choice] if options else None))
        work = walk.work.texts.spent // _TEXT_PER_STEP + walk.work.steps.spent // _WORK_PER_STEP
        self.steps += self._steps_of_run + work
        return _outcome_run(walk, decisions, started, self._doomed)

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
        paths = self._outcomes.choosing_paths(node).get(outcome) if outcome > 0 else None
        return walk.completed(node.key, build_message(paths) if paths else UNKNOWN, _NOW)


def _known_length(call: CallState) -> int | None:
    elements = call.elements
    is_known = elements is not None and (elements.reading is None or elements.reading.is_known)
    return elements.total if elements is not None and is_known else None


def _without_unread_data(prepared: ValidatedPlan) -> ValidatedPlan:
    """The plan without the data of instances that no Call is for, so that a run of a template costs one instance."""
    request, visible = prepared.request, {None, *(n.instance for n in prepared.nodes)}
    context = (m for m in request.context if not isinstance(m, Data) or m.instance in visible or m.schema is not None)
    return replace(prepared, request=replace(request, context=tuple(context)))


def _outcome_run(walk: Walk, decisions: Sequence[Decision], started: Sequence[int], doomed: set[int]) -> OutcomeRun:
    states: dict[str, list[int]] = {}
    errors: dict[int, str] = {}
    for rank, call in enumerate(walk.calls):
        states.setdefault(_REPORTED_STATES.get(call.state, "waiting"), []).append(rank)
        if call.state == "failed" and rank not in doomed:
            # An UnknownFailure has no error of its own: it fails here because it cannot be written
            readable = isinstance(call.error, dict)
            errors[rank] = str(call.error["message"]) if readable and call.error else "its error cannot be written"
    branching = sorted({*(decision.rank for decision in decisions if not decision.is_condition), *doomed})
    choices = {
        rank: conjunction(walk.nodes[rank].outcomes[outcome])
        for rank in branching
        if (outcome := walk.calls[rank].outcome) is not None and walk.calls[rank].state == "completed"
    }
    conditions = {decision.rank: decision.choice == 0 for decision in decisions if decision.is_condition}
    lengths = {rank: length for rank, call in enumerate(walk.calls) if (length := _known_length(call)) is not None}
    return OutcomeRun(tuple(decisions), choices, tuple(started), states, errors, conditions, lengths)
