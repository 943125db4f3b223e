"""The handlers of every run: signals and the update ``decide`` become events, queries ask the view.

``signals.py`` says which signals there are. What one holds is read here; one that makes no sense is noted, and changes
nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from acts.language import wire
from acts.language.errors import CallError, InvalidRequest, PlanError, Problem, truncate
from acts.language.messages import Data, SetData, parse_message
from acts.language.strict_json import write_json
from acts.machines.agent_run import AgentRun
from acts.machines.approvals import problem_of
from acts.machines.commands import AnswerUpdate
from acts.machines.events import DecisionReceived, Event, PauseRequested, Provided, RecordReceived, ResumeRequested
from acts.machines.run_machine import add_note
from acts.tree.identity import is_workflow_id
from acts.tree.signal_records import DecisionAnswer, StreamedCalls
from acts.tree.wire_format import RecordError, VersionedRecord
from acts.views.results import MAX_RESULT, without_details
from acts.workflows.driver import Driver
from acts.workflows.lifeline import Lifeline
from acts.workflows.observe import RunIndex
from acts.workflows.payloads import (
    NOTHING,
    decode,
    decode_or_none,
    decode_signal,
    encode,
    raw,
)
from acts.workflows.signals import TREE_SIGNALS, WHICH, read_aim, read_input, unknown_signal
from acts.workflows.startup import watch_queues

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from acts.machines.run_machine import RunMachine
    from acts.views.run_views import RunView


def split_target(value: Any) -> tuple[str | None, Any]:
    """The run that a provided message names, and the message without that; its ``instance`` as ``_instance``.

    Only beside a payload in wrapped form: an inline payload may have fields of these names.
    """
    is_wrapped = isinstance(value, dict) and value.get("type") in value
    if not is_wrapped or not {"workflowId", "instance"} & set(value):
        return None, value
    message = {k: v for k, v in value.items() if k not in ("workflowId", "instance")}
    if isinstance(value.get("instance"), str):
        message["_instance"] = value["instance"]
    workflow_id = value.get("workflowId")
    return (workflow_id if isinstance(workflow_id, str) else None), message


def data_message(value: Any) -> Data:
    """A message that may be provided from outside.

    Raises:
        InvalidRequest: it is no data-like Message.
    """
    message = parse_message(value)
    if not isinstance(message, Data) or isinstance(message, SetData):
        text = f"a {message.type} message cannot be provided: only data, input, state"
        raise InvalidRequest([Problem("invalidMessage", text)])
    return message


AS_TEXT: Final = 'As lines for a terminal: {"format": "text"}.'
# Before the run knows its Request
# As a timer of the server, the shortest
_NEXT_TASK: Final = timedelta(milliseconds=1)
STARTING: Final[dict[str, Any]] = {"phase": "planning", "calls": [], "usage": {}}
_EMPTY: Final[dict[str, Any]] = {
    "requests": 0, "inputTokens": 0, "outputTokens": 0, "cost": 0
}  # fmt: skip


class RunWorkflow:
    """The one base of our workflow classes: inbox, handlers, and a guard around the run."""

    def __init__(self) -> None:
        self.uses_storage = False
        self._lifeline = Lifeline()
        self._inbox: deque[Event] = deque()
        self._driver: Driver | None = None
        self._view: RunView | None = None
        self._updates: dict[str, asyncio.Future[DecisionAnswer | None]] = {}
        self._early_notes: list[str] = []
        self._failed_phase: str | None = None

    # -- for the workflow classes -----------------------------------------------------------------

    async def guarded(self, run: Awaitable[RawValue], start: RawValue) -> RawValue:
        """The run's result; every failure of it is readable, and none retries a task forever.

        ``start`` is what it was started with.
        """
        self._lifeline.begin()
        try:
            return await readable_failures(run)
        except ApplicationError:
            self._failed_phase = "failed"
            await self._lifeline.report_reset(start)
            raise
        except (FailureError, asyncio.CancelledError) as error:
            await self._lifeline.report_reset(start)
            ending = self._lifeline.ending_of(error)
            if ending is None:
                raise
            raise ending from None

    async def drive(
        self, run: RunMachine, view: RunView, carry: Callable[[], VersionedRecord], *, is_first_run: bool
    ) -> None:
        """Run a machine to its end. Raises CancelledError when cancelled."""
        self._view = view
        self._lifeline.token = run.position.token
        index = RunIndex(run, view)
        self._driver = driver = Driver(run, self._inbox, carry, self._answer, self._lifeline, index)
        for text in self._early_notes:
            run.note(text)
        await watch_queues(run, is_first_run=is_first_run)
        await index.begin(is_first_run=is_first_run)
        await driver.drive()

    async def report_cancelled(self, report: dict[str, Any]) -> None:
        """Tell the parent what this cancelled run had done."""
        if self._driver is None or self._lifeline.is_superseded:
            return
        if self._driver.run.position.ancestors:
            await self._driver.send_and_wait(self._driver.run.report_cancelled(report))

    @property
    def machine(self) -> RunMachine | None:
        """The machine of this run; None before it has read its Request."""
        return None if self._driver is None else self._driver.run

    def page(self) -> str | None:
        """The page for the Web UI as of now, rendered when somebody reads it; None before the run has begun."""
        return None if self._view is None else self._view.page()

    def _answer(self, answer: AnswerUpdate) -> None:
        future = self._updates.pop(answer.id, None)
        if future is not None and not future.done():
            future.set_result(answer.problem)

    def _note(self, text: str) -> None:
        if self._driver is None:
            add_note(self._early_notes, text)
        else:
            self._driver.run.note(text)

    # -- signals ------------------------------------------------------------------------------------

    @workflow.signal(dynamic=True)
    def take_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Take any signal, of a person or of a run of the tree; none fails this run."""
        self._lifeline.signals += 1
        value = args[0] if args else NOTHING
        if len(args) > 1:
            self._note(f'the signal "{truncate(name, 60)}" has {len(args)} arguments; the first counts')
        try:
            if name in TREE_SIGNALS:
                self._inbox.append(RecordReceived(decode_signal(value, TREE_SIGNALS[name])))
            elif name in (wire.APPROVE, wire.REJECT, wire.EDIT):
                self._inbox.append(DecisionReceived(read_input(value), name))
            elif name in (wire.PAUSE, wire.RESUME):
                self._steer(name, value)
            elif name == wire.PROVIDE:
                self._provide(value)
            else:
                self._note(unknown_signal(name))
        except Exception as error:  # noqa: BLE001 - whatever somebody sends, the run goes on
            self._note(f"the signal {name} was refused: {_reason(error)}")

    def _steer(self, signal: str, value: RawValue) -> None:
        """Pause or resume, here and below, or one run below that the signal names."""
        aim = read_aim(value)
        if not self._pass_on(signal, aim.get("workflowId"), aim.get("instance"), value):
            self._inbox.append(PauseRequested() if signal == wire.PAUSE else ResumeRequested())

    def _provide(self, value: RawValue) -> None:
        """Append a data-like message to the context; instances get what is theirs, and what is global."""
        workflow_id, message = split_target(read_input(value))
        if workflow_id is None or not self._pass_on(wire.PROVIDE, workflow_id, None, encode(message)):
            self._inbox.append(Provided(data_message(message)))

    def _pass_on(self, signal: str, workflow_id: Any, instance: Any, value: RawValue) -> bool:
        """Pass a signal on to the one run below that it names; False when it is for this run."""
        own = workflow.info().workflow_id
        if isinstance(workflow_id, str) and workflow_id != own:
            if not workflow_id.startswith(f"{own}/") or not is_workflow_id(workflow_id):
                self._note(f"the signal {signal} was ignored: {truncate(workflow_id, 100)} is no run below this one")
            elif self._driver is not None:
                args = (value,) if signal == wire.PROVIDE else ()
                self._driver.children.signal_one(workflow.get_external_workflow_handle(workflow_id), signal, *args)
            return True
        if not isinstance(instance, str) or self._driver is None:
            return False
        name = self._driver.run.child_of_instance(instance)
        if not self._driver.signal_instance(name, signal, value):
            self._note(f"the signal {signal} was ignored: no child walks the instance {truncate(instance, 100)} now")
        return True

    # -- the update -----------------------------------------------------------------------------------

    @workflow.update(
        name=wire.DECIDE,
        description=(
            'Decide, and get the status: {"decision": "approve"}, {"decision": "reject", "reason": "…"} or '
            f'{{"decision": "edit", "plan": [calls]}}. {WHICH}.'
        ),
    )
    async def decide(self, value: RawValue = NOTHING) -> RawValue:
        """Carry out a decision, here or in a run below; returns the status after it."""
        update = workflow.current_update_info()
        id_ = update.id if update is not None else ""
        try:
            event = DecisionReceived(read_input(value), None, id_)
        except CallError as error:
            _refuse(problem_of(error))
        self._updates[id_] = future = asyncio.get_running_loop().create_future()
        is_early = self._has_not_begun() and workflow.info().continued_run_id is None
        await asyncio.sleep(0)  # after the signals of the same task: see ``Driver``
        self._inbox.append(event)
        problem = await future
        if is_early:
            # A local Activity of the start may have taken several tasks. Where the run has to be replayed before the
            # last of them has ended, the SDK takes that task for a past one: it announces an answer, and sends none
            await workflow.sleep(_NEXT_TASK)
        if problem is not None:
            _refuse(problem)
        return self._status()

    @decide.validator
    def decide_validator(self, value: RawValue = NOTHING) -> None:
        """Refuse what cannot be carried out here: it then never enters history.

        While the run does not know its pending approvals yet (a worker that has just come gets the update together with
        the events before it), and where a run below is the judge, the handler refuses.
        """
        if self._driver is None or self._has_not_begun() or self._inbox:
            return
        run = self._driver.run
        try:
            run.approvals.judge(read_input(value))
        except (PlanError, CallError) as error:
            _refuse(problem_of(error))

    def _has_not_begun(self) -> bool:
        return self._driver is None or self._driver.run.has_not_begun

    # -- queries ----------------------------------------------------------------------------------------

    @workflow.query(name=wire.STATUS, description="{phase, tick?, calls: [{id, tool, state, error?}], usage, notes?}")
    def status(self, _: RawValue = NOTHING) -> RawValue:
        """Where the run is."""
        return self._status()

    def _status(self) -> RawValue:
        if self._view is None:
            status = {**STARTING, "usage": _EMPTY, "phase": self._failed_phase or "planning"}
            return raw(write_json({**status, "notes": self._early_notes} if self._early_notes else status))
        status = self._view.status()
        data = write_json(status)
        if len(data) > MAX_RESULT:
            calls = [{**c, "error": without_details([c["error"]])[0]} if "error" in c else c for c in status["calls"]]
            data = write_json({**status, "calls": calls[-10_000:]})
        return raw(data)

    @workflow.query(name=wire.PLAN_QUERY, description="The latest plan's calls, as they were written.")
    def plan(self, _: RawValue = NOTHING) -> RawValue:
        """The plan."""
        return raw(write_json([] if self._view is None else self._view.plan()))

    @workflow.query(
        name=wire.CONTEXT,
        description='The messages so far. A page: {"offset": 0, "limit": 1000}. One value: {"path": "†state.name"}.',
    )
    def context(self, page: RawValue = NOTHING) -> RawValue:
        """The whole context, a page of it, or the value at a path."""
        if self._view is None:
            return raw(write_json([]))
        return raw(write_json(self._view.context(_query_argument(page), MAX_RESULT)))

    @workflow.query(
        name=wire.PENDING,
        description="What waits for a decision, at the root for all runs below: "
        "[{workflowId, what, call?, version, since}]",
    )
    def pending(self, _: RawValue = NOTHING) -> RawValue:
        """Decisions that are waited for."""
        waits = [] if self._driver is None else self._driver.run.approvals.pending
        return raw(write_json([wait.to_json() for wait in waits]))

    @workflow.query(
        name=wire.PENDING_PARAMETERS,
        description="What the calls that wait for a decision here would be called with: "
        "{editable, calls: [{call, instance?, with}]}, as many as fit into an answer.",
    )
    def pending_parameters(self, _: RawValue = NOTHING) -> RawValue:
        """What a person has to know who decides."""
        empty = {"editable": True, "calls": []}
        return raw(write_json(empty if self._view is None else self._view.pending_parameters(MAX_RESULT)))

    @workflow.query(name=wire.PROMPT_CONTEXT, description="For the engine: what a model is shown.")
    def prompt_context(self, page: RawValue = NOTHING) -> RawValue:
        """A page of the context, and the Tools."""
        if self._view is None:
            return raw(write_json({"messages": []}))
        return raw(write_json(self._view.prompt_context(_query_argument(page), MAX_RESULT)))

    @workflow.query(name=wire.STREAMED_CALLS, description="For the engine: how many calls of the answer have come.")
    def streamed_call_count(self, _: RawValue = NOTHING) -> RawValue:
        """Calls of the answer that is being written."""
        run = None if self._driver is None else self._driver.run
        received = sum(isinstance(e, RecordReceived) and isinstance(e.record, StreamedCalls) for e in self._inbox)
        return raw(write_json(received + (run.streamed_count if isinstance(run, AgentRun) else 0)))

    @workflow.query(name=wire.GRAPH, description=f"The latest plan as a Mermaid flowchart. {AS_TEXT}")
    def graph(self, options: RawValue = NOTHING) -> Any:
        """The plan as a drawing."""
        return "" if self._view is None else self._view.graph(decode_or_none(options))


