"""What a run asks a worker about its surroundings: approvers, search attributes, its first attempt, who serves a queue.

* The approvers are those of the file that ``ACTS_APPROVERS`` names (its form: ``acts/tree/decisions.py``). A root asks
  once, and its history keeps the answer: those who are added or removed later decide about later runs.
* To write a search attribute that the namespace lacks would fail the run's workflow task again and again.
* All attempts of a cron run have the same ``_id``s, those of its other runs have others. A workflow sees only the
  attempt before it, so the chain is read from the server, one event of each attempt.
* The server lists who polled a queue within the last five minutes. A worker whose slots are all busy for longer does
  not poll and is not listed; a worker that was killed still is.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from temporalio import activity
from temporalio.api.enums.v1 import IndexedValueType, TaskQueueType, WorkerVersioningMode
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from acts.language.strict_json import read_json
from acts.language.wire import APPROVERS, FIRST_ATTEMPT, QUEUES, SEARCH_ATTRIBUTES
from acts.tree.decisions import Approver, ApproversError, read_approvers
from acts.tree.search_attributes import TYPES

VARIABLE: Final = "ACTS_APPROVERS"
# The run, or its workflow task, waits for the answer: a slow server must not hold it up
_RPC_TIMEOUT: Final = timedelta(seconds=2)
# Attributes that are missing may be registered while the worker runs
_RECHECK_SECONDS: Final = 60.0


def approvers_from_environment() -> tuple[Approver, ...]:
    """The approvers; none where the variable is not set. Raises ApproversError: the file cannot be used."""
    setting = os.environ.get(VARIABLE)
    try:
        return read_approvers(read_json(Path(setting).read_bytes(), unique_keys=True)) if setting else ()
    except (OSError, ValueError) as error:
        raise ApproversError(f"{VARIABLE} names {setting}, which is not a usable JSON file: {error}") from None


@activity.defn(name=APPROVERS)
async def look_up_approvers() -> list[dict[str, Any]]:
    """The approvers, as records; retried until the file can be read."""
    try:
        return [approver.to_json() for approver in approvers_from_environment()]
    except ApproversError as error:
        raise ApplicationError(str(error), type="ApproversUnreadable") from None


# By namespace: whether it has all attributes, and the time until which that counts
_answers: Final[dict[str, tuple[bool, float]]] = {}


def value_type(name: str) -> IndexedValueType.ValueType:
    """The server's number for the type of a search attribute."""
    words = {"Keyword": "KEYWORD", "Int": "INT", "KeywordList": "KEYWORD_LIST", "Double": "DOUBLE"}
    return IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{words[TYPES[name]]}")


async def registered_types(client: Client) -> dict[str, IndexedValueType.ValueType]:
    """The custom search attributes of the client's namespace, by name. Raises RPCError: the server does not say."""
    request = ListSearchAttributesRequest(namespace=client.namespace)
    answer = await client.operator_service.list_search_attributes(request, timeout=_RPC_TIMEOUT)
    return dict(answer.custom_attributes)


@activity.defn(name=SEARCH_ATTRIBUTES)
async def check_search_attributes() -> bool:
    """Whether the namespace has all of them, with the right types; False when the server does not say."""
    client = activity.client()
    is_complete, until = _answers.get(client.namespace, (False, 0.0))
    if not is_complete and time.monotonic() >= until:
        try:
            types = await registered_types(client)
        except RPCError:
            types = {}
        is_complete = all(types.get(name) == value_type(name) for name in TYPES)
        _answers[client.namespace] = is_complete, time.monotonic() + _RECHECK_SECONDS
    return is_complete


@activity.defn(name=FIRST_ATTEMPT)
async def first_attempt(query: dict[str, str]) -> str:
    """Of ``{workflowId, runId}`` the run id under which the first attempt began; of the oldest attempt left, where the
    server has deleted it.
    """
    run_id = query["runId"]
    while True:
        handle = activity.client().get_workflow_handle(query["workflowId"], run_id=run_id)
        try:
            begin = await anext(aiter(handle.fetch_history_events(page_size=1)))
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return run_id
        started = begin.workflow_execution_started_event_attributes
        if started.attempt <= 1 or not started.continued_execution_run_id:
            return str(started.original_execution_run_id)
        run_id = started.continued_execution_run_id


async def read_pollers(client: Client, queue: str) -> Sequence[PollerInfo]:
    """Who polls a task queue for activities. Raises RPCError: the server does not say."""
    kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    return (await client.workflow_service.describe_task_queue(request, timeout=_RPC_TIMEOUT)).pollers


def poller_deployment(poller: PollerInfo) -> tuple[str, str]:
    """The name and the build id of a worker's deployment version; two empty strings for an unversioned one."""
    options = poller.deployment_options
    is_versioned = options.worker_versioning_mode == WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
    return (options.deployment_name, options.build_id) if is_versioned else ("", "")


@activity.defn(name=QUEUES)
async def check_queues(request: dict[str, Any]) -> dict[str, bool]:
    """``{"queues": [names]}`` → ``{name: has workers}``; a queue that the server says nothing of is left out."""
    queues: list[str] = request["queues"]
    reads = (read_pollers(activity.client(), queue) for queue in queues)
    answers = await asyncio.gather(*reads, return_exceptions=True)
    if fault := next((a for a in answers if isinstance(a, BaseException) and not isinstance(a, RPCError)), None):
        raise fault
    return {queue: bool(a) for queue, a in zip(queues, answers, strict=True) if not isinstance(a, BaseException)}
