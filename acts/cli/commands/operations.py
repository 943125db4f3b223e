"""``acts doctor``, ``setup``, ``keygen``, ``codec-server``, ``storage``, ``replay``, ``deploy-check``: for operators.

- ``doctor`` changes nothing, and asks no model but those of ``--ask``. A check that breaks is a finding. A worker's
  environment may be another one, so run the command where the worker runs; the value of a key is never shown.
- A private key is written once, for its owner only, and never printed.
- ``replay`` and ``deploy-check`` use the worker's workflows, converter and interceptors, so a history that replays here
  replays there. One that cannot be replayed is a verdict with a reason, never an exception. ``deploy-check`` replays
  the runs that the new workers would take: not those pinned to a version of their own; a run that ends or is deleted
  during the check counts as checked.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.filesize import decimal
from rich.text import Text
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice import v1 as requests
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from acts.activities.models import endpoints, select
from acts.activities.models.interface import ModelRequest, ModelTurn, PromptBlock
from acts.activities.registry import Registry
from acts.activities.registry import from_environment as registry_from_environment
from acts.activities.run_setup import registered_types, value_type
from acts.cli import console as cli
from acts.cli.console import clean, command_error, console, count_text, option, print_err, print_json, print_message
from acts.cli.text.preflight import is_configured, load_registry
from acts.cli.text.source import looks_like_file, read_source
from acts.client import server
from acts.client.client_errors import ClientError
from acts.client.notices import Notifier
from acts.client.run_reader import ALL_TYPES, RunReader, activity_facts, open_run, quote
from acts.client.served import ask_worker
from acts.client.server import RPC, START_WORKER
from acts.machines.plan_run import PlanRun
from acts.payloads import codec as payload_codec
from acts.payloads.codec_server import TOKEN_VARIABLE, create_server
from acts.payloads.converter import VARIABLE as STORAGE
from acts.payloads.converter import client_converter, describe_converter, driver_from_environment, verify_storage
from acts.payloads.storage_gc import Inventory, delete_unused, find_objection, find_unused, payloads_of, total_size
from acts.payloads.stores import ContentStore, sha256
from acts.telemetry.observation import (
    BEHAVIOR,
    FAILING_RUNS,
    FRESH_POLL_SECONDS,
    KINDS,
    VERSION,
    describe_queue,
    poll_age,
    poller_deployment,
    read_versions,
    require_histories,
    unserved_query,
)
from acts.tree.search_attributes import TYPES
from acts.views.run_views import CurrentTools, PlanView
from acts.views.text import describe_call

_MARKS: Final = {"ok": ("✓", "green"), "warn": ("!", "bold yellow"), "fail": ("✗", "bold red")}
# Providers with settings of their own -> the variables that may hold their key
_KEYS: Final = {"anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "openai": ("OPENAI_API_KEY",)}
MIN_RETENTION_DAYS: Final = 3  # ended runs are gone after it: a weekend should not be longer
_DIGEST: Final = re.compile(r"^acts/([0-9a-f]{8}) ")
_ASK_SECONDS: Final = 60.0
_MAX_OPEN: Final = 50  # runs whose Activities the doctor asks for, a request each
_MAX_LISTED: Final = 5  # Calls, and workers
_MAX_UNSERVED: Final = 1_000  # runs, of a page
_PAYLOAD_HINTS: Final = {
    "keys": "they cannot read what others write: give all the same keys (docs/security.md), and restart those that "
    "began before a rotation: a worker shows the keys of its start",
    "storage": "they cannot read what others write: set it alike (one folder under two paths differs, and works)",
}
MAX_BACKLOG_SECONDS: Final = 60.0  # work that waits for a free slot for so long is no burst any more
WEB_UI: Final = ("http://localhost:8233", "http://127.0.0.1:8233")  # of `acts dev` and `temporal server start-dev`
# Below this, a program that has stored a value and not yet reported it could lose it
_SHORT_GRACE_SECONDS: Final = 3600.0
_MAX_FAILURES: Final = 50  # printed in full; more of them are mostly alike
_STUCK: Final = (
    "runs that do not replay would be stuck on workers with this code: let them end on the old ones "
    "(docs/deploy.md, versions and rollback), or make the change compatible"
)

Queue = Annotated[str | None, option("--queue NAME", "The task queue (default: ACTS_TASK_QUEUE, or acts).")]
ShowOnly = Annotated[bool, option("--show", "Print the commands for an administrator; change nothing.")]
KeyFile = Annotated[str | None, cli.argument("FILE", "Where the private key is written.")]
Ask = Annotated[
    list[str] | None, option("--ask MODEL", "Have this model answer a word (costs some tokens); may be repeated.")
]
CodecKey = Annotated[bool, option("--codec", "A key for ACTS_CODEC_KEYS instead.")]
CodecHost = Annotated[str, option("--host ADDRESS", "Where to listen.")]
CodecPort = Annotated[int, option("--port", "Where to listen; 0: a free port.", min=0, max=65535)]
CodecOrigins = Annotated[
    list[str] | None, option("--origin URL", "The Web UI whose pages may ask (default: http://localhost:8233).")
]
Delete = Annotated[bool, option("--delete", "Delete what is unused; without it, only count.")]
Force = Annotated[bool, option("--force", "Also where the values may be those of another server.")]
Grace = Annotated[
    str, option("--grace TIME", "Leave what was used within this time, like 12h; and what was used this week.")
]
HistoryOrRun = Annotated[
    str, cli.argument("ID|FILE", "A run, or a history as `temporal workflow show -o json` prints it.")
]
Query = Annotated[
    str | None, option("--query QUERY", "Only these: a visibility query, like \"ActsPhase = 'awaiting'\".")
]
Limit = Annotated[int, option("--limit", "At most so many, the newest first.", min=1, max=1_000_000)]
Pinned = Annotated[bool, option("--pinned", "Also runs that are pinned to a deployment version.")]

app = cli.CommandGroup()
storage = cli.CommandGroup("storage", "Values that ACTS_STORAGE keeps outside of histories.")
app.add_typer(storage)


@dataclass(frozen=True)
class Finding:
    """One line. ``fail``: runs do not work until it is mended; ``warn``: something may be missed or lost."""

    level: Literal["ok", "warn", "fail"]
    text: str
    hint: str = ""


# Between two rounds of `acts notify` while its receiver is away
MAX_PAUSE_SECONDS: Final = 600.0
Every = Annotated[str, option("--every TIME", "How often to look (default 30s).")]
Since = Annotated[str, option("--since TIME", "Failures of this time before the start are told, too (default 1h).")]
Once = Annotated[bool, option("--once", "Look once, post, and end.")]


@app.add
async def notify(every: Every = "30s", since: Since = "1h", once: Once = False) -> None:
    """Post to ACTS_NOTIFY what waits for people, is escalated, fails or spends its budget, until Ctrl-C.

    ACTS_NOTIFY_SECRET signs it; ACTS_NOTIFY_LINK is the address of a run's page, with {run} in it.
    """
    url = os.environ.get("ACTS_NOTIFY", "")
    if not url.startswith(("https://", "http://")):
        raise command_error("ACTS_NOTIFY is not set to a URL", hint="ACTS_NOTIFY=https://example.com/hook acts notify")
    pause, back = cli.read_seconds(every, "--every") or 30.0, cli.read_seconds(since, "--since") or 0.0
    secret, link = os.environ.get("ACTS_NOTIFY_SECRET", ""), os.environ.get("ACTS_NOTIFY_LINK", "")
    begin = datetime.now(UTC) - timedelta(seconds=back)
    notifier = Notifier(await server.connect(), url, begin, secret, link)
    failures = 0
    while True:
        try:
            if count := await notifier.round():
                print_err(f"posted {cli.count_text(count, 'notice')}")
            failures = 0
        except ClientError as error:
            if once:
                raise
            failures += 1
            cli.print_message(error.head, hint=error.hint, severity="warning")
        if once:
            return
        await asyncio.sleep(min(pause * 2**failures, MAX_PAUSE_SECONDS))


ok, warn, fail = partial(Finding, "ok"), partial(Finding, "warn"), partial(Finding, "fail")
Findings = dict[str, list[Finding]]


@app.add
async def doctor(queue: Queue = None, ask: Ask = None, as_json: cli.AsJson = False) -> int:
    """Check server, workers, settings and models; say what is wrong and what to do. Code 1: something is wrong."""
    findings: Findings = {}
    for name, (check, advice) in SHELL_CHECKS.items():
        await add_findings(findings, name, check, advice)
    for model in ask or ():
        await add_findings(findings, "models", partial(ask_model, model))
    try:
        client = await server.connect()
    except ClientError as error:
        findings["server"] = [fail(error.head, error.hint)]
    else:
        for name, ask_server in SERVER_CHECKS.items():
            advice = "check TEMPORAL_NAMESPACE" if name == "namespace" else ""
            await add_findings(findings, name, partial(ask_server, client, queue or server.task_queue()), advice)
            if name in ("server", "namespace") and findings[name][0].level == "fail":
                break  # nothing can be asked of it
    levels = {finding.level for listed in findings.values() for finding in listed}
    if as_json:
        rows = [{"check": name, **vars(f)} for name, listed in findings.items() for f in listed]
        print_json({"ok": "fail" not in levels, "findings": [{k: v for k, v in r.items() if v} for r in rows]})
    else:
        width = max(map(len, findings))
        for name, finding in ((name, finding) for name, listed in findings.items() for finding in listed):
            mark, style = _MARKS[finding.level]
            console().print(Text.assemble((f"{mark} ", style), (f"{name.ljust(width)}  ", "dim"), clean(finding.text)))
            if finding.hint:
                console().print(Text(f"  {' ' * width}  → {clean(finding.hint)}", "dim"))
    is_reached = findings["server"][0].level == "ok"
    return cli.EXIT_DONE if "fail" not in levels else cli.EXIT_FAILED if is_reached else cli.EXIT_NO_SERVER


async def add_findings(
    findings: Findings, name: str, check: Callable[[], Awaitable[list[Finding]]], advice: str = ""
) -> None:
    """Add the findings of a check; one that breaks is a finding, with the advice."""
    try:
        listed = await check()
    except Exception as error:  # noqa: BLE001 - whatever is wrong is what a doctor reports
        listed = [fail(clean(error, 500) or type(error).__name__, advice)]
    findings.setdefault(name, []).extend(listed)


async def check_settings() -> list[Finding]:
    from acts.worker.settings import Settings

    settings = Settings.from_environment(needs_build=False)
    settings.check_limits(registry_from_environment().names)
    pinned = f", version {settings.deployment}:{settings.build_id or '…'}" if settings.deployment else ""
    hint = "ACTS_BUILD_ID is not set here; each worker needs its own" if pinned and not settings.build_id else ""
    return [ok(f"a worker would serve the task queue {settings.task_queue!r}{pinned}", hint)]


async def check_tools() -> list[Finding]:
    registry = registry_from_environment()
    return [ok(f"{count_text(len(registry.tools), 'tool')} and {len(registry.activities)} activities load")]


async def check_payloads() -> list[Finding]:
    client_converter()
    if away := await asyncio.to_thread(verify_storage, writes=False):
        return [warn(away, "values above 128 KiB wait until it is back")]
    names = [name for name in ("ACTS_CODEC_KEYS", "ACTS_STORAGE") if os.environ.get(name)]
    return [ok(f"{' and '.join(names)} can be read" if names else "neither encrypted nor stored elsewhere")]


async def check_models() -> list[Finding]:
    able = [f"{provider}:…" for provider, names in _KEYS.items() if any(map(os.environ.get, names))]
    for name, endpoint in endpoints.from_environment().items():
        endpoint.read_access()
        able.append(f"{name}/…")
    hint = "" if able else "plans need none; agents and latent calls do (docs/agents.md)"
    return [ok(f"{', '.join(able)} have a key here" if able else "no model has a key here", hint)]


async def ask_model(model: str) -> list[Finding]:
    """What a model says to a request of one word, in the form of a schema, within a minute."""
    schema = {"type": "object", "properties": {"word": {"const": "ready"}}, "required": ["word"]}
    turn = ModelTurn("user", (PromptBlock('Answer with the word "ready".'),))
    request = ModelRequest("", (), (turn,), {**schema, "additionalProperties": False}, maxOutputTokens=1_000)
    start = time.monotonic()
    async with asyncio.timeout(_ASK_SECONDS):
        answer = await select.ask(model, request)
    cost = "" if answer.cost is None else f", {answer.cost:.5f} USD"
    text = f"{model} answers in {time.monotonic() - start:.1f} s{cost}; schema: {answer.form}"
    is_right = answer.value == {"word": "ready"}
    return [ok(text) if is_right else warn(text, f"not what was asked: {clean(answer.text, 200)}")]


async def check_server(client: Client, _queue: str) -> list[Finding]:
    start = time.monotonic()
    info = await client.workflow_service.get_system_info(requests.GetSystemInfoRequest(), timeout=RPC)
    took = (time.monotonic() - start) * 1000
    text = f"{client.service_client.config.target_host}: Temporal {info.server_version}, answers in {took:.0f} ms"
    try:
        await require_histories(client, RPC)
    except RPCError as error:
        hint = "look at its database (is its disk full?) and its log; runs go on when it can, so do not restart workers"
        return [fail(f"{text}, but cannot work: {clean(error.message, 200)}", hint)]
    return [ok(text)]


async def check_namespace(client: Client, _queue: str) -> list[Finding]:
    request = requests.DescribeNamespaceRequest(namespace=client.namespace)
    answer = await client.workflow_service.describe_namespace(request, timeout=RPC)
    days = answer.config.workflow_execution_retention_ttl.ToSeconds() / 86_400
    text = f"{client.namespace!r} keeps ended runs for {days:g} days"
    hint = f"keep them longer: temporal operator namespace update -n {shlex.quote(client.namespace)} --retention 720h"
    return [ok(text) if days >= MIN_RETENTION_DAYS else warn(text, hint)]


async def check_search_attributes(client: Client, _queue: str) -> list[Finding]:
    wrong, missing = await _search_attributes(client)
    if wrong:
        hint = "another program has registered these names; use a namespace of your own"
        return [fail(f"of another type: {', '.join(wrong)}", hint)]
    if missing:
        hint = "runs work, but cannot be listed by phase, tool and cost; register them once: acts setup"
        return [warn(f"missing: {', '.join(missing)}", hint)]
    return [ok(f"all {len(TYPES)} are registered")]


async def check_runs(client: Client, _queue: str) -> list[Finding]:
    """Runs whose workflow tasks fail again and again, as the server counts them."""
    try:
        count = (await client.count_workflows(FAILING_RUNS, rpc_timeout=RPC)).count
    except RPCError:
        return [ok("this server does not count the runs with problems: that begins with 1.29")]
    if not count:
        return [ok("no open run reports a problem")]
    names = [run.id async for run in client.list_workflows(FAILING_RUNS, limit=_MAX_LISTED)]
    hint = f"{cli.list_names(names, _MAX_LISTED)}: `acts show ID` says why, and how one goes on (docs/repair.md)"
    return [warn(f"the workflow tasks of {count:,} open runs fail", hint)]


async def check_calls(client: Client, _queue: str) -> list[Finding]:
    """Calls of the newest open runs that run long or are tried again, with the workers that had them; and the runs
    whose workflow task is tried again: the server counts them only after some attempts.
    """
    lines = []
    async for info in client.list_workflows("ExecutionStatus = 'Running'", limit=_MAX_OPEN):
        run = RunReader(client, info.id, info.run_id)
        described = (await run.describe()).raw_description
        if (attempt := described.pending_workflow_task.attempt) > 1:
            lines.append(clean(f"{info.id}: attempt {attempt:,} of its workflow task (acts show ID says why)", 300))
        for item in described.pending_activities:
            facts = await activity_facts(run, item)
            if {"attempt", "seconds"} & facts.keys():
                lines.append(clean(f"{info.id} {item.activity_id}: {describe_call(facts)}", 300))
    if not lines:
        return [ok("no call or workflow task takes more than a minute, or is tried again")]
    more = [f"… and {len(lines) - _MAX_LISTED:,} more"] if len(lines) > _MAX_LISTED else []
    text = f"{len(lines):,} of the calls and workflow tasks run long or are tried again"
    return [warn(text, "; ".join([*lines[:_MAX_LISTED], *more]))]


async def check_workers(client: Client, name: str) -> list[Finding]:
    queues = [await describe_queue(client, name, kind, limit=RPC) for kind in KINDS.values()]
    polls = [poller for queue in queues for poller in queue.pollers]
    polls.sort(key=poll_age, reverse=True)
    latest = {p.identity: p for p in polls}
    pollers = [p for p in latest.values() if poll_age(p) < FRESH_POLL_SECONDS]
    if not pollers:
        last = f"; the last was {describe_poller(polls[-1])}" if polls else ""
        return [fail(f"no worker polls the task queue {name!r}: runs wait for one{last}", START_WORKER)]
    registry = registry_from_environment() if is_configured() else None  # this shell may load nothing, on purpose
    findings = judge_workers(name, pollers, registry, gone=len(latest) - len(pollers))
    findings += judge_payloads(pollers, describe_converter(client.data_converter))
    for deployment in sorted({poller_deployment(p)[0] for p in pollers} - {""}):
        request = requests.DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment)
        try:
            answer = await client.workflow_service.describe_worker_deployment(request, timeout=RPC)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            continue
        current = answer.worker_deployment_info.routing_config.current_deployment_version.build_id
        builds = {build for of, build in map(poller_deployment, pollers) if of == deployment}
        unversioned = next((describe_poller(p) for p in pollers if poller_deployment(p) == ("", "")), "")
        findings.append(judge_deployment(deployment, current, builds, unversioned))
    if all(finding.level != "fail" for finding in findings):
        try:
            await ask_worker(client, name, {"only": "plans"})
        except ClientError as error:
            text = f"{error.head}; last polls: {', '.join(map(describe_poller, pollers[-_MAX_LISTED:]))}"
            findings.append(warn(text, error.hint))
    return findings


def describe_poller(poller: PollerInfo) -> str:
    name, build = poller_deployment(poller)
    version = f" (version {build} of deployment {name!r})" if build else ""
    return clean(f"{poller.identity}{version}, {poll_age(poller):.0f} s ago", 300)


def judge_workers(name: str, pollers: Sequence[PollerInfo], registry: Registry | None, gone: int = 0) -> list[Finding]:
    """``registry`` None: this shell loads no Tools of its own. ``gone``: workers that the server still lists."""
    identities = [p.identity for p in pollers]
    digests = Counter(m[1] if (m := _DIGEST.match(id_)) else f"not of this engine ({id_})" for id_ in identities)
    versions = ", ".join(f"{n} × {clean(digest, 40)}" for digest, n in sorted(digests.items()))
    text = f"{count_text(len(pollers), 'worker')} on {name!r}, tools {versions}"
    text += f" ({gone} more that the server lists have ended or stand still)" if gone else ""
    findings = [ok(text)]
    if len(digests) > 1 and len(set(map(poller_deployment, pollers))) == 1:
        hint = "as in a rolling deploy; if it lasts, a worker was not updated (docs/deploy.md)"
        findings = [warn(f"{text}: they differ", hint)]
    if registry is not None and registry.version not in digests:
        hint = "set ACTS_ACTIVITIES, ACTS_TOOLS, ACTS_PLANS and ACTS_MCP as the workers have them, or restart those"
        findings.append(warn(f"the tools of this shell ({registry.version}) are those of no worker", hint))
    return findings


def judge_payloads(pollers: Iterable[PollerInfo], own: str) -> list[Finding]:
    """Workers that cannot read what others write, by the digests in their identities; ``own`` are those of this shell.

    A worker's are of its start, and keys are read again while it runs: with other keys it may have these by now.
    """
    ours, findings = [poller for poller in pollers if _DIGEST.match(poller.identity)], []
    for name, variable in (("keys", payload_codec.VARIABLE), ("storage", STORAGE)):
        groups: dict[str, list[str]] = {}
        for poller in ours:
            groups.setdefault(_read_digest(poller.identity, name), []).append(describe_poller(poller))
        here = _read_digest(own, name)
        lists = [f"{digest or 'none'}: {', '.join(texts[-_MAX_LISTED:])}" for digest, texts in sorted(groups.items())]
        text = f"differ in {variable}; by digest, {'; '.join(lists)}; this shell: {here or 'none'}"
        if len(groups) > 1:
            findings.append((fail if "" in groups else warn)(f"workers {text}", _PAYLOAD_HINTS[name]))
        elif groups and here not in groups:
            findings.append(warn(f"this shell and the workers {text}", _PAYLOAD_HINTS[name]))
    return findings


def _read_digest(identity: str, name: str) -> str:
    found = re.search(rf" {name}=(\w+)", identity)
    return found[1] if found else ""


def judge_deployment(name: str, current: str, builds: Iterable[str], unversioned: str) -> Finding:
    """What a deployment's current build (if any), the builds that poll, and a poller without any, mean for new runs."""
    polling = ", ".join(sorted(builds))
    command = f"temporal worker deployment set-current-version --deployment-name {shlex.quote(name)} --build-id BUILD"
    if not current:
        text = f"deployment {name!r} has no current version; {polling} poll"
        what, add = (f"go to unversioned workers ({unversioned})", warn) if unversioned else ("wait for ever", fail)
        return add(f"{text}: new runs {what}", f"make one current: {command}")
    if current not in set(builds):
        text = f"version {current} of deployment {name!r} is current and no worker of it polls: new runs wait"
        return fail(text, f"start its workers, or make another one current: {command}")
    return ok(f"new runs go to version {current} of deployment {name!r}; {polling} poll")


