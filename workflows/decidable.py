"""What people say to a run that waits for them: the handlers, alike for plans and agents.

A decision comes as a signal, which has no answer and may come before its wait, or as the
update ``decide``, which is refused, without a trace in history, when it cannot be taken.
"""

from __future__ import annotations

from typing import Any, NoReturn

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from acts.language.errors import CallError, DecisionRefused, InvalidRequest, PlanError, truncate
from acts.language.wire import APPROVE, DECIDE, EDIT, INVALID_REQUEST, PENDING, REFUSED, REJECT, WAITS
from acts.tree.decisions import INNER, Decision, PendingApproval
from workflows.desk import Desk
from workflows.payloads import NOTHING, decode, dump, encode, raw
from workflows.post import Post

_WHICH = '"call"? names a call, "workflowId"? and "instance"? one of several; "version"? what you have seen'


class Decidable:
    """A run that may wait for decisions."""

    def __init__(self) -> None:
        self._post = Post()
        self._desk = Desk(self._decided, self._may_be_decided, self._may_be_decided_below, self._note)

    def _decided(self, wait: PendingApproval, decision: Decision) -> None:
        """A decision was taken."""
        raise NotImplementedError

    def _may_be_decided(self, decision: Decision) -> None:
        """Raises Refused or InvalidRequest for a decision that cannot be taken now."""
        raise NotImplementedError

    def _may_be_decided_below(self, wait: PendingApproval, decision: Decision) -> None:
        """The same for a run below, as far as it can be told from here."""

    def _note(self, text: str) -> None:
        raise NotImplementedError

    def _told(self) -> dict[str, Any]:
        """What ``status`` answers."""
        raise NotImplementedError

    def _ready(self) -> bool:
        """True when the run has come far enough to know what waits."""
        raise NotImplementedError

    def _is_below(self, workflow_id: str) -> bool:
        """True for a run that this one started and that has not ended."""
        raise NotImplementedError

    def _instance_below(self, workflow_id: str) -> str | None:  # noqa: ARG002 - for those who have any
        """The instance that a run below works for, where it works for one."""
        return None

    def _at_rest(self) -> bool:
        """True when every decision that was taken has been carried out."""
        raise NotImplementedError

    # -- signals ---------------------------------------------------------------

    @workflow.signal(
        name=APPROVE, description=f'Let it run: {{}} or {{"call": "2:refund", "by": "Ada", "note": "…"}}. {_WHICH}.'
    )
    async def approve(self, given: RawValue = NOTHING) -> None:
        """Approve what waits."""
        await self._signalled(APPROVE, given)

    @workflow.signal(
        name=REJECT, description=f'Do not let it run: {{"reason": "…", "call": "2:refund", "by": "Ada"}}. {_WHICH}.'
    )
    async def reject(self, given: RawValue = NOTHING) -> None:
        """Reject what waits."""
        await self._signalled(REJECT, given)

    @workflow.signal(
        name=EDIT,
        description=f'Change: {{"plan": [calls]}} or {{"call": "2:refund", "with": {{call}}}}, then approve. {_WHICH}.',
    )
    async def edit(self, given: RawValue = NOTHING) -> None:
        """Edit what waits."""
        await self._signalled(EDIT, given)

    @workflow.signal(name=WAITS, description="For the engine: what waits in a run below.")
    async def waits(self, given: RawValue = NOTHING) -> None:
        """A run below reports."""
        try:
            found = decode(given)
        except CallError:
            return
        if isinstance(found, dict) and isinstance(found.get("workflowId"), str) and self._is_below(found["workflowId"]):
            for wait, decision in self._desk.reported(found, self._instance_below(found["workflowId"])):
                await self._pass_on(wait, decision)
            self._desk.teller.tell()

    def _knows(self) -> bool:
        """True when what waits here is known, be it from the run before."""
        return self._ready() and not self._desk.restoring

    async def _waits_again(self) -> None:
        """The waits of the run before are open again: what came with the first task can be judged."""
        for wait, decision in self._desk.restored():
            await self._pass_on(wait, decision)

    async def _signalled(self, word: str, given: RawValue) -> None:
        try:
            found = self._desk.signalled(decode(given), word)
        except CallError as error:
            self._note(f"the signal {word} was refused: {error.message}")
            return
        if found is not None:
            await self._pass_on(*found)

    async def _pass_on(self, wait: PendingApproval, decision: Decision) -> None:
        """Hand a decision to the run that waits for it."""
        told = {k: v for k, v in decision.raw.items() if k != "decision"}
        told |= {
            "workflowId": wait.workflow_id,
            "version": wait.version,
        }  # what was decided about, and nothing that may wait there by then
        if wait.call is not None:
            told["call"] = wait.call
        if INNER in wait.about:
            told["instance"] = wait.about[INNER]
        try:
            handle = workflow.get_external_workflow_handle(wait.workflow_id)
            await self._post.send(handle, decision.decision, encode(told))
        except Exception as error:  # noqa: BLE001 - it has just ended: nobody is left to decide about
            self._note(f"the decision about {wait} came too late: {truncate(str(error), 200)}")

    # -- the update ------------------------------------------------------------

    @workflow.update(
        name=DECIDE,
        description=(
            'Decide, and get the status: {"decision": "approve"}, {"decision": "reject", "reason": "…"} or '
            f'{{"decision": "edit", "plan": [calls]}}. {_WHICH}.'
        ),
    )
    async def decide(self, given: RawValue = NOTHING) -> RawValue:
        """Take a decision; the status as it then is."""
        if not self._knows():
            await workflow.wait_condition(self._knows)
        try:
            below = self._desk.take(decode(given))
        except (PlanError, CallError) as error:
            _refuse(error)
        if below is not None:
            await self._pass_on(*below)
        await workflow.wait_condition(self._at_rest)
        return raw(dump(self._told()))

    @decide.validator
    def decide_validator(self, given: RawValue = NOTHING) -> None:
        """Refuse what cannot be taken: it then never enters history.

        A worker that has just come replays a run that waits together with what comes in; then the
        update is here before the run knows that it waits, and is judged by the handler.
        """
        if not self._knows():
            return
        try:
            self._desk.judge(decode(given))
        except (PlanError, CallError) as error:
            _refuse(error)

    # -- queries ---------------------------------------------------------------

    @workflow.query(
        name=PENDING,
        description="What waits for a decision, here and below: [{workflowId, what, call?, version, since}]",
    )
    def pending(self, _: RawValue = NOTHING) -> RawValue:
        """Decisions that are waited for."""
        return raw(dump([wait.to_json() for wait in self._desk.all()]))


def _refuse(error: PlanError | CallError) -> NoReturn:
    if isinstance(error, InvalidRequest):
        raise ApplicationError(str(error), raw(dump(error.to_json())), type=INVALID_REQUEST, non_retryable=True)
    text = error.message if isinstance(error, CallError) else str(error)
    kind = REFUSED if isinstance(error, (DecisionRefused, CallError)) else type(error).__name__
    raise ApplicationError(text, type=kind, non_retryable=True)
