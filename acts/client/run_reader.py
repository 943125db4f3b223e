"""What runs answer, and which there are: descriptions, queries, Requests, results, progress, lists, approvals.

- A reader keeps each answer. A query that no worker answers in time returns None: the caller decides what that means.
- An agent learns the states of its Calls when their plan ends, so the plan of the tick is queried too. Only the server
  knows whether a worker has taken a Call: one that waits in its task queue is ``ready``.
- An instance is executed by the run itself, by a child of its own, or by a child that it shares with others.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from acts.client import server
from acts.client.client_errors import (
    ClientError,
    NoSuchRunError,
    describe_server,
    ended_error,
    explain_rpc_error,
    explained,
)
from acts.language import wire
from acts.language.errors import Problem, clean, format_choices, shell
from acts.language.strict_json import unpack
from acts.language.tools import read_tool
from acts.language.values import Json
from acts.provenance.trace import RunRecord
from acts.tree.decisions import CONTENT, TOOL_CHANGES, PendingApproval
from acts.tree.identity import child_id, retry_id, short_id
from acts.tree.search_attributes import COST, MODEL, PHASE, TAGS, TOOLS, WAITING
from acts.tree.set_records import fill_results
from acts.tree.wire_format import digest
from acts.views.text import named_instances, set_counts

if TYPE_CHECKING:
    from temporalio.api.workflow.v1 import PendingActivityInfo
    from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription, WorkflowHandle

T = TypeVar("T")

# The workflow types that have a plan and a context
PLANNING_TYPES: Final = (wire.PLAN, wire.AGENT, wire.DELEGATE, wire.INSTANCE)
ALL_TYPES: Final = (*PLANNING_TYPES[:3], wire.BATCH, wire.INSTANCE, wire.BACKGROUND)
QUERY_TIMEOUT: Final = timedelta(seconds=5)
SECONDS_PER_EVENT: Final = 0.003  # a worker replays a whole run before it answers: 5,000 events were measured at 5 s
# The server's number for an activity that no worker works on (temporalio.api.enums: the import takes 0.1 s)
PENDING_ACTIVITY_STATE_SCHEDULED: Final = 1
_PENDING_WORKFLOW_TASK_STATE_STARTED: Final = 2  # and for a workflow task that one works on
_FAILED_TASK: Final = ("workflow_task_failed", "workflow_task_timed_out")
# What may come after the point of a reset: the server repeats messages; a task is made anew
_KEPT_BY_RESET: Final = {
    "workflow_task_scheduled", "workflow_task_started", "workflow_execution_signaled",
    "workflow_execution_update_admitted",
}  # fmt: skip
LONG_SECONDS: Final = 60  # an attempt that runs for so long is named: most take seconds
# Keys that are added to an approval's ``about``; the query ``pending`` uses none of them
WITH: Final = "with"
EDITABLE: Final = "editable"
CALLS: Final = "calls"
FORECAST: Final = "forecast"
MAX_CONCURRENT_QUERIES: Final = 16  # each is a task for a worker that has other work
_MAX_COUNTED: Final = 10_000  # events of a history that is read for what happened twice: some seconds
_CAUSE_RESET: Final = 20  # WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
_ACTIVITY_ENDS: Final = tuple(f"activity_task_{end}" for end in ("completed", "failed", "timed_out", "canceled"))
_MAX_REASONS: Final = 5  # failures in the text of an error
_MAX_BATCHES: Final = 40  # Batches that are asked for a row, some 3,000 rows: each may have to be replayed
_MAX_EARLIER: Final = 500  # earlier instances to look for, a request to the server each


class RunNotCompletedError(Exception):
    """A run that was required to complete has not; ``result`` says how it ended."""

    def __init__(self, result: RunResult) -> None:
        super().__init__(f'the run "{clean(result.id, 200)}" is {result.status}: {result.reason}')
        self.result = result


@dataclass(frozen=True)
class RunResult:
    """How a run ended, or why that is not known: one object for every end.

    ``status`` is ``completed``, ``partial``, ``failed``, ``rejected``, ``cancelled``, ``terminated`` or ``timedOut``;
    or ``running`` (it has not ended in time), ``notFound``, ``unavailable`` (no server answers), ``continued``.
    ``raw`` is the JSON that the run returned, whole, or None; ``error``, ``{type, message}``, is what ended a run
    beside its Calls; ``problems`` are those of a Request that was refused.
    """

    status: str
    raw: Any = None
    error: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)
    id: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "completed"

    @property
    def state(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self._part("state", {}))

    @property
    def output(self) -> Any:
        """The answer of an agent; of a plan None."""
        return self._part("output", None)

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Every failure: ``{code, message, call?, instance?, …}`` of a Call, ``{code, message, pointer, …}`` of a
        Request's problem, ``{code, message}`` of the run itself; of a rejected plan the reason.
        """
        own = [*self._part("errors", []), *(problem.to_json() for problem in self.problems)]
        if self.error is not None and not self.problems:
            own.append({"code": self.error["type"], "message": self.error["message"]})
        if self.status == wire.REJECTED and not own:
            rejections = (d for d in self._part("decisions", []) if d.get("decision") == wire.REJECT)
            own += [{"code": wire.REJECTED, "message": str(d.get("reason") or "")} for d in rejections]
        return own

    @property
    def usage(self) -> dict[str, Any]:
        """``{requests, inputTokens, outputTokens, cost}`` of models."""
        return cast("dict[str, Any]", self._part("usage", {}))

    @property
    def cost(self) -> float | None:
        """US dollars for models; None where a price is unknown, or the run returned nothing."""
        return self.usage.get("cost")

    @property
    def reason(self) -> str:
        """The failures in one line; "" of a run that completed."""
        texts = [f"[{e.get('code')}] {e.get('message')}" for e in self.errors[:_MAX_REASONS]]
        more = len(self.errors) - len(texts)
        return clean("; ".join([*texts, *([f"… and {more} more"] if more > 0 else [])]), 2_000)

    def require(self) -> RunResult:
        """This result, if the run has completed. Raises RunNotCompletedError: it has not."""
        if not self.ok:
            raise RunNotCompletedError(self)
        return self

    def to_json(self) -> Any:
        """What the run returned; of one that returned nothing, ``{status, error}``."""
        has_result = self.raw is not None or self.error is None
        return self.raw if has_result else {"status": self.status, "error": self.error}

    def _part(self, key: str, default: Any) -> Any:
        part = self.raw.get(key, default) if isinstance(self.raw, dict) else default
        return part if default is None or isinstance(part, type(default)) else default


