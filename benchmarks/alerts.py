"""Outages made by hand, a real Prometheus that scrapes workers *and* server, and how long each alert took to fire.

    python -m benchmarks.alerts failing_task backlog     # these alone
    make alerts          # needs the programs `prometheus` and `promtool` on PATH (apt-get install prometheus)

Time runs faster here: rules are judged each second, and what they wait for (``for``, the two thresholds in seconds) is a
fifteenth. All else in deploy/prometheus/alerts.yml is as it ships. First, nothing is wrong, and no alert may fire.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from temporalio.client import Client

from acts.cli.dev.temporal_server import dev_server, free_address, spawn

ROOT: Final = Path(__file__).parents[1]
RULES: Final = ROOT / "deploy" / "prometheus" / "alerts.yml"
FASTER: Final = 15
THRESHOLDS: Final = {"acts_oldest_wait_seconds) > 3600": "acts_oldest_wait_seconds) > 20",
                     "acts_backlog_age_seconds) > 60": "acts_backlog_age_seconds) > 4"}  # fmt: skip
# The server reports a run after five failures of its task, more and more rarely tried: after a minute and a half
LIMIT_SECONDS: Final = 240.0
QUIET_SECONDS: Final = 40.0
QUEUE: Final = "alerts"
POLLERS: Final = 'acts_queue_pollers{kind="workflow"}'
TOOLS: Final = '''
import asyncio
import acts

@acts.tool
async def nap(seconds: float) -> str:
    """Take time."""
    await asyncio.sleep(seconds)
    return "rested"

@acts.tool
async def broken(n: int) -> str:
    """Fail."""
    raise RuntimeError("the other side is away")
'''


def faster_rules() -> str:
    """The rules as they ship, a fifteenth of the time."""
    content = yaml.safe_load(RULES.read_text("utf-8"))
    for rule in (rule for group in content["groups"] for rule in group["rules"]):
        if "for" in rule:
            rule["for"] = f"{int(rule['for'].removesuffix('m')) * 60 // FASTER}s"
        for slow, fast in THRESHOLDS.items():
            rule["expr"] = rule["expr"].replace(slow, fast)
    return yaml.safe_dump(content)


class Site:
    """A server, its workers and Prometheus, on ports of their own below one folder."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack, self._server = folder, stack, ExitStack()
        ports = iter([free_address(None) for _ in range(5)])
        self.address, self.server_metrics, self.prometheus, *self.worker_metrics = ports
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "alert_tools.py").write_text(TOOLS, "utf-8")
        (folder / "rules.yml").write_text(faster_rules(), "utf-8")
        jobs = {"kubernetes-pods": self.worker_metrics, "temporal": [self.server_metrics]}
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["rules.yml"],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": targets}]} for job, targets in jobs.items()
            ],
        }  # fmt: skip
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings), "utf-8")
        stack.callback(self._server.close)

    def start_server(self) -> None:
        port = int(self.address.rpartition(":")[2])
        arguments = ["--metrics-port", self.server_metrics.rpartition(":")[2]]
        self._server.enter_context(dev_server(state=self.folder / "state", port=port, ui=False, extra_args=arguments))

    def stop_server(self) -> None:
        self._server.close()

    def start_worker(self, metrics: str) -> None:
        own = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHONPATH": f"{self.folder}:{ROOT}"}
        own |= {"TEMPORAL_ADDRESS": self.address, "ACTS_TASK_QUEUE": QUEUE, "ACTS_METRICS": metrics}
        own |= {"ACTS_ACTIVITIES": "alert_tools", "ACTS_MAX_ACTIVITIES": "4", "ACTS_SHUTDOWN_SECONDS": "2"}
        own |= {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
        log = self._stack.enter_context((self.folder / "worker.log").open("ab"))
        self.workers[metrics] = spawn([sys.executable, "-m", "acts.worker"], log, own)

    def kill_workers(self) -> None:
        for worker in self.workers.values():
            worker.send_signal(signal.SIGKILL)
            worker.wait()

    def start_prometheus(self) -> None:
        program = shutil.which("prometheus")
        if program is None:
            raise SystemExit("no program `prometheus` on PATH; on Debian: apt-get install prometheus")
        command = [program, f"--config.file={self.folder}/prometheus.yml", f"--web.listen-address={self.prometheus}"]
        log = self._stack.enter_context((self.folder / "prometheus.log").open("ab"))
        process = spawn([*command, f"--storage.tsdb.path={self.folder}/data"], log, dict(os.environ))
        self._stack.callback(process.kill)

    def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        try:
            with urllib.request.urlopen(f"http://{self.prometheus}/api/v1/alerts", timeout=5) as answer:
                alerts = json.load(answer)["data"]["alerts"]
        except OSError:
            return {"Prometheus is not ready"}
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    async def start(self, *calls: dict[str, Any], context: Sequence[Any] = (), **config: Any) -> None:
        client = await Client.connect(self.address)
        tools = context or [{"type": "tool", "tool": name} for name in ("nap", "broken")]
        request = {"config": config, "context": [*tools, {"type": "plan", "plan": list(calls)}]}
        await client.start_workflow("Plan", request, id=f"alert-{uuid.uuid4().hex[:6]}", task_queue=QUEUE)

    async def settles(self) -> None:
        """Wait until the server has seen both workers, and Prometheus has their metrics."""
        start = time.monotonic()
        while '{kind="workflow"} 2' not in await asyncio.to_thread(self._read_metrics):
            if time.monotonic() - start > LIMIT_SECONDS:
                raise SystemExit("the workers do not start")
            await asyncio.sleep(1)
        await wait_for(self, "ActsNoWorkerPolls", fires=False)

    def _read_metrics(self) -> str:
        texts = []
        for metrics in self.worker_metrics:
            try:
                with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=5) as answer:
                    texts.append("".join(line for line in answer.read().decode().splitlines(True) if POLLERS in line))
            except OSError:
                return ""
        return texts[0] if texts[0] == texts[1] else ""


