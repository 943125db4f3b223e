"""The turns of an agent as its loop makes them: a request, the answer to it, and what came of that.

Laws of this file: one ``Turn`` per tick, appended when everything about it is known and never changed. It decides
nothing; it words outcomes from what a tick came to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.references import Expression, evaluate
from acts.language.values import ABSENT, Json
from acts.planner import turns
from acts.planner.turns import Turn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.language.errors import Problem
    from acts.machines.agent_context import AgentContext
    from acts.plan.planned_call import PlannedCall

# Why a Call of an answer was not run
NOT_FIRST: Final = "only the first call of an answer is run; plan it again if it is still needed"
ANSWER_REFUSED: Final = "the answer that it was part of could not be used; calls that had started by then stand"
_OUTPUT_WITHHELD: Final = {"output": "not taken, because a call failed or was not run"}


class TurnLog:
    """``turns`` are complete; the one under way has the ``answer`` so far, and was requested at ``at`` messages."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.at = 0
        self.answer: Json = None

    def begin(self, at: int) -> None:
        """The model is asked now, and shown so many messages."""
        self.at, self.answer = at, None

    def refuse(self, problems: Sequence[Problem], text: str | None = None) -> None:
        """None of the answer is run; ``text`` is one that was no JSON."""
        items = turns.problem_items(problems)
        self._add(
            Turn(self.at, self.answer, text=text, outcomes=turns.unrun_outcomes(self.answer_calls), problems=items)
        )

    def reject(self, reason: str, planned: Sequence[Json]) -> None:
        """A person let none of it run; ``planned`` are the Calls that were rejected."""
        self._add_planned(turns.unrun_outcomes(list(planned), turns.REJECTED, reason), (), planned)

    def record_plan(
        self, outcomes: tuple[dict[str, Any], ...], problems: Sequence[Problem], planned: Sequence[Json], *,
        withholds_output: bool,
    ) -> None:  # fmt: skip
        """The plan of the answer was walked: ``planned`` are its Calls, ``problems`` those of its output."""
        self._add_planned((*outcomes, _OUTPUT_WITHHELD) if withholds_output else outcomes, problems, planned)

    def record_broken(
        self, outcomes: tuple[dict[str, Any], ...], problems: Sequence[Problem], text: str | None = None
    ) -> None:
        """Calls had started while the answer was written, which then could not be used; ``text`` as in ``refuse``."""
        self._add(Turn(self.at, self.answer, text=text, outcomes=outcomes, problems=turns.problem_items(problems)))

    @property
    def answer_calls(self) -> list[Json]:
        """The Calls of the answer, which need not be valid; none where it has no list of them."""
        calls = self.answer.get("calls") if isinstance(self.answer, dict) else None
        return calls if isinstance(calls, list) else []

    def _add_planned(
        self, outcomes: tuple[dict[str, Any], ...], problems: Sequence[Problem], planned: Sequence[Json]
    ) -> None:
        """Add a turn whose Calls, as a person may have changed them, are the context's plan."""
        answer, is_same = self.answer, self.answer_calls == list(planned)
        if is_same:
            answer = {k: v for k, v in answer.items() if k != "calls"}
        items, changed = turns.problem_items(problems), () if is_same else tuple(planned)
        self._add(Turn(self.at, answer, is_same, outcomes=outcomes, problems=items, changed=changed))

    def _add(self, turn: Turn) -> None:
        self.turns.append(turn)
        self.answer = None

    def snapshot(self) -> dict[str, Any]:
        """``{turns, at, answer?}``."""
        return {"turns": [turn.to_json() for turn in self.turns], "at": self.at, "answer": self.answer}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Take over a snapshot; ``{}`` of a version that kept no turns."""
        self.turns = [Turn.from_json(turn) for turn in data.get("turns", ())]
        self.at, self.answer = data.get("at", 0), data.get("answer")


class TickOutcome:
    """What the walk of a tick's plan came to.

    ``items`` are those of its Calls, ``failures`` as the results list them; ``nodes`` are all Calls of the answer, of
    which the walk may have left some out.
    """

    def __init__(
        self, items: Sequence[Mapping[str, Any]], failures: Sequence[Mapping[str, Any]], nodes: Sequence[PlannedCall],
        context: AgentContext,
    ) -> None:  # fmt: skip
        self._items, self._failures, self._context = items, failures, context
        self._nodes = {node.id: node for node in sorted(nodes, key=lambda n: n.index)}

    def outcomes(self, unrun_reason: str | None = None, answer: Sequence[Json] = ()) -> tuple[dict[str, Any], ...]:
        """One outcome for each Call; ``unrun_reason`` says why the walk left some out, where it did.

        ``answer`` are the Calls of an answer that could not be used: the plan has only the first of them.
        """
        walked = {item["id"] for item in self._items}
        unrun = {"outcome": turns.NOT_RUN, "reason": unrun_reason}
        ids = [*self._nodes, *turns.answer_ids(answer)[len(self._nodes) :]]
        rest = [{"call": id_, **unrun} for id_ in ids if id_ not in walked]
        # An instance that failed without a Call of its own that did
        whole = [f for f in self._failures if set(f["call"]) == {"_instance"}]
        failed = [{**f["call"], "outcome": turns.FAILED, "error": f["error"]} for f in whole]
        listed = turns.call_outcomes(self._items, self._skip_reason)
        return (*listed, *(turns.join_equal(rest) if unrun_reason is not None else ()), *failed)

    def _skip_reason(self, item: Mapping[str, Any]) -> str | None:
        """Why a Call was skipped: the references of its own that lead to no value now."""
        node = self._nodes.get(str(item["id"]))
        if node is None:
            return None
        if node.kind == "latent" and not node.outcomes:
            return "it has neither an _output nor an _outputPath"
        instance = item.get("instance")
        missing = [use.text for use in node.reads if self._is_absent(use.tree, instance)]
        return f"there is no value at {', '.join(dict.fromkeys(missing))}" if missing else None

    def _is_absent(self, tree: Expression, instance: str | None) -> bool:
        log = self._context.log
        if instance is not None and instance not in log.own:
            return False
        return evaluate(tree, lambda path: log.read(path, 0, instance)) is ABSENT
