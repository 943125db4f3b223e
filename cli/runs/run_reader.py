"""One reader for everything that a run answers: description, queries, Request, result.

Laws of this file:
- an answer is fetched once and kept; ``fresh`` returns a reader that fetches again;
- a query that no worker answers in time returns None: the caller decides what that means;
- nothing is printed or laid out here.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from acts.language.values import Json
from acts.language.wire import (
    AGENT,
    CONTEXT,
    DELEGATE,
    GRAPH,
    INSTANCE,
    PENDING,
    PENDING_PARAMETERS,
    PLAN,
    PLAN_QUERY,
    PROMPT_CONTEXT,
    STATUS,
)
from acts.tree.decisions import PendingApproval
from acts.tree.instance_payload import SHARED_KEY, join_instance_input
from cli.command_errors import EXIT_NO_SERVER, CommandError, command_error
from cli.console import clean
from cli.runs import server
from cli.runs.run_outcome import Outcome, wait_for_outcome
from cli.runs.task_failures import last_task_failure

if TYPE_CHECKING:
    from temporalio.api.workflow.v1 import PendingActivityInfo
    from temporalio.client import Client, WorkflowExecutionDescription

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

    @_once
    async def activities(self) -> dict[str, dict[str, Any]]:
        """What the server knows of the run's activities in flight, by activity id.

        ``{isInQueue?, taskQueue, attempt?, lastFailure?}``: ``isInQueue`` if no worker has taken the first attempt,
        ``attempt`` from the second one on; ``lastFailure`` is ``[type] message``.
        """
        pending = (await self.describe()).raw_description.pending_activities
        return {item.activity_id: await self._activity_facts(item) for item in pending}

    async def _activity_facts(self, item: PendingActivityInfo) -> dict[str, Any]:
        from temporalio.exceptions import ServerError

        from telemetry.bounded_failures import without_details

        facts: dict[str, Any] = {"taskQueue": item.activity_options.task_queue.name}
        if item.attempt > 1:
            failure = await self.client.data_converter.decode_failure(without_details(item.last_failure))
            if isinstance(failure, ServerError) and failure.__cause__ is not None:  # the server has cut a large one
                failure = failure.__cause__
            text, type_ = getattr(failure, "message", None) or str(failure), getattr(failure, "type", None)
            facts |= {"attempt": item.attempt, "lastFailure": f"[{type_}] {text}" if isinstance(type_, str) else text}
        elif item.state == PENDING_ACTIVITY_STATE_SCHEDULED:
            facts["isInQueue"] = True
        return facts

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

    async def describe_planning(self, what: str = "plan") -> WorkflowExecutionDescription:
        """The description of a run of ours.

        Raises:
            CommandError: there is no such run, or its type has no ``what``.
        """
        info = await self.describe()
        if info.workflow_type not in PLANNING_TYPES:
            text = (
                f'the run "{clean(self.id, 200)}" is of the type {clean(info.workflow_type, 100)}, which has no {what}'
            )
            raise command_error(text, hint=f"these types have one: {', '.join(PLANNING_TYPES)}")
        return info

    @_once
    async def root(self) -> RunReader:
        """The run at the top of this one's tree, which lists the approvals of the whole tree.

        A root is its own, and so is a detached run that has outlived its root.
        """
        root = self.other((await self.describe()).root_id or self.id)
        is_running = root.id != self.id and await root.exists() and (await root.describe()).close_time is None
        return root if is_running else self

    @_once
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

    @_once
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
        return _request_in_input(content, value.payload.metadata.get(SHARED_KEY))

    async def _start_event(self, run_id: str | None) -> Any:
        handle = self.client.get_workflow_handle(self.id, run_id=run_id)
        async for event in handle.fetch_history_events(page_size=1, rpc_timeout=server.RPC):
            return event.workflow_execution_started_event_attributes
        return None

    @_once
    async def last_child_plan(self) -> RunReader | None:
        """The Plan that this run started last, of a delegate that executes a plan unchanged."""
        run_id, plan = (await self.describe()).run_id, None
        handle = self.client.get_workflow_handle(self.id, run_id=run_id)
        async for event in handle.fetch_history_events(rpc_timeout=server.RPC):
            child = event.child_workflow_execution_started_event_attributes
            if child.workflow_type.name == PLAN:
                plan = child.workflow_execution.workflow_id
        return None if plan is None else self.other(plan)

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

    @_once
    async def obstacle(self) -> str:
        """What keeps the run's workers from answering, such as a value that they cannot read; "" if none is known."""
        if self._query_failure:
            return f"the worker cannot answer: {clean(self._query_failure, 500)}"
        failure = await last_task_failure(self.client, self.id, self.handle.run_id)
        return f"its last workflow task failed: {clean(failure, 500)}" if failure else ""

    async def allow_replay_time(self) -> None:
        """Give the worker enough time per query to replay the whole history of the run."""
        events = (await self.describe()).history_length
        self.query_timeout = QUERY_TIMEOUT + timedelta(seconds=SECONDS_PER_EVENT * events)

    @_once
    async def status(self) -> dict[str, Any] | None:
        """The query ``status``: ``{phase, tick?, calls, instances?, usage, waits?, notes?, decisions?}``."""
        return _dict_or_none(await self.query(STATUS))

    @_once
    async def pending(self) -> list[PendingApproval] | None:
        """The pending approvals: of a root those of its whole tree, else the run's own."""
        return read_approvals(await self.query(PENDING))

    @_once
    async def pending_parameters(self) -> dict[str, Any] | None:
        """The parameters of the run's own pending Calls: ``{editable, calls: [{call, instance?, with}]}``."""
        return _dict_or_none(await self.query(PENDING_PARAMETERS))

    @_once
    async def plan(self) -> list[Any] | None:
        """The Calls of the plan that waits for approval, or else is executed."""
        answer = await self.query(PLAN_QUERY)
        return answer if isinstance(answer, list) else None

    @_once
    async def prompt_context(self) -> dict[str, Any] | None:
        """The Tools as the worker knows them, without messages: ``{tools: {name: {schema, served}}, mode}``."""
        return _dict_or_none(await self.query(PROMPT_CONTEXT, {"offset": 0, "upto": 0}))

    @_once
    async def messages(self) -> list[Json] | None:
        """The whole context, read page by page."""
        messages: list[Json] = []
        while True:
            page = await self.query(CONTEXT, {"offset": len(messages), "limit": PAGE_MESSAGES})
            if not isinstance(page, dict) or not isinstance(page.get("messages"), list):
                return None
            messages += page["messages"]
            if not page["messages"] or len(messages) >= int(page.get("total", 0)):
                return messages

    async def value(self, path: str, instance: str) -> dict[str, Any] | None:
        """A value in the view of an instance: ``{path, value}``, ``{path, absent}``, or ``{error}``."""
        return _dict_or_none(await self.query(CONTEXT, {"path": path, "instance": instance}))

    async def graph(self, *, mermaid: bool) -> Any:
        """The plan as Mermaid text, or as JSON for ``render_plan``; empty if the run has no plan."""
        return await self.query(GRAPH, *([] if mermaid else [{"format": "json"}]))

    async def no_answer_error(self, effect: str = "", hint: str = server.START_WORKER) -> CommandError:
        """No worker answers for this run, so ``effect`` (by default: it cannot be read)."""
        queue = f'the queue "{clean((await self.describe()).task_queue, 100)}"'
        cause = f"the workers of {queue} do not answer" if await self.has_worker() else f"no worker serves {queue}"
        cause = await self.obstacle() or cause
        effect = effect or f'"{clean(self.id, 200)}" cannot be read'
        return command_error(f"{cause}, so {effect}", hint=hint, code=EXIT_NO_SERVER)


def read_approvals(answer: Any) -> list[PendingApproval] | None:
    """The answer to the query ``pending``; None for anything else."""
    return [PendingApproval.from_json(item) for item in answer] if isinstance(answer, list) else None


def _dict_or_none(answer: Any) -> dict[str, Any] | None:
    return answer if isinstance(answer, dict) else None


def _request_in_input(value: Json, shared: bytes | None) -> Json:
    """The Request in a workflow's input: the input itself, or part of what a parent passes to a child."""
    if not isinstance(value, dict):
        return value
    if shared is not None:
        try:
            return join_instance_input(value, shared)["request"]
        except (ValueError, KeyError):
            return value
    return value.get("request", value)
