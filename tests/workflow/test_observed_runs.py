"""A whole tree as an operator sees it: one trace, one scrape, log lines with ids; through a real server.

One run is observed; each test below looks at another part of what it left.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import mmap
import re
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import temporalio.bridge
import yaml
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import Client, WorkflowHistory
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from acts.activities import registry
from acts.cli.dev.temporal_server import DevServer
from acts.telemetry import metrics, tracing
from acts.telemetry.logs import configure_logs
from acts.telemetry.observation import Observation, measure_oldest_wait, record_queue, record_runs
from acts.telemetry.tracing import ClientSpans
from acts.worker import serve as worker
from acts.worker import settings as worker_settings
from acts.worker.interceptors import EngineInterceptor
from acts.worker.plugin import WORKFLOWS
from acts.worker.serve import Watches
from tests.support import assert_eventually, free_port
from tests.workflow.conftest import SERVED
from tests.workflow.foreign import Foreign, call, ended, tool
from tests.workflow.tools import echo

ROOT = Path(__file__).parents[2]
SECRET = "zebra-4711"  # noqa: S105 - a value of a parameter, to look for
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
GREET = {"type": "tool", "tool": "Tool.greet"}
METRIC = re.compile(r"\b(?:acts|temporal)_[a-z0-9_]+")


@dataclass
class Evidence:
    """What one run left: spans, two scrapes (the second after a replay), log lines, and answers about health.

    ``untraced`` are the spans of another run, which a client without traces has started.
    """

    run: str = ""
    untraced_run: str = ""
    untraced: list[ReadableSpan] = field(default_factory=list)
    spans: list[ReadableSpan] = field(default_factory=list)
    replayed: list[ReadableSpan] = field(default_factory=list)
    scrapes: list[str] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    health: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def value(self, name: str, scrape: int = 0, **labels: str) -> float:
        for line in self.scrapes[scrape].splitlines():
            match = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
            if match and dict(re.findall(r'(\w+)="([^"]*)"', match[1] or "")) == labels:
                return float(match[2])
        raise AssertionError(f"no sample of {name} with {labels}")


async def fetch(port: int, path: str) -> tuple[int, str]:
    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(get)


@contextmanager
def json_log() -> Iterator[io.StringIO]:
    root, text = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    configure_logs("debug", "json", text)
    yield text
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


@asynccontextmanager
async def observed_worker(queue: str, traces: tracing.Tracing, ports: tuple[int, int]) -> AsyncIterator[Observation]:
    """The worker as ``serve`` runs it, in this process, its spans in memory."""
    loaded, watches = registry.load([SERVED], []), Watches()
    observation = Observation.start(*(f"127.0.0.1:{port}" for port in ports), loaded.tools)
    observation.tracing = traces
    own = worker_settings.Settings(task_queue=queue)
    async with observation.run():
        client = await worker.connect(observation.runtime)
        with ThreadPoolExecutor(own.max_activities) as executor:
            async with worker.build(client, own, loaded, executor, watches, observation) as running:
                identity = str(running.config(active_config=True)["identity"])
                async with observation.serving(client, queue, identity):
                    yield observation
                watches.sample()


def request(foreign: Foreign) -> dict[str, Any]:
    """Two instances, each with a Tool of another worker, a latent Call, one that waits for a person, and a failure."""
    latent = tool("think", activity="", secret=True)
    latent["tool"]["properties"]["_output"] = NUMBER
    bounded = [{"type": "state", "_instance": name, "state": {"v": name}} for name in ("a", "b")]
    return foreign.request(
        call("echo", "†state.first", value=SECRET),
        call("think", "†state.n", secret=SECRET),
        call("greet", "†state.hi", name=SECRET),
        call("loud", "†state.x", _errorPath="†state.err", n=3),
        call("echo", "†state.mine", value="†state.v"),
        context=[latent, GREET, tool("loud", activity="loud", n=True), *bounded],
        model="scripted:thinker", approve={"calls": ["greet"]}, budget={"requests": 2},
    )  # fmt: skip


async def decide(foreign: Foreign, handle: Any) -> None:
    async def all_wait() -> bool:
        return len(await handle.query("pending")) == 2

    await assert_eventually(all_wait)

    async def is_listed() -> bool:
        return 0 < await measure_oldest_wait(foreign.client) < 3600

    await assert_eventually(is_listed, why="a list is a moment behind")
    await record_runs(foreign.client, foreign.engine)
    await record_queue(foreign.client, foreign.engine)
    for name in ("a", "b"):
        await handle.signal("approve", {"call": "3:greet", "instance": name})


async def replay(client: Client, traces: tracing.Tracing, runs: list[str]) -> None:
    histories: list[WorkflowHistory] = [await client.get_workflow_handle(run).fetch_history() for run in runs]
    replayer = Replayer(
        workflows=WORKFLOWS, workflow_runner=UnsandboxedWorkflowRunner(), data_converter=client.data_converter,
        interceptors=[EngineInterceptor(tracing=traces)],
    )  # fmt: skip
    for history in histories:
        await replayer.replay_workflow(history)


@pytest.fixture(scope="module")
async def evidence(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    folder, name = tmp_path_factory.mktemp("scripts"), f"observed-{uuid.uuid4().hex[:8]}"
    answer = {"when": {"tool": "think"}, "output": {"n": 7}, "usage": {"inputTokens": 11, "outputTokens": 3}}
    (folder / "thinker.json").write_text(json.dumps({"answers": [answer]}), "utf-8")
    ports = free_port(), free_port()
    exporter, evidence = InMemorySpanExporter(), Evidence()
    traces = tracing.create_tracing("acts-test", SimpleSpanProcessor(exporter))
    tracing.Tracing.current = traces
    with pytest.MonkeyPatch.context() as environment, json_log() as text:
        environment.setenv("TEMPORAL_ADDRESS", server.address)
        environment.setenv("TEMPORAL_NAMESPACE", server.namespace)
        environment.setenv("ACTS_SCRIPTS", str(folder))
        starts = await Client.connect(server.address, namespace=server.namespace, interceptors=[ClientSpans(traces)])
        foreign = Foreign(starts, f"engine-{name}", name)
        async with observed_worker(foreign.engine, traces, ports):
            theirs = TracingInterceptor(traces.provider.get_tracer("theirs"))
            async with foreign.serving(echo, interceptors=[theirs]):
                handle = await foreign.start(request(foreign))
                await decide(foreign, handle)
                await ended(handle)
                alone = Foreign(await Client.connect(server.address, namespace=server.namespace), foreign.engine, name)
                by_nobody = await alone.start(alone.request(call("greet", "†state.hi", name="Ada"), context=[GREET]))
                await ended(by_nobody)
            evidence.run, evidence.untraced_run = handle.id, by_nobody.id
            for path in ("/live", "/ready", "/other"):
                status, body = await fetch(ports[1], path)
                evidence.health[path] = status, json.loads(body)
        spans = exporter.get_finished_spans()
        evidence.spans = [s for s in spans if (s.attributes or {}).get("acts.root") != evidence.untraced_run]
        evidence.untraced = [s for s in spans if s not in evidence.spans]
        evidence.scrapes.append((await fetch(ports[0], "/metrics"))[1])
        exporter.clear()
        await replay(starts, traces, [handle.id, f"{handle.id}/a"])
        evidence.replayed = list(exporter.get_finished_spans())
        evidence.scrapes.append((await fetch(ports[0], "/metrics"))[1])
        evidence.lines = [json.loads(line) for line in text.getvalue().splitlines()]
    tracing.Tracing.current = None
    metrics.start(None)
    return evidence


def parents(evidence: Evidence, span: ReadableSpan) -> list[str]:
    """The names above a span, the nearest first."""
    by_id = {s.context.span_id: s for s in evidence.spans}
    names = []
    while span.parent is not None and span.parent.span_id in by_id:
        span = by_id[span.parent.span_id]
        names.append(span.name)
    return names


def test_the_tree_is_one_trace_from_the_client_to_the_request_of_a_model(evidence: Evidence) -> None:
    assert len({span.context.trace_id for span in evidence.spans}) == 1
    assert {tuple(parents(evidence, span)) for span in evidence.named("greet")} == {("Instance", "Plan", "start Plan")}
    assert [parents(evidence, span) for span in evidence.named("chat thinker")] == [
        ["think", "Instance", "Plan", "start Plan"]
    ] * 2
    # A worker with the SDK's own interceptor joins
    assert {tuple(parents(evidence, s)) for s in evidence.named("RunActivity:echo")} == {
        ("Instance", "Plan", "start Plan")
    }


def test_a_call_has_its_ids_and_its_error_and_a_run_its_phase(evidence: Evidence) -> None:
    spans = {span.attributes["acts.instance"]: span for span in evidence.named("loud") if span.attributes}
    assert set(spans) == {"a", "b"}
    assert dict(spans["a"].attributes or {}) | {"acts.queue.seconds": 0, "acts.run.id": ""} == {
        "acts.call.id": "4:loud", "acts.tool": "loud", "acts.activity": "loud", "acts.run": f"{evidence.run}/a",
        "acts.run.id": "", "acts.root": evidence.run, "acts.instance": "a", "acts.attempt": 1, "acts.queue.seconds": 0,
        "error.type": "loud",
    }  # fmt: skip
    assert spans["a"].status.description == "no"
    (plan,) = evidence.named("Plan")
    assert plan.attributes is not None
    assert plan.attributes["acts.phase"] == "completed"
    calls = [span for span in evidence.spans if span.name in ("greet", "loud", "think")]
    assert plan.start_time is not None
    assert plan.end_time is not None
    assert all(plan.start_time <= (c.start_time or 0) <= (c.end_time or 0) <= plan.end_time + 10**9 for c in calls)


def test_a_replay_writes_no_span_and_counts_nothing(evidence: Evidence) -> None:
    assert evidence.replayed == []
    for name, labels in (("acts_calls_total", {"tool": "greet", "outcome": "completed"}),
                         ("acts_runs_total", {"type": "Plan", "phase": "completed"}),
                         ("acts_approvals_opened_total", {"what": "call"})):  # fmt: skip
        assert evidence.value(name, 1, **labels) == evidence.value(name, 0, **labels)


def test_what_was_counted_is_what_happened(evidence: Evidence) -> None:
    model = "scripted:thinker"
    assert evidence.value("acts_runs_total", type="Plan", phase="completed") == 2
    assert evidence.value("acts_calls_total", tool="echo", outcome="completed") == 4
    assert evidence.value("acts_calls_total", tool="loud", outcome="failed") == 2
    assert evidence.value("acts_call_seconds_count", tool="think") == 2
    assert evidence.value("acts_call_queue_seconds_count", tool="greet") == 3
    assert evidence.value("acts_approvals_opened_total", what="call") == 2
    assert evidence.value("acts_approvals_closed_total", what="call") == 2
    assert evidence.value("acts_approval_wait_seconds_count", what="call") == 2
    assert evidence.value("acts_model_requests_total", model=model, outcome="ok") == 2
    assert evidence.value("acts_model_tokens_total", model=model, kind="input") == 22
    assert evidence.value("acts_budget_low_total", limit="requests") == 1
    assert evidence.value("acts_budget_left_ratio_sum", limit="requests") == 0
    assert evidence.value("acts_runs_waiting") >= 1
    assert 0 < evidence.value("acts_oldest_wait_seconds") < 3600
    assert evidence.value("acts_queue_pollers", kind="workflow") == 1
    assert evidence.value("acts_backlog_age_seconds", kind="activity") == 0
    assert evidence.value("acts_server_reachable") == 1
    assert evidence.value("acts_runs_failing_tasks") >= 0
    assert evidence.value("acts_attempts_failed_total", tool="greet") == 0
    assert evidence.value("acts_worker_memory_bytes") > 10_000_000


def test_each_metric_of_the_dashboard_and_the_alerts_is_exposed(evidence: Evidence) -> None:
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/acts.json").read_text("utf-8"))
    alerts = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    expressions += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    names = {name for text in expressions for name in METRIC.findall(text)}
    assert len(names) > 25
    exposed = {line.partition("{")[0].partition(" ")[0] for line in evidence.scrapes[0].splitlines()}
    known = exposed | set(metrics.METRICS)
    known |= {f"{m.name}_{part}" for m in metrics.METRICS.values() if m.buckets for part in ("bucket", "sum", "count")}
    # The SDK shows a counter of failures after the first one: its library has the name
    (library,) = Path(temporalio.bridge.__file__).parent.glob("*.so")
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code:
        missing = {n for n in names - known if code.find(n.removeprefix("temporal_").encode()) < 0}
    assert missing == set()
    assert {n for n in exposed if n.startswith("acts_")} - {""} <= known


def test_no_value_is_in_a_span_a_metric_or_a_log_line(evidence: Evidence) -> None:
    spans = " ".join(span.to_json() for span in evidence.spans)
    assert evidence.run in spans
    for text in (spans, json.dumps(evidence.lines), *evidence.scrapes):
        assert SECRET not in text