@asynccontextmanager
async def healthy_site() -> AsyncIterator[Site]:
    with tempfile.TemporaryDirectory(prefix="acts-alerts-") as folder, ExitStack() as stack:
        site = Site(Path(folder), stack)
        stack.callback(site.kill_workers)
        site.start_server()
        for metrics in site.worker_metrics:
            site.start_worker(metrics)
        site.start_prometheus()
        try:
            yield site
        except BaseException:
            print((Path(folder) / "worker.log").read_text("utf-8")[-3000:], file=sys.stderr)
            raise


async def wait_for(site: Site, alert: str, *, fires: bool = True) -> float:
    start = time.monotonic()
    while (alert in site.firing()) != fires:
        if time.monotonic() - start > LIMIT_SECONDS:
            raise SystemExit(f"{alert} {'did not fire' if fires else 'did not end'} within {LIMIT_SECONDS:g} s")
        await asyncio.sleep(0.5)
    return time.monotonic() - start


async def server_away(site: Site) -> None:
    site.stop_server()


async def server_back(site: Site) -> None:
    await asyncio.to_thread(site.start_server)
    await wait_for(site, "ActsServerUnreachable", fires=False)


async def no_workers(site: Site) -> None:
    site.kill_workers()


async def workers_back(site: Site) -> None:
    for metrics in site.worker_metrics:
        site.start_worker(metrics)
    await site.settles()


async def restarts(site: Site) -> None:
    metrics = site.worker_metrics[0]
    for _ in range(4):
        site.workers[metrics].kill()
        site.workers[metrics].wait()
        site.start_worker(metrics)
        await asyncio.sleep(8)


async def failing_task(site: Site) -> None:
    client = await Client.connect(site.address)
    await client.start_workflow("NoSuchType", id="stuck", task_queue=QUEUE)


async def task_ends(site: Site) -> None:
    await (await Client.connect(site.address)).get_workflow_handle("stuck").terminate()


async def backlog(site: Site) -> None:
    await site.start(*[{"_tool": "nap", "seconds": 12.0, "_outputPath": f"†state.n{n}"} for n in range(60)])


async def tool_fails(site: Site) -> None:
    await site.start(*[{"_tool": "broken", "n": n, "_outputPath": f"†state.b{n}"} for n in range(4)])


async def model_out(site: Site) -> None:
    tool = {"type": "object", "properties": {
        "_tool": {"const": "think"}, "_outputPath": {"type": "string"}, "_output": {"type": "string"}}}  # fmt: skip
    calls = [{"_tool": "think", "_outputPath": f"†state.t{n}"} for n in range(4)]
    await site.start(*calls, context=[{"type": "tool", "tool": tool}], model="openai:gpt-5")


async def decision(site: Site) -> None:
    await site.start({"_tool": "nap", "seconds": 0.0, "_outputPath": "†state.d"}, approve={"calls": ["nap"]})


async def nothing(_site: Site) -> None:
    """What heals by itself, or may go on."""


# Alerts that belong to an outage, the outage, and its end; the rest may not fire
OUTAGES: Final = (
    (("ActsServerUnreachable",), server_away, server_back),
    (("ActsNoWorkerPolls", "ActsWorkerDown"), no_workers, workers_back),
    (("ActsWorkerRestarts",), restarts, nothing),
    (("ActsRunStuck",), failing_task, task_ends),
    (("ActsDecisionOverdue",), decision, nothing),
    (("ActsToolFails",), tool_fails, nothing),
    (("ActsModelUnavailable",), model_out, nothing),
    (("ActsBacklog",), backlog, nothing),
)


async def main() -> None:
    async with healthy_site() as site:
        await site.settles()
        end = time.monotonic() + QUIET_SECONDS
        await site.start({"_tool": "nap", "seconds": 0.1, "_outputPath": "†state.n"})
        while time.monotonic() < end:
            if (alerts := site.firing()) and alerts != {"Prometheus is not ready"}:
                raise SystemExit(f"nothing is wrong, and there is {', '.join(alerts)}")
            await asyncio.sleep(1)
        print(f"nothing is wrong: no alert within {QUIET_SECONDS:g} s", flush=True)
        chosen = [outage for outage in OUTAGES if outage[1].__name__ in sys.argv[1:] or not sys.argv[1:]]
        for alerts, begin, repair in chosen:
            before = site.firing()
            await begin(site)
            for alert in alerts:
                print(f"{begin.__name__}: {alert} after {await wait_for(site, alert):.0f} s", flush=True)
            if others := site.firing() - before - {*alerts}:
                print(f"  beside it: {', '.join(sorted(others))}", flush=True)
            await repair(site)


if __name__ == "__main__":
    asyncio.run(main())