async def wait_for_outcome(handle: WorkflowHandle[Any, Any], *, follow_runs: bool = True) -> RunResult:
    """How a run ends; RPCError where the server does not say."""
    from temporalio.client import WorkflowContinuedAsNewError, WorkflowFailureError

    try:
        result = await handle.result(follow_runs=follow_runs)
    except WorkflowContinuedAsNewError as error:
        text = f"continued as the run {error.new_execution_run_id}"
        return RunResult("continued", error={"type": "ContinuedAsNew", "message": text}, id=handle.id)
    except WorkflowFailureError as error:
        return replace(outcome_of_failure(error.cause), id=handle.id)
    return outcome_of_value(result, handle.id)


def outcome_of_value(value: Any, id_: str) -> RunResult:
    """The outcome of a run that returned something."""
    status = value.get("status") if isinstance(value, dict) else None
    return RunResult(status if isinstance(status, str) else "completed", value, id=id_)


def outcome_of_failure(cause: BaseException | None) -> RunResult:
    """The outcome of a run that failed, was cancelled or terminated; of a failed activity or child, the root cause."""
    from temporalio import exceptions

    ends: dict[type, tuple[str, str]] = {
        exceptions.CancelledError: ("cancelled", "Cancelled"), exceptions.TerminatedError: ("terminated", "Terminated"),
        exceptions.TimeoutError: ("timedOut", "Timeout"),
    }  # fmt: skip
    wrappers = (exceptions.ActivityError, exceptions.ChildWorkflowError)
    is_own = not isinstance(cause, wrappers)
    while isinstance(cause, wrappers) and cause.__cause__ is not None:
        cause = cause.__cause__
    own_type = cause.type if isinstance(cause, exceptions.ApplicationError) else None
    status, type_ = ends.get(type(cause), ("failed", own_type or type(cause).__name__))
    error: dict[str, Any] = {"type": type_, "message": str(getattr(cause, "message", None) or cause)}
    detail = next(iter(getattr(cause, "details", None) or ()), None)
    if type_ == wire.INVALID_REQUEST:
        items = detail if isinstance(detail, list) else []
        problems = list(map(Problem.from_json, items)) or [Problem(type_, error["message"])]
        return RunResult("failed", None, {**error, "problems": items}, problems if is_own else [])
    if is_own and isinstance(detail, dict) and isinstance(detail.get("status"), str):  # a whole result
        return RunResult(detail["status"], detail, None if type_ == wire.PLAN_FAILED else error)
    return RunResult(status if is_own else "failed", error=error)


def _once(method: Callable[[RunReader], Awaitable[T]]) -> Callable[[RunReader], Coroutine[Any, Any, T]]:

    @functools.wraps(method)
    async def read(self: RunReader) -> T:
        if method not in self._answers:
            self._answers[method] = await method(self)
        return cast("T", self._answers[method])

    return read


async def open_run(id_: str, run_id: str | None = None) -> RunReader:
    return RunReader(await server.connect(), id_, run_id)


