"""``acts deploy-check``: the open runs of a queue are replayed with the code here, and nothing else happens to them."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

import acts as engine
from acts.cli.commands import operations as replaying
from acts.cli.commands.operations import open_runs_query
from acts.payloads.codec import CIPHER, CIPHER_KEY, ENCODING, KEY_ID
from tests.cli.conftest import Acts, new_name, wait_for_approvals, wait_for_listing

OTHER = "Nondeterminism error: Activity id of scheduled event"
HISTORIES = Path(__file__).parents[1] / "replay" / "histories"


def waiting_plan(folder: Path) -> Path:
    tool = {"type": "object", "properties": {"_tool": {"const": "say"}, "_activity": {"const": "no.matter"}}}
    plan = {"config": {"approve": {"plan": True}},
            "context": [{"type": "tool", "tool": tool}, {"type": "plan", "plan": [{"_tool": "say"}]}]}  # fmt: skip
    file = folder / "waiting.json"
    file.write_text(json.dumps(plan), "utf-8")
    return file


@pytest.fixture
async def waiting_run(acts: Acts, client: Client, tmp_path: Path) -> AsyncIterator[str]:
    run = new_name()
    assert acts("run", "--detach", "--id", run, str(waiting_plan(tmp_path))).exit_code == 0
    await wait_for_approvals(client, run)
    await wait_for_listing(client, run)
    yield run
    await client.get_workflow_handle(run).terminate()


async def test_the_open_runs_of_the_queue_are_replayed(acts: Acts, client: Client, waiting_run: str) -> None:
    done = acts("deploy-check", "--query", f"WorkflowId = '{waiting_run}'", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"open": 1, "checked": 1, "failed": 0, "failures": []})
    done = acts("deploy-check", "--query", f"WorkflowId = '{waiting_run}'")
    assert "1 open run of 1 replay with this code (1 Plan)" in done.stdout
    none = acts("deploy-check", "--query", "WorkflowId = 'nobody'")
    assert (none.exit_code, none.stdout) == (0, "no open runs that these workers would take\n")


async def test_a_run_that_does_not_replay_is_named_with_the_reason(
    acts: Acts, waiting_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acts.worker import plugin as worker
    from acts.workflows.types import BackgroundWorkflow

    monkeypatch.setattr(worker, "WORKFLOWS", [BackgroundWorkflow])  # code that knows no ``Plan`` any more
    done = acts("deploy-check", "--query", f"WorkflowId = '{waiting_run}'")
    assert done.exit_code == 1
    assert f"error: {waiting_run}: Plan does not replay: " in done.stderr
    assert "0 open runs of 1 replay with this code (1 Plan); 1 do not" in done.stdout


CHANGING = """
import acts

@acts.tool
def refund(order: str{more}) -> int:
    return 1

@acts.tool
def tell(text: str) -> None: ...
"""


@pytest.mark.usefixtures("wide_terminal")
async def test_a_tool_that_has_changed_since_the_plan_was_made_is_named_before_anybody_approves(
    acts: Acts, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = queue = new_name()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ACTS_TASK_QUEUE", queue)
    monkeypatch.setenv("ACTS_ACTIVITIES", "changing_tools")

    @asynccontextmanager
    async def serving(more: str) -> AsyncIterator[None]:
        (tmp_path / "changing_tools.py").write_text(CHANGING.format(more=more), "utf-8")
        module = importlib.reload(importlib.import_module("changing_tools"))
        with ThreadPoolExecutor(2) as executor:
            tools, plugins = engine.activities(module), [engine.Plugin()]
            async with Worker(
                client, task_queue=queue, activities=tools, activity_executor=executor, plugins=plugins,
                max_cached_workflows=0,
            ):  # fmt: skip
                yield

    calls = [{"_tool": "refund", "order": "A-1"}, {"_tool": "tell", "text": "done"}]
    named = [{"type": "tool", "tool": call["_tool"]} for call in calls]
    request = {"config": {"approve": {"plan": True}}, "context": [*named, {"type": "plan", "plan": calls}]}
    async with serving(""):
        await client.start_workflow("Plan", request, id=run, task_queue=queue)
        await wait_for_approvals(client, run)
        assert "has changed" not in (await asyncio.to_thread(acts, "pending", run)).stdout
    change = 'the tool "refund" has changed since the plan was made: cents is new; the call does not fit it: '
    async with serving(", cents: int"):
        await wait_for_listing(client, run)
        for command, code in ((("pending", run), 0), (("show", run), 0), (("deploy-check",), 1), (("approve", run), 0)):
            done = await asyncio.to_thread(acts, *command)
            text = " ".join((done.stdout + done.stderr).split())
            assert change in text, (command, text)
            assert '"tell" has changed' not in text
            assert done.exit_code == code


def test_the_query_leaves_pinned_runs_to_their_version() -> None:
    narrow, wide = open_runs_query("A = 1 OR B = 2", "q"), open_runs_query(queue="it's", has_pinned=True)
    assert narrow.endswith(
        "TaskQueue = 'q' AND (TemporalWorkflowVersioningBehavior IS NULL OR "
        "TemporalWorkflowVersioningBehavior != 'Pinned') AND (A = 1 OR B = 2)"
    )
    assert wide.endswith("TaskQueue = 'it\\'s'")


async def replayed(*histories: WorkflowHistory) -> list[tuple[str, str | None]]:
    async def each() -> AsyncIterator[WorkflowHistory]:
        for history in histories:
            yield history

    return [(v["id"], v.get("error")) async for v in replaying.replay_histories(each())]


def history(id_: str, change: Any = None, events: int | None = None) -> WorkflowHistory:
    text = (HISTORIES / "join.json").read_text("utf-8")
    whole = replaying.read_history(change(text) if change else text, id_)
    return WorkflowHistory(id_, whole.events[:events])


@pytest.mark.parametrize("events", [3, None])
async def test_a_run_that_the_keys_here_do_not_open_does_not_replay_whether_it_has_begun_or_not(
    events: int | None,
) -> None:
    locked = history("locked", events=events)
    (start,) = locked.events[0].workflow_execution_started_event_attributes.input.payloads
    start.CopyFrom(Payload(metadata={"encoding": ENCODING, CIPHER_KEY: CIPHER, KEY_ID: b"k1"}, data=bytes(40)))
    [(id_, error)] = await replayed(locked)
    assert (id_, "a payload is encrypted with the key 'k1'" in str(error)) == ("locked", True)


async def test_a_history_replays_a_changed_one_does_not_and_a_fresh_one_has_nothing_to_replay() -> None:
    assert await replayed(
        history("same"), history("fresh", events=2), history("open", events=8),
        history("other", lambda text: text.replace("1:wait0", "9:other")),
    ) == [
        ("same", None), ("open", None),
        ("other", f"{OTHER} '9:other' does not match activity id of activity command '1:wait0'"), ("fresh", None),
    ]  # fmt: skip
