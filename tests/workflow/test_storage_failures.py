"""A storage that fails a run in its middle: it goes away, it loses what it had."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import RawValue
from typer.testing import CliRunner

from acts.cli.commands.operations import check_calls
from acts.cli.dev.temporal_server import DevServer
from acts.cli.main import app
from acts.client import run_reader
from acts.payloads import converter
from acts.payloads.converter import client_converter
from acts.payloads.stores import FolderStore, make_key, sha256
from acts.worker.plugin import build_replayer
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, call, ended, of_type, status, tool
from tests.workflow.tools import Gate, length, merged

Json = Any
LARGE = 3_000_000  # characters; the server takes 2 MiB


class Place:
    """A folder that is renamed, and whose files are. ``settings``: two names of it, each with a cache of its own."""

    def __init__(self, path: Path) -> None:
        self._path, self._away = path, path.with_name("away")
        self.settings = (f"file:{path}", f"file://{path}")

    def take_away(self) -> None:
        self._path.rename(self._away)

    def bring_back(self) -> None:
        self._away.rename(self._path)

    def lose_values(self) -> Callable[[], None]:
        values, lost = self._path / "values", self._path.with_name("lost")
        values.rename(lost)

        def restore() -> None:
            for path in [path for path in lost.rglob("*") if path.is_file()]:
                to = values / path.relative_to(lost)
                to.parent.mkdir(parents=True, exist_ok=True)
                path.rename(to)

        return restore


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(tmp_path / "storage")
    monkeypatch.setenv("ACTS_STORAGE", place.settings[0])
    return place


@asynccontextmanager
async def storing(server: DevServer, task_queue: str, folder: Path) -> AsyncIterator[Foreign]:
    """A worker of the engine with the storage of the environment, and a user who shares it."""
    async with engine_on(server, f"engine-{task_queue}", folder) as engine:
        client = await Client.connect(server.address, namespace=server.namespace, data_converter=client_converter())
        yield Foreign(client, engine, task_queue)


async def test_a_storage_that_is_away_is_waited_for_and_no_call_runs_twice(
    place: Place, server: DevServer, task_queue: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A Call that may run once returns a large value, and its heartbeats outlast the patience of server (1 s) and SDK
    (6 s); the run passes the value on.
    """
    first, second = Gate(), Gate()
    big = tool("countedBig", activity="countedBig", options={"heartbeat": "1s", "retry": {"maxAttempts": 1}})

    async def waited_for() -> bool:
        pending = (await handle.describe()).raw_description.pending_activities
        ages = [(beat.last_heartbeat_time.ToDatetime() - beat.last_started_time.ToDatetime()) for beat in pending]
        return "external storage: " in caplog.text and (gate is second or ages[0] > timedelta(seconds=7))

    async with (
        storing(server, task_queue, tmp_path) as user,
        user.serving(first.activity("first"), second.activity("second"), length),
    ):
        plan = [
            call("first", "†data.first"),
            call("countedBig", "†data.x", n="†data.n", first="†data.first"),
            call("second", "†data.second", value="†data.x.runs"),
            call("length", "†state.n", value="†data.x.text", second="†data.second"),
        ]
        n = {"type": "data", "data": {"n": LARGE}}
        handle = await user.start(user.request(*plan, context=[big, n]))
        for gate in (first, second):
            await gate.reached()
            caplog.clear()
            place.take_away()
            gate.opened.set()
            await assert_eventually(waited_for)
            place.bring_back()
        result = await ended(handle)
    assert result["state"] == {"n": LARGE}
    assert merged(result["context"])["x"]["runs"] == 1


