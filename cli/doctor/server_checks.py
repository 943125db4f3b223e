"""What ``acts doctor`` finds at the server: version, clock, namespace, search attributes, runs with problems.

Laws of this file: requests read only, each is bounded, and a server that does not answer one of them is a finding.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    GetSystemInfoRequest,
    PollActivityTaskQueueRequest,
)
from temporalio.service import RPCError

from activities.namespace_check import registered_types, value_type
from acts.tree.search_attributes import TYPES
from cli.console import clean
from cli.doctor.findings import Finding, fail, ok, warn
from cli.runs.server import RPC

if TYPE_CHECKING:
    from temporalio.client import Client

# Deadlines and ages are shown by the clock of whoever looks; below this nobody notices
MAX_SKEW_SECONDS: Final = 2.0
# Ended runs are gone after it: a weekend should not be longer
MIN_RETENTION_DAYS: Final = 3
# A queue that nothing uses: the server writes down, by its own clock, who polled it
_CLOCK_QUEUE: Final = "acts-doctor"
_ACTIVITIES: Final = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
_CLOCK_SECONDS: Final = 3.0
_DAY: Final = 86_400


async def check_server(client: Client, address: str) -> list[Finding]:
    """Its version and how fast it answers."""
    start = time.monotonic()
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=RPC)
    took = (time.monotonic() - start) * 1000
    return [ok("server", f"{address}: Temporal {info.server_version}, answers in {took:.0f} ms")]


async def check_clock(client: Client) -> list[Finding]:
    """How far this machine's clock is from the server's."""
    skew = await _read_skew(client)
    if skew is None:
        return [ok("clock", "the server does not say what time it is")]
    text = f"this machine is {abs(skew):.1f} s {'behind' if skew > 0 else 'ahead of'} the server"
    if abs(skew) < MAX_SKEW_SECONDS:
        return [ok("clock", text)]
    hint = "synchronise both (NTP): deadlines and dates are the server's, timeouts inside a tool are the worker's"
    return [warn("clock", text, hint)]


async def _read_skew(client: Client) -> float | None:
    """Seconds by which the server's clock is ahead of ours: when it saw a poll, by its clock and by ours."""
    service, identity = client.workflow_service, f"acts-doctor-{secrets.token_hex(4)}"
    queue = TaskQueue(name=_CLOCK_QUEUE)
    poll = PollActivityTaskQueueRequest(namespace=client.namespace, task_queue=queue, identity=identity)
    start = time.time()
    polling = asyncio.create_task(service.poll_activity_task_queue(poll, timeout=timedelta(seconds=_CLOCK_SECONDS)))
    look = DescribeTaskQueueRequest(namespace=client.namespace, task_queue=queue, task_queue_type=_ACTIVITIES)
    try:
        while not polling.done():
            answer = await service.describe_task_queue(look, timeout=RPC)
            for poller in answer.pollers:
                if poller.identity == identity:
                    seen = poller.last_access_time
                    server_time: float = seen.seconds + seen.nanos / 1e9
                    # It lies between our two moments
                    return max(server_time - time.time(), 0.0) or min(server_time - start, 0.0)
            await asyncio.sleep(0.05)
    finally:
        polling.cancel()
        with suppress(asyncio.CancelledError, RPCError):
            await polling
    return None


async def check_namespace(client: Client) -> list[Finding]:
    """It exists, and keeps ended runs for long enough."""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    answer = await client.workflow_service.describe_namespace(request, timeout=RPC)
    days = answer.config.workflow_execution_retention_ttl.ToSeconds() / _DAY
    text = f"{client.namespace!r} keeps ended runs for {days:g} days"
    if days >= MIN_RETENTION_DAYS:
        return [ok("namespace", text)]
    hint = f"keep them longer: temporal operator namespace update -n {client.namespace} --retention 720h"
    return [warn("namespace", text, hint)]


async def check_search_attributes(client: Client) -> list[Finding]:
    """All of ours are registered, with the right types."""
    present = await registered_types(client)
    wrong = [name for name in TYPES if name in present and present[name] != value_type(name)]
    missing = [name for name in TYPES if name not in present]
    if wrong:
        hint = "another program has registered these names; use a namespace of your own"
        return [fail("search attributes", f"of another type: {', '.join(wrong)}", hint)]
    if missing:
        hint = "runs work, but cannot be listed by phase, tool and cost; register them once: acts setup"
        return [warn("search attributes", f"missing: {', '.join(missing)}", hint)]
    return [ok("search attributes", f"all {len(TYPES)} are registered")]


async def check_problems(client: Client) -> list[Finding]:
    """Runs whose workflow tasks fail again and again, as the server counts them."""
    query = "ExecutionStatus = 'Running' AND TemporalReportedProblems IS NOT NULL"
    try:
        count = (await client.count_workflows(query, rpc_timeout=RPC)).count
    except RPCError:
        return []  # a server before 1.29 does not count them
    if not count:
        return [ok("runs", "no open run reports a problem")]
    hint = f"list them: temporal workflow list --query {query.split(' AND ')[1]!r}; docs/operations.md says what to do"
    return [warn("runs", f"the workflow tasks of {count:,} open runs fail", hint)]


def explain_rpc(check: str, error: RPCError) -> Finding:
    """The finding for a request that the server refused."""
    return fail(check, f"the server refused the request: {clean(error.message, 300)} ({error.status.name})")