async def check_versions(client: Client, name: str) -> list[Finding]:
    """Open runs whose deployment version no worker serves; nothing where no run and no worker has a version."""
    polling, current = await read_versions(client, name, RPC)
    unserved: dict[str, list[datetime]] = {}
    query = unserved_query(name, polling, current)
    async for run in client.list_workflows(query, limit=_MAX_UNSERVED, rpc_timeout=RPC):
        version = run.typed_search_attributes.get(VERSION) or current
        unserved.setdefault(version, []).append(run.start_time)
    if not unserved:
        return [ok("no open run waits for a version without workers")] if polling else []
    return [judge_version(v, starts, current if current in polling else "") for v, starts in sorted(unserved.items())]


def judge_version(version: str, starts: Sequence[datetime], target: str) -> Finding:
    """What open runs on a version that no worker serves need; ``target`` is the current version, "" if unserved."""
    name, _, build = target.rpartition(":")
    move = (
        f"temporal workflow update-options --yes --reason 'no workers of {version}' "
        f"--query \"{VERSION.name} = '{version}' AND ExecutionStatus = 'Running'\" "
        "--versioning-override-behavior one_time "
        f"--versioning-override-deployment-name {name or version.rpartition(':')[0]} "
        f"--versioning-override-build-id {build or 'BUILD'}"
    )
    text = f"{count_text(len(starts), 'open run')} can go on in version {version} only, which no worker serves"
    text += f"; the oldest began at {min(starts):%Y-%m-%d %H:%M} UTC"
    return fail(text, f"start a worker of it; or see docs/repair.md (a run that stands still), and move them: {move}")