class RunReader:
    """Reads the run of a workflow id: the latest one, or the one of ``run_id``."""

    def __init__(self, client: Client, id_: str, run_id: str | None = None) -> None:
        if not id_ or "\0" in id_:
            raise ClientError("a run id must not be empty", hint="`acts run` prints it")
        self.client = client
        self.id = id_
        self.handle = client.get_workflow_handle(id_, run_id=run_id)
        self.query_timeout = QUERY_TIMEOUT
        self._query_failure = ""
        self._answers: dict[Any, Any] = {}

    def fresh(self) -> RunReader:
        return RunReader(self.client, self.id, self.handle.run_id)

    def other(self, id_: str) -> RunReader:
        return RunReader(self.client, id_)

    @_once
    async def describe(self) -> WorkflowExecutionDescription:
        return await self.ask(self.handle.describe(rpc_timeout=server.RPC))

    async def ask(self, request: Awaitable[T]) -> T:
        """The answer to a request about this run; an error says what it means, and names server and namespace."""
        with explained(self.client, self.id):
            return await request

    async def exists(self) -> bool:
        try:
            await self.describe()
        except NoSuchRunError:
            return False
        return True

    async def retried_as(self) -> str | None:
        """The id of the run that retries this one, where it was retried under the id that a retry has."""
        id_ = retry_id(self.id, (await self.describe()).run_id)
        return id_ if await self.other(id_).exists() else None

    async def describe_running(self) -> None:
        if (await self.describe()).close_time is not None:
            raise ended_error(self.id)

    async def describe_planning(self) -> WorkflowExecutionDescription:
        info = await self.describe()
        if info.workflow_type not in PLANNING_TYPES:
            text = f'the run "{clean(self.id, 200)}" is of the type {clean(info.workflow_type, 100)}, which has no plan'
            raise ClientError(text, hint=f"these types have one: {', '.join(PLANNING_TYPES)}")
        return info

    @_once
    async def root(self) -> RunReader:
        """The run at the top of this one's tree, or this one where it has outlived its root."""
        root = self.other((await self.describe()).root_id or self.id)
        if root.id == self.id or not await root.exists():
            return self
        info = await root.describe()  # it may be a workflow of a user's, which runs a plan as its child
        is_running = info.close_time is None and info.workflow_type in ALL_TYPES
        return root if is_running else self

    @_once
    async def outcome(self) -> RunResult | None:
        """How exactly this run ended; None while it runs."""
        info = await self.describe()
        if info.close_time is None:
            return None
        return await wait_for_outcome(self.client.get_workflow_handle(self.id, run_id=info.run_id), follow_runs=False)

    async def result(self) -> dict[str, Any]:
        """The result of a run that has ended; {} if it has none."""
        outcome = await self.outcome()
        return outcome.raw if outcome is not None and isinstance(outcome.raw, dict) else {}

    async def request(self, *, as_started: bool = False) -> Json:
        """The Request that the run goes by, or None; ``as_started``: what it was started with, be it a plan's name.

        A run after continue-as-new names the first one. One that was started by name continues as new with the plan.
        """
        info = await self.describe()
        own = await self._start_event(info.run_id)
        if own is None or own.first_execution_run_id in ("", info.run_id):
            return await self._request_of(own)
        first = await self._request_of(await self._start_event(own.first_execution_run_id))
        is_named = isinstance(first, dict) and isinstance(first.get("plan"), str)
        return await self._request_of(own) if is_named and not as_started else first

    async def _request_of(self, event: Any) -> Json:
        from temporalio.common import RawValue

        if event is None or not event.input.payloads:
            return None
        converter = self.client.data_converter
        # The metadata count as well: they are encrypted, and stored, with the data
        [value] = await converter.decode(event.input.payloads[:1], [RawValue])
        content = converter.payload_converter.from_payload(value.payload)
        if isinstance(content, bytes):  # of an instance, or the state of a run before
            content = json.loads(unpack(content))
        return content.get("request", content) if isinstance(content, dict) else content

    async def _start_event(self, run_id: str | None) -> Any:
        handle = self.client.get_workflow_handle(self.id, run_id=run_id)
        events = handle.fetch_history_events(page_size=1, rpc_timeout=server.RPC)
        event = await anext(aiter(events), None)
        return None if event is None else event.workflow_execution_started_event_attributes

    @_once
    async def unserved_version(self) -> str:
        """The deployment version that alone can continue the run, as NAME:BUILD, if no worker of it polls; else ""."""
        from temporalio.service import RPCError

        from acts.telemetry.observation import read_versions

        info = (await self.describe()).raw_description.workflow_execution_info
        version = info.versioning_info.deployment_version
        try:
            polling, current = await read_versions(self.client, info.task_queue, server.RPC)
        except RPCError:
            return ""
        own = f"{version.deployment_name}:{version.build_id}" if version.build_id else current
        return "" if own in polling else own

    @_once
    async def _latest_events(self) -> list[Any]:
        """What came since the last completed workflow task, the latest first; [] where the server does not say."""
        from temporalio.api.common.v1 import WorkflowExecution
        from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
        from temporalio.service import RPCError

        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self.client.namespace, maximum_page_size=200,  # more have not come since its last completed task
            execution=WorkflowExecution(workflow_id=self.id, run_id=self.handle.run_id or ""),
        )  # fmt: skip
        try:
            answer = self.client.workflow_service.get_workflow_execution_history_reverse(request, timeout=server.RPC)
            events = list((await answer).history.events)
        except RPCError:
            return []
        return list(takewhile(lambda event: not event.HasField("workflow_task_completed_event_attributes"), events))

    @_once
    async def obstacle(self) -> str:
        """What keeps the run's workers from answering: the last failure of a workflow task; "" if none is known."""
        if self._query_failure:
            return f"the worker cannot answer: {clean(self._query_failure, 500)}"
        if version := await self.unserved_version():
            return f"a worker of version {clean(version, 300)} is needed, and none polls"
        for event in await self._latest_events():
            if event.HasField("workflow_task_failed_event_attributes"):
                failure = event.workflow_task_failed_event_attributes.failure
                decoded = await self.client.data_converter.decode_failure(failure)
                text = str(getattr(decoded, "message", "") or decoded)
                return f"its last workflow task failed: {clean(text, 500)}"
        return ""

    async def way_on(self) -> str:
        """How a run whose workflow task fails goes on, and how at once; "" of one whose tasks do not fail.

        A reset to the task that failed keeps all before it: it is offered where nothing but messages came later.
        """
        info = await self.describe()
        task = info.raw_description.pending_workflow_task
        if task.attempt <= 1:
            return ""
        text = f"its workflow task fails (attempt {task.attempt:,}); once the cause is gone, it goes on"
        if info.parent_id is not None:
            return f"{text} within 10 minutes (if it were reset, the run above would start its work again)"
        events = await self._latest_events()
        kinds = [str(event.WhichOneof("attributes")).removesuffix("_event_attributes") for event in events]
        at = next((at for at, kind in enumerate(kinds) if kind in _FAILED_TASK), None)
        if task.state == _PENDING_WORKFLOW_TASK_STATE_STARTED or at is None or set(kinds[:at]) - _KEPT_BY_RESET:
            return f"{text} within 10 minutes; a reset now could lose what has just ended: ask again in a while"
        reset = ("temporal", "workflow", "reset", "--workflow-id", self.id, "--run-id", info.run_id)
        command = shell(*reset, "--event-id", events[at].event_id, "--reason", "the cause is gone")
        busy = [clean(item.activity_id) for item in info.raw_description.pending_activities]
        again = f" (what is in flight is made again, under its _id: {format_choices(busy)})" if busy else ""
        return f"{text} within 10 minutes, or at once{again} by\n{command}"

    async def query(self, kind: type[T], name: str, *args: Any) -> T | None:
        """The answer to a query; None if there is none in time, or of another kind."""
        from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
        from temporalio.service import RPCError

        try:
            # the SDK retries after its own timeout, so the wait is bounded here too
            request = self.handle.query(name, args=list(args), rpc_timeout=self.query_timeout)
            answer = await asyncio.wait_for(request, self.query_timeout.total_seconds())
        except WorkflowQueryFailedError as error:
            self._query_failure = str(error)
            return None
        except (RPCError, WorkflowQueryRejectedError, TimeoutError):
            return None
        return answer if isinstance(answer, kind) else None

    async def allow_replay_time(self) -> None:
        """Give the worker enough time per query to replay the whole history of the run."""
        events = (await self.describe()).history_length
        self.query_timeout = QUERY_TIMEOUT + timedelta(seconds=SECONDS_PER_EVENT * events)

    @_once
    async def status(self) -> dict[str, Any] | None:
        """The query ``status``: ``{phase, tick?, calls, instances?, usage, waits?, notes?, decisions?}``."""
        return await self.query(dict, wire.STATUS)

    @_once
    async def pending(self) -> list[PendingApproval] | None:
        """The pending approvals: of a root those of its whole tree, else the run's own."""
        answer = await self.query(list, wire.PENDING)
        return None if answer is None else [PendingApproval.model_validate(item) for item in answer]

    async def subjects(self) -> dict[str, Any]:
        """What is decided in this very run: ``{editable, waits: [{what, call?, instance?, subject}]}``, or {}."""
        return await self.query(dict, wire.SUBJECTS) or {}

    @_once
    async def plan(self) -> list[Any] | None:
        """The Calls of the plan that waits for approval, or else is executed."""
        return await self.query(list, wire.PLAN_QUERY)

    async def messages(self) -> list[Json] | None:
        """The whole context, read page by page: of a run that has ended, the worker replays for each page."""
        messages: list[Json] = []
        while True:
            page = await self.query(dict, wire.CONTEXT, {"offset": len(messages), "limit": 20_000})
            if page is None or not isinstance(page.get("messages"), list):
                return None
            messages += page["messages"]
            if not page["messages"] or len(messages) >= int(page.get("total", 0)):
                return messages

    async def value(self, path: str, instance: str) -> dict[str, Any]:
        """A value in the view of an instance: ``{path, value}``, ``{path, absent}``, ``{error}``, or {}: no answer."""
        return await self.query(dict, wire.CONTEXT, {"path": path, "instance": instance}) or {}

    async def require(self, answer: Awaitable[T | None]) -> T:
        """An answer of a worker, which must be there."""
        value = await answer
        if value is None:
            raise await self.no_answer_error()
        return value

    async def silence(self) -> str:
        """Why no worker answers for this run."""
        name = (await self.describe()).task_queue
        queue = f'the queue "{clean(name, 100)}"'
        has_worker = await server.has_pollers(self.client, name)
        cause = f"the workers of {queue} do not answer" if has_worker else f"no worker serves {queue}"
        return await self.obstacle() or cause

    async def no_answer_error(self, effect: str = "", hint: str = server.START_WORKER) -> ClientError:
        """No worker answers for this run, so ``effect`` (by default: it cannot be read)."""
        cause = await self.silence()
        effect = effect or f'"{clean(self.id, 200)}" cannot be read'
        hint = "start one, or move the run: docs/repair.md" if await self.unserved_version() else hint
        return ClientError(f"{cause}, so {effect}", hint, is_unavailable=True)


