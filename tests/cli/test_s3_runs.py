"""Whole runs with values in S3: a worker process, the commands, and a plain client with the SDK's own driver."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.contrib.aws.s3driver import S3StorageDriver, S3StorageDriverClient
from temporalio.converter import DataConverter, ExternalStorage

from acts.cli.commands import operations
from acts.cli.dev.temporal_server import DevServer, dev_server
from acts.payloads import storage_gc
from acts.payloads.stores import S3Store, sha256
from tests.cli.conftest import ROOT, Acts, clean_environment, new_name, wait_for_listing, wait_for_state
from tests.storage.s3_server import S3Server, contents
from tests.workflow.tools import noise

Json = Any
LARGE = 3_000_000  # characters; the server takes 2 MiB
BUCKET, PREFIX = "whole-runs", "some/prefix"
DELEGATE = {
    "type": "object",
    "properties": {"_tool": {"const": "tally"}, "_activity": {"const": "house.count"}, "items": {},
                   "_delegate": {"const": "anonymous"}, "_outputPath": {"type": "string"}},
}  # fmt: skip
BIG = {
    "type": "object",
    "properties": {"_tool": {"const": "big"}, "_activity": {"const": "noise"}, "_outputPath": {"type": "string"}},
}  # fmt: skip


class Objects(S3StorageDriverClient):
    """What a program of another team puts behind the SDK's driver."""

    def __init__(self, s3: Any) -> None:
        self._s3 = s3

    async def put_object(self, *, bucket: str, key: str, data: bytes) -> None:
        self._s3.put_object(Bucket=bucket, Key=key, Body=data)

    async def object_exists(self, *, bucket: str, key: str) -> bool:
        return key in contents(self._s3, bucket)

    async def get_object(self, *, bucket: str, key: str) -> bytes:
        data: bytes = self._s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return data