async def check_backlog(client: Client, name: str) -> list[Finding]:
    stats = (await describe_queue(client, name, KINDS["activity"], has_stats=True, limit=RPC)).stats
    return [judge_backlog(stats.approximate_backlog_count, stats.approximate_backlog_age.ToSeconds())]


def judge_backlog(count: int, age: float) -> Finding:
    text = f"{count:,} calls wait for a worker, the oldest for {age:.0f} s" if count else "nothing waits for a worker"
    if not count or age < MAX_BACKLOG_SECONDS:
        return ok(text)
    return warn(text, "start more workers, or raise ACTS_MAX_ACTIVITIES (docs/sizing.md)")


_NO_START: Final = "a worker does not start with it"
SHELL_CHECKS: Final = {  # each with what to do if it breaks
    "settings": (check_settings, f"{_NO_START}; docs/deploy.md lists them all"),
    "tools": (check_tools, _NO_START),
    "payloads": (
        check_payloads, "a worker and every client need the same settings; without them payloads cannot be read"
    ),
    "models": (check_models, _NO_START),
}  # fmt: skip
SERVER_CHECKS: Final = {
    "server": check_server, "namespace": check_namespace, "search attributes": check_search_attributes,
    "backlog": check_backlog, "workers": check_workers, "versions": check_versions, "runs": check_runs,
    "calls": check_calls,  # the backlog comes first: workers that do not answer make one
}  # fmt: skip


