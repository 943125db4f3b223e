"""``acts doctor``: what is wrong between this shell, the server and the workers, and what to do about it.

It changes nothing, and asks no model. One finding is one line, with what to do below it; a
check that breaks is a finding. A worker's environment may be another one, so run the command where the worker runs; the
value of a key is never shown.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer
from rich.text import Text
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    DescribeWorkerDeploymentRequest,
    GetSystemInfoRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from acts.activities.models.endpoints import from_environment
from acts.activities.registry import from_environment as registry_from_environment
from acts.activities.run_setup import registered_types, value_type
from acts.activities.worker_versions import poller_deployment, registry_version
from acts.cli.command_line import AsJson, CommandGroup
from acts.cli.console import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_NO_SERVER,
    CommandError,
    clean,
    console,
    count_text,
    print_json,
)
from acts.cli.runs import server
from acts.cli.runs.server import RPC, START_WORKER
from acts.tree.search_attributes import TYPES

if TYPE_CHECKING:
    from temporalio.api.taskqueue.v1 import PollerInfo
    from temporalio.client import Client

    from acts.activities.registry import Registry

Level = Literal["ok", "warn", "fail"]
_MARKS: Final[dict[Level, tuple[str, str]]] = {
    "ok": ("✓", "green"), "warn": ("!", "bold yellow"), "fail": ("✗", "bold red"),
}  # fmt: skip
# Providers with settings of their own -> the variables that may hold their key
_KEYS: Final = {"anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "openai": ("OPENAI_API_KEY",)}
# Ended runs are gone after it: a weekend should not be longer
MIN_RETENTION_DAYS: Final = 3
_DIGEST: Final = re.compile(r"^acts/([0-9a-f]{8}) ")
# A poll lasts a minute; the server lists who polled within five
_ALIVE_SECONDS: Final = 90.0
# Work that waits for a free slot for so long is no burst any more
MAX_BACKLOG_SECONDS: Final = 60.0
Queue = Annotated[str | None, typer.Option(metavar="NAME", help="The task queue (default: ACTS_TASK_QUEUE, or acts).")]

app = CommandGroup()


@dataclass(frozen=True)
class Finding:
    """One line. ``fail``: runs do not work until it is mended; ``warn``: something may be missed or lost."""

    level: Level
    text: str
    hint: str = ""


ok, warn, fail = partial(Finding, "ok"), partial(Finding, "warn"), partial(Finding, "fail")
Findings = dict[str, list[Finding]]


@app.add
async def doctor(queue: Queue = None, as_json: AsJson = False) -> int:
    """Check server, workers, settings and models; say what is wrong and what to do. Code 1: something is wrong."""
    findings: Findings = {}
    for name, check in SHELL_CHECKS.items():
        await add_findings(findings, name, check)
    try:
        target = server.find_target()
        client = await server.connect(target)
    except CommandError as error:
        facts = dict(error.blocks[0].facts)
        hint = facts.pop("hint", "")
        findings["server"] = [fail("; ".join([error.blocks[0].head, *(f"{k}: {v}" for k, v in facts.items())]), hint)]
    else:
        for name, ask_server in SERVER_CHECKS.items():
            await add_findings(findings, name, partial(ask_server, client, queue or server.task_queue()))
    levels = {finding.level for listed in findings.values() for finding in listed}
    if as_json:
        rows = [{"check": name, **vars(f)} for name, listed in findings.items() for f in listed]
        print_json({"ok": "fail" not in levels, "findings": [{k: v for k, v in r.items() if v} for r in rows]})
    else:
        _print(findings)
    is_reached = findings["server"][0].level == "ok"
    return EXIT_DONE if "fail" not in levels else EXIT_FAILED if is_reached else EXIT_NO_SERVER


async def add_findings(findings: Findings, name: str, check: Callable[[], Awaitable[list[Finding]]]) -> None:
    """Add the findings of a check; one that breaks is a finding."""
    try:
        found = await check()
    except Exception as error:  # noqa: BLE001 - whatever is wrong is what a doctor reports
        found = [fail(clean(error, 500) or type(error).__name__, _ADVICE.get(name, ""))]
    findings.setdefault(name, []).extend(found)


def _print(findings: Findings) -> None:
    width = max(map(len, findings))
    for name, finding in ((name, finding) for name, listed in findings.items() for finding in listed):
        mark, style = _MARKS[finding.level]
        console().print(Text.assemble((f"{mark} ", style), (f"{name.ljust(width)}  ", "dim"), clean(finding.text)))
        if finding.hint:
            console().print(Text(f"  {' ' * width}  → {clean(finding.hint)}", "dim"))


# -- this shell --------------------------------------------------------------------------------------------------------


async def check_settings() -> list[Finding]:
    """Whether a worker would start with the settings of this shell."""
    from acts.worker.settings import Settings

    settings = Settings.from_environment()
    pinned = f", version {settings.deployment}:{settings.build_id}" if settings.deployment else ""
    return [ok(f"a worker would serve the task queue {settings.task_queue!r}{pinned}")]


async def check_tools() -> list[Finding]:
    """The tools that this shell's settings load."""
    registry = registry_from_environment()
    return [ok(f"{count_text(len(registry.tools), 'tool')} and {len(registry.activities)} activities load")]


