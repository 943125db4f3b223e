"""The handlers of every run: signals and the update ``decide`` become events, queries ask the view.

* What people send is read here; a signal that makes no sense is noted. None fails the run or its task.
* All signals pass one dynamic handler. With a handler for each name the SDK would drop a signal with several arguments
  or an unknown encoding without a word, and keep one of an unknown name forever.
* The signals of people are described to the Web UI; those between the runs of a tree are not.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final, NoReturn, TypeVar

from temporalio import workflow
from temporalio.api.sdk.v1 import WorkflowInteractionDefinition, WorkflowMetadata
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, is_cancelled_exception

from acts.language import wire
from acts.language.errors import CallError, InvalidRequest, PlanError, Problem, truncate
from acts.language.messages import Data, Instruction, SetData, parse_message
from acts.language.strict_json import write_json
from acts.language.values import defect
from acts.machines.agent_run import AgentRun
from acts.machines.approvals import iso, problem_of
from acts.machines.commands import AnswerUpdate
from acts.machines.events import DecisionReceived, Event, PauseChanged, Provided, RecordReceived
from acts.machines.run_machine import RunMachine, add_note
from acts.tree.decisions import WORDS, read_decision
from acts.tree.identity import is_workflow_id
from acts.tree.signal_records import TREE_SIGNALS, DecisionAnswer, StreamedCalls
from acts.tree.wire_format import RecordError
from acts.views.results import MAX_RESULT, without_details
from acts.views.run_views import CurrentTools, RunView
from acts.workflows.children import Lifeline
from acts.workflows.driver import Driver
from acts.workflows.engine_calls import QUEUES_LABEL, ask_or_none
from acts.workflows.payloads import NOTHING, decode, decode_or_none, decode_signal, encode, raw

AIM: Final = 'No input needed; {"workflowId"?, "instance"?} names one run below.'
WHICH: Final = '"call"? names a call, "workflowId"? and "instance"? one of several; "version"? what you have seen'

# What people send, with what the Web UI says of it
PEOPLES_SIGNALS: Final[Mapping[str, str]] = {
    wire.APPROVE: f'Let it run: {{}} or {{"call": "2:refund", "by": "Ada", "note": "…"}}. {WHICH}.',
    wire.REJECT: f'Do not let it run: {{"reason": "…", "call": "2:refund", "by": "Ada"}}. {WHICH}.',
    wire.EDIT: f'Change: {{"plan": [calls]}} or {{"call": "2:refund", "with": {{call}}}}, then approve. {WHICH}.',
    wire.ANSWER: f'Answer what a person is asked: {{"call": "2:ask", "output": …, "by": "Ada"}}. {WHICH}.',
    wire.REVOKE: 'Ask about such calls again: {"remembered": "1", "by": "Ada"}; the query status lists them.',
    wire.UNDO: f'Let nothing more run, and undo what has completed: {{"reason": "…", "by": "Ada"}}. {WHICH}.',
    wire.PAUSE: f"Start no more calls; what runs goes on. {AIM}",
    wire.RESUME: f"Go on after pause. {AIM}",
    wire.PROVIDE: 'Give a message that the run waits for: {"type": "input", "input": {"name": "value"}}',
}
# The name of the function by which the answers to queries know the Tools of this worker
CURRENT_TOOLS: Final = "acts_current_tools"
# Queries that our own Activities make
_ENGINES_QUERIES: Final = (wire.PROMPT_CONTEXT, wire.STREAMED_CALLS)
# How alike a misspelt name must be to be recognised: `aprove` and `approve` are 0.92, `stop` and `provide` 0.36
_LIKENESS: Final = 0.7
# Characters of a name that a note shows; the server allows 1,000
_MAX_NAME: Final = 60
# Before the run knows its Request
STARTING: Final[dict[str, Any]] = {
    "phase": "planning", "calls": [], "usage": {"requests": 0, "inputTokens": 0, "outputTokens": 0, "cost": 0},
}  # fmt: skip


def describe_interactions(metadata: WorkflowMetadata, *, takes_signals: bool) -> None:
    """Make the Web UI offer what is for people: their signals, and no query of the engine's own."""
    definition = metadata.definition
    del definition.signal_definitions[:]
    for name, text in PEOPLES_SIGNALS.items() if takes_signals else ():
        definition.signal_definitions.append(WorkflowInteractionDefinition(name=name, description=text))
    offered = [query for query in definition.query_definitions if query.name not in _ENGINES_QUERIES]
    del definition.query_definitions[:]
    definition.query_definitions.extend(offered)