@app.add
async def setup(show: ShowOnly = False) -> None:
    """Prepare a namespace: register the search attributes by which runs are found."""
    if show:
        for name, type_ in TYPES.items():
            print(f"temporal operator search-attribute create --name {name} --type {type_}")
        return
    client = await server.connect()
    try:
        wrong, names = await _search_attributes(client)
        if wrong:
            head = f"the namespace {client.namespace!r} has {', '.join(wrong)} with another type"
            raise command_error(head, hint="remove it, or use another namespace; runs work without, and are not found")
        missing = {name: value_type(name) for name in names}
        if missing:
            request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing)
            await client.operator_service.add_search_attributes(request, timeout=server.RPC)
    except RPCError as error:
        head = f"the search attributes of {client.namespace!r} cannot be registered: {error.message}"
        raise command_error(head, hint="an administrator can: `acts setup --show` prints the commands") from None
    done = f"registered {', '.join(missing)}" if missing else "has all search attributes"
    print_err(f"namespace {client.namespace}: {done}; runs that start from now on (within a minute) have them")


async def _search_attributes(client: Client) -> tuple[list[str], list[str]]:
    """Those of ours that the namespace has with another type, and those that it lacks."""
    present = await registered_types(client)
    wrong = [name for name in TYPES if name in present and present[name] != value_type(name)]
    return wrong, [name for name in TYPES if name not in present]


