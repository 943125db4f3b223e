"""Large values with external storage: they travel as references; what needs one waits for a storage that is away."""

from __future__ import annotations

import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleSpec,
    ScheduleState,
    WorkflowFailureError,
)
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

import acts
from acts.cli.dev.temporal_server import DevServer, dev_server
from acts.machines import lifetime
from acts.payloads.converter import client_converter
from acts.payloads.storage_gc import delete_unused, find_objection, find_unused
from acts.payloads.stores import FolderStore, sha256
from acts.worker.interceptors import EngineInterceptor
from acts.workflows.types import PlanWorkflow
from tests.models.rawserver import Reply, claude, raw_server
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, Handle, call, came_to, ended, events, of_type, tool
from tests.workflow.test_latent import NUMBER, latent
from tests.workflow.tools import Gate, echo, length, merged, noise, text

Json = Any
LARGE = 5_000_000  # characters; the server takes 2 MiB


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACTS_STORAGE", f"file:{tmp_path / 'storage'}")
    return tmp_path / "storage"


@asynccontextmanager
async def storing_on(server: DevServer, folder: Path, task_queue: str) -> AsyncIterator[Foreign]:
    """A user whose client shares the storage of a worker of the engine."""
    async with engine_on(server, f"engine-{task_queue}", folder.parent) as engine:
        client = await Client.connect(server.address, namespace=server.namespace, data_converter=client_converter())
        yield Foreign(client, engine, task_queue)


@pytest.fixture
async def storing(server: DevServer, folder: Path, task_queue: str) -> AsyncIterator[Foreign]:
    async with storing_on(server, folder, task_queue) as user:
        yield user


@pytest.fixture
async def storing_alone(folder: Path, task_queue: str) -> AsyncIterator[Foreign]:
    """On a server of its own: a clean-up reads all runs of a namespace, and those of other tests are many."""
    with dev_server(ui=False) as server:
        async with storing_on(server, folder, task_queue) as user:
            yield user


def values(folder: Path) -> list[Path]:
    return [path for path in (folder / "values").rglob("*") if path.is_file()]


async def history_bytes(handle: Handle) -> int:
    return sum(event.ByteSize() for event in await events(handle))