async def read_progress(run: RunReader, limit: int | None = None) -> dict[str, Any] | None:
    """``status``, with the live states of the Calls and with ``pending``, the first ``limit`` with their parameters."""
    status = await run.status()
    if status is None:
        return None
    status = {**status, "calls": await _live_calls(run, status)}
    is_set = set_counts(status) is not None
    if (is_set or status.get("phase") == "planning") and (retries := await _retries(run, below=is_set)):
        status["retries"] = retries
    if status.get("waits") or status.get("phase") == "awaiting":
        approvals = await run.pending() or []
        listed = [*await add_parameters(run, approvals[:limit]), *(approvals[limit:] if limit is not None else ())]
        status |= {"pending": [approval.to_json() for approval in listed]} if listed else {}
    return status


async def _retries(run: RunReader, *, below: bool) -> list[dict[str, Any]]:
    """Activities that are tried again, or run long, and are in no list of Calls: the requests of a planner, and
    ``below`` a set the Calls of its rows.
    """
    runs = [run]
    if below:
        children = (await run.describe()).raw_description.pending_children
        runs = [run.other(child.workflow_id) for child in children[:MAX_CONCURRENT_QUERIES]]
    described = await asyncio.gather(*(one.describe() for one in runs))
    pending = [item for info in described for item in info.raw_description.pending_activities]
    names = {wire.MODEL: "the model"}
    own = [(item, await activity_facts(run, item)) for item in pending]
    named = [(item.activity_id if below else item.activity_type.name, facts) for item, facts in own]
    return [{"id": names.get(n, n), **facts} for n, facts in named if {"attempt", "seconds"} & facts.keys()]


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
    in_flight = [call.get("state") == "running" or "taskQueue" in call for call in calls]
    if not any(in_flight):
        return list(calls)
    pending = (await run.describe()).raw_description.pending_activities
    activities = {item.activity_id: await activity_facts(run, item) for item in pending}
    out = []
    for call, is_in_flight in zip(calls, in_flight, strict=True):
        key = f"{call['instance']}/{call['id']}" if call.get("instance") else str(call.get("id"))
        facts = activities.get(short_id(key))
        rest = {k: v for k, v in call.items() if k != "taskQueue"}
        out.append({**rest, **facts} if facts is not None and is_in_flight else call)
    return out


async def activity_facts(run: RunReader, item: PendingActivityInfo) -> dict[str, Any]:
    """``{state, taskQueue}`` until a worker takes the first attempt; then ``{state, attempt?, lastFailure?, nextTry?,
    seconds?, worker?}``: ``seconds`` of an attempt that runs long, and the worker that had it last; ``reason`` of one
    that waits in a batch.
    """
    from temporalio.exceptions import ServerError

    from acts.telemetry.failures import without_details

    if item.attempt > 1:
        failure = await run.client.data_converter.decode_failure(without_details(item.last_failure))
        if isinstance(failure, ServerError) and failure.__cause__ is not None:  # the server has cut a large one
            failure = failure.__cause__
        text, type_ = getattr(failure, "message", None) or str(failure), getattr(failure, "type", None)
        if type_ == wire.BATCHED:
            return {"state": "running", "reason": text}
        text = f"[{type_}] {text}" if isinstance(type_, str) else text
        facts = {"state": "running", "attempt": item.attempt, "lastFailure": text, "worker": item.last_worker_identity}
        is_waiting = item.state == PENDING_ACTIVITY_STATE_SCHEDULED
        return facts | ({"nextTry": iso_text(item.scheduled_time.ToDatetime(UTC))} if is_waiting else {})
    if item.state == PENDING_ACTIVITY_STATE_SCHEDULED:
        return {"state": "ready", "taskQueue": item.activity_options.task_queue.name}
    seconds = round((datetime.now(UTC) - item.last_started_time.ToDatetime(UTC)).total_seconds())
    is_long = seconds >= LONG_SECONDS
    return {"state": "running", **({"seconds": seconds, "worker": item.last_worker_identity} if is_long else {})}


