"""One reader for everything that a run answers: description, queries, Request, result, progress.

- An answer is fetched once and kept; ``fresh`` returns a reader that fetches again.
- A query that no worker answers in time returns None: the caller decides what that means.
- A failure of type PlanFailed carries the whole result, one of type InvalidRequest the problems: both are unpacked, so
  that completed work is never lost.
- An agent learns the states of its Calls when their plan ends, so the plan of the tick is queried too. Only the server
  knows whether a worker has taken a Call: one that waits in its task queue is ``ready``.
- The parameters of a pending Call are those that its run has resolved and will use; a decision does not depend on them.
- An instance is executed by the run itself, by a child of its own, or by a child that it shares with others. A run that
  has ended is read from its result; else, or if that has no details, the run or the child is queried.
- Nothing is printed or laid out here.
"""

from __future__ import annotations

import asyncio
import functools
import json
import zlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from acts.cli.console import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_NO_SERVER,
    EXIT_WRONG_INPUT,
    CommandError,
    clean,
    command_error,
    list_names,
)
from acts.cli.runs import server
from acts.cli.text.source import problems_from_json
from acts.language.errors import Problem
from acts.language.values import Json
from acts.language.wire import (
    AGENT,
    CONTEXT,
    DELEGATE,
    GRAPH,
    INSTANCE,
    INVALID_REQUEST,
    PENDING,
    PENDING_PARAMETERS,
    PLAN,
    PLAN_FAILED,
    PLAN_QUERY,
    PROMPT_CONTEXT,
    STATUS,
)
from acts.tree.decisions import PendingApproval
from acts.tree.identity import child_id, short_id
from acts.views.text import named_instances, set_counts

if TYPE_CHECKING:
    from temporalio.api.workflow.v1 import PendingActivityInfo
    from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHandle

T = TypeVar("T")

# The workflow types that have a plan and a context
PLANNING_TYPES: Final = (PLAN, AGENT, DELEGATE, INSTANCE)
QUERY_TIMEOUT: Final = timedelta(seconds=5)
# A worker replays the whole run before it answers: 5,000 events were measured at 5 s
SECONDS_PER_EVENT: Final = 0.003
# The server's number for an activity that no worker works on (temporalio.api.enums: the import takes 0.1 s)
PENDING_ACTIVITY_STATE_SCHEDULED: Final = 1
# Messages per page: of a run that has ended, the worker replays for each page, and a page ends at 1.5 MB anyway
PAGE_MESSAGES: Final = 20_000
# Since its last completed task a run has received so many events at most, or nobody waits for the reason of a failure
_MAX_EVENTS: Final = 200
# Keys that are added to an approval's ``about``; the query ``pending`` uses neither
WITH: Final = "with"
EDITABLE: Final = "editable"
MAX_CONCURRENT_QUERIES: Final = 16  # each is a task for a worker that has other work


# -- how a run ended --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """``status`` is that of the result, or terminated, timedOut, continued. Without a result, ``result`` is None."""

    status: str
    result: Any = None
    error: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)

    @property
    def code(self) -> int:
        """The exit code of a command that waited for this run."""
        if self.status == "completed":
            return EXIT_DONE
        return EXIT_WRONG_INPUT if self.problems else EXIT_FAILED

    def to_json(self) -> Any:
        """The result; without one, ``{status, error}``."""
        if self.result is not None or self.error is None:
            return self.result
        return {"status": self.status, "error": self.error}


async def wait_for_outcome(handle: WorkflowHandle[Any, Any], *, follow_runs: bool = True) -> Outcome:
    """The outcome of a run once it ends. ``follow_runs`` waits across continue-as-new."""
    from temporalio.client import WorkflowContinuedAsNewError, WorkflowFailureError

    try:
        result = await handle.result(follow_runs=follow_runs)
    except WorkflowContinuedAsNewError as error:
        text = f"continued as the run {error.new_execution_run_id}"
        return Outcome("continued", error={"type": "ContinuedAsNew", "message": text})
    except WorkflowFailureError as error:
        return outcome_of_failure(error.cause)
    status = result.get("status") if isinstance(result, dict) else None
    return Outcome(status if isinstance(status, str) else "completed", result)