@app.add
def keygen(file: KeyFile = None, codec: CodecKey = False) -> None:
    """Make a key: of an approver, for `acts approve --key`; or for payloads (--codec).

    The private key goes to FILE, which nobody else may read; the line for ACTS_APPROVERS is printed. With --codec, the
    line for the file of ACTS_CODEC_KEYS is printed.

    Examples: `acts keygen ada.pem`, `acts keygen --codec >> keys.txt`.
    """
    if codec:
        print(f"k{datetime.now(UTC):%Y%m%d%H%M%S} {base64.b64encode(os.urandom(payload_codec.KEY_BYTES)).decode()}")
        return
    if file is None:
        raise command_error("a file for the private key is missing", hint="like `acts keygen ada.pem`")
    path = Path(file)
    try:
        public = create_key(path)
    except FileExistsError:
        raise command_error(f"{path} is there already", hint="a key is never overwritten: name another file") from None
    except OSError as error:
        raise command_error(f"{path} cannot be written: {error.strerror}") from None
    print_err(f"{path} is the private key: only the approver needs it. For the file of ACTS_APPROVERS:")
    print(f'"{path.stem}": "{base64.b64encode(public).decode()}"')


def create_key(path: Path) -> bytes:
    """Write a new private key (PEM, mode 600) unless there is one; returns the public key."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    return key.public_key().public_bytes_raw()


@app.add
def codec_server(host: CodecHost = "127.0.0.1", port: CodecPort = 8081, origin: CodecOrigins = None) -> None:
    """Decrypt payloads for the Web UI and for `temporal`, with the keys of ACTS_CODEC_KEYS.

    In the Web UI: the glasses in the upper right corner, endpoint http://127.0.0.1:8081. With `temporal`:
    --codec-endpoint. On another address than this machine's own, ACTS_CODEC_TOKEN is required.
    """
    origins = tuple(origin or WEB_UI)
    try:
        codec = payload_codec.codec_from_environment()
        if not isinstance(codec, payload_codec.AesGcmCodec):
            hint = "set it to the keys of the workers: docs/security.md"
            raise command_error(f"{payload_codec.VARIABLE} is not set", hint=hint)
        codec_http = create_server(codec, host, port, origins, os.environ.get(TOKEN_VARIABLE))
    except payload_codec.CodecError as error:
        raise command_error(str(error)) from None
    except OSError as error:
        raise command_error(f"cannot listen on {host}:{port}: {error.strerror}", hint="--port names another") from None
    with codec_http, suppress(KeyboardInterrupt):
        address = f"http://{host}:{codec_http.server_address[1]}"
        print_err(f"codec server at {address} for pages of {', '.join(origins)}; Ctrl-C stops it")
        codec_http.serve_forever()


@storage.add
async def gc(delete: Delete = False, grace: Grace = "1d", force: Force = False, as_json: cli.AsJson = False) -> int:
    """Find stored values that nothing refers to any more, and delete them.

    It reads all runs and schedules that the namespace still keeps. What they refer to stays, and so does what was
    used lately. Without --delete it changes nothing.
    """
    seconds = cli.read_seconds(grace, "--grace") or 0.0
    store = _store()
    client = await server.connect()
    began, cutoff = time.monotonic(), datetime.now(UTC) - timedelta(seconds=seconds)
    if seconds < _SHORT_GRACE_SECONDS:
        why = "a program stores a value some time before a run refers to it"
        print_err(
            f"--grace {grace} is safe only while no worker and no client runs: {why}; else use 1h or more", "yellow"
        )
    inventory = await find_unused(client, store, timedelta(seconds=seconds))
    if not force and (objection := await find_objection(client, store, inventory)):
        raise command_error(objection, hint="nothing was deleted; --force takes no account of it")
    if delete:
        await delete_unused(store, inventory, cutoff)
    if as_json:
        return print_json(_figures(inventory, store, client.namespace, deleted=len(inventory.unused) if delete else 0))
    used = len(inventory.contents) - len(inventory.unused) - inventory.young
    about = f"{store.describe()}, namespace {client.namespace}"
    print(f"{about}: {count_text(len(inventory.contents), 'value')}, {decimal(total_size(inventory.contents))}")
    read = f"{count_text(inventory.runs, 'run')} and {count_text(inventory.schedules, 'schedule')}"
    print(f"  in use      {used:>8,}   by {read}, read in {time.monotonic() - began:.1f} s")
    print(f"  too young   {inventory.young:>8,}   used this week (Monday to Sunday, UTC), or within --grace {grace}")
    print(f"  unused      {len(inventory.unused):>8,}   {decimal(total_size(inventory.unused))}")
    if delete:
        print(f"deleted {len(inventory.unused):,}")
    elif inventory.unused:
        print("nothing was deleted: add --delete")
    return cli.EXIT_DONE


@storage.add
async def check(as_json: cli.AsJson = False) -> int:
    """Write, read and delete a small value, and count what is stored."""
    store = _store()
    client = await server.connect()
    inventory = await asyncio.to_thread(_try_store, store, client.namespace)
    if as_json:
        return print_json(_figures(inventory, store, client.namespace))
    text = f"{count_text(len(inventory.contents), 'value')}, {decimal(total_size(inventory.contents))}"
    print(f"{store.describe()} can be written to and read; namespace {client.namespace}: {text}")
    return cli.EXIT_DONE


def _try_store(store: ContentStore, namespace: str) -> Inventory:
    """Store a value, read, list and delete it; returns what else is stored."""
    data = f"acts storage check {time.time_ns()}".encode()
    if store.get(store.put(namespace, sha256(data), data)) != data:
        raise command_error(f"{store.describe()} returns other bytes than were stored")
    contents = list(store.list_contents(namespace))
    own = next((c for c in contents if c.digest == sha256(data)), None)
    if own is None:
        raise command_error(f"{store.describe()} does not list what was stored a moment ago")
    store.delete(own)  # nobody else refers to it, whenever it was stored
    contents.remove(own)
    return Inventory(contents)


def _store() -> ContentStore:
    driver = driver_from_environment()
    if driver is None:
        hint = "set it to what the worker has: file:<folder> or s3://bucket/prefix"
        raise command_error(f"{STORAGE} is not set here", hint=hint)
    return driver.contents


def _figures(inventory: Inventory, store: ContentStore, namespace: str, deleted: int = 0) -> dict[str, object]:
    return {
        "storage": store.describe(), "namespace": namespace, "values": len(inventory.contents),
        "bytes": total_size(inventory.contents), "young": inventory.young, "unused": len(inventory.unused),
        "unusedBytes": total_size(inventory.unused), "runs": inventory.runs, "schedules": inventory.schedules,
        "deleted": deleted,
    }  # fmt: skip


@app.add
async def replay(history: HistoryOrRun, run_id: cli.RunId = None, as_json: cli.AsJson = False) -> int:
    """Replay the history of a run with the code that is installed here: could this worker go on with it?

    Exit codes: 0 it replays, 1 it does not, 2 there is no such history, 3 no server.

      acts replay order-7
      temporal workflow show -w order-7 -o json > order-7.json; acts replay order-7.json
    """
    if run_id is None and looks_like_file(history):
        source = read_source(history)
        content = read_history(source.text, source.name)
    else:
        run = await open_run(history, run_id)
        handle = run.client.get_workflow_handle(history, run_id=(await run.describe()).run_id)
        content = await run.ask(handle.fetch_history(rpc_timeout=server.RPC))
    type_ = content.events[0].workflow_execution_started_event_attributes.workflow_type.name
    if type_ not in ALL_TYPES:
        text = f'"{clean(history, 200)}" is a run of the type "{clean(type_, 100)}"'
        raise command_error(text, hint=f"the code here has: {', '.join(ALL_TYPES)}")

    async def single() -> AsyncIterator[WorkflowHistory]:
        yield content

    (verdict,) = [verdict async for verdict in replay_histories(single())]
    name, events = clean(verdict["id"], 200), f"{verdict['events']:,} events"
    if as_json:
        print_json(verdict)
    elif verdict["replays"]:
        print(f"{name} replays: {events}, with the code here")
    else:
        print("\n".join([f"{name} does not replay with the code here: {events}", *cli.clean_lines(verdict["error"])]))
        print_message(_STUCK, severity="note")
    return cli.EXIT_DONE if verdict["replays"] else cli.EXIT_FAILED


@app.add
async def deploy_check(
    query: Query = None, limit: Limit = 1000, pinned: Pinned = False, queue: Queue = None, as_json: cli.AsJson = False
) -> int:
    """Replay the open runs with the code here, before a rollout.

    Code 1: one does not replay, or a call that waits does not fit its tool as it is here.
    """
    client = await server.connect()
    visible = open_runs_query(query, queue, has_pinned=pinned)
    total = (await client.count_workflows(visible, rpc_timeout=server.RPC)).count
    histories = _open_histories(client, visible, limit)
    verdicts = [v async for v in replay_histories(histories, compares_tools=True)]
    failures = [v for v in verdicts if not v["replays"]]
    changed = [(v["id"], change) for v in verdicts for change in v.get("toolChanges", ())]
    misfits = [change for _, change in changed if not change["fits"]]
    code = cli.EXIT_FAILED if failures or misfits else cli.EXIT_DONE
    if as_json:
        tools = {"toolChanges": [{"run": id_, **change} for id_, change in changed]} if changed else {}
        print_json({"open": total, "checked": len(verdicts), "failed": len(failures), "failures": failures, **tools})
        return code
    for id_, change in sorted(changed, key=lambda pair: pair[1]["fits"])[:_MAX_FAILURES]:
        severity = "warning" if change["fits"] else "error"
        print_message(clean(f"{change['call']}: {change['text']}", 500), where=clean(id_, 200), severity=severity)
    for verdict in failures[:_MAX_FAILURES]:
        print_message(f"{verdict['workflow']} does not replay: {verdict['error']}", where=clean(verdict["id"], 200))
    if failures:
        more = f"{len(failures):,} do not replay; --json has all. " if len(failures) > _MAX_FAILURES else ""
        print_message(more + _STUCK, severity="note")
    if total > limit:
        print_err(f"the newest {limit:,} of {total:,} open runs; --limit checks more", "bold yellow")
    types = ", ".join(f"{n} {type_}" for type_, n in sorted(Counter(v["workflow"] for v in verdicts).items()))
    count = count_text(len(verdicts) - len(failures), "open run")
    text = f"{count} of {len(verdicts):,} replay with this code ({types})"
    text = f"✗ {text}; {len(failures):,} do not" if failures else f"✓ {text}"
    text += f"; {count_text(len(changed), 'call')} of changed tools" if changed else ""
    console().print(text if verdicts else "no open runs that these workers would take")
    return code


def open_runs_query(query: str | None = None, queue: str | None = None, *, has_pinned: bool = False) -> str:
    parts = ["ExecutionStatus = 'Running'", f"WorkflowType IN ({', '.join(map(quote, ALL_TYPES))})"]
    parts.append(f"TaskQueue = {quote(queue or server.task_queue())}")
    parts += [] if has_pinned else [f"({BEHAVIOR} IS NULL OR {BEHAVIOR} != 'Pinned')"]
    return " AND ".join([*parts, *([f"({query})"] if query else [])])


async def _open_histories(client: Client, query: str, limit: int) -> AsyncIterator[WorkflowHistory]:
    async for run in client.list_workflows(query, limit=limit, page_size=min(limit, 1000), rpc_timeout=server.RPC):
        try:
            yield await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history(rpc_timeout=server.RPC)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise


async def replay_histories(
    histories: AsyncIterable[WorkflowHistory], *, compares_tools: bool = False
) -> AsyncIterator[dict[str, Any]]:
    """Replay one history after the other; each is in memory only while it is replayed: see ``_verdict``.

    Where no workflow task has begun, nothing was decided yet: such a history replays if it can be decrypted.
    ``toolChanges`` are those of the Tools that are loaded here: ``[{call, text, fits}]``, of Calls not yet started.
    """
    from acts.worker import plugin

    # The verdict says what the log lines of the core, and the SDK's traceback of each failed task, would
    capture = plugin.Capture()
    replayer = plugin.build_replayer(server.silent_runtime(), capture)
    schemas, served = load_registry() if compares_tools else ({}, ())
    current = CurrentTools(schemas, served) if schemas else None  # none are loaded here: nothing is known of them
    logging.getLogger("temporalio").setLevel(logging.CRITICAL + 1)
    codec = payload_codec.codec_from_environment()
    decided: list[dict[str, Any]] = []

    async def begun() -> AsyncIterator[WorkflowHistory]:
        async for history in histories:
            failure = None
            try:  # the replayer tells nothing of what fails in the last task
                await codec.decode([payload for event in history.events for payload in payloads_of(event)])
            except payload_codec.CodecError as error:
                failure = error
            if not failure and any(e.HasField("workflow_task_started_event_attributes") for e in history.events):
                yield history
            else:  # without a task, the replayer would wait for one for ever
                decided.append(_verdict(history, failure))

    async with replayer.workflow_replay_iterator(begun()) as results:
        async for result in results:
            machine = None if capture.run is None else capture.run.machine
            changes = PlanView(machine).tool_changes(current) if isinstance(machine, PlanRun) else []
            verdict = _verdict(result.history, result.replay_failure)
            if changes:
                verdict["toolChanges"] = [{"call": c.call, "text": c.text, "fits": c.fits} for c in changes]
            yield verdict
            capture.instance = None
    for verdict in decided:
        yield verdict


def read_history(text: str, source: str) -> WorkflowHistory:
    """The history in a file: what ``temporal workflow show --output json`` or the Web UI's download gives."""
    hint = "save one with: temporal workflow show -w ID --output json"
    try:
        data = json.loads(text)
        start = data["events"][0]["workflowExecutionStartedEventAttributes"]
        return WorkflowHistory.from_json(start.get("workflowId") or source, data)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        text = f"not a workflow history: {clean(f'{type(error).__name__}: {error}', 300)}"
        raise command_error(text, where=source, hint=hint) from None


def _verdict(history: WorkflowHistory, failure: BaseException | None) -> dict[str, Any]:
    """``{id, runId, workflow, events, replays, error?}``; the error is the SDK's sentence, without a dump around it."""
    start = history.events[0].workflow_execution_started_event_attributes
    row: dict[str, Any] = {
        "id": history.workflow_id, "runId": start.original_execution_run_id, "workflow": start.workflow_type.name,
        "events": len(history.events), "replays": failure is None,
    }  # fmt: skip
    if failure is None:
        return row
    text = str(failure) or type(failure).__name__
    if sentence := re.search(r'message: "((?:[^"\\]|\\.)*)"', text):
        text = re.sub(r"\\(.)", r"\1", sentence[1])
    return {**row, "error": clean(re.sub(r"^\[TMPRL\d+\] ", "", text), 2_000)}