@dataclass
class _History:
    """The Activities of a history by id: their attempts, and the event of their end; and its latest reset."""

    attempts: dict[str, int] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)
    reset_of: str = ""
    reset_at: int = 0

    async def read(self, run: RunReader, run_id: str) -> _History:
        names: dict[int, str] = {}
        handle = run.client.get_workflow_handle(run.id, run_id=run_id)
        async for event in handle.fetch_history_events(page_size=1_000, skip_archival=True, rpc_timeout=server.RPC):
            kind = str(event.WhichOneof("attributes"))
            facts = getattr(event, kind)
            match kind.removesuffix("_event_attributes"):
                case "activity_task_scheduled":
                    names[event.event_id] = facts.activity_id
                    self.ends[facts.activity_id] = math.inf
                case "activity_task_started":
                    self.attempts[names[facts.scheduled_event_id]] = facts.attempt
                case name if name in _ACTIVITY_ENDS:
                    self.ends[names[facts.scheduled_event_id]] = event.event_id
                case "workflow_task_failed" if facts.cause == _CAUSE_RESET:
                    self.reset_of, self.reset_at = facts.base_run_id, event.event_id
        return self


async def read_repeats(run: RunReader) -> dict[str, Any]:
    """What a run did more than once, by its history: ``{attempts?, reset?}``; {} where that is very long.

    ``attempts`` are those of Calls that took several, by Call. ``reset`` is ``{runId, calls?}``: the run that this one
    was reset from, and the Calls that ended there after the point, or were in flight; without them, it is gone.
    """
    from temporalio.service import RPCError

    info, out = await run.describe(), dict[str, Any]()
    if info.history_length > _MAX_COUNTED:
        return out
    own = await run.ask(_History().read(run, info.run_id))
    if attempts := {name: count for name, count in own.attempts.items() if count > 1}:
        out["attempts"] = attempts
    if own.reset_of:
        out["reset"] = {"runId": own.reset_of}
        with suppress(RPCError):
            before = await _History().read(run, own.reset_of)
            out["reset"]["calls"] = [name for name, end in before.ends.items() if end > own.reset_at]
    return out


async def add_parameters(run: RunReader, approvals: Sequence[PendingApproval]) -> list[PendingApproval]:
    """The approvals with all that is decided as ``content``, of a Call also what it would be called with as ``with``,
    of a plan what to know of its ``calls``, by id, and its ``forecast``. ``editable`` is False if it accepts no edit;
    ``toolChanges`` are there if Tools have changed since the plan.
    """
    limit = asyncio.Semaphore(MAX_CONCURRENT_QUERIES)

    async def query(id_: str) -> dict[str, Any]:
        async with limit:
            return await run.other(id_).subjects()

    ids = list(dict.fromkeys(a.workflow_id for a in approvals))
    answers = dict(zip(ids, await asyncio.gather(*map(query, ids)), strict=True))
    waits = {id_: {digest(w["subject"]): w for w in a.get("waits", ())} for id_, a in answers.items()}
    out = []
    for approval in approvals:
        answer = answers[approval.workflow_id]
        wait = waits[approval.workflow_id].get(str(approval.subject), {})
        own = (WITH, EDITABLE, TOOL_CHANGES, CALLS, FORECAST)
        report = {k: v for k, v in approval.to_json().items() if k not in own}
        content = wait.get("subject") or approval.content
        report |= {k: wait[k] for k in (CALLS, FORECAST) if k in wait}
        report |= {} if content is None else {CONTENT: content}
        report |= {WITH: content[WITH]} if content is not None and WITH in content else {}
        report |= {} if answer.get(EDITABLE, True) else {EDITABLE: False}
        report |= {TOOL_CHANGES: wait[TOOL_CHANGES]} if TOOL_CHANGES in wait else {}
        out.append(PendingApproval.model_validate(report))
    return out


async def read_record(run: RunReader) -> tuple[RunRecord, str | None]:
    """What provenance needs of a run, and the run that passed it its data."""
    from temporalio.service import RPCError

    parent = (await run.describe_planning()).parent_id
    await run.allow_replay_time()
    if parent is not None:  # also if its history is gone, and with it its type
        above = run.other(parent)
        if await above.exists() and (await above.describe()).workflow_type not in PLANNING_TYPES:
            parent = None
    messages, status = await run.require(run.messages()), await run.require(run.status())
    prompt = await run.require(run.query(dict, wire.PROMPT_CONTEXT, {"offset": 0, "upto": 0}))
    items = (prompt.get("tools") or {}).items()
    tools = {name: read_tool(name, item["schema"], served=item["served"])[0] for name, item in items}
    described = {name: tool for name, tool in tools.items() if tool is not None}
    request = None
    with suppress(RPCError):  # the history of its start is gone
        request = await run.request() if parent is None else None
    context = request.get("context", []) if isinstance(request, dict) else None
    calls = list(status.get("calls") or ())
    for instance, item in named_instances(await run.result()).items():  # children have walked some
        own = (item.get("calls") if isinstance(item, dict) else None) or ()
        calls += [{**call, "instance": instance} for call in own]
    decisions = status.get("decisions") or ()
    return RunRecord(messages, described, context if isinstance(context, list) else None, calls, decisions), parent