async def test_a_value_beyond_a_payload_goes_from_call_to_call_and_is_stored_once(
    storing: Foreign, folder: Path
) -> None:
    async with storing.serving(text, length, echo):
        handle = await storing.start(
            storing.request(
                call("text", "†data.x", letter="x", count=LARGE),
                call("length", "†state.n", value="†data.x"),
                call("echo", "†state.y", value="†data.x"),
                call("echo", "†state.z", value="†data.x"),
            )
        )
        result = await ended(handle)
    assert result["state"] == {"n": LARGE, "y": "x" * LARGE, "z": "x" * LARGE}
    assert "omitted" not in result
    assert await history_bytes(handle) < 500_000, "no large value is in it"
    # The text once, though three Calls return it; the arguments of three Calls, which hold their ids; the result
    assert sorted(path.stat().st_size // LARGE for path in values(folder)) == [1, 1, 1, 1, 5]


@pytest.mark.long
async def test_a_chain_carries_large_values_into_new_runs_children_delegates_and_out_of_signals(
    storing: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetime, "DRAIN_EVENTS", 8)
    gate = Gate()
    shown = tool("see", activity="length", options={"taskQueue": storing.queue}, _delegate={"const": "anonymous"})
    own = [{"type": "state", "state": {"text": noise(LARGE)}, "_instance": i} for i in "ab"]
    async with storing.serving(text, length, gate.activity()):
        handle = await storing.start(
            storing.request(
                call("length", "†data.request", value="†data.big"),
                call("text", "†data.x", letter="x", count=LARGE),
                call("see", "†data.delegate", value="†data.x"),
                call("wait", "†data.waited"),
                call("length", "†data.signal", value="†input.late"),
                call("length", "†state.own", value="†state.text"),
                context=[shown, {"type": "data", "data": {"big": "y" * LARGE}}, *own],
                missing="wait",
            )
        )
        await gate.reached()
        gate.opened.set()
        await handle.signal("provide", {"type": "input", "input": {"late": "z" * LARGE}})
        result = await ended(handle)
    data = merged(result["context"])
    assert {key: data[key] for key in ("request", "delegate", "signal")} == dict.fromkeys(
        ("request", "delegate", "signal"), LARGE
    )
    assert [item["state"]["own"] for item in result["instances"].values()] == [LARGE, LARGE]
    assert await history_bytes(handle) < 500_000, "no large value is in it"
    (latest,) = await of_type(storing.client.get_workflow_handle(f"{handle.id}/a"), "WORKFLOW_EXECUTION_STARTED")
    assert latest.continued_execution_run_id
    assert latest.input.payloads[0].external_payloads[0].size_bytes > LARGE // 2, "its state is compressed, and stored"


async def test_a_pdf_beyond_a_payload_reaches_the_model_and_one_that_is_none_fails_its_call_alone(
    storing: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = base64.b64encode(noise(3_000_000).encode()).decode()
    read, none = (
        latent("read", output=NUMBER, doc={"type": "object"}),
        {"media": "image/png", "base64": "†{state.total.n}"},
    )
    async with raw_server() as model, storing.serving(echo):
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        model.reply_with(Reply(events=claude('{"n": 7}')))
        result = await storing.run(
            call("echo", "†state.scan", value={"media": "image/png", "base64": "iVBORw=="}),
            call("read", "†state.total", doc="†invoice", _scopes=["†state.scan"]),
            call("read", "†state.none", doc=none, _errorPath="†state.no"),
            context=[read, {"type": "data", "kind": "invoice", "media": "application/pdf", "base64": data}],
            model="anthropic:claude-opus-5-5", budget={"tokens": 500_000},
        )  # fmt: skip
    assert (result["state"]["total"], result["state"]["no"]["code"]) == ({"n": 7}, "modelFileRefused")
    (request,) = model.requests
    parts = request.body["messages"][0]["content"]
    assert [part["source"]["data"] for part in parts if "source" in part] == ["iVBORw==", data]


async def test_whether_a_run_has_storage_is_decided_at_its_start_and_read_from_history_ever_after(
    storing: Foreign, foreign: Foreign, folder: Path
) -> None:
    """A run that began without storage is replayed by a worker with storage as it was, and the other way round."""
    calls = call("echo", "†data.x", value=1), call("length", "†state.n", value="†data.big")
    context = [{"type": "data", "data": {"big": "x" * 1_000_000}}]
    histories = []
    for user in (storing, foreign):
        async with user.serving(echo, length):
            handle = await user.start(user.request(*calls, context=context))
            assert (await ended(handle))["state"] == {"n": 1_000_000}
        histories.append(await handle.fetch_history())
    found = [any(b"acts-external-storage" in e.SerializeToString() for e in history.events) for history in histories]
    assert found == [True, False]
    for interceptors in ([], [EngineInterceptor(storing.client)]):
        replayer = Replayer(
            workflows=[PlanWorkflow], workflow_runner=UnsandboxedWorkflowRunner(), interceptors=interceptors,
            data_converter=storing.client.data_converter,
        )  # fmt: skip
        for history in histories:
            await replayer.replay_workflow(history)


async def test_without_storage_what_does_not_fit_says_what_to_set(foreign: Foreign) -> None:
    async with foreign.serving(length):
        plan = [
            call("big", "†data.x", n=3_000_000, _errorPath="†data.result"),
            call("big", "†data.y", n=1_500_000),
            call("length", "†data.n", value="†data.y", more="†data.y", _errorPath="†data.argument"),
        ]
        result = await foreign.run(*plan, context=[tool("big", activity="big")])
    data = merged(result["context"])
    assert [data[key]["code"] for key in ("result", "argument")] == ["PayloadTooLarge"] * 2
    assert all("set ACTS_STORAGE" in data[key]["message"] for key in ("result", "argument"))


async def test_a_clean_up_deletes_what_no_run_and_no_schedule_refers_to(storing_alone: Foreign, folder: Path) -> None:
    """Also what only a pending Activity's heartbeat holds, or a run that has ended, is referred to."""
    storing, store, gate = storing_alone, FolderStore(folder), Gate()
    large = {letter: {"config": {}, "context": letter * LARGE} for letter in "cs"}

    @activity.defn
    async def beat(call: Json, tool: Json, context: Json) -> None:
        activity.heartbeat("h" * LARGE)
        await gate.opened.wait()

    async def is_recorded() -> bool:
        pending = (await waiting.describe()).raw_description.pending_activities
        return any(item.heartbeat_details.payloads for item in pending)

    def unused() -> Any:
        """As if the week were over."""
        return find_unused(storing.client, store, -timedelta(weeks=2))

    async with storing.serving(length, beat):
        waiting = await storing.start(storing.request(call("beat", "†data.x")))
        await assert_eventually(is_recorded)
        closed = await storing.start(large["c"])
        with pytest.raises(WorkflowFailureError):
            await closed.result()
        lost = b"of a start that never reached the server"
        store.put(storing.client.namespace, sha256(lost), lost)
        action = ScheduleActionStartWorkflow("Plan", large["s"], id=f"{storing.queue}/s", task_queue=storing.engine)
        schedule = await storing.client.create_schedule(
            storing.queue, Schedule(action=action, spec=ScheduleSpec(), state=ScheduleState(paused=True))
        )
        try:
            assert sorted(path.stat().st_size // LARGE for path in values(folder)) == [0, 1, 1, 1]

            async def are_indexed() -> bool:  # the runs, by the server
                return [content.digest for content in (await unused()).unused] == [sha256(lost)]

            await assert_eventually(are_indexed)
            await schedule.delete()
            inventory = await unused()
            assert len(inventory.unused) == 2
            await delete_unused(store, inventory, datetime.now(UTC) - timedelta(days=1))
            assert len(inventory.unused) == len(values(folder)) == 2
            assert (await find_unused(storing.client, store, timedelta(0))).unused == []
            assert await find_objection(storing.client, store, inventory) == ""
            assert "has no runs at all" in await find_objection(storing.client, store, replace(inventory, runs=0))
            store.add_user(storing.client.namespace, "of-another-server")
            for used in (inventory, replace(inventory, unused=[])):
                assert "with the id of-another-server" in await find_objection(storing.client, store, used)
            shutil.rmtree(folder / "users")
            assert "restart one" in await find_objection(storing.client, store, inventory)
        finally:
            gate.opened.set()
            await waiting.terminate()
    (started,) = await of_type(closed, "WORKFLOW_EXECUTION_STARTED")
    assert await storing.client.data_converter.decode(started.input.payloads) == [large["c"]]


@pytest.mark.long
async def test_large_results_are_undone_by_the_run_itself_and_later(storing: Foreign) -> None:
    undone: list[int] = []

    @activity.defn
    async def back(call: Json, tool: Json, context: Json) -> None:
        undone.append(len(call["all"]))

    tools = [storing.tool("text", _undo={"_tool": "back", "all": "†result"}), storing.tool("back")]
    calls = [call("text", f"†state.{at}", letter="x", count=LARGE + at) for at in range(2)]
    broken = call("text", "†state.broken", letter="x", count=None, after="†state.0", last="†state.1")
    async with storing.serving(text, back):
        for config in ({"onFailure": "undo"}, {}):
            handle = await storing.start(storing.request(*calls, broken, context=tools, **config))
            assert (await came_to(handle))["status"] == "failed"
            assert (await (await acts.Client(storing.client).run(handle.id).undo()).result()).ok
    assert undone == [LARGE + 1, LARGE] * 2
