"""Which outcomes a Call can take, and what a result is that takes one.

Laws of this file: it runs nothing but ``place_result``, which decides it in a real run too. Calls with the same
alternatives share one answer, and the work of a plan is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError
from acts.language.scopes import wrap_message
from acts.language.tool_hints import is_server_tool
from acts.language.values import UNKNOWN, Json, deep_merge, nest
from acts.plan.result_placement import place_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acts.language.references import Path
    from acts.language.values import Names
    from acts.plan.planned_call import PlannedCall

SUCCESS: Final = -1
"""A result where there is only an error path: it is written nowhere."""

# Outcomes of one Call that are tried with a Message that has all of their paths
MAX_TRIED_OUTCOMES: Final = 16
# Looks at paths in all of these trials, 2 µs each
MAX_LOOKS: Final = 300_000


class PossibleOutcomes:
    """The outcomes that the Calls of one plan can take."""

    def __init__(self) -> None:
        self._answers: dict[tuple[Any, ...], tuple[dict[int, list[Path]], set[int]]] = {}
        self._looks = 0

    def find(self, node: PlannedCall) -> tuple[int, ...]:
        """The indexes: the first, a failure's, those that a Message can choose; a model can choose any."""
        if node.outcomes and not node.result_outcome_count:
            return SUCCESS, 0
        if len(node.outcomes) == 1:
            return (0,)
        if node.kind == "latent" and not node.is_each:
            return tuple(range(len(node.outcomes)))
        choosing = self.choosing_paths(node)
        return tuple(i for i in range(len(node.outcomes)) if i in (0, node.error) or i in choosing)

    def find_impossible(self, node: PlannedCall) -> list[int]:
        """The indexes that no result can choose; of the others it may not be known either."""
        if len(node.outcomes) <= 1:
            return []
        possible = {*self.find(node), *self._answer(node)[1]}
        return [index for index in range(len(node.outcomes)) if index not in possible]

    def choosing_paths(self, node: PlannedCall) -> dict[int, list[Path]]:
        """By outcome, the paths at which a Message writes that chooses it.

        One that no other alternative overlaps suffices. Otherwise all paths of one kind are tried: a Message with them
        chooses the largest of several alternatives that share paths.
        """
        return self._answer(node)[0]

    def _answer(self, node: PlannedCall) -> tuple[dict[int, list[Path]], set[int]]:
        """The paths by outcome, and the outcomes that were not tried."""
        if node.is_each:
            return {}, set()
        key = (node.outcomes, node.result_outcome_count, node.runs_activity, is_server_tool(node.tool.schema))
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._try_outcomes(node)
        return answer

    def _try_outcomes(self, node: PlannedCall) -> tuple[dict[int, list[Path]], set[int]]:
        choosing: dict[int, list[Path]] = {}
        untried: set[int] = set()
        path_count = sum(map(len, node.result_outcomes))
        for outcome, path in enumerate(distinguishing_paths(node)):
            if path is not None:
                choosing[outcome] = [path]
                continue
            if outcome >= node.result_outcome_count:
                continue
            self._looks += path_count * len(node.outcomes[outcome])
            if outcome >= MAX_TRIED_OUTCOMES or self._looks > MAX_LOOKS:
                untried.add(outcome)
                continue
            paths = _paths_of_one_kind(node, outcome)
            if _chooses(node, build_message(paths, UNKNOWN), outcome):
                choosing[outcome] = paths
        return choosing, untried


def build_message(paths: Sequence[Path], value: Json) -> dict[str, Any]:
    """A Message with a value at each of these paths of one kind."""
    payload = nest(paths[0].names, value)
    for path in paths[1:]:
        payload = deep_merge(payload, nest(path.names, value))
    return wrap_message(paths[0].kind, payload)


def distinguishing_paths(node: PlannedCall) -> list[Path | None]:
    """Of each outcome a path that no other alternative overlaps, or None. Linear in the names of all paths."""
    exact: dict[tuple[str, Names], set[int]] = {}
    above: dict[tuple[str, Names], set[int]] = {}  # by prefix: the outcomes with a path there or below
    for outcome, paths in enumerate(node.result_outcomes):
        for path in paths:
            exact.setdefault((path.kind, path.names), set()).add(outcome)
            for depth in range(len(path.names) + 1):
                above.setdefault((path.kind, path.names[:depth]), set()).add(outcome)

    def is_alone(path: Path, outcome: int) -> bool:
        prefixes = (exact.get((path.kind, path.names[:depth]), ()) for depth in range(len(path.names) + 1))
        return above[path.kind, path.names] == {outcome} and all(set(found) <= {outcome} for found in prefixes)

    alone = [next((p for p in paths if is_alone(p, i)), None) for i, paths in enumerate(node.result_outcomes)]
    return [*alone, *[None] * (len(node.outcomes) - len(alone))]


def _paths_of_one_kind(node: PlannedCall, outcome: int) -> list[Path]:
    paths = node.outcomes[outcome]
    return [path for path in paths if path.kind == paths[0].kind]


def _chooses(node: PlannedCall, message: dict[str, Any], outcome: int) -> bool:
    try:
        return place_result(node, message)[0] == outcome
    except CallError:
        return False