async def read_instance(run: RunReader, name: str) -> tuple[dict[str, Any], str]:
    """An instance: ``{status, state?, calls, errors, decisions?}``, and the run that it was read from."""
    result = await run.result()
    if set_counts(result) is not None:
        return await _read_row(run, name)
    item = named_instances(result).get(name) or {}
    if "state" in item:
        return _item(item, name, result), run.id
    try:
        return await _query_instance(run, name)
    except ClientError:
        if "calls" not in item:
            raise
        return _item(item, name, result), run.id


def _item(item: Mapping[str, Any], name: str, run: Mapping[str, Any]) -> dict[str, Any]:
    out = {k: item[k] for k in ("status", "state", "calls") if k in item}
    out["errors"] = [{**e, "instance": name} for e in item.get("errors") or () if isinstance(e, dict)]
    decisions = [d for d in run.get("decisions") or () if isinstance(d, dict) and d.get("instance") == name]
    return {**out, "decisions": decisions} if decisions else out


async def _query_instance(run: RunReader, name: str) -> tuple[dict[str, Any], str]:
    info = await run.describe()
    status = await run.require(run.status())
    if info.workflow_type == wire.AGENT and status.get("tick"):
        plan = run.other(child_id(run.id, f"plan-{status['tick']}"))
        if await plan.exists():
            return await read_instance(plan, name)
    if set_counts(status) is not None:
        return await _read_row(run, name)
    names = list(status.get("instances") or ())
    if name not in names:
        raise unknown_instance_error(run.id, names, name)
    item: dict[str, Any] = {"status": str(status["instances"][name]), "calls": [], "errors": []}
    if calls := [c for c in status.get("calls") or () if c.get("instance") == name]:
        state = await run.value("†state", name)
        item["calls"] = [{k: v for k, v in call.items() if k != "instance"} for call in calls]
        item["errors"] = [{"call": c.get("id"), **c["error"]} for c in calls if isinstance(c.get("error"), dict)]
        return _item(item | ({"state": state["value"]} if "value" in state else {}), name, status), run.id
    # a child of this id that exists before the instance starts belongs to an earlier run
    has_begun = item["status"] not in ("pending", "ready")
    earlier = names[: names.index(name) + 1][-_MAX_EARLIER:] if has_begun else []
    for first in reversed(earlier):  # the child that executes it is named after the first that it executes
        child = run.other(child_id(run.id, first))
        if await child.exists() and (await child.describe()).workflow_type == wire.INSTANCE:
            result = await child.result()
            if first != name and name not in named_instances(result or await child.status()):
                break
            return (_item(result, name, {}), child.id) if "calls" in result else await read_instance(child, name)
    return item, run.id


async def _read_row(run: RunReader, name: str) -> tuple[dict[str, Any], str]:
    """A row of a set: its line in the results file, where that can be read here, else what its Batch says of it."""
    info, request = await run.describe(), await run.request()
    config = fill_results(request, run.id, f"{info.start_time:%Y-%m-%d}").get("config") if request else None
    file = config.get("results") if isinstance(config, dict) else None
    folders = [*filter(None, os.environ.get("ACTS_RESULTS", "").split(os.pathsep)), "results", "."]
    for path in dict.fromkeys(Path(folder, file) for folder in folders) if isinstance(file, str) else ():
        if path.is_file() and (line := await asyncio.to_thread(_find_line, path, name)) is not None:
            handled = [{"id": e.get("call"), "state": "completed", "error": e, "undeclared": e.get("undeclared")}
                       for e in line.get("handled") or ()]  # fmt: skip
            return _item({**line, "calls": handled}, name, {}), str(path)
    for number in range(1, _MAX_BATCHES + 1):
        batch = run.other(child_id(run.id, f"batch-{number}"))
        if not await batch.exists():
            break
        with suppress(ClientError):
            return await read_instance(batch, name)
    text = f'no row "{clean(name, 100)}" of the set of {clean(run.id, 200)} is found'
    where = "" if file is None else f", and {clean(file, 200)} is read below ACTS_RESULTS and results/"
    hint = f"its first {_MAX_BATCHES} Batches were asked{where}; the id of a row that cannot be used is like: line 17"
    raise ClientError(text, hint, "--instance")


def _find_line(path: Path, name: str) -> dict[str, Any] | None:
    """The latest line of a results file with this id."""
    latest, part = None, json.dumps(name, ensure_ascii=False)
    with path.open(encoding="utf-8", errors="replace") as lines:
        for text in lines:
            if part in text:
                with suppress(ValueError):
                    line = json.loads(text)
                    latest = line if isinstance(line, dict) and line.get("id") == name else latest
    return latest


def unknown_instance_error(run: str, names: Sequence[str], name: str) -> ClientError:
    listed = format_choices(clean(name, 80) for name in names)
    hint = f"it has: {listed}" if names else "`_instance` names an instance in a request"
    return ClientError(f'the run {clean(run, 200)} has no instance "{clean(name, 100)}"', hint, "--instance")


# How the server calls the ends of a run, in our words
_STATUS: Final = {"CANCELED": "cancelled", "TIMED_OUT": "timedOut", "CONTINUED_AS_NEW": "continued"}
# The words of ActsPhase before a run ends, those that it ends with, and those that only the server knows
_OPEN: Final = ("planning", "awaiting", "running", "paused")
_SERVER_STATUS: Final = {"terminated": "Terminated", "timedOut": "TimedOut"}
PHASES: Final = (*_OPEN, "completed", "partial", "failed", "rejected", "cancelled", *_SERVER_STATUS)
_RUNNING: Final = "ExecutionStatus = 'Running'"
IS_WAITING: Final = f"{WAITING} > 0 AND {_RUNNING}"
TIMEOUT_SECONDS: Final = 60.0  # for the answers of all runs together
MAX_LISTED: Final = 10_000  # ten pages of the server


def quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def iso_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


ROOTS: Final = f"WorkflowType IN ({quote(wire.PLAN)}, {quote(wire.AGENT)}) AND ParentWorkflowId IS NULL"


