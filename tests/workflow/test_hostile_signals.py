"""Signals and updates from anyone: whatever they hold, no run fails, stops, or loses a task over them.

One waiting run of each kind gets every row; then people go on with their work as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.service import RPCError

from acts.tree.decisions import Decision, PendingApproval
from acts.tree.records import BudgetAccount, SettledRequest
from acts.tree.signal_records import (
    TREE_SIGNALS,
    BudgetGrant,
    BudgetReport,
    BudgetRequest,
    CancelledReport,
    ChildReset,
    DecisionAnswer,
    ForwardedDecision,
    PendingChanged,
    RunEnded,
    Superseded,
    TreeSignal,
)
from acts.tree.wire_format import TYPE_KEY
from acts.workflows.handlers import PEOPLES_SIGNALS
from acts.workflows.payloads import encode_record
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on, renewing_server
from tests.workflow.foreign import Foreign, Handle, call, ended, note_of, of_type, pending, phase, tool
from tests.workflow.test_bad_input import deep, payload
from tests.workflow.tools import Gate, echo

Json = Any
SOON = timedelta(seconds=120)
LARGE = 1_900_000  # bytes; the server takes 2 MiB
MAX_ID = 1_000  # bytes of a workflow id
CLOSED_BY_SERVER = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND
SHARES = 4  # one kind of run gets every row, the others each a fourth
BOMB = zlib.compress(b"[" + b"0," * 50_000_000 + b"0]", 9)  # 100 kB that unpack to 100 MB


GARBAGE: list[list[Json]] = [
    [None], ["hello"], [7], [[]], [True], [b"\0"], [payload(b"{}", b"binary/encrypted")], [payload(b"{}", b"\xff")],
    [payload(b"")], [payload(b'{"type":')], [payload(deep(10_000))], [payload(deep(900))], [payload(b'{"a": NaN}')],
    [payload(rb'{"by": "\ud800"}')], [payload(rb'{"\ud800": 1}')], [payload(b'{"a": ' + b"9" * 5000 + b"}")],
    [payload(b"x", b"mine"), payload(b"y", b"mine")], [payload(BOMB, b"binary/plain")],
]  # fmt: skip
DECISIONS: list[Json] = [
    {"call": 5}, {"call": "9:none"}, {"version": "one"}, {"version": 10**300}, {"by": "x" * 3000}, {"unknown": 1},
    {"decision": []}, {"workflowId": "x" * 1001}, {"instance": {}}, {"with": 1}, {"plan": {}},
]  # fmt: skip
EDITS: list[Json] = [
    {"plan": [{"_tool": "echo", "value": "†state." + "(" * 100_000}]}, {"plan": ["x"]}, {"plan": [{"_tool": []}]},
    {"call": "1:echo", "with": {"_tool": "echo", "_outputPath": " && ".join(["(†a.b || †a.c)"] * 30)}},
    {"plan": [{"_tool": "echo", "_outputPath": "†state.a", "value": "x" * LARGE}] * 1 + [{"_tool": "nobody"}]},
    {"plan": [{"_tool": "nobody"}] * 5_000}, {"call": "1:echo", "with": {"_tool": "echo", "_delegate": "x"}},
]  # fmt: skip
PROVIDED: list[Json] = [
    {"type": "plan", "plan": []}, {"type": "inptu"}, {"type": "input", "a": 1, "_instance": "nobody"},
    {"type": "data", "kind": 5}, {"type": "data", "kind": "list", "data": [1]}, {"type": "tool", "tool": "echo"},
    # short as it came, longer than a payload may be once it is written again
    payload(b'{"type": "input", "input": [' + b"1E15," * 110_000 + b'1], "workflowId": "OWN/x"}'),
    payload(b'{"type": "data", "kind": "junk", "data": [' + b"1E15," * 110_000 + b"1]}"),
]  # fmt: skip
AIMS: list[Json] = [
    {"workflowId": "OWN/" + "x" * 1001}, {"workflowId": "OWN/" + "é" * 500}, {"workflowId": "OWN/\0"},
    payload(rb'{"workflowId": "OWN/\ud800"}'), {"workflowId": "OWN/nobody"}, {"workflowId": 5},
    {"instance": "x" * 9_000}, {"workflowId": ""}, {"workflowId": "elsewhere"},
]  # fmt: skip
ACCOUNT = BudgetAccount.from_json({"id": "OWN", "limits": {"requests": 1}})
WAIT = {"workflowId": "OWN", "what": "call", "call": "1:echo", "version": 1, "since": "2026-01-01T00:00:00.000Z"}
WAITS, APPROVED = PendingApproval.model_validate(WAIT), Decision(decision="approve")
FORGED: list[TreeSignal] = [
    PendingChanged(workflowId="OWN/x", ancestors=("OWN",), opened=(WAITS.model_copy(update={"workflow_id": "OWN/x"}),)),
    ForwardedDecision(id="1", replyTo="OWN", decision=APPROVED), DecisionAnswer(id="1"), RunEnded(workflowId="OWN/a"),
    ForwardedDecision(id="", replyTo="x" * 1001, decision=APPROVED, target=WAITS),
    CancelledReport(workflowId="x", report={}),
    BudgetRequest(workflowId="x" * 1001, id=1, accounts=(ACCOUNT,), requests=10**9), BudgetGrant(id=1),
    BudgetReport(workflowId="x", settled=(SettledRequest(id="OWN#1", usage={"requests": "many"}),)),
    Superseded(workflowId="OWN", runId="x"), ChildReset(workflowId="OWN/x", firstRunId="x"),
]  # fmt: skip


def forged(record: TreeSignal, token: str | None) -> tuple[str, list[Json]]:
    signed = record if token is None else record.model_copy(update={"token": token})
    return record.signal_name(), [encode_record(signed)]


def torn(name: str) -> list[list[Json]]:
    """Payloads that say that they are a record, and hold something else."""
    kind = {"encoding": b"json/plain", TYPE_KEY: TREE_SIGNALS[name].__name__.encode()}
    data = [b"{}", b"null", b'{"v": 99}', b'{"v": "x"}', b'{"workflowId": 5}', deep(10_000), b"\xff"]
    bomb = Payload(metadata={**kind, "encoding": b"binary/plain"}, data=BOMB)
    return [[RawValue(p)] for p in (*(Payload(metadata=kind, data=d) for d in data), bomb)]


ROWS: list[tuple[str, list[Json]]] = [
    *(("provide", row) for row in [*GARBAGE, [], ["x" * LARGE], *([p] for p in PROVIDED)]),
    *((name, row) for name in ("approve", "reject", "edit") for row in GARBAGE[1:]),
    *((name, [row]) for name in ("approve", "reject", "edit") for row in DECISIONS),
    *(("edit", [row]) for row in EDITS), ("reject", []), ("reject", [None]), ("edit", []),
    *((name, [row]) for row in AIMS for name in ("pause", "resume")),
    *(("pause", row) for row in (*GARBAGE, [])),
    *(forged(record, token) for record in FORGED for token in (None, "0" * 32)),
    *((name, row) for name in TREE_SIGNALS for row in torn(name)), *((name, []) for name in TREE_SIGNALS),
    *((name, []) for name in ("aprove", "", "x" * MAX_ID, "\0", "take_signal", "__temporal_x", "spend", "Approve")),
]  # fmt: skip


def aimed(value: Json, own: str) -> Json:
    """A row for one run: OWN is its id."""
    if isinstance(value, RawValue):
        return RawValue(Payload(metadata=value.payload.metadata, data=value.payload.data.replace(b"OWN", own.encode())))
    if isinstance(value, (dict, list)) and len(str(value)) < 10_000:
        return json.loads(json.dumps(value).replace("OWN", own))
    return value


@pytest.fixture(scope="module")
def definitions(delegates_folder: Path) -> Path:
    inner = {"type": "plan", "run": True, "plan": [call("echo", "†state.output", value="†input.n")]}
    made = tool("echo", activity="echo", options={"taskQueue": "hostile-tools"})
    definition = {"config": {"approve": {"calls": True}}, "context": [made, inner]}
    (delegates_folder / "hostile.json").write_text(json.dumps(definition), "utf-8")
    return delegates_folder


@pytest.fixture
async def waiting(foreign: Foreign, definitions: Path) -> AsyncIterator[dict[str, Handle]]:
    """Runs of each kind, by kind, that wait for a person, or whose Activity is held back."""
    user, gate = Foreign(foreign.client, foreign.engine, "hostile-tools"), Gate()
    approve = {"calls": ["echo"]}
    delegating = tool("ask", activity="", _delegate={"const": "hostile"})
    async with user.serving(echo, gate.activity("held")):
        plan = await user.start(user.request(call("echo", "†state.a", value=1), approve=approve))
        background = await user.start(user.request(call("held"), call("echo", "†state.a", value=1), approve=approve))
        context = [{"type": "state", "n": n, "_instance": i} for n, i in enumerate("ab")]
        batch = await user.start(
            user.request(call("echo", "†state.x", value="†state.n"), context=context, approve=approve)
        )
        tree = await user.start(user.request(call("ask", "†state.a", n=1), context=[delegating]))
        of = foreign.client.get_workflow_handle
        handles = {
            "Plan": plan, "batch": batch, "Instance": of(f"{batch.id}/a"),
            "root": tree, "Delegate": of(f"{tree.id}/1:ask"), "its plan": of(f"{tree.id}/1:ask/plan"),
            "its root": background, "Background": of(f"{background.id}/1:held"),
        }  # fmt: skip
        for root, count in ((plan, 1), (batch, 2), (tree, 1), (background, 1)):
            await pending(root, count)
        yield handles
        gate.opened.set()
        await asyncio.wait_for(handles["Background"].result(), 180)


async def lost_tasks(handle: Handle) -> list[Json]:
    """Those that failed, or were too late even when they were repeated: once, any task may be on a busy machine.

    The server itself ends a task at once, and repeats it, when signals of more than 2 MB come while it runs.
    """
    repeated = [e for e in await of_type(handle, "WORKFLOW_TASK_SCHEDULED") if e.attempt > 2]
    failed = [e for e in await of_type(handle, "WORKFLOW_TASK_FAILED") if e.cause != CLOSED_BY_SERVER]
    return [*failed, *repeated]


@pytest.mark.long
async def test_whatever_is_signalled_every_run_goes_on(waiting: dict[str, Handle]) -> None:
    async def attack(handle: Handle, rows: list[tuple[str, list[Json]]]) -> None:
        for name, arguments in rows:
            with contextlib.suppress(RPCError, ValueError):  # the server, or this client, does not take it at all
                await handle.signal(name, args=[aimed(a, handle.id) for a in arguments])

    parts = [ROWS, *(ROWS[n::SHARES] for n in range(len(waiting) - 1))]  # all take signals by the same code
    await asyncio.gather(*(attack(h, rows) for h, rows in zip(waiting.values(), parts, strict=True)))
    for kind, handle in waiting.items():
        assert (await handle.describe()).status == WorkflowExecutionStatus.RUNNING, kind
        assert not await lost_tasks(handle), kind
        if kind != "Background":
            await handle.signal("aprove")  # notes of before may have gone with a run that continued as new
            assert await note_of(handle, "unknown"), kind
            await handle.signal("resume")
    for root, count in (("Plan", 1), ("batch", 2), ("root", 1), ("its root", 1)):
        waits = await pending(waiting[root], count)
        assert {w["version"] for w in waits} == {1}, "nothing was edited"
        for wait in waits:
            chosen = {k: wait[k] for k in ("call", "workflowId", "instance") if k in wait}
            await waiting[root].execute_update("decide", {"decision": "approve", "by": "Ada", **chosen})
        result = await ended(waiting[root])
        assert (result["status"], len(result["decisions"])) == ("completed", count)
    assert (await waiting["root"].result())["state"] == {"a": 1}


@pytest.mark.parametrize(
    ("signal", "says"),
    [
        ("aprove", 'did you mean "approve"?'),
        ("x" * 900, "known: approve, reject"),
    ],
)  # fmt: skip
async def test_a_signal_of_an_unknown_name_is_noted_with_the_one_that_was_meant(
    foreign: Foreign, signal: str, says: str
) -> None:
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(call("echo", "†state.a", value=1), approve={"calls": True}))
        await phase(handle, "awaiting")
        await handle.signal(signal, {})
        assert says in await note_of(handle, "unknown")
        await handle.signal("approve")
        await ended(handle)


@pytest.mark.parametrize("bytes_", [2_090_000, 2_200_000, 4_100_000])
async def test_an_update_that_is_too_large_is_refused_at_once_and_the_run_goes_on(
    foreign: Foreign, bytes_: int
) -> None:
    """The SDK sends a refused update back whole: above 2 MiB that would fail every task of the run."""
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(call("echo", "†state.a", value=1), approve={"calls": True}))
        await phase(handle, "awaiting")
        with pytest.raises((WorkflowUpdateFailedError, RPCError)):
            await asyncio.wait_for(handle.execute_update("decide", {"decision": "approve", "x": "x" * bytes_}), 180)
        await handle.execute_update("decide", {"decision": "approve"})
        assert (await ended(handle))["state"] == {"a": 1}


@pytest.mark.long
async def test_no_update_harms_a_run(waiting: dict[str, Handle]) -> None:
    rows = [*GARBAGE, [], *([d] for d in DECISIONS), *([{"decision": "edit", **e}] for e in EDITS)]
    for kind, handle in waiting.items():
        if kind == "Background":
            continue
        for arguments in rows:
            update = handle.execute_update("decide", args=[aimed(a, handle.id) for a in arguments])
            with pytest.raises((WorkflowUpdateFailedError, RPCError)):
                await asyncio.wait_for(update, 180)
        assert not await lost_tasks(handle), kind
    for root in ("Plan", "batch", "root", "its root"):
        await waiting[root].cancel()


LIMIT = 60  # signals that the server of this test lets one run receive; by default 10,000


@pytest.mark.long
async def test_a_run_that_waits_goes_on_in_a_new_one_when_the_server_takes_no_more_signals() -> None:
    limit = ("--dynamic-config-value", f"history.maximumSignalsPerExecution={LIMIT}")
    with renewing_server(60, *limit) as small:
        async with engine_on(small, "flooded") as queue:
            client = await Client.connect(small.address)
            user = Foreign(client, queue, "flooded-tools")
            async with user.serving(echo):
                handle = await user.start(user.request(call("echo", "†state.a", value=1), approve={"calls": True}))
                latest = client.get_workflow_handle(handle.id)
                await phase(latest, "awaiting")

                async def is_taken() -> bool:
                    """False while the run is at the limit: the next one takes signals again."""
                    try:
                        await latest.signal("nonsense")
                    except RPCError as error:
                        if "exceeded workflow execution limit for signal events" not in str(error):
                            raise
                        return False
                    return True

                for _ in range(3 * LIMIT):
                    await assert_eventually(is_taken, within=SOON)
                await latest.signal("approve")
                assert (await ended(latest))["state"] == {"a": 1}


async def test_the_web_ui_offers_the_signals_of_people_and_no_others(waiting: dict[str, Handle]) -> None:
    for kind, handle in waiting.items():
        found = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        named = {s.name: s.description for s in found.definition.signal_definitions}
        assert named == ({} if kind == "Background" else dict(PEOPLES_SIGNALS))
        assert "promptContext" not in {q.name for q in found.definition.query_definitions}
    for root in ("Plan", "batch", "root", "its root"):
        await waiting[root].cancel()