def read_input(value: RawValue) -> Any:
    """The JSON that a person sent with a signal or an update; CallError where it is none, or cannot be stored."""
    try:
        data = decode(value)
    except CallError as error:
        raise CallError(error.code, error.message.replace("the result", "the input")) from error
    problem = defect(data)
    if problem is not None:
        raise CallError(wire.NOT_JSON, f"the input cannot be stored: {truncate(problem[0], 60) or 'it'}: {problem[1]}")
    return data


def split_target(value: Any) -> tuple[str | None, str, Any]:
    """The run that a provided message names, when it counts (``next`` or ``now``), and the message without these; its
    ``instance`` is then ``_instance``. InvalidRequest: it counts at no such time.

    Only beside a payload in wrapped form, or words: an inline payload may have fields of these names.
    """
    is_wrapped = isinstance(value, dict) and (value.get("type") in value or value.get("type", "text") == "text")
    if not is_wrapped:
        return None, wire.NEXT, value
    message = {k: v for k, v in value.items() if k not in ("workflowId", "instance", "when")}
    if isinstance(value.get("instance"), str):
        message["_instance"] = value["instance"]
    workflow_id, when = value.get("workflowId"), value.get("when", wire.NEXT)
    if when not in (wire.NEXT, wire.NOW):
        text = f'"when" is "{wire.NEXT}" (after the tick) or "{wire.NOW}", not {truncate(repr(when), 60)}'
        raise InvalidRequest([Problem("invalidMessage", text, "/when")])
    return (workflow_id if isinstance(workflow_id, str) else None), when, message


def provided_message(value: Any) -> Data | Instruction:
    """A message that may be provided from outside; InvalidRequest where it is neither data-like nor a user's words.

    Its own claim of an origin is left out.
    """
    value = {k: v for k, v in value.items() if k not in ("_call", "_date")} if isinstance(value, dict) else value
    message = parse_message(value)
    if isinstance(message, Data) and not isinstance(message, SetData):
        return message
    if isinstance(message, Instruction) and message.type == "text" and value.get("role", "user") == "user":
        return message
    text = f"a {message.type} message cannot be provided: only data, input, state, and a user's text"
    raise InvalidRequest([Problem("invalidMessage", text)])