async def test_a_run_whose_values_have_vanished_says_so_and_how_it_goes_on_at_once_when_they_are_restored(
    place: Place, server: DevServer, task_queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Call whose end the failing task learns of is not made again."""
    monkeypatch.setattr(converter, "MISSING_PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(run_reader, "QUERY_TIMEOUT", timedelta(seconds=0.5))
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.address)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", os.devnull)
    gate = Gate()
    async with storing(server, task_queue, tmp_path) as user, user.serving(gate.activity(), length):
        x = {"type": "data", "data": {"x": "x" * LARGE}}
        plan = [call("wait", "†data.waited"), call("length", "†state.n", value="†data.x", after="†data.waited")]
        # From the second failure of a task on, the next attempt begins when its time is over
        handle = await user.start(user.request(*plan, context=[x]), task_timeout=timedelta(seconds=2))
        await gate.reached()

    async def has_failed() -> bool:
        return bool(await of_type(handle, "WORKFLOW_TASK_FAILED"))

    def show() -> str:
        with ThreadPoolExecutor(1) as thread:  # the command runs an event loop of its own
            return thread.submit(CliRunner().invoke, app, ["show", handle.id]).result().output

    async def reset_command() -> str:
        return next((line for line in show().splitlines() if line.startswith("temporal workflow reset ")), "")

    restore = place.lose_values()
    monkeypatch.setenv("ACTS_STORAGE", place.settings[1])
    async with storing(server, task_queue, tmp_path) as user, user.serving(gate.activity(), length):
        gate.opened.set()
        await assert_eventually(has_failed)
        assert "it was deleted" in (shown := show()).replace("\n", " "), shown
    made = len(gate.arrived)
    command = str(await assert_eventually(reset_command))
    [finding] = await check_calls(user.client, user.engine)
    assert f"{handle.id}: attempt " in finding.hint, "the doctor names it before the server counts it"
    restore()
    words = [str(Path(sys.executable).with_name("temporal")), *shlex.split(command)[1:]]
    subprocess.run(words, check=True, capture_output=True)
    async with storing(server, task_queue, tmp_path) as user, user.serving(gate.activity(), length):
        result = await ended(user.client.get_workflow_handle(handle.id))
    assert result["state"] == {"n": LARGE}
    assert len(gate.arrived) == made
    shown = show()
    assert f"reset from the run {handle.result_run_id}, which after that point had made, or begun: none" in shown
    assert "1:wait took 2 attempts" in shown


@pytest.mark.parametrize("has_storage", [True, False])
async def test_a_reference_that_leads_nowhere_is_refused_and_holds_no_run(
    has_storage: bool,  # noqa: FBT001 - a parameter
    place: Place, server: DevServer, task_queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A signal, an update, a result, a Request: each is refused in words, and replays agree, also once it is there."""
    monkeypatch.setattr(converter, "MISSING_PATIENCE_SECONDS", 0.1)
    if not has_storage:
        monkeypatch.delenv("ACTS_STORAGE")
    data = Payload(metadata={"encoding": b"json/plain"}, data=b'{"decision": "approve"}').SerializeToString()
    claim = {"key": make_key(server.namespace, sha256(data))}
    metadata = {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}
    reference = {"driverName": FolderStore.driver_name, "claimData": claim}
    made_up, gate = RawValue(Payload(metadata=metadata, data=json.dumps(reference).encode())), Gate()

    async def lost(call: Json, tool: Json, context: Json) -> RawValue:
        return made_up

    async with engine_on(server, f"engine-{task_queue}", tmp_path) as engine:
        user = Foreign(await Client.connect(server.address, namespace=server.namespace), engine, task_queue)
        async with user.serving(gate.activity(), lost):
            plan = [call("wait", "†data.waited"), call("lost", "†state.x", _errorPath="†state.error", a="†data.waited")]
            handle = await user.start(user.request(*plan), start_signal="approve", start_signal_args=[made_up])
            await gate.reached()
            for _ in range(2):
                await handle.signal("approve", made_up)
                for update in ("decide", "provide"):
                    with pytest.raises(WorkflowUpdateFailedError) as refused:
                        await handle.execute_update(update, made_up)
                    assert "a stored value cannot be read" in str(refused.value.cause)
            assert "a stored value cannot be read" in str((await status(handle))["notes"])
            gate.opened.set()
            assert (await ended(handle))["state"]["error"]["code"] == "ValueLost"
        if has_storage:
            with pytest.raises(WorkflowFailureError) as failed:
                await ended(await user.start(made_up))
            assert "a stored value cannot be read" in str(failed.value.cause)
        assert not await of_type(handle, "WORKFLOW_TASK_FAILED")
    monkeypatch.setenv("ACTS_STORAGE", place.settings[0])
    store = FolderStore(tmp_path / "storage")
    store.prepare(creates=True)
    store.put(server.namespace, sha256(data), data)
    await build_replayer().replay_workflow(await handle.fetch_history())