def outcome_of_failure(cause: BaseException | None) -> Outcome:
    """The outcome of a run that failed, timed out, or was cancelled or terminated.

    Of an activity or child that failed the run, the error is the root cause: ``Activity task failed`` names no reason.
    """
    from temporalio import exceptions

    ends: dict[type, tuple[str, str]] = {
        exceptions.CancelledError: ("cancelled", "Cancelled"), exceptions.TerminatedError: ("terminated", "Terminated"),
        exceptions.TimeoutError: ("timedOut", "Timeout"),
    }  # fmt: skip
    is_own = True
    while isinstance(cause, (exceptions.ActivityError, exceptions.ChildWorkflowError)):
        is_own = False
        if cause.__cause__ is None:
            break
        cause = cause.__cause__
    own_type = cause.type if isinstance(cause, exceptions.ApplicationError) else None
    status, type_ = ends.get(type(cause), ("failed", own_type or type(cause).__name__))
    error: dict[str, Any] = {"type": type_, "message": str(getattr(cause, "message", None) or cause)}
    details = getattr(cause, "details", None)
    detail = details[0] if details else None
    if type_ == INVALID_REQUEST:
        items = detail if isinstance(detail, list) else []
        problems = problems_from_json(items) or [Problem(type_, error["message"])]
        return Outcome("failed", None, {**error, "problems": items}, problems if is_own else [])
    if is_own and isinstance(detail, dict) and isinstance(detail.get("status"), str):  # a whole result
        return Outcome(detail["status"], detail, None if type_ == PLAN_FAILED else error)
    return Outcome(status if is_own else "failed", error=error)


# -- the reader -------------------------------------------------------------------------------------------------------


def _once(method: Callable[[RunReader], Awaitable[T]]) -> Callable[[RunReader], Coroutine[Any, Any, T]]:
    """Keep the answer of a method."""
    name = method.__name__

    @functools.wraps(method)
    async def read(self: RunReader) -> T:
        if name not in self._answers:
            self._answers[name] = await method(self)
        answer: T = self._answers[name]
        return answer

    return read


async def open_run(id_: str, run_id: str | None = None) -> RunReader:
    """A reader of a run on the server of this command."""
    return RunReader(await server.connect(), id_, run_id)