async def check_payloads() -> list[Finding]:
    """Whether the settings of encryption and storage can be read, if they are set."""
    from acts.payloads.converter import client_converter

    client_converter()
    names = [name for name in ("ACTS_CODEC_KEYS", "ACTS_STORAGE") if os.environ.get(name)]
    return [ok(f"{' and '.join(names)} can be read" if names else "neither encrypted nor stored elsewhere")]


async def check_models() -> list[Finding]:
    """Which models have a key here."""
    able = [f"{provider}:…" for provider, names in _KEYS.items() if any(map(os.environ.get, names))]
    for name, endpoint in from_environment().items():
        endpoint.read_key()
        able.append(f"{name}/…")
    if not able:
        return [ok("no model has a key here", "plans need none; agents and latent calls do (docs/models.md)")]
    return [ok(f"{', '.join(able)} have a key here")]


# -- the server --------------------------------------------------------------------------------------------------------


async def check_server(client: Client, _queue: str) -> list[Finding]:
    """Its version and how fast it answers."""
    start = time.monotonic()
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=RPC)
    took = (time.monotonic() - start) * 1000
    return [ok(f"{client.service_client.config.target_host}: Temporal {info.server_version}, answers in {took:.0f} ms")]


async def check_namespace(client: Client, _queue: str) -> list[Finding]:
    """It exists, and keeps ended runs for long enough."""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    answer = await client.workflow_service.describe_namespace(request, timeout=RPC)
    days = answer.config.workflow_execution_retention_ttl.ToSeconds() / 86_400
    text = f"{client.namespace!r} keeps ended runs for {days:g} days"
    hint = f"keep them longer: temporal operator namespace update -n {client.namespace} --retention 720h"
    return [ok(text) if days >= MIN_RETENTION_DAYS else warn(text, hint)]


async def check_search_attributes(client: Client, _queue: str) -> list[Finding]:
    """All of ours are registered, with the right types."""
    present = await registered_types(client)
    wrong = [name for name in TYPES if name in present and present[name] != value_type(name)]
    missing = [name for name in TYPES if name not in present]
    if wrong:
        hint = "another program has registered these names; use a namespace of your own"
        return [fail(f"of another type: {', '.join(wrong)}", hint)]
    if missing:
        hint = "runs work, but cannot be listed by phase, tool and cost; register them once: acts setup"
        return [warn(f"missing: {', '.join(missing)}", hint)]
    return [ok(f"all {len(TYPES)} are registered")]


async def check_runs(client: Client, _queue: str) -> list[Finding]:
    """Runs whose workflow tasks fail again and again, as the server counts them."""
    query = "ExecutionStatus = 'Running' AND TemporalReportedProblems IS NOT NULL"
    try:
        count = (await client.count_workflows(query, rpc_timeout=RPC)).count
    except RPCError:
        return [ok("this server does not count the runs with problems: that begins with 1.29")]
    if not count:
        return [ok("no open run reports a problem")]
    hint = 'list them: temporal workflow list --query "TemporalReportedProblems IS NOT NULL"; docs/operations.md'
    return [warn(f"the workflow tasks of {count:,} open runs fail", hint)]


# -- the workers -------------------------------------------------------------------------------------------------------


async def check_workers(client: Client, name: str) -> list[Finding]:
    """Who polls the queue, with which versions of the tools."""
    pollers = await _read_pollers(client, name)
    if not pollers:
        return [fail(f"no worker polls the task queue {name!r}: runs wait for one", START_WORKER)]
    findings = judge_workers(name, pollers, registry_from_environment())
    for deployment in sorted({poller_deployment(p)[0] for p in pollers} - {""}):
        request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment)
        try:
            answer = await client.workflow_service.describe_worker_deployment(request, timeout=RPC)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            continue
        current = answer.worker_deployment_info.routing_config.current_deployment_version.build_id
        builds = {build for of, build in map(poller_deployment, pollers) if of == deployment}
        has_unversioned = any(poller_deployment(p) == ("", "") for p in pollers)
        findings.append(judge_deployment(deployment, current, builds, has_unversioned=has_unversioned))
    return findings