async def readable_failures(run: Awaitable[RawValue]) -> RawValue:
    """Await a run; what it raises is an ApplicationError that says what is wrong, or ends the run by design."""
    try:
        return await run
    except (ApplicationError, asyncio.CancelledError, workflow.ContinueAsNewError):
        raise
    except (InvalidRequest, RecordError) as error:
        problems = error if isinstance(error, InvalidRequest) else _not_a_request(error)
        details = raw(write_json(problems.to_json()))
        raise ApplicationError(str(problems), details, type=wire.INVALID_REQUEST, non_retryable=True) from None
    except Exception as error:
        if is_cancelled_exception(error):
            raise
        # Whatever it is: an input that we did not foresee must not retry this task for ever
        workflow.logger.exception("the run broke")
        text = f"{type(error).__name__}: {truncate(str(error))}"
        raise ApplicationError(text, type=wire.ENGINE_ERROR, non_retryable=True) from error


def _reason(error: Exception) -> str:
    """Why a signal was refused."""
    if isinstance(error, InvalidRequest):
        return truncate(error.problems[0].message, 200)
    if isinstance(error, (CallError, RecordError)):
        return truncate(str(error), 200)
    workflow.logger.exception("a signal could not be read")
    return f"it could not be read ({type(error).__name__})"


def _query_argument(value: RawValue) -> Any:
    return decode(value) if value.payload.metadata else None


def _refuse(problem: DecisionAnswer) -> NoReturn:
    details = () if problem.details is None else (raw(write_json(problem.details)),)
    raise ApplicationError(problem.message, *details, type=problem.type, non_retryable=True)


def _not_a_request(error: RecordError) -> InvalidRequest:
    hint = "start a Plan or an Agent; Delegate, Instance and Background are started by them"
    return InvalidRequest([Problem("invalidRequest", str(error), hint=hint)])