class RunReader:
    """Reads the run of a workflow id: the latest one, or the one of ``run_id``."""

    def __init__(self, client: Client, id_: str, run_id: str | None = None) -> None:
        if not id_ or "\0" in id_:
            raise command_error("a run id must not be empty", hint="`acts run` prints it")
        self.client = client
        self.id = id_
        self.handle = client.get_workflow_handle(id_, run_id=run_id)
        self.query_timeout = QUERY_TIMEOUT
        self._query_failure = ""
        self._answers: dict[str, Any] = {}

    def fresh(self) -> RunReader:
        """A reader of the same run that has no answers yet."""
        return RunReader(self.client, self.id, self.handle.run_id)

    def other(self, id_: str) -> RunReader:
        """A reader of another run of the same server."""
        return RunReader(self.client, id_)

    # -- what the server knows -----------------------------------------------------

    @_once
    async def describe(self) -> WorkflowExecutionDescription:
        """The server's description of the run.

        Raises:
            CommandError: there is no such run.
        """
        return await server.for_run(self.id, self.handle.describe(rpc_timeout=server.RPC))

    async def exists(self) -> bool:
        """Whether the server has a run of this id."""
        try:
            await self.describe()
        except CommandError:
            return False
        return True

    async def describe_running(self) -> WorkflowExecutionDescription:
        """The description of a run that accepts signals, updates and cancellation.

        Raises:
            CommandError: there is no such run, or it has ended.
        """
        info = await self.describe()
        if info.close_time is not None:
            raise server.ended_error(self.id)
        return info

    async def describe_planning(self) -> WorkflowExecutionDescription:
        """The description of a run that has a plan and a context.

        Raises:
            CommandError: there is no such run, or it has none.
        """
        info = await self.describe()
        if info.workflow_type not in PLANNING_TYPES:
            text = f'the run "{clean(self.id, 200)}" is of the type {clean(info.workflow_type, 100)}, which has no plan'
            raise command_error(text, hint=f"these types have one: {', '.join(PLANNING_TYPES)}")
        return info

    async def activities(self) -> dict[str, dict[str, Any]]:
        """What the server knows of the run's activities in flight, by activity id: ``_activity_facts``."""
        pending = (await self.describe()).raw_description.pending_activities
        return {item.activity_id: await self._activity_facts(item) for item in pending}

    async def _activity_facts(self, item: PendingActivityInfo) -> dict[str, Any]:
        """``{state, taskQueue}`` until a worker takes the first attempt; then ``{state, attempt?, lastFailure?}``."""
        from temporalio.exceptions import ServerError

        from acts.telemetry.failures import without_details

        if item.attempt > 1:
            failure = await self.client.data_converter.decode_failure(without_details(item.last_failure))
            if isinstance(failure, ServerError) and failure.__cause__ is not None:  # the server has cut a large one
                failure = failure.__cause__
            text, type_ = getattr(failure, "message", None) or str(failure), getattr(failure, "type", None)
            text = f"[{type_}] {text}" if isinstance(type_, str) else text
            return {"state": "running", "attempt": item.attempt, "lastFailure": text}
        if item.state == PENDING_ACTIVITY_STATE_SCHEDULED:
            return {"state": "ready", "taskQueue": item.activity_options.task_queue.name}
        return {"state": "running"}

    @_once
    async def root(self) -> RunReader:
        """The run at the top of this one's tree, which lists the approvals of the whole tree.

        A root is its own, and so is a detached run that has outlived its root.
        """
        root = self.other((await self.describe()).root_id or self.id)
        is_running = root.id != self.id and await root.exists() and (await root.describe()).close_time is None
        return root if is_running else self

    async def has_worker(self) -> bool:
        """Whether a worker polls the run's task queue."""
        return await server.has_pollers(self.client, (await self.describe()).task_queue)

    @_once
    async def outcome(self) -> Outcome | None:
        """How exactly this run ended; None while it runs."""
        info = await self.describe()
        if info.close_time is None:
            return None
        return await wait_for_outcome(self.client.get_workflow_handle(self.id, run_id=info.run_id), follow_runs=False)

    async def result(self) -> dict[str, Any]:
        """The result of a run that has ended; {} if it has none."""
        outcome = await self.outcome()
        return outcome.result if outcome is not None and isinstance(outcome.result, dict) else {}

    async def request(self) -> Json:
        """The Request that the run was started with, or None.

        It is in the first event of the first run; a run after continue-as-new names that one.
        """
        info = await self.describe()
        event = await self._start_event(info.run_id)
        if event is not None and event.first_execution_run_id not in ("", info.run_id):
            event = await self._start_event(event.first_execution_run_id)
        if event is None or not event.input.payloads:
            return None
        from temporalio.common import RawValue

        converter = self.client.data_converter
        # The metadata count as well: they are encrypted, and stored, with the data
        [value] = await converter.decode(event.input.payloads[:1], [RawValue])
        content = converter.payload_converter.from_payload(value.payload)
        if isinstance(content, bytes):  # of an instance
            content = json.loads(zlib.decompress(content))
        return content.get("request", content) if isinstance(content, dict) else content

    async def _start_event(self, run_id: str | None) -> Any:
        handle = self.client.get_workflow_handle(self.id, run_id=run_id)
        async for event in handle.fetch_history_events(page_size=1, rpc_timeout=server.RPC):
            return event.workflow_execution_started_event_attributes
        return None

    @_once
    async def obstacle(self) -> str:
        """What keeps the run's workers from answering, such as a value that they cannot read; "" if none is known.

        The server records the first failure of a workflow task; those of later attempts are in the log of the worker.
        """
        from temporalio.api.common.v1 import WorkflowExecution
        from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
        from temporalio.service import RPCError

        if self._query_failure:
            return f"the worker cannot answer: {clean(self._query_failure, 500)}"
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self.client.namespace, maximum_page_size=_MAX_EVENTS,
            execution=WorkflowExecution(workflow_id=self.id, run_id=self.handle.run_id or ""),
        )  # fmt: skip
        try:
            page = await self.client.workflow_service.get_workflow_execution_history_reverse(
                request, timeout=server.RPC
            )
        except RPCError:
            return ""
        for event in page.history.events:
            if event.HasField("workflow_task_completed_event_attributes"):
                break
            if event.HasField("workflow_task_failed_event_attributes"):
                failure = event.workflow_task_failed_event_attributes.failure
                decoded = await self.client.data_converter.decode_failure(failure)
                text = str(getattr(decoded, "message", "") or decoded)
                return f"its last workflow task failed: {clean(text, 500)}"
        return ""

    # -- what a worker answers -----------------------------------------------------

    async def query(self, name: str, *args: Any) -> Any:
        """The answer to a query; None if there is none in time."""
        from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
        from temporalio.service import RPCError

        try:
            # the SDK retries after its own timeout, so the wait is bounded here too
            answer = self.handle.query(name, args=list(args), rpc_timeout=self.query_timeout)
            return await asyncio.wait_for(answer, self.query_timeout.total_seconds())
        except WorkflowQueryFailedError as error:
            self._query_failure = str(error)
            return None
        except (RPCError, WorkflowQueryRejectedError, TimeoutError):
            return None

    async def _query_object(self, name: str, *args: Any) -> dict[str, Any] | None:
        answer = await self.query(name, *args)
        return answer if isinstance(answer, dict) else None

    async def allow_replay_time(self) -> None:
        """Give the worker enough time per query to replay the whole history of the run."""
        events = (await self.describe()).history_length
        self.query_timeout = QUERY_TIMEOUT + timedelta(seconds=SECONDS_PER_EVENT * events)

    @_once
    async def status(self) -> dict[str, Any] | None:
        """The query ``status``: ``{phase, tick?, calls, instances?, usage, waits?, notes?, decisions?}``."""
        return await self._query_object(STATUS)

    @_once
    async def pending(self) -> list[PendingApproval] | None:
        """The pending approvals: of a root those of its whole tree, else the run's own."""
        answer = await self.query(PENDING)
        return [PendingApproval.model_validate(item) for item in answer] if isinstance(answer, list) else None

    async def pending_parameters(self) -> dict[str, Any] | None:
        """The parameters of the run's own pending Calls: ``{editable, calls: [{call, instance?, with}]}``."""
        return await self._query_object(PENDING_PARAMETERS)

    @_once
    async def plan(self) -> list[Any] | None:
        """The Calls of the plan that waits for approval, or else is executed."""
        answer = await self.query(PLAN_QUERY)
        return answer if isinstance(answer, list) else None

    async def prompt_context(self) -> dict[str, Any] | None:
        """The Tools as the worker knows them, without messages: ``{tools: {name: {schema, served}}, mode}``."""
        return await self._query_object(PROMPT_CONTEXT, {"offset": 0, "upto": 0})

    async def messages(self) -> list[Json] | None:
        """The whole context, read page by page."""
        messages: list[Json] = []
        while True:
            page = await self._query_object(CONTEXT, {"offset": len(messages), "limit": PAGE_MESSAGES})
            if page is None or not isinstance(page.get("messages"), list):
                return None
            messages += page["messages"]
            if not page["messages"] or len(messages) >= int(page.get("total", 0)):
                return messages

    async def value(self, path: str, instance: str) -> dict[str, Any] | None:
        """A value in the view of an instance: ``{path, value}``, ``{path, absent}``, or ``{error}``."""
        return await self._query_object(CONTEXT, {"path": path, "instance": instance})

    async def graph(self, *, mermaid: bool) -> str | None:
        """The plan as Mermaid, or as lines for a terminal; empty if the run has no plan."""
        answer = await self.query(GRAPH, *([] if mermaid else [{"format": "text"}]))
        return answer if isinstance(answer, str) else None

    async def require(self, answer: Awaitable[T | None]) -> T:
        """An answer of a worker. Raises CommandError: there is none."""
        value = await answer
        if value is None:
            raise await self.no_answer_error()
        return value

    async def no_answer_error(self, effect: str = "", hint: str = server.START_WORKER) -> CommandError:
        """No worker answers for this run, so ``effect`` (by default: it cannot be read)."""
        queue = f'the queue "{clean((await self.describe()).task_queue, 100)}"'
        cause = f"the workers of {queue} do not answer" if await self.has_worker() else f"no worker serves {queue}"
        cause = await self.obstacle() or cause
        effect = effect or f'"{clean(self.id, 200)}" cannot be read'
        return command_error(f"{cause}, so {effect}", hint=hint, code=EXIT_NO_SERVER)