async def _describe_queue(client: Client, name: str, type_: TaskQueueType.ValueType) -> Any:
    queue = TaskQueue(name=name)
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=queue, task_queue_type=type_, report_stats=True
    )
    return await client.workflow_service.describe_task_queue(request, timeout=RPC)


async def _read_pollers(client: Client, name: str) -> Sequence[PollerInfo]:
    latest = time.time() - _ALIVE_SECONDS
    pollers: dict[str, PollerInfo] = {}
    for type_ in (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY):
        answer = await _describe_queue(client, name, type_)
        pollers |= {p.identity: p for p in answer.pollers if p.last_access_time.ToSeconds() > latest}
    return list(pollers.values())


def judge_workers(name: str, pollers: Sequence[PollerInfo], registry: Registry) -> list[Finding]:
    """Whether the workers have the same tools, and whether those of this shell are among them."""
    identities = [p.identity for p in pollers]
    digests = Counter(m[1] if (m := _DIGEST.match(id_)) else f"not of this engine ({id_})" for id_ in identities)
    versions = ", ".join(f"{n} × {clean(digest, 40)}" for digest, n in sorted(digests.items()))
    text = f"{count_text(len(pollers), 'worker')} on {name!r}, tools {versions}"
    findings = [ok(text)]
    if len(digests) > 1 and len(set(map(poller_deployment, pollers))) == 1:
        hint = "as in a rolling deploy; if it lasts, a worker was not updated (docs/deploy.md, rolling deploys)"
        findings = [warn(f"{text}: they differ", hint)]
    own = registry_version(registry)
    if own not in digests and (registry.tools or registry.activities):
        hint = "set ACTS_ACTIVITIES, ACTS_TOOLS and ACTS_MCP as the workers have them"
        findings.append(warn(f"the tools of this shell ({own}) are those of no worker", hint))
    return findings


def judge_deployment(name: str, current: str, builds: Iterable[str], *, has_unversioned: bool) -> Finding:
    """What a deployment's current build and the builds that poll mean for new runs; ``current`` "": there is none."""
    polling = ", ".join(sorted(builds))
    command = f"temporal worker deployment set-current-version --deployment-name {name} --build-id BUILD"
    if not current:
        text = f"deployment {name!r} has no current version; {polling} poll"
        what, add = ("go to unversioned workers", warn) if has_unversioned else ("wait for ever", fail)
        return add(f"{text}: new runs {what}", f"make one current: {command}")
    if current not in set(builds):
        text = f"version {current} of deployment {name!r} is current and no worker of it polls: new runs wait"
        return fail(text, f"start its workers, or make another one current: {command}")
    return ok(f"new runs go to version {current} of deployment {name!r}; {polling} poll")


async def check_backlog(client: Client, name: str) -> list[Finding]:
    """How much waits for a worker, and for how long."""
    stats = (await _describe_queue(client, name, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)).stats
    return [judge_backlog(stats.approximate_backlog_count, stats.approximate_backlog_age.ToSeconds())]


def judge_backlog(count: int, age: float) -> Finding:
    """What the calls that wait for a worker mean; ``age`` are seconds."""
    text = f"{count:,} calls wait for a worker, the oldest for {age:.0f} s" if count else "nothing waits for a worker"
    if not count or age < MAX_BACKLOG_SECONDS:
        return ok(text)
    return warn(text, "start more workers, or raise ACTS_MAX_ACTIVITIES (docs/deploy.md, sizing)")


SHELL_CHECKS: Final = {
    "settings": check_settings,
    "tools": check_tools,
    "payloads": check_payloads,
    "models": check_models,
}
SERVER_CHECKS: Final = {
    "server": check_server,
    "namespace": check_namespace,
    "search attributes": check_search_attributes,
    "workers": check_workers,
    "backlog": check_backlog,
    "runs": check_runs,
}
# What to do about a check that breaks
_ADVICE: Final = {
    "settings": "a worker does not start with it; docs/deploy.md lists them all",
    "tools": "a worker does not start with it",
    "models": "a worker does not start with it",
    "payloads": "a worker and every client need the same settings; without them payloads cannot be read",
}
