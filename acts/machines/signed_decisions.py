"""Signed decisions in one run: what its waits are signed for, and whether a decision may be taken.

Where the tree has no approvers, nothing of this is there: every decision is what its sender claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import APPROVE, REJECT
from acts.tree.decision_signature import SIGN, check_signature, digest, make_challenge

if TYPE_CHECKING:
    from acts.language.values import Json
    from acts.tree.decisions import Decision, PendingApproval
    from acts.tree.records import TreePosition

# What a wait is about, as JSON; computed only where it is signed
Subject = Callable[[], "Json"]
EXPIRED: Final = "nobody decided in time"
UNSIGNED_EXPIRY: Final = f"{EXPIRED}, and only a signed decision approves"


class SignedDecisions:
    """The rules of one run."""

    def __init__(self, position: TreePosition) -> None:
        self._position = position

    def prepare(self, wait: PendingApproval, subject: Subject | None) -> PendingApproval:
        """The wait with what an approver signs; ``subject`` None: what it is about has not changed."""
        if not self._position.approvers:
            return wait
        known: Mapping[str, Any] = wait.about.get(SIGN) or {}
        content = known.get("subject") if subject is None else digest(subject())
        sign = {"challenge": make_challenge(self._position.identity, wait), "subject": content}
        return replace(wait, about={**wait.about, SIGN: sign})

    def check(self, wait: PendingApproval, decision: Decision) -> dict[str, Any]:
        """What the record of the decision says of its signature: ``{signed?}``.

        Raises:
            DecisionRefused: it has to be signed, and is not, or not by one who may decide.
        """
        approvers = self._position.approvers
        return {"signed": check_signature(approvers, wait, decision)} if approvers else {}

    def at_deadline(self, word: str) -> tuple[str, str]:
        """What a deadline decides, and why: it never approves in the place of an approver."""
        if word == APPROVE and self._position.approvers:
            return REJECT, UNSIGNED_EXPIRY
        return word, EXPIRED
