"""Answers to decisions, which go back the way that the decision came.

Laws of this file: it judges nothing (``approvals`` does). An update of this run is answered exactly once. A run that
passed a decision on gets a ``DecisionAnswer``, with which it answers its own update. A signal expects no answer: its
refusal becomes a note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acts.language.errors import CallError, DecisionRefused, InvalidRequest, PlanError, truncate
from acts.language.wire import DECISION_ANSWER, INVALID_REQUEST, REFUSED
from acts.machines.approval_effects import AnswerUpdate, ApprovalEffect, Note
from acts.machines.budget import SendRecord
from acts.tree.signal_records import DecisionAnswer

if TYPE_CHECKING:
    from acts.machines.early_decisions import ReceivedDecision


def problem_of(error: PlanError | CallError) -> DecisionAnswer:
    """An error as the answer to a decision."""
    if isinstance(error, InvalidRequest):
        return DecisionAnswer(id="", type=INVALID_REQUEST, message=str(error), details=error.to_json())
    text = error.message if isinstance(error, CallError) else str(error)
    refused = isinstance(error, (DecisionRefused, CallError))
    return DecisionAnswer(id="", type=REFUSED if refused else type(error).__name__, message=text)


def refusal(text: str) -> DecisionAnswer:
    """A refusal as the answer to a decision."""
    return problem_of(DecisionRefused(text))


def refusal_note(name: str, reason: str) -> Note:
    """The note about a refusal that no answer carries; ``name`` is the signal or decision."""
    return Note(f"the {name} was refused: {truncate(reason, 200)}")


class DecisionAnswers:
    """The answers that one run gives. ``own`` is its workflow id; updates without an answer are kept by id."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._open_updates: dict[str, None] = {}

    def add_update(self, id_: str) -> None:
        """An update waits for its answer."""
        self._open_updates[id_] = None

    def answer_update(self, id_: str, problem: DecisionAnswer | None) -> list[ApprovalEffect]:
        """Answer an update; nothing for one that has its answer."""
        if id_ not in self._open_updates:
            return []
        del self._open_updates[id_]
        return [AnswerUpdate(id_, problem)]

    def refuse_updates(self, text: str) -> list[ApprovalEffect]:
        """The run ends before the runs that judge these decisions have answered."""
        return [effect for id_ in list(self._open_updates) for effect in self.answer_update(id_, refusal(text))]

    def answer(self, item: ReceivedDecision, problem: DecisionAnswer | None) -> list[ApprovalEffect]:
        """Answer the update, or the run, that a decision came from; ``problem`` None: it was carried out."""
        if item.reply_to is not None and item.reply_to != self._own:
            if not item.id and problem is None:
                return []
            answer = (problem or DecisionAnswer(id="")).model_copy(update={"id": item.id})
            return [SendRecord(item.reply_to, DECISION_ANSWER, answer)]
        if item.id:
            return self.answer_update(item.id, problem)
        return [] if problem is None else [refusal_note(f"decision {item.decision.decision}", problem.message)]