@pytest.fixture(scope="module")
def server() -> Iterator[DevServer]:
    """A server of its own: a clean-up reads all runs of a namespace, and those of other tests are many."""
    with dev_server(ui=False) as running:
        yield running


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    server.client().create_bucket(Bucket=BUCKET)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def worker(
    server: DevServer, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """A worker process whose values are in S3; yields the environment of its clients."""
    folder = tmp_path_factory.mktemp("worker")
    environment = {
        "TEMPORAL_ADDRESS": server.address, "ACTS_TASK_QUEUE": f"s3-{uuid.uuid4().hex[:8]}",
        "ACTS_ACTIVITIES": "tests.workflow.served", "ACTS_SCRIPTS": str(folder), "ACTS_STATE": str(folder),
        "ACTS_STORAGE": f"s3://{BUCKET}/{PREFIX}", "ACTS_SHUTDOWN_SECONDS": "1", **s3_server.environment,
    }  # fmt: skip
    command = [sys.executable, "-m", "acts.worker"]
    with subprocess.Popen(
        command, cwd=ROOT, env=clean_environment(**environment), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any("acts worker: task queue" in line for line in process.stdout)
        yield environment
        process.terminate()


@pytest.fixture
async def plain(server: DevServer, s3_server: S3Server) -> Client:
    """A client with nothing of the engine."""
    driver = S3StorageDriver(Objects(s3_server.client()), BUCKET)
    converter = DataConverter(external_storage=ExternalStorage([driver], payload_size_threshold=128 * 1024))
    return await Client.connect(server.address, namespace=server.namespace, data_converter=converter)


def call(tool: str, path: str, **parameters: Json) -> Json:
    return {"_tool": tool, "_outputPath": path, **parameters}


async def history_bytes(client: Client, run: str) -> int:
    return sum(event.ByteSize() for event in (await client.get_workflow_handle(run).fetch_history()).events)


def of_client(worker: dict[str, str], run: str) -> dict[str, Any]:
    return {"id": run, "task_queue": worker["ACTS_TASK_QUEUE"], "result_type": dict}


async def test_a_batch_with_delegates_runs_by_the_commands(acts: Acts, plain: Client, tmp_path: Path) -> None:
    run, plan = new_name(), [call("big", "†data.x", n=LARGE), call("tally", "†state.count", items="†state.text")]
    own = [{"type": "state", "state": {"text": noise(LARGE) + i}, "_instance": i} for i in "ab"]
    tools = [{"type": "tool", "tool": tool} for tool in (BIG, DELEGATE)]
    request = {"config": {}, "context": [*tools, *own, {"type": "plan", "plan": plan}]}
    (tmp_path / "plan.json").write_text(json.dumps(request), "utf-8")
    result = json.loads(acts("run", "plan.json", "--id", run, "--json").stdout)
    for name, item in result["instances"].items():
        assert item["state"] == {"text": noise(LARGE) + name, "count": LARGE + 1}
    assert "completed" in acts("show", run).stdout
    assert json.loads(acts("show", run, "--json").stdout)["result"] == result
    assert await plain.get_workflow_handle(run).result() == result
    for name in (run, f"{run}/a", f"{run}/b"):
        assert await history_bytes(plain, name) < 500_000


async def test_a_clean_up_leaves_what_open_and_ended_runs_refer_to(
    acts: Acts, plain: Client, worker: dict[str, str], s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Later(datetime):
        """The week after next: what was stored now is no longer young."""

        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(days=9)

    def collect() -> int:
        """Delete what is unused, however young it is; how much it was."""
        with monkeypatch.context() as clock:
            for module in (storage_gc, operations):
                clock.setattr(module, "datetime", Later)
            figures = json.loads(acts("storage", "gc", "--delete", "--json").stdout)
        assert (figures["young"], figures["deleted"]) == (0, figures["unused"])
        return int(figures["deleted"])

    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    plan = [call("big", "†data.y", n=LARGE), call("tally", "†state.n", items="†data.y", after="†input.late")]
    tools = [{"type": "tool", "tool": tool} for tool in (BIG, DELEGATE)]
    request = {"config": {"missing": "wait"}, "context": [*tools, {"type": "plan", "plan": plan}]}
    run, earlier = new_name(), new_name()
    ended = {"config": {}, "context": [*tools, {"type": "plan", "plan": plan[:1]}]}
    await plain.execute_workflow("Plan", ended, **of_client(worker, earlier))
    handle = await plain.start_workflow("Plan", request, **of_client(worker, run))
    await wait_for_state(plain, run, "1:big", "completed")
    await wait_for_listing(plain, earlier, "ExecutionStatus = 'Completed'")
    await wait_for_listing(plain, run)  # what no listed run refers to is deleted
    store, lost = S3Store(BUCKET, PREFIX), b"of a start that never reached the server"
    store.put(plain.namespace, sha256(lost), lost)
    assert collect() >= 1  # and answers to queries, which no history holds
    store.put(plain.namespace, sha256(lost), lost)
    assert collect() == 1
    await handle.signal("provide", {"type": "input", "input": {"late": 1}})
    assert (await handle.result())["state"] == {"n": LARGE}
    assert collect() == 0
    result: Json = await plain.get_workflow_handle(earlier).result()
    assert [len(m["data"]["y"]) for m in result["context"]] == [LARGE]
    assert "can be written to and read" in acts("storage", "check").stdout
    assert json.loads(acts("show", run, "--json").stdout)["result"]["state"] == {"n": LARGE}
    store.add_user(plain.namespace, "of-another-server")
    refused = acts("storage", "gc", "--delete")
    assert (refused.exit_code, "with the id of-another-server: another server's" in refused.stderr) == (2, True)
    assert acts("storage", "gc", "--force").exit_code == 0


def test_a_bucket_that_is_missing_is_named_before_anything_starts(
    acts: Acts, worker: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTS_STORAGE", "s3://no-such-bucket/x")
    plan = {"type": "plan", "plan": []}
    (tmp_path / "plan.json").write_text(json.dumps({"config": {}, "context": [plan]}), "utf-8")
    run = new_name()
    done = acts("run", "plan.json", "--id", run)
    assert done.exit_code == 2
    assert "NoSuchBucket" in done.stderr.replace("\n", " ")
    assert "no run" in acts("show", run).stderr