# -- progress ---------------------------------------------------------------------------------------------------------


async def read_progress(run: RunReader, limit: int | None = None) -> dict[str, Any] | None:
    """``status``, with the live states of the Calls and with ``pending`` (as JSON); None if no worker answers.

    The first ``limit`` pending Calls have their parameters, or all.
    """
    status = await run.status()
    if status is None:
        return None
    status = {**status, "calls": await _live_calls(run, status)}
    if status.get("waits") or status.get("phase") == "awaiting":
        approvals = await run.pending() or []
        listed = [*await add_parameters(run, approvals[:limit]), *(approvals[limit:] if limit is not None else ())]
        status |= {"pending": [approval.to_json() for approval in listed]} if listed else {}
    return status


async def _live_calls(run: RunReader, status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The Calls of a status; those of the current tick as the plan that executes them reports them."""
    calls, tick = await _as_server_sees(run, status.get("calls") or ()), status.get("tick")
    current = [i for i, call in enumerate(calls) if call.get("tick") == tick and call.get("state") == "pending"]
    if not tick or not current:
        return calls
    plan = run.other(child_id(run.id, f"plan-{tick}"))
    live = await _as_server_sees(plan, (await plan.status() or {}).get("calls") or ())
    if len(live) == len(current):  # the plan numbers its Calls anew, in the same order
        for index, call in zip(current, live, strict=True):
            calls[index] = {**call, **{k: calls[index][k] for k in ("id", "tool", "tick")}}
    return calls


async def _as_server_sees(run: RunReader, calls: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The Calls of a run; one in flight with ``taskQueue`` while it waits there, or with its ``attempt``."""
    if not any(call.get("state") == "running" or "taskQueue" in call for call in calls):
        return list(calls)
    activities, out = await run.activities(), list[Mapping[str, Any]]()
    for call in calls:
        key = f"{call['instance']}/{call['id']}" if call.get("instance") else str(call.get("id"))
        facts = activities.get(short_id(key))
        is_in_flight = call.get("state") == "running" or "taskQueue" in call
        rest = {k: v for k, v in call.items() if k != "taskQueue"}
        out.append({**rest, **facts} if facts is not None and is_in_flight else call)
    return out


async def add_parameters(run: RunReader, approvals: Sequence[PendingApproval]) -> list[PendingApproval]:
    """The approvals, with ``about["with"]``: the Call with the parameters that it will have.

    ``about["editable"]`` is False if the run accepts no edit of it.
    """
    limit = asyncio.Semaphore(MAX_CONCURRENT_QUERIES)

    async def query(id_: str) -> dict[str, Any]:
        async with limit:
            return await run.other(id_).pending_parameters() or {}

    ids = list(dict.fromkeys(a.workflow_id for a in approvals if a.call is not None))
    answers = dict(zip(ids, await asyncio.gather(*map(query, ids)), strict=True))
    return [_with_parameters(approval, answers.get(approval.workflow_id, {})) for approval in approvals]


def _with_parameters(approval: PendingApproval, answer: Mapping[str, Any]) -> PendingApproval:
    # a run inside an instance does not know the instance's name
    calls = {c["call"]: c[WITH] for c in answer.get("calls", ()) if c.get("instance") in (None, approval.instance)}
    report = {k: v for k, v in approval.to_json().items() if k not in (WITH, EDITABLE)}
    report |= {WITH: calls[approval.call]} if approval.call in calls else {}
    return PendingApproval.model_validate(report if answer.get(EDITABLE, True) else {**report, EDITABLE: False})


# -- one instance of a batch ------------------------------------------------------------------------------------------

# A shared child is named after its first instance: how many earlier ones to look for, a request to the server each
_MAX_EARLIER: Final = 500
_MAX_NAMES: Final = 12

# ``{status, state?, calls, errors, decisions?}``, and the run that it was read from
InstanceView = tuple[dict[str, Any], str]


async def read_instance(run: RunReader, name: str) -> InstanceView:
    """An instance of a run.

    Raises:
        CommandError: the run has no instance of this name, or no worker answers.
    """
    result = await run.result()
    if set_counts(result) is not None:
        raise _set_error(run.id)
    item = (result.get("instances") or {}).get(name) or {}
    if "state" in item:
        return _item(item, name, result), run.id
    try:
        return await _query_instance(run, name)
    except CommandError:
        if "calls" not in item:
            raise
        return _item(item, name, result), run.id


def _set_error(run_id: str) -> CommandError:
    """The instances of a set are too many to be found by name."""
    text = f'the instances of "{clean(run_id)}" are the rows of a set'
    hint = f"each has a line in its results file; a run that walks some of them: acts show {clean(run_id)}/batch-…/ID"
    return command_error(text, where="--instance", hint=hint)


def _item(item: Mapping[str, Any], name: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """The details of an instance; ``run`` is the result or status with the decisions about it."""
    out = {k: item[k] for k in ("status", "state", "calls") if k in item}
    out["errors"] = [{**e, "instance": name} for e in item.get("errors") or () if isinstance(e, dict)]
    decisions = [d for d in run.get("decisions") or () if isinstance(d, dict) and d.get("instance") == name]
    return {**out, "decisions": decisions} if decisions else out


async def _query_instance(run: RunReader, name: str) -> InstanceView:
    """An instance from the queries of its run, or of the child that executes it."""
    info = await run.describe()
    status = await run.require(run.status())
    if info.workflow_type == AGENT and status.get("tick"):
        plan = run.other(child_id(run.id, f"plan-{status['tick']}"))
        if await plan.exists():
            return await read_instance(plan, name)
    if set_counts(status) is not None:
        raise _set_error(run.id)
    names = list(status.get("instances") or ())
    if name not in names:
        raise unknown_instance_error(run.id, names, name)
    item: dict[str, Any] = {"status": str(status["instances"][name]), "calls": [], "errors": []}
    if calls := [c for c in status.get("calls") or () if c.get("instance") == name]:
        state = await run.value("†state", name) or {}
        item["calls"] = [{k: v for k, v in call.items() if k != "instance"} for call in calls]
        item["errors"] = [{"call": c.get("id"), **c["error"]} for c in calls if isinstance(c.get("error"), dict)]
        return _item(item | ({"state": state["value"]} if "value" in state else {}), name, status), run.id
    # a child of this id that exists before the instance starts belongs to an earlier run
    has_begun = item["status"] not in ("pending", "ready")
    child = await _find_child(run, names[: names.index(name) + 1]) if has_begun else None
    if child is None:
        return item, run.id
    result = await child.result()
    return (_item(result, name, {}), child.id) if "calls" in result else await read_instance(child, name)


async def _find_child(run: RunReader, names: Sequence[str]) -> RunReader | None:
    """The child that executes the last of these instances: the nearest one, named after the first that it executes."""
    for first in reversed(names[-_MAX_EARLIER:]):
        child = run.other(child_id(run.id, first))
        if await child.exists() and (await child.describe()).workflow_type == INSTANCE:
            known = await child.result() or await child.status()
            return child if first == names[-1] or names[-1] in named_instances(known) else None
    return None


def unknown_instance_error(run: str, names: Sequence[str], name: str, where: str = "--instance") -> CommandError:
    """The run has no such instance; the error lists those that it has."""
    hint = f"it has: {list_names(names, _MAX_NAMES)}" if names else "`_instance` names an instance in a request"
    return command_error(f'the run {clean(run, 200)} has no instance "{clean(name, 100)}"', where=where, hint=hint)