def runs_query(
    phases: Sequence[str] = (), *, tool: str | None = None, model: str | None = None, min_cost: float | None = None,
    since: datetime | None = None, older: datetime | None = None, below: bool = False, conditions: Sequence[str] = (),
) -> str:  # fmt: skip
    """The visibility query of the runs to list; ``since`` and ``older`` bound their start, the cost is in dollars.

    ``conditions`` are further ones, as the server writes them.
    """
    parts = [f"WorkflowType IN ({', '.join(map(quote, ALL_TYPES))})" if below else ROOTS]
    parts += [] if below else ["ExecutionStatus != 'ContinuedAsNew'"]  # the run that goes on is listed
    parts += [f"({' OR '.join(map(_phase_clause, phases))})"] if phases else []
    parts += [f"({condition})" for condition in conditions]
    parts += [f"{name} = {quote(value)}" for name, value in ((TOOLS, tool), (MODEL, model)) if value]
    parts += [f"{COST} >= {min_cost:g}"] if min_cost is not None else []
    parts += [f"StartTime {sign} {quote(iso_text(time))}" for sign, time in ((">=", since), ("<=", older)) if time]
    return " AND ".join(parts)


def tag_conditions(tags: Sequence[str]) -> list[str]:
    """What finds runs with all these tags, each ``name=value``."""
    if wrong := [tag for tag in tags if "=" not in tag]:
        raise ClientError(
            f"{clean(wrong[0], 100)!r} is no tag", where="--tag", hint="a name and a value: customer=c-17"
        )
    return [f"{TAGS} = {quote(tag)}" for tag in tags]


def _phase_clause(phase: str) -> str:
    if phase in _SERVER_STATUS:
        return f"ExecutionStatus = {quote(_SERVER_STATUS[phase])}"
    if phase not in PHASES:
        raise ClientError(f"there is no phase {phase!r}", where="--phase", hint=f"one of: {', '.join(PHASES)}")
    if phase == "failed":  # a Request that was refused ends before it has a phase
        return f"({PHASE} = 'failed' OR ExecutionStatus = 'Failed')"
    # A run that was terminated keeps the phase that it had
    return f"({PHASE} = {quote(phase)}{f' AND {_RUNNING}' if phase in _OPEN else ''})"


def sum_runs(rows: Iterable[Mapping[str, Any]], by: str) -> list[dict[str, Any]]:
    """``[{day|tool|model|tag, runs, failed, cost}]``, days in their order, others with the dearest first. A run with
    several tools or tags counts in each, with all of its US dollars; "–" is for runs that have none.
    """
    sums: dict[str, dict[str, Any]] = {}
    for row in rows:
        day = row["started"][:10]
        value = {"day": day, "model": row.get("model"), "tool": row.get("tools"), "tag": row.get("tags")}[by] or "–"
        for name in [value] if isinstance(value, str) else value:
            entry = sums.setdefault(name, {by: name, "runs": 0, "failed": 0, "cost": 0.0})
            entry["runs"] += 1
            entry["failed"] += row["phase"] == "failed"
            entry["cost"] = round(entry["cost"] + row.get("cost", 0.0), 9)
    return sorted(sums.values(), key=lambda entry: entry[by] if by == "day" else (-entry["cost"], -entry["runs"]))


async def list_runs(client: Client, query: str, limit: int) -> AsyncIterator[dict[str, Any]]:
    """The newest runs first: ``{id, runId, workflow, phase, waiting?, tools?, model?, cost?, tags?, started, …}``."""
    from temporalio.service import RPCError

    try:
        async for run in client.list_workflows(query, limit=limit, page_size=min(limit, 1000), rpc_timeout=server.RPC):
            yield _row(run)
    except RPCError as error:
        text = str(error.message).lower()
        if "search attribute" not in text and "is not defined" not in text:
            raise explain_rpc_error(error, describe_server(client)) from None
        head = "the namespace has no search attributes of this project, so runs cannot be filtered by them"
        raise ClientError(head, hint="register them once: `acts setup`") from None


def _row(run: WorkflowExecution) -> dict[str, Any]:
    values: dict[str, Any] = {key.name: value for key, value in run.typed_search_attributes}
    status = _STATUS.get(run.status.name, run.status.name.lower()) if run.status else "running"
    is_over = status not in ("running", "continued")
    phase = values.get(PHASE)
    row = {
        "id": run.id, "runId": run.run_id, "workflow": run.workflow_type,
        "phase": status if phase is None or (is_over and phase in _OPEN) else phase,
        "waiting": values.get(WAITING) if not is_over else None, "tools": values.get(TOOLS), "model": values.get(MODEL),
        "cost": values.get(COST), "tags": values.get(TAGS), "started": iso_text(run.start_time),
        "closed": None if run.close_time is None else iso_text(run.close_time), "parent": run.parent_id,
    }  # fmt: skip
    return {k: list(v) if isinstance(v, tuple) else v for k, v in row.items() if v is not None}


async def add_retries(client: Client, rows: Sequence[dict[str, Any]]) -> None:
    """Add ``retriedAs`` to the rows of runs that were retried: the id of the retry, by one query for all."""
    by_id = {retry_id(r["id"], r["runId"]): r for r in rows if "closed" in r and r["phase"] != "completed"}
    if by_id:
        query = f"WorkflowId IN ({', '.join(map(quote, by_id))})"
        with suppress(ClientError):  # a list is shown without
            async for retry in list_runs(client, query, len(by_id)):
                by_id[retry["id"]]["retriedAs"] = retry["id"]


async def _read_outcomes(
    client: Client, rows: Iterable[dict[str, Any]], take: Callable[[dict[str, Any], RunResult], None]
) -> None:
    """How each of these runs ended, a request to the server each; of one that cannot be read nothing is taken."""
    limit = asyncio.Semaphore(MAX_CONCURRENT_QUERIES)

    async def read(row: dict[str, Any]) -> None:
        with suppress(Exception):  # a list is shown whatever a result is
            async with limit, asyncio.timeout(QUERY_TIMEOUT.total_seconds()):
                handle = client.get_workflow_handle(row["id"], run_id=row["runId"])
                outcome = await wait_for_outcome(handle, follow_runs=False)
            take(row, outcome)

    await asyncio.gather(*map(read, rows))


