"""What ``acts doctor`` finds about workers: who polls the task queue, in which versions, and what waits for them."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeWorkerDeploymentRequest
from temporalio.service import RPCError, RPCStatusCode

from activities.worker_versions import poller_deployment, registry_version
from cli.console import clean, count_text
from cli.doctor.findings import Finding, fail, ok, warn
from cli.runs.server import RPC, START_WORKER

if TYPE_CHECKING:
    from temporalio.api.taskqueue.v1 import PollerInfo
    from temporalio.client import Client

    from activities.registry import Registry

_DIGEST: Final = re.compile(r"^acts/([0-9a-f]{8}) ")
# A poll lasts a minute; the server lists who polled within five
_ALIVE_SECONDS: Final = 90.0
# Work that waits for a free slot for so long is no burst any more
MAX_BACKLOG_SECONDS: Final = 60.0
_KINDS: Final = {"workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, "activity": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY}


@dataclass(frozen=True)
class QueueState:
    """One task queue. ``backlog`` and ``age`` (seconds) are by kind, ``workflow`` and ``activity``."""

    name: str
    pollers: Sequence[PollerInfo]
    backlog: dict[str, int]
    age: dict[str, float]


async def read_queue(client: Client, name: str) -> QueueState:
    """Who polls the queue, and what waits in it."""
    pollers: dict[str, PollerInfo] = {}
    backlog: dict[str, int] = {}
    age: dict[str, float] = {}
    for kind, type_ in _KINDS.items():
        request = DescribeTaskQueueRequest(
            namespace=client.namespace, task_queue=TaskQueue(name=name), task_queue_type=type_, report_stats=True
        )
        answer = await client.workflow_service.describe_task_queue(request, timeout=RPC)
        latest = time.time() - _ALIVE_SECONDS
        pollers |= {p.identity: p for p in answer.pollers if p.last_access_time.ToSeconds() > latest}
        backlog[kind] = answer.stats.approximate_backlog_count
        age[kind] = answer.stats.approximate_backlog_age.ToSeconds()
    return QueueState(name, list(pollers.values()), backlog, age)


async def check_workers(client: Client, name: str, registry: Registry | None) -> list[Finding]:
    """Everything about the workers of one queue."""
    queue = await read_queue(client, name)
    if not queue.pollers:
        text = f"no worker polls the task queue {name!r}: runs wait for one"
        return [fail("workers", text, START_WORKER), *check_backlog(queue)]
    findings = [*check_versions(queue, registry), *check_backlog(queue)]
    for deployment in sorted({poller_deployment(p)[0] for p in queue.pollers} - {""}):
        findings += await _check_deployment(client, deployment, queue)
    return findings


def check_versions(queue: QueueState, registry: Registry | None) -> list[Finding]:
    """Which versions of tools and activities poll, and whether those of this shell are among them."""
    digests = Counter(_digest(p.identity) for p in queue.pollers)
    head = f"{count_text(len(queue.pollers), 'worker')} on {queue.name!r}"
    versions = ", ".join(f"{n} × {clean(digest, 40)}" for digest, n in sorted(digests.items()))
    findings = [ok("workers", f"{head}, tools {versions}")]
    builds = {poller_deployment(p) for p in queue.pollers}
    if len(digests) > 1 and len(builds) == 1:
        hint = "as in a rolling deploy; if it lasts, a worker was not updated (docs/deploy.md, rolling deploys)"
        findings = [warn("workers", f"{head} have different tools: {versions}", hint)]
    loads_tools = any(os.environ.get(name) for name in ("ACTS_ACTIVITIES", "ACTS_TOOLS", "ACTS_MCP"))
    if registry is not None and loads_tools and registry_version(registry) not in digests:
        text = f"the tools of this shell ({registry_version(registry)}) are those of no worker"
        findings.append(warn("workers", text, "set ACTS_ACTIVITIES, ACTS_TOOLS and ACTS_MCP as the workers have them"))
    return findings


def _digest(identity: str) -> str:
    match = _DIGEST.match(identity)
    return match[1] if match else f"not of this engine ({identity})"


def check_backlog(queue: QueueState) -> list[Finding]:
    """How much waits for a worker, and for how long."""
    waiting = [
        f"{queue.backlog[kind]:,} {kind} tasks, the oldest for {queue.age[kind]:.0f} s"
        for kind in _KINDS if queue.backlog[kind]
    ]  # fmt: skip
    if not waiting:
        return [ok("backlog", "nothing waits for a worker")]
    if max(queue.age.values()) < MAX_BACKLOG_SECONDS:
        return [ok("backlog", "; ".join(waiting))]
    hint = "start more workers, or raise ACTS_MAX_ACTIVITIES (docs/deploy.md, sizing)"
    return [warn("backlog", "; ".join(waiting), hint)]


async def _check_deployment(client: Client, name: str, queue: QueueState) -> list[Finding]:
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=name)
    try:
        answer = await client.workflow_service.describe_worker_deployment(request, timeout=RPC)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return []
        raise
    current = answer.worker_deployment_info.routing_config.current_deployment_version.build_id
    builds = {build for deployment, build in map(poller_deployment, queue.pollers) if deployment == name}
    has_unversioned = any(poller_deployment(p) == ("", "") for p in queue.pollers)
    return [judge_deployment(name, current, builds, has_unversioned=has_unversioned)]


def judge_deployment(name: str, current: str, builds: Iterable[str], *, has_unversioned: bool) -> Finding:
    """What a deployment's current build and the builds that poll mean for new runs; ``current`` "": there is none."""
    polling = ", ".join(sorted(builds))
    command = f"temporal worker deployment set-current-version --deployment-name {name} --build-id BUILD"
    if not current:
        text = f"deployment {name!r} has no current version; {polling} poll"
        if has_unversioned:
            return warn("versions", f"{text}: new runs go to unversioned workers", f"make one current: {command}")
        return fail("versions", f"{text}: new runs wait for ever", f"make one current: {command}")
    if current not in set(builds):
        text = f"version {current} of deployment {name!r} is current and no worker of it polls: new runs wait"
        return fail("versions", text, f"start its workers, or make another one current: {command}")
    return ok("versions", f"new runs go to version {current} of deployment {name!r}; {polling} poll")