class RunWorkflow:
    """The one base of our workflow classes: inbox and handlers."""

    def __init__(self) -> None:
        self.uses_storage = False
        self.lifeline = Lifeline()
        self.failed_phase: str | None = None
        self._inbox: deque[Event] = deque()
        self._driver: Driver | None = None
        self._view: RunView | None = None
        self._updates: dict[str, asyncio.Future[DecisionAnswer | None]] = {}
        self._early_notes: list[str] = []

    # -- for the workflow classes -----------------------------------------------------------------

    async def drive(self, run: RunMachine, view: RunView, report: Callable[[], dict[str, Any]] | None = None) -> None:
        """Run a machine to its end, or raise CancelledError; ``report`` tells the parent what it had done by then."""
        self._view = view
        self.lifeline.token = run.position.token
        self._driver = driver = Driver(run, view, self._inbox, self._answer, self.lifeline)
        for text in self._early_notes:
            run.note(text)
        options = (tool.options for tool in run.watched_tools if tool.activity and not tool.options.local)
        own = (None, workflow.info().task_queue)
        run.queue_watch.queues = queues = tuple(dict.fromkeys(o.taskQueue for o in options if o.taskQueue not in own))
        try:
            # A run that continues as new begins at once, and checks then: people may ask what it waits for
            if queues and not run.is_continued:
                has_workers = await ask_or_none(wire.QUEUES, {"queues": list(queues)}, QUEUES_LABEL)
                run.queue_watch.record_check(has_workers or {}, iso(workflow.now()))
            await driver.index.begin()
            await driver.drive()
        except asyncio.CancelledError:
            if report is not None and run.position.ancestors and self.lifeline.superseded_by is None:
                await driver.send_and_wait(run.report_cancelled(report()))
            raise

    @property
    def is_untouched(self) -> bool:
        """True until somebody sends this run something."""
        return not (self.lifeline.signals or self._inbox or self._updates)

    @property
    def machine(self) -> RunMachine | None:
        return None if self._driver is None else self._driver.run

    def page(self) -> str | None:
        """The page for the Web UI as of now, rendered when somebody reads it; None before the run has begun."""
        return None if self._view is None else self._view.page(_current_tools())

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
        self.lifeline.signals += 1
        value = args[0] if args else NOTHING
        if len(args) > 1:
            self._note(f'the signal "{truncate(name, 60)}" has {len(args)} arguments; the first counts')
        try:
            if (type_ := TREE_SIGNALS.get(name)) is not None:
                self._inbox.append(RecordReceived(decode_signal(value, type_)))
            elif name in WORDS:
                self._inbox.append(DecisionReceived(read_input(value), name))
            elif name in (wire.PAUSE, wire.RESUME):
                self._steer(name, value)
            elif name == wire.PROVIDE:
                self._provide(value)
            else:
                near = get_close_matches(name.lower()[:_MAX_NAME], PEOPLES_SIGNALS, n=1, cutoff=_LIKENESS)
                hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(PEOPLES_SIGNALS)}"
                self._note(f'the signal "{truncate(name, _MAX_NAME)}" is unknown and was ignored; {hint}')
        except (InvalidRequest, CallError, RecordError) as error:
            reason = error.problems[0].message if isinstance(error, InvalidRequest) else str(error)
            self._note(f"the signal {name} was refused: {truncate(reason, 200)}")
        except Exception as error:  # noqa: BLE001 - whatever somebody sends, the run goes on
            workflow.logger.exception("a signal could not be read")
            self._note(f"the signal {name} was refused: it could not be read ({type(error).__name__})")

    def _steer(self, signal: str, value: RawValue) -> None:
        """Pause or resume, here and below, or one run below that the signal names; it may hold anything else."""
        try:
            aim = read_input(value)
        except CallError:
            aim = None
        workflow_id, instance = (aim.get("workflowId"), aim.get("instance")) if isinstance(aim, dict) else (None, None)
        if not self._pass_on(signal, workflow_id, instance):
            self._inbox.append(PauseChanged(signal == wire.PAUSE))

    def _provide(self, value: RawValue, update: str | None = None) -> bool:
        """Append a message to the context; instances get what is theirs, and what is global.

        False for a message to a run below: that judges it.
        """
        workflow_id, when, message = split_target(read_input(value))
        below = {**message, "when": wire.NOW} if when == wire.NOW else message
        if workflow_id is not None and self._pass_on(wire.PROVIDE, workflow_id, None, encode(below)):
            return False
        self._inbox.append(Provided(provided_message(message), update=update, is_urgent=when == wire.NOW))
        return True

    def _pass_on(self, signal: str, workflow_id: Any, instance: Any, *args: RawValue) -> bool:
        """Pass a signal on to the one run below that it names; False when it is for this run."""
        own, driver = workflow.info().workflow_id, self._driver
        if isinstance(workflow_id, str) and workflow_id != own:
            if not workflow_id.startswith(f"{own}/") or not is_workflow_id(workflow_id):
                self._note(f"the signal {signal} was ignored: {truncate(workflow_id, 100)} is no run below this one")
            elif driver is not None:
                driver.children.signal_one(workflow.get_external_workflow_handle(workflow_id), signal, *args)
            return True
        if not isinstance(instance, str) or driver is None:
            return False
        if isinstance(driver.run, AgentRun):  # through its plan
            driver.children.signal(signal, encode({"instance": instance}))
        elif not driver.children.signal(signal, type_=wire.INSTANCE, name=driver.run.child_of_instance(instance)):
            self._note(f"the signal {signal} was ignored: no child walks the instance {truncate(instance, 100)} now")
        return True

    # -- the update -----------------------------------------------------------------------------------

    @workflow.update(
        name=wire.DECIDE,
        description=(
            'Decide, and get the status: {"decision": "approve"}, {"decision": "reject", "reason": "…"}, '
            f'{{"decision": "edit", "plan": [calls]}} or {{"decision": "answer", "output": …}}. {WHICH}.'
        ),
    )
    async def decide(self, value: RawValue = NOTHING) -> RawValue:
        """Carry out a decision, here or in a run below; returns the status after it."""
        return await self._decide(value, None)

    async def _decide(self, value: RawValue, word: str | None) -> RawValue:
        update = workflow.current_update_info()
        id_ = update.id if update is not None else ""
        try:
            event = DecisionReceived(read_input(value), word, id_)
        except CallError as error:
            _refuse(problem_of(error))
        self._updates[id_] = future = asyncio.get_running_loop().create_future()
        has_not_begun = self.machine is None or self.machine.has_not_begun
        is_early = has_not_begun and workflow.info().continued_run_id is None
        await asyncio.sleep(0)  # after the signals of the same task: see ``Driver``
        self._inbox.append(event)
        problem = await future
        if is_early:
            # A local Activity of the start may have taken several tasks. Where the run has to be replayed before the
            # last of them has ended, the SDK takes that task for a past one: it announces an answer, and sends none
            await workflow.sleep(timedelta(milliseconds=1))  # as a timer of the server, the shortest
        if problem is not None:
            _refuse(problem)
        return self.status()

    @decide.validator
    def decide_validator(self, value: RawValue = NOTHING) -> None:
        """Refuse what cannot be carried out here: it then never enters history.

        While the run does not know its pending approvals yet (a worker that has just come gets the update together with
        the events before it), and where a run below is the judge, the handler refuses.
        """
        self._judge(value, None)

    def _judge(self, value: RawValue, word: str | None) -> None:
        run = self.machine
        try:
            read_decision(decision := read_input(value), word)
            if run is not None and not run.has_not_begun and not self._inbox:
                run.approvals.judge(decision, word)
        except (PlanError, CallError) as error:
            _refuse(problem_of(error))

    @workflow.update(
        name=wire.ANSWER,
        description=f'Answer what a person is asked, and get the status: {{"call": "2:ask", "output": …}}. {WHICH}.',
    )
    async def answer(self, value: RawValue = NOTHING) -> RawValue:
        """Give the output of a Call that a person answers; returns the status after it."""
        return await self._decide(value, wire.ANSWER)

    @answer.validator
    def answer_validator(self, value: RawValue = NOTHING) -> None:
        """Refuse what does not fit the form; the Call goes on waiting."""
        self._judge(value, wire.ANSWER)

    @workflow.update(
        name=wire.PROVIDE,
        description='Give a message that the run waits for, and get the status: {"type": "input", "input": {…}}. '
        "It is refused where the run cannot take it.",
    )
    async def provide(self, value: RawValue = NOTHING) -> RawValue:
        """Append a message to the context; returns the status after it."""
        update = workflow.current_update_info()
        id_ = update.id if update is not None else ""
        try:
            if self._provide(value, id_):
                self._updates[id_] = future = asyncio.get_running_loop().create_future()
                if (problem := await future) is not None:
                    _refuse(problem)
        except (InvalidRequest, CallError) as error:
            _refuse(problem_of(error))
        return self.status()

    @provide.validator
    def provide_validator(self, value: RawValue = NOTHING) -> None:
        """Refuse what the run cannot take as it is now: it then never enters history."""
        run = self.machine
        try:
            workflow_id, _, message = split_target(read_input(value))
            data = provided_message(message)
            if workflow_id is None and run is not None and not run.has_not_begun and not self._inbox:
                run.check_provided(data)
        except (PlanError, CallError) as error:
            _refuse(problem_of(error))

    # -- queries ----------------------------------------------------------------------------------------

    @workflow.query(name=wire.STATUS, description="{phase, tick?, calls: [{id, tool, state, error?}], usage, notes?}")
    def status(self, _: RawValue = NOTHING) -> RawValue:
        if self._view is None:
            notes = {"notes": self._early_notes} if self._early_notes else {}
            return _json({**STARTING, "phase": self.failed_phase or "planning", **notes})
        status = self._view.status()
        data = write_json(status)
        if len(data) > MAX_RESULT:
            calls = [{**c, "error": without_details([c["error"]])[0]} if "error" in c else c for c in status["calls"]]
            data = write_json({**status, "calls": calls[-10_000:]})
        return raw(data)

    @workflow.query(
        name=wire.PLAN_QUERY,
        description="""The latest plan's calls, as they were written. Of an agent, as
        its model proposed them: {"as": "proposed"}.""",
    )
    def plan(self, options: RawValue = NOTHING) -> RawValue:
        return _json([] if self._view is None else self._view.plan(decode_or_none(options)))

    @workflow.query(
        name=wire.CONTEXT,
        description='The messages so far. A page: {"offset": 0, "limit": 1000}. One value: {"path": "†state.name"}.',
    )
    def context(self, page: RawValue = NOTHING) -> RawValue:
        return _json([] if self._view is None else self._view.context(decode(page), MAX_RESULT))

    @workflow.query(
        name=wire.PENDING,
        description="What waits for a decision, at the root for all runs below: "
        "[{workflowId, what, call?, version, since}]",
    )
    def pending(self, _: RawValue = NOTHING) -> RawValue:
        return _json([] if self.machine is None else [wait.to_json() for wait in self.machine.approvals.pending])

    @workflow.query(
        name=wire.SUBJECTS,
        description="What is decided here, whole: {editable, waits: [{what, call?, instance?, subject}]}, "
        "as much as fits into an answer.",
    )
    def subjects(self, _: RawValue = NOTHING) -> RawValue:
        empty = {"editable": True, "waits": []}
        return _json(empty if self._view is None else self._view.subjects(MAX_RESULT, _current_tools()))

    @workflow.query(
        name=wire.UNDO,
        description="What would undo the completed calls: {calls, request?}; the request is that of a Plan.",
    )
    def undo(self, _: RawValue = NOTHING) -> RawValue:
        run = self.machine
        steps = [] if run is None or (run.undone or {}).get("calls") else run.undo_steps()
        request = {"request": run.undo_request(steps)} if run is not None and steps else {}
        data = write_json({"calls": len(steps), **request})
        limit = wire.MAX_STORED_BYTES if self.uses_storage else MAX_RESULT
        return raw(data if len(data) <= limit else write_json({"calls": len(steps)}))

    @workflow.query(name=wire.PROMPT_CONTEXT, description="For the engine: what a model is shown.")
    def prompt_context(self, page: RawValue = NOTHING) -> RawValue:
        empty: dict[str, Any] = {"messages": []}
        return _json(empty if self._view is None else self._view.prompt_context(decode(page), MAX_RESULT))

    @workflow.query(name=wire.STREAMED_CALLS, description="For the engine: how many calls of the answer have come.")
    def streamed_call_count(self, _: RawValue = NOTHING) -> RawValue:
        records = (e.record for e in self._inbox if isinstance(e, RecordReceived))
        received = sum(isinstance(record, StreamedCalls) for record in records)
        return _json(received + (len(self.machine.stream.calls) if isinstance(self.machine, AgentRun) else 0))

    @workflow.query(
        name=wire.GRAPH,
        description="""The latest plan as a Mermaid flowchart; {"format": "text"} is for a terminal, "svg" an SVG.""",
    )
    def graph(self, options: RawValue = NOTHING) -> Any:
        return "" if self._view is None else self._view.graph(decode_or_none(options))


