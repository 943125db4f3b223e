"""The stream of events on a real server: live and afterwards, from any offset, for one reader and for two hundred."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError

from acts.activities.models import words
from acts.cli.dev.temporal_server import DevServer, dev_server
from acts.client.event_feeds import EventFeeds
from acts.client.event_stream import stream_events
from acts.payloads.converter import client_converter
from acts.telemetry.observation import Observation, serve_health
from acts.views.run_events import EventFilter, EventsRefused, RunEvent
from acts.worker.event_server import EventServer
from tests.replay.record import SCENARIOS, SMALL, scenario_files
from tests.replay.scenarios import RENEWED
from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, Handle, call, came_to, pending
from tests.workflow.tools import Gate, echo, refuse

# Every kind of end, tree, decision and continuation; the others are like one of these
ENDS = ("retries", "cancellation", "refused", "signals", "replanned", "tree_waits", "tree_cancelled", "detached",
        "batch_agent", "batch_steered", "several", "join")  # fmt: skip
CONTINUED = ("continued", "tree_renewed", "batch_renewed")


async def read(client: Client, id_: str, **options: object) -> list[RunEvent]:
    return [event async for event in stream_events(client, id_, **options)]  # type: ignore[arg-type]


async def follow(client: Client, id_: str) -> list[RunEvent]:
    """All events of a run that is about to start."""

    async def is_there() -> bool:
        try:
            return bool(await client.get_workflow_handle(id_).describe())
        except RPCError:
            return False

    await assert_eventually(is_there)
    return await read(client, id_, follow=True)


@pytest.mark.long
@pytest.mark.parametrize("names", [ENDS, CONTINUED], ids=["ends", "continued"])
async def test_who_followed_a_run_has_seen_what_a_later_reader_sees_and_each_offset_gives_the_rest(
    names: tuple[str, ...],
) -> None:
    assert set(CONTINUED) <= set(RENEWED)
    assert not set(ENDS) & set(RENEWED)
    with scenario_files() as (definitions, sets), dev_server(ui=False, extra_args=SMALL * (names == CONTINUED)) as own:
        client = await Client.connect(own.address, namespace=own.namespace)
        async with engine_on(own, "acts", definitions, sets) as engine:
            for name in names:
                id_ = f"recorded/{name}"
                following = asyncio.create_task(follow(client, id_))
                await SCENARIOS[name](Foreign(client, engine, "tools"))
                live = await following
                assert live == await read(client, id_), name
                assert [event.type for event in live if event.run == id_][-1] == "runEnded"
                for at in range(0, len(live), 1 + len(live) // 5):
                    assert await read(client, id_, after=live[at].offset) == live[at + 1 :]


async def test_a_run_that_was_terminated_ends_for_its_followers_too(foreign: Foreign) -> None:
    gate = Gate()
    async with foreign.serving(gate.activity()):
        handle = await foreign.start(foreign.request(call("wait", "†state.a")))
        following = asyncio.create_task(read(foreign.client, handle.id, follow=True))
        await gate.reached()
        await handle.terminate("enough")
        events = await following
        gate.opened.set()
    assert [(e.type, e.data.get("state") or e.data.get("status")) for e in events][-2:] == [
        ("callEnded", "cancelled"), ("runEnded", "terminated"),
    ]  # fmt: skip
    assert events == await read(foreign.client, handle.id)


async def test_a_reset_is_told_and_what_it_took_back_is_gone(foreign: Foreign) -> None:
    gate = Gate()
    async with foreign.serving(echo, gate.activity()):
        plan = foreign.request(call("echo", "†state.a", value=1), call("wait", "†state.b", value="†state.a"))
        handle = await foreign.start(plan)
        following = asyncio.create_task(read(foreign.client, handle.id, follow=True))
        await gate.reached()
        before = await read(foreign.client, handle.id)
        await foreign.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=foreign.client.namespace, reason="a test", request_id=handle.id,
                workflow_execution=WorkflowExecution(workflow_id=handle.id), workflow_task_finish_event_id=4,
            )
        )  # fmt: skip
        gate.opened.set()
        live = await following
    after = await read(foreign.client, handle.id)
    assert [e.type for e in live].count("runReset") == [e.type for e in after].count("runReset") == 1
    at = [e.type for e in live].index("runReset")
    assert live[at].data == {"earlierRun": handle.result_run_id}
    assert live[at:] == after[-len(live[at:]) :]
    assert [e.call for e in live if e.type == "callEnded" and e.data["state"] == "completed"].count("1:echo") == 2
    assert [e.call for e in after if e.type == "callEnded"] == ["1:echo", "2:wait"]
    kept = [event.offset for event in before if event in after]
    assert kept
    assert await read(foreign.client, handle.id, after=kept[-1]) == after[after.index(before[len(kept) - 1]) + 1 :]
    taken_back = next(event for event in before if event.type == "callEnded")
    with pytest.raises(EventsRefused, match="it was reset, or its history is deleted; read from"):
        await read(foreign.client, handle.id, after=taken_back.offset)


async def test_a_decision_says_what_it_was_about(foreign: Foreign) -> None:
    async with foreign.serving(echo):
        request = foreign.request(call("echo", "†state.a", value=1), approve={"plan": True, "calls": ["echo"]})
        handle = await foreign.start(request)
        for what in ("plan", "call"):
            await assert_eventually(lambda what=what: is_awaiting(handle, what))  # type: ignore[misc]
            await handle.execute_update("decide", {"decision": "approve", "by": "Ada"})
        await came_to(handle)
    events = await read(foreign.client, handle.id)
    assert [e.type for e in events if e.type in ("decision", "callStarted")] == ["decision", "decision", "callStarted"]
    waits = [(e.type, e.data["what"], e.call, e.data.get("waiting")) for e in events if e.type.startswith("wait")]
    assert waits == [("waitOpened", "plan", None, 1), ("waitClosed", "plan", None, None),
                     ("waitOpened", "call", "1:echo", 1), ("waitClosed", "call", "1:echo", None)]  # fmt: skip
    assert all(e.data["subject"] for e in events if e.type == "waitOpened")
    decisions = [event for event in events if event.type == "decision"]
    assert [(e.data["what"], e.call, e.data["by"], e.data["outcome"]) for e in decisions] == [
        ("plan", None, "Ada", "accepted"), ("call", "1:echo", "Ada", "accepted"),
    ]  # fmt: skip


async def test_below_an_agent_by_name_a_wait_is_told_and_its_decision_comes_before_what_it_lets_start(
    server: DevServer, agents: Agents, tmp_path: Path
) -> None:
    foreign, plans = agents.foreign, tmp_path / "plans"
    model = agents.script({"calls": [call("echo", "†state.a", value=1)]}, {"calls": [], "output": "done"})
    context = [foreign.tool("echo"), {"type": "text", "text": "Say it."}]
    plans.mkdir()
    config = {"model": model, "approve": {"calls": ["echo"]}}
    (plans / "teller.yaml").write_text(json.dumps({"config": config, "context": context}), "utf-8")
    async with engine_on(server, f"{foreign.queue}-plans", plans=plans) as queue, foreign.serving(echo):
        handle = await foreign.client.start_workflow("Agent", {"plan": "teller"}, id=foreign.queue, task_queue=queue)
        await pending(handle)
        await handle.execute_update("decide", {"decision": "approve", "by": "Ada"})
        await came_to(handle)
    events = await read(foreign.client, handle.id)
    shown = [e for e in events if e.type in ("waitOpened", "decision", "callStarted", "callEnded")]
    assert [e.type for e in shown] == ["waitOpened", "decision", "callStarted", "callEnded"]
    assert await read(foreign.client, handle.id, after=shown[1].offset) == events[events.index(shown[1]) + 1 :]


async def is_awaiting(handle: Handle, what: str) -> bool:
    return [wait["what"] for wait in await handle.query("pending")] == [what]


async def test_what_is_encrypted_or_stored_outside_is_read_as_anywhere_else(
    server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task_queue: str
) -> None:
    (tmp_path / "keys").write_text(f"k1 {base64.b64encode(bytes(range(32))).decode()}\n", "utf-8")
    monkeypatch.setenv("ACTS_CODEC_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("ACTS_STORAGE", f"file:{tmp_path / 'storage'}")
    client = await Client.connect(server.address, namespace=server.namespace, data_converter=client_converter())
    async with engine_on(server, f"engine-{task_queue}") as engine:
        foreign = Foreign(client, engine, task_queue)
        calls = [call("echo", "†state.a", value="a word"), call("echo", "†state.b", value="x" * 200_000)]
        never = call("echo", "†state.c", value=1, _when="false")
        async with foreign.serving(echo):
            handle = await foreign.start(foreign.request(*calls, never))
            await came_to(handle)
    events = await read(client, handle.id)
    assert "a word" not in str(await handle.fetch_history())
    ends = {event.call: event.data for event in events if event.type == "callEnded"}
    assert ends["1:echo"]["result"] == "a word"
    assert ends["2:echo"]["resultOmitted"] == {"bytes": ends["2:echo"]["resultOmitted"]["bytes"], "isStored": True}
    assert ends["3:echo"] == {"state": "skipped"}


@dataclass
class Served:
    """A worker's port, and those who read there."""

    port: int
    writers: list[asyncio.StreamWriter]

    async def get(self, path: str, **headers: str) -> tuple[int, str, asyncio.StreamReader]:
        """The status, the headers, and what follows them."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        fields = {"Host": "127.0.0.1", **{name.replace("_", "-"): value for name, value in headers.items()}}
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        return int(head.split()[1]), head, reader


@asynccontextmanager
async def serving(client: Client, token: str = "") -> AsyncIterator[Served]:
    events = EventServer(client, token)
    with serve_health("127.0.0.1:0", Observation(serve_events=events.answer)) as port:
        served = Served(port, [])
        async with events.serving():
            yield served
        for writer in served.writers:
            writer.close()


def path_of(handle: Handle) -> str:
    return f"/runs/{handle.id.replace('/', '%2F')}/events"


async def test_two_hundred_readers_get_the_same_and_one_that_reads_nothing_holds_up_nobody(foreign: Foreign) -> None:
    gate = Gate()
    async with foreign.serving(echo, gate.activity()), serving(foreign.client) as port:
        calls = [call("echo", f"†state.a{n}", value="x" * 2_000) for n in range(100)]
        handle = await foreign.start(foreign.request(call("wait", "†state.go"), *calls))
        readers = [(await port.get(path_of(handle)))[2] for _ in range(200)]
        await port.get(path_of(handle))  # and takes nothing of it
        await gate.reached()
        gate.opened.set()
        streams = await asyncio.gather(*[reader.read() for reader in readers])
    assert set(map(len, streams)) == {len(streams[0])}
    assert len(set(streams)) == 1
    events = await read(foreign.client, handle.id)
    ids = [line.removeprefix(b"id: ").decode() for line in streams[0].split(b"\n") if line.startswith(b"id: ")]
    assert ids == [event.offset for event in events]
    info = await handle.describe()
    assert not [e async for e in handle.fetch_history_events() if "signal" in str(e.event_type).lower()]
    assert info.history_length == events[-1].order[4]


async def test_a_reader_reads_on_by_its_last_event_and_is_refused_with_advice(foreign: Foreign) -> None:
    async with foreign.serving(refuse, echo), serving(foreign.client) as port:
        handle = await foreign.start(foreign.request(call("echo", "†state.a", value=1), call("refuse", "†state.b")))
        await came_to(handle)
        events = await read(foreign.client, handle.id)
        at = [event.type for event in events].index("callEnded")
        _, head, reader = await port.get(path_of(handle), Last_Event_ID=events[at].offset)
        rest = await reader.read()
        assert "text/event-stream" in head
        assert rest.count(b"\nid: ") + rest.startswith(b"id: ") == len(events) - at - 1
        _, _, reader = await port.get(path_of(handle) + "?type=callEnded&call=refuse")
        assert (await reader.read()).count(b"data: ") == 2
        refusals = [
            (400, "is no offset", path_of(handle) + "?after=7", {}),
            (400, "read from the beginning", path_of(handle) + "?after=1-2-0123456789ab", {}),
            (400, "there is no type", path_of(handle) + "?type=end", {}),
            (400, "/runs/ID/events", "/runs/x/history", {}),
            (404, "no such run", "/runs/nobody/events", {}),
            (403, "a page of another machine", path_of(handle), {"Origin": "https://example.org"}),
            (403, "a page of another machine", path_of(handle), {"Host": "rebound.example.org"}),
        ]
        for status, text, path, headers in refusals:
            answer = await port.get(path, **headers)  # type: ignore[arg-type]
            assert (answer[0], text in (await answer[2].read()).decode()) == (status, True), path
    async with serving(foreign.client, token="secret") as port:  # noqa: S106 - of this test
        assert (await port.get(path_of(handle)))[0] == 401
        assert (await port.get(path_of(handle), Authorization="Bearer secret"))[0] == 200


async def test_watchers_of_a_process_share_one_reading_and_its_end(foreign: Foreign) -> None:
    gate, begun = Gate(), list[object]()

    def begin() -> object:
        begun.append(None)
        return lambda event: json.dumps(event.to_json()).encode() + b"\n"

    async with foreign.serving(gate.activity()):
        handle = await foreign.start(foreign.request(call("wait", "†state.a")))
        feeds = EventFeeds(foreign.client, begin)  # type: ignore[arg-type]

        async def watch(wanted: EventFilter | None = None) -> bytes:
            woken, content, is_over = asyncio.Event(), b"", False
            with closing(await feeds.open(handle.id, woken.set, wanted=wanted)) as place:
                while not is_over:
                    woken.clear()
                    part, is_over = place.take()
                    content += part
                    if not is_over:
                        await woken.wait()
            return content

        ends_only = EventFilter(types=frozenset({"callEnded"}))
        watching = [asyncio.create_task(watch(wanted)) for wanted in (*[None] * 20, ends_only)]
        await gate.reached()
        assert feeds.watchers == 21
        gate.opened.set()
        *all_of_it, ends = await asyncio.gather(*watching)
        events = await read(foreign.client, handle.id)
        assert {tuple(text.splitlines()) for text in all_of_it} == {
            tuple(json.dumps(event.to_json()).encode() for event in events)
        }
        assert [json.loads(line)["type"] for line in ends.splitlines()] == ["callEnded"]
        assert (len(begun), feeds.watchers, feeds._feeds) == (1, 0, {})
        with pytest.raises(RPCError):
            await feeds.open("nobody", lambda: None)
        assert feeds.watchers == 0


async def test_the_words_of_a_model_reach_who_listens_and_no_history(agents: Agents) -> None:
    foreign = agents.foreign
    context = [foreign.tool("echo"), {"type": "text", "text": "say it"}]
    gate = Gate()
    async with foreign.serving(gate.activity("echo")), serving(foreign.client) as port:
        plan = {"calls": [{"_tool": "echo", "_outputPath": "†state.a", "value": "first"}]}
        said = {"calls": [], "output": {"said": "a sentence that no history has before the model has ended"}}
        handle = await agents.start(plan, said, context=context)
        reader = (await port.get(path_of(handle)))[2]
        await gate.reached()
        gate.opened.set()
        parts = [json.loads(line[6:]) for line in (await reader.read()).split(b"\n") if line.startswith(b"data: ")]
    assert words.listeners == set()
    texts: dict[str, str] = {}
    for part in parts:
        if part["type"] == "TEXT_MESSAGE_CONTENT":
            texts[part["messageId"]] = texts.get(part["messageId"], "") + part["delta"]
    assert json.loads(list(texts.values())[-1]) == said
    ends = [part["messageId"] for part in parts if part["type"] == "TEXT_MESSAGE_END"]
    assert ends == list(texts)
    assert [part["type"] for part in parts][-1] == "RUN_FINISHED"
    assert {event.type for event in await read(foreign.client, handle.id)} & {"text"} == set()
