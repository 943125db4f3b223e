"""Each combination of outcomes of a plan, as a dry walk.

* What happens is decided by ``walk`` alone. Results are unknown, save where a Tool's
  ``_output`` leaves one value; nothing is guessed from a sample. So a Call that fails
  here fails in every run with these outcomes.
* A failure is an outcome where it has a place to go: an error path or alternative.
* The work is bounded, and what was left out is said.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError
from acts.language.schemas import with_null
from acts.language.scopes import wrap_message
from acts.language.values import ABSENT, UNKNOWN, Json, nest
from acts.language.wire import SCHEMA_MISMATCH
from acts.machines.commands import Command, StartCall
from acts.machines.walk import Walk
from acts.simulation.schema_compatibility import kinds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acts.language.references import Path
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan

# As the protocol has it: more nobody reads
MAX_COMBINATIONS: Final = 64
# Calls walked in all combinations together: at 0.06 to 0.1 ms each, ten seconds at worst
MAX_STEPS: Final = 100_000

_NOW: Final = ""  # a dry walk's dates are seen by nobody


class _SomeFailure(CallError):
    """A failure of which nothing is known."""

    def to_json(self) -> Any:
        return UNKNOWN


@dataclass(frozen=True, slots=True)
class OutcomeRun:
    """One dry walk. ``made`` are the choices in the order in which they were taken."""

    made: tuple[tuple[int, int], ...]
    choices: dict[int, str]
    started: tuple[int, ...]
    states: dict[str, list[int]]
    errors: dict[int, str]

    def to_json(self, ids: Sequence[str]) -> dict[str, Any]:
        named = {state: [ids[rank] for rank in ranks] for state, ranks in self.states.items()}
        out = {"choices": {ids[rank]: path for rank, path in self.choices.items()}}
        return {**out, "run": [], "skipped": [], **named}


SUCCESS: Final = -1
"""A result where there is only an error path: it is written nowhere."""


def choices(node: PlannedCall) -> tuple[int, ...]:
    """The outcomes that a Call can take: the first, a failure's, and those a Message can tell apart; a model, any."""
    if node.outcomes and not node.result_outcome_count:
        return SUCCESS, 0
    if node.kind == "latent":
        return tuple(range(len(node.outcomes)))
    return tuple(i for i in range(len(node.outcomes)) if i in (0, node.error) or _telling(node, i) is not None)


def _telling(node: PlannedCall, outcome: int) -> Path | None:
    """A path of an outcome that no other alternative has a part in."""
    if outcome >= node.result_outcome_count:
        return None
    others = [q for i, o in enumerate(node.result_outcomes) if i != outcome for q in o]
    return next((p for p in node.outcomes[outcome] if not any(p.overlaps(q) for q in others)), None)


def explore_outcomes(prepared: ValidatedPlan, doomed: set[int]) -> tuple[list[OutcomeRun], bool]:
    """A dry walk per combination of outcomes, and whether some were left out.

    ``doomed`` are the ranks of Calls that cannot be started. The first outcomes come
    first, then what differs from them in one choice, in two … A walk repeats the choices
    of an earlier one up to a place, takes another outcome there and the first ones after
    it; so none comes twice.
    """
    dry = _Dry(prepared, doomed)
    waiting: deque[tuple[int, ...]] = deque([()])
    trials: dict[tuple[Any, ...], OutcomeRun] = {}
    walked, truncated = 0, False
    while waiting:
        steps = (walked + 1) * len(prepared.nodes)
        if walked == MAX_COMBINATIONS or (walked and steps > MAX_STEPS):
            return list(trials.values()), True
        prefix = waiting.popleft()
        trial = dry.walk(prefix)
        walked += 1
        trials.setdefault((tuple(trial.choices.items()), trial.started), trial)
        taken = tuple(choice for _, choice in trial.made)
        for at in range(len(prefix), len(taken)):
            others = range(1, len(dry.options[trial.made[at][0]]))
            room = MAX_COMBINATIONS - len(waiting)
            waiting.extend((*taken[:at], other) for other in others[:room])
            if len(others) > room:
                truncated = True
                break
    return list(trials.values()), truncated


class _Dry:
    """Walks one plan again and again; ``options`` are the outcomes open to each rank."""

    def __init__(self, prepared: ValidatedPlan, doomed: set[int]) -> None:
        self.prepared = prepared
        self.options = [choices(node) for node in prepared.nodes]
        self.doomed = doomed
        tools = {n.tool.name: n.tool for n in prepared.nodes}
        self.results = {name: _only_value(tool.output) for name, tool in tools.items()}

    def walk(self, prefix: tuple[int, ...]) -> OutcomeRun:
        """Walk with these choices, and the first ones when they are used up."""
        walk = Walk(self.prepared, lambda node: node.id, dry=True)
        made: list[tuple[int, int]] = []
        started: list[int] = []
        commands = deque(walk.begin(_NOW))
        while commands:
            command = commands.popleft()
            if not isinstance(command, StartCall):
                continue
            rank, open_ = command.rank, self.options[command.rank]
            if rank in self.doomed:
                commands.extend(walk.failed(rank, _SomeFailure(SCHEMA_MISMATCH, ""), _NOW))
                continue
            started.append(rank)
            choice = 0
            if len(open_) > 1:
                choice = prefix[len(made)] if len(made) < len(prefix) else 0
                made.append((rank, choice))
            commands.extend(self._settle(walk, rank, open_[choice] if open_ else None))
        return _result(walk, made, started, self.doomed)

    def _settle(self, walk: Walk, rank: int, outcome: int | None) -> list[Command]:
        """Let a Call end with an outcome (None: it is fire-and-forget)."""
        node = walk.nodes[rank]
        if outcome is None:
            return walk.detached(rank, _NOW)
        if outcome == node.error:
            return walk.failed(rank, _SomeFailure("unknown", ""), _NOW)
        value = self.results[node.tool.name]
        if node.kind == "latent":
            return walk.completed(rank, value, _NOW, outcome if outcome > 0 else None)
        path = _telling(node, outcome) if outcome > 0 else None
        return walk.completed(rank, wrap_message(path.kind, nest(path.names, value)) if path else value, _NOW)


def _only_value(output: Json) -> Json:
    """The one value that an ``_output`` leaves, or UNKNOWN."""
    schema = with_null(output)
    found = kinds(schema, schema)
    if len(found) != 1 or (found[0].exact is ABSENT and found[0].name != "null"):
        return UNKNOWN
    return None if found[0].exact is ABSENT else found[0].exact


def _result(walk: Walk, made: list[tuple[int, int]], started: list[int], doomed: set[int]) -> OutcomeRun:
    states: dict[str, list[int]] = {}
    errors: dict[int, str] = {}
    words = {"completed": "run", "detached": "run", "skipped": "skipped", "failed": "failed"}
    for rank, run in enumerate(walk.runs):
        states.setdefault(words.get(run.state, "waiting"), []).append(rank)
        if run.state == "failed" and rank not in doomed:
            known = isinstance(run.error, dict)  # else a failure of the dry walk's own, and no room for it
            errors[rank] = str(run.error["message"]) if known and run.error else "its error cannot be written"
    branched = [rank for rank, _ in made] + [rank for rank in range(len(walk.nodes)) if rank in doomed]
    chosen = {
        rank: " && ".join(str(p) for p in walk.nodes[rank].outcomes[outcome])
        for rank in sorted(branched)
        if (outcome := walk.runs[rank].outcome) is not None and walk.runs[rank].state == "completed"
    }
    return OutcomeRun(tuple(made), chosen, tuple(started), states, errors)