async def add_errors(client: Client, rows: Sequence[dict[str, Any]]) -> None:
    """Add ``errors`` to the rows of completed runs: how many of a run's Calls, or of a set's rows, took an error path;
    and ``undeclared``: of these, by failures that their Tools do not declare.
    """

    def count(row: dict[str, Any], outcome: RunResult) -> None:
        result = outcome.raw
        reports = [result, *(item for item in named_instances(result).values() if isinstance(item, dict))]
        calls = [call for report in reports for call in report.get("calls") or ()]
        counts = set_counts(result) or {}
        errors = sum(call.get("state") == "completed" and "error" in call for call in calls)
        undeclared = sum("undeclared" in call for call in calls) + sum(counts.get("undeclared", {}).values())
        row_counts = {"errors": errors + counts.get("handled", 0), "undeclared": undeclared}
        row |= {name: count for name, count in row_counts.items() if count}

    await _read_outcomes(client, (row for row in rows if row["phase"] == "completed"), count)


async def add_failures(client: Client, rows: Sequence[dict[str, Any]]) -> None:
    """Add ``failures`` to the rows of runs that have ended: the errors of their results, as ``RunResult`` has them."""

    def add(row: dict[str, Any], outcome: RunResult) -> None:
        failed = (set_counts(outcome.raw) or {}).get("failed")
        rows_failed = [{"code": outcome.status, "message": f"{failed:,} rows failed"}] if failed else []
        row["failures"] = [*outcome.errors, *rows_failed]

    for row in rows:
        row["failures"] = [{"code": "unknown", "message": "its result cannot be read"}]
    await _read_outcomes(client, rows, add)


# A root that began before `acts setup` has no search attributes: it is asked. Where the namespace has none, all runs
# are asked but those below others.
WAITING_QUERIES: Final = (
    f"{_RUNNING} AND ({WAITING} > 0 OR ({ROOTS} AND {PHASE} IS NULL))",
    f"{_RUNNING} AND WorkflowType IN ({', '.join(map(quote, PLANNING_TYPES))})",
)


@dataclass
class PendingReport:
    """The approvals of each run; ``unanswered``: runs whose worker did not answer; ``unread``: more that may wait."""

    approvals: list[tuple[str, list[PendingApproval]]] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    unread: int = 0

    def to_json(self) -> dict[str, Any]:
        """``{waits, unanswered, unread}``"""
        waits = [{"run": id_, **approval.to_json()} for id_, listed in self.approvals for approval in listed]
        return {"waits": waits, "unanswered": self.unanswered, "unread": self.unread}


async def read_pending(
    id_: str | None = None, tool: str | None = None, older_than: float | None = None, limit: int | None = None, *,
    client: Client | None = None, only: frozenset[str] | None = None,
) -> PendingReport:  # fmt: skip
    """What waits in a run or in all, the oldest first; of plans, those with the tool; ``older_than`` are seconds.

    ``only`` are ids of runs: no others are asked.
    """
    report, room = PendingReport(), sys.maxsize if limit is None else limit

    async def read(run: RunReader) -> list[PendingApproval] | None:
        """The approvals of a run that fit, and one more than there is room for."""
        approvals = await run.pending()
        if approvals is None:
            return None
        plan = await run.plan() if tool is not None and approvals else None
        tools = [str(call.get("_tool")) for call in plan or () if isinstance(call, dict)]
        latest = datetime.now(UTC) - timedelta(seconds=older_than or 0)
        fitting = [
            a for a in approvals
            if (older_than is None or datetime.fromisoformat(a.since) <= latest)
            and (tool is None or tool in (tools if a.call is None else a.tools))
        ]  # fmt: skip
        return await add_parameters(run, fitting[: room + 1])

    if id_ is not None:
        reader = await open_run(id_)
        await reader.describe_running()
        waits = (await reader.require(read(reader)))[:room]
        report.approvals += [(reader.id, waits)] if waits else []
        return report
    client, loop = client or await server.connect(), asyncio.get_running_loop()
    runs = [run for run in await _waiting_runs(client) if only is None or run.id in only]
    served = {queue for queue in {run.task_queue for run in runs} if await server.has_pollers(client, queue)}
    ends, step = loop.time() + TIMEOUT_SECONDS, 2 * MAX_CONCURRENT_QUERIES

    async def read_served(run: WorkflowExecution) -> list[PendingApproval] | None:
        if run.task_queue not in served:
            return None
        try:
            with explained(client, run.id):  # one that cannot be read, or answers something else, hides no other
                async with asyncio.timeout_at(ends):
                    return await read(RunReader(client, run.id, run.run_id))
        except (TimeoutError, ValueError, ClientError):
            return None

    for first in range(0, len(runs), step):
        if room <= 0:
            report.unread += len(runs) - first
            break
        batch = runs[first : first + step]
        for run, listed in zip(batch, await asyncio.gather(*map(read_served, batch)), strict=True):
            report.unanswered += [run.id] if listed is None else []
            report.unread += len(listed or ()) > room
            waits = (listed or [])[:room]
            report.approvals += [(run.id, waits)] if waits else []
            room -= len(waits)
    return report


async def _waiting_runs(client: Client) -> list[WorkflowExecution]:
    from temporalio.service import RPCError, RPCStatusCode

    runs: list[WorkflowExecution] = []
    for query in WAITING_QUERIES:
        listing = client.list_workflows(query, limit=MAX_LISTED, page_size=1_000, rpc_timeout=server.RPC)
        try:
            runs = [run async for run in listing]
            break
        except RPCError as error:  # the namespace has no search attributes
            if error.status != RPCStatusCode.INVALID_ARGUMENT or query == WAITING_QUERIES[-1]:
                raise
    ids = {run.id for run in runs}
    return sorted((r for r in runs if r.parent_id not in ids), key=lambda r: r.start_time)