def _current_tools() -> CurrentTools | None:
    """The Tools of this very worker, for answers to queries alone: nothing that a run decides may depend on them."""
    current = workflow.extern_functions().get(CURRENT_TOOLS)
    return None if current is None else CurrentTools(*current())


W = TypeVar("W", bound=RunWorkflow)


def guarded(run: Callable[[W, RawValue], Awaitable[RawValue]]) -> Callable[[W, RawValue], Awaitable[RawValue]]:
    """Make every failure of a run readable, and none retry a task forever."""

    @functools.wraps(run)
    async def guarded_run(self: W, value: RawValue = NOTHING) -> RawValue:
        self.lifeline.main_task = asyncio.current_task()
        try:
            return await run(self, value)
        except (Exception, asyncio.CancelledError) as error:
            failure = _readable(error)
            if isinstance(failure, ApplicationError):
                self.failed_phase = "failed"
            await self.lifeline.report_reset(value)
            self.lifeline.raise_ending(error)
            if failure is error:
                raise
            raise failure from (None if isinstance(error, (InvalidRequest, RecordError)) else error)

    return guarded_run


def _readable(error: BaseException) -> BaseException:
    """An ApplicationError that says what is wrong, or what cancels the run."""
    if isinstance(error, ApplicationError) or is_cancelled_exception(error):
        return error
    if isinstance(error, RecordError):
        hint = "start a Plan or an Agent; Delegate, Instance and Background are started by them"
        error = InvalidRequest([Problem("invalidRequest", str(error), hint=hint)])
    if isinstance(error, CallError):
        return ApplicationError(error.message, type=error.code, non_retryable=True)
    if isinstance(error, InvalidRequest):
        return ApplicationError(str(error), _json(error.to_json()), type=wire.INVALID_REQUEST, non_retryable=True)
    # Whatever it is: an input that we did not foresee must not retry this task for ever
    workflow.logger.exception("the run broke")
    text = f"{type(error).__name__}: {truncate(str(error))}"
    return ApplicationError(text, type=wire.ENGINE_ERROR, non_retryable=True)


def _json(value: Any) -> RawValue:
    return raw(write_json(value))


def _refuse(problem: DecisionAnswer) -> NoReturn:
    details = () if problem.details is None else (_json(problem.details),)
    raise ApplicationError(problem.message, *details, type=problem.type, non_retryable=True)
