"""A dry run per combination of outcomes of a plan.

* ``Walk`` alone decides what happens. Results are unknown, unless a Tool's ``_output`` allows a single
  value; nothing is guessed from a sample. So a Call that fails here fails in every run with these outcomes.
* A failure is an outcome where it has a place to be written: an error path or alternative.
* The work is bounded, and the caller is told when combinations are left out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError
from acts.language.messages import Data
from acts.language.references import conjunction
from acts.language.schemas import with_null
from acts.language.values import ABSENT, UNKNOWN, Json
from acts.language.wire import SCHEMA_MISMATCH
from acts.machines.commands import Command, StartCall
from acts.machines.walk import Walk
from acts.simulation.possible_outcomes import build_message
from acts.simulation.schema_compatibility import type_alternatives

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acts.machines.call_state import CallState
    from acts.plan.validate import ValidatedPlan
    from acts.simulation.possible_outcomes import PossibleOutcomes

# As the protocol has it: nobody reads more
MAX_COMBINATIONS: Final = 64
# Looks at Calls, paths and names in all combinations together, 5 to 8 µs each. So many are allowed even for the first
# combination, without which there is nothing to report: a chain of 20,000 Calls takes 300,000
MAX_STEPS: Final = 300_000
# Characters of a text, and looks at parts of values, that take as long as a step
_TEXT_PER_STEP: Final = 400
_PARTS_PER_STEP: Final = 10
# Steps of a Call, of a path that it reads, and of one that it may write; each name of a path is one more. Measured
_CALL_STEPS: Final = 8
_READ_STEPS: Final = 3
_WRITE_STEPS: Final = 2
# The list of a Call with ``_each``: its types, its length, and what its elements read
_EACH_STEPS: Final = 25
# Steps to fold one message of the context, 25 µs
_MESSAGE_STEPS: Final = 5

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
    steps_of_run, allowed = count_steps(prepared), MAX_STEPS if max_steps is None else max_steps
    while prefixes:
        spent = count * steps_of_run + runner.more_steps
        if count == MAX_COMBINATIONS or (count and spent + spent // count > allowed):
            return list(runs.values()), True
        prefix = prefixes.popleft()
        run = runner.run(prefix)
        count += 1
        runs.setdefault((tuple(run.choices.items()), tuple(run.conditions.items()), run.started), run)
        choices = tuple(decision.choice for decision in run.decisions)
        for at in range(len(prefix), len(choices)):
            others = range(1, run.decisions[at].options)
            room = MAX_COMBINATIONS - len(prefixes)
            prefixes.extend((*choices[:at], other) for other in others[:room])
            if len(others) > room:
                truncated = True
                break
    return list(runs.values()), truncated


def count_steps(prepared: ValidatedPlan) -> int:
    """The looks at messages, Calls, paths and their names that one dry run takes."""
    steps = 0
    for node in prepared.nodes:
        steps += _CALL_STEPS + len(node.scopes) + (_EACH_STEPS if node.is_each else 0)
        steps += sum(_READ_STEPS + len(path.names) for use in node.reads for path in use.paths)
        steps += sum(_WRITE_STEPS + len(path.names) for outcome in node.outcomes for path in outcome)
    return steps + _MESSAGE_STEPS * sum(message.instance is None for message in prepared.request.data())


class DryRunner:
    """Walks one plan again and again; ``options`` are the outcomes that each Call can take, by rank.

    ``more_steps`` are those for texts and comparisons, which depend on the values of the context.
    """

    def __init__(self, prepared: ValidatedPlan, outcomes: PossibleOutcomes, doomed: set[int]) -> None:
        self.options = [outcomes.find(node) for node in prepared.nodes]
        self._outcomes = outcomes
        self._prepared = _without_unread_data(prepared)
        self._doomed = doomed
        self.more_steps = 0
        tools = {n.tool.name: n.tool for n in prepared.nodes}
        self._results = {name: _only_value(tool.output) for name, tool in tools.items()}

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
            rank, options = command.rank, self.options[command.rank]
            if rank in self._doomed:
                commands.extend(walk.failed(rank, UnknownFailure(SCHEMA_MISMATCH, ""), _NOW))
                continue
            started.append(rank)
            choice = decide(rank, len(options)) if len(options) > 1 else 0
            commands.extend(self._settle(walk, rank, options[choice] if options else None))
        work = walk.work
        self.more_steps += work.texts.spent // _TEXT_PER_STEP + work.comparisons.spent // _PARTS_PER_STEP
        self.more_steps += work.element_reads.spent // _PARTS_PER_STEP
        return _outcome_run(walk, decisions, started, self._doomed)

    def _settle(self, walk: Walk, rank: int, outcome: int | None) -> list[Command]:
        """Let a Call end with an outcome (None: it is fire-and-forget)."""
        node = walk.nodes[rank]
        if outcome is None:
            return walk.detached(rank, _NOW)
        if outcome == node.error:
            return walk.failed(rank, UnknownFailure("unknown", ""), _NOW)
        value = self._results[node.tool.name]
        if node.is_each:
            return walk.completed(rank, _list_of(value, walk.calls[rank]), _NOW)
        if node.kind == "latent":
            return walk.completed(rank, value, _NOW, outcome if outcome > 0 else None)
        paths = self._outcomes.choosing_paths(node).get(outcome) if outcome > 0 else None
        return walk.completed(rank, build_message(paths, value) if paths else value, _NOW)


def _list_of(result: Json, call: CallState) -> Json:
    """The result of a Call with ``_each``, where each element has this one."""
    known = _known_length(call)
    return UNKNOWN if known is None or known > MAX_LIST else [result] * known


def _known_length(call: CallState) -> int | None:
    elements = call.elements
    is_known = elements is not None and (elements.reading is None or elements.reading.is_known)
    return elements.total if elements is not None and is_known else None


def _without_unread_data(prepared: ValidatedPlan) -> ValidatedPlan:
    """The plan without the data of instances that no Call is for, so that a run of a template costs one instance."""
    request, visible = prepared.request, {None, *(n.instance for n in prepared.nodes)}
    context = (m for m in request.context if not isinstance(m, Data) or m.instance in visible or m.schema is not None)
    return replace(prepared, request=replace(request, context=tuple(context)))


def _only_value(output: Json) -> Json:
    """The one value that an ``_output`` allows, or UNKNOWN."""
    schema = with_null(output)
    alternatives = type_alternatives(schema, schema)
    if len(alternatives) != 1 or (alternatives[0].exact is ABSENT and alternatives[0].name != "null"):
        return UNKNOWN
    return None if alternatives[0].exact is ABSENT else alternatives[0].exact


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
