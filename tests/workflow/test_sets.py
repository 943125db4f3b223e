"""A plan over a set: rows from a file, Batches, results in a file, and what goes wrong with each."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError

from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, call, ended, failure, of_type, run_chain, status
from tests.workflow.tools import ONCE, Gate, echo

Json = Any


async def weigh(call: dict[str, Json], tool: dict[str, Json], context: list[Json]) -> Json:
    if call["value"] in ("x", 13):
        raise ApplicationError("too heavy", type="heavy", non_retryable=True)
    return call["value"]


PLAN = (call("weigh", "†state.weight", value="†order.weight"), call("echo", "†state.end", value="†state.weight"))


class Files:
    """The files of one test, in the folder of the worker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = uuid.uuid4().hex[:8]

    def write(self, text: str | bytes, suffix: str = "jsonl") -> str:
        name = f"{self._name}.{suffix}"
        (self._folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    def rows(self, count: int, *, first: int = 1) -> str:
        return self.write("".join(json.dumps({"id": f"o{n}", "weight": n}) + "\n" for n in range(first, first + count)))

    @property
    def results(self) -> str:
        return f"{self._name}.out.jsonl"

    def path(self, name: str) -> Path:
        return self._folder / name

    def lines(self) -> list[dict[str, Json]]:
        return [json.loads(line) for line in self.path(self.results).read_text("utf-8").splitlines()]


@pytest.fixture
def files(sets_folder: Path) -> Files:
    return Files(sets_folder)


def request(
    foreign: Foreign, source: str, *calls: Json, id_field: str | None = "id", **config: Json
) -> dict[str, Json]:
    own = {"source": source} | ({} if id_field is None else {"id": id_field})
    context = [foreign.tool("weigh", options=ONCE), {"type": "data", "kind": "order", "_instances": own}]
    return foreign.request(*(calls or PLAN), context=context, **config)


async def test_each_row_is_an_instance_and_has_a_line(foreign: Foreign, files: Files) -> None:
    async with foreign.serving(weigh, echo):
        handle = await foreign.start(request(foreign, files.rows(60), results=files.results, instancesPerChild=7))
        result = await ended(handle)
    assert (result["status"], result["instances"]) == (
        "partial",
        {"total": 60, "completed": 59, "failed": 1, "running": 0},
    )
    assert (result["failures"], result["results"]) == (["o13"], files.results)
    assert [(e["instance"], e["call"], e["code"]) for e in result["errors"]] == [("o13", "1:weigh", "heavy")]
    by_id = {line["id"]: line for line in files.lines()}
    assert len(files.lines()) == len(by_id) == 60
    assert by_id["o7"] == {"id": "o7", "status": "completed", "state": {"weight": 7, "end": 7}, "errors": []}
    assert (by_id["o13"]["status"], by_id["o13"]["errors"][0]["message"]) == ("failed", "too heavy")
    batches = await of_type(handle, "START_CHILD_WORKFLOW_EXECUTION_INITIATED")
    assert [(e.workflow_type.name, e.workflow_id.rpartition("/")[2]) for e in batches] == [
        ("Batch", "batch-1"), ("Batch", "batch-2"), ("Batch", "batch-3"),
    ]  # fmt: skip
    below = await of_type(
        foreign.client.get_workflow_handle(f"{handle.id}/batch-3"), "START_CHILD_WORKFLOW_EXECUTION_INITIATED"
    )
    assert [e.workflow_id.rpartition("/")[2] for e in below] == ["o51", "o58"]


async def test_a_bad_row_and_a_repeated_id_fail_alone_and_are_named_by_their_lines(
    foreign: Foreign, files: Files
) -> None:
    rows = ['{"id": "a", "weight": 1}', "", "{", '{"id": "a", "weight": 2}', '{"weight": 3}', '{"id": 7, "weight": 4}']
    huge = json.dumps({"id": "big", "text": "x" * 3_000_000})
    source = files.write("\ufeff" + "\n".join([*rows, huge]))
    async with foreign.serving(weigh, echo):
        result = await ended(await foreign.start(request(foreign, source, results=files.results)))
    assert result["instances"] == {"total": 6, "completed": 2, "failed": 4, "running": 0}
    failed = {line["id"]: line["errors"][0] for line in files.lines() if line["status"] == "failed"}
    assert {id_: error["code"] for id_, error in failed.items()} == {
        "line 3": "badRow", "line 4": "duplicateId", "line 5": "badRow", "line 7": "badRow",
    }  # fmt: skip
    assert "not JSON" in failed["line 3"]["message"]
    assert failed["line 4"]["message"] == f'line 4 of {source}: an earlier row, which runs, has its id, "a"'
    assert 'no field "id"' in failed["line 5"]["message"]
    assert "at most 1,048,576" in failed["line 7"]["message"]
    assert sorted(line["id"] for line in files.lines() if line["status"] == "completed") == ["7", "a"]


@pytest.mark.parametrize(
    ("text", "suffix", "type_", "message"),
    [
        (None, "jsonl", "SetNotFound", "there is no set"),
        ("", "jsonl", "InvalidSet", "has no rows"),
        ("id,weight\n", "csv", "InvalidSet", "has no rows below its header"),
        ("weight\n1\n", "csv", "InvalidSet", 'has no column "id"'),
        ("{}\n", "txt", "SetRefused", "neither JSON Lines nor CSV"),
    ],
)
async def test_a_set_that_cannot_be_used_fails_the_run_at_once(
    foreign: Foreign, files: Files, text: str | None, suffix: str, type_: str, message: str
) -> None:  # fmt: skip
    source = f"missing.{suffix}" if text is None else files.write(text, suffix)
    error = await failure(await foreign.start(request(foreign, source, results=files.results)))
    assert (error.type, message in error.message) == (type_, True), error.message
    assert not files.path(files.results).exists()


async def test_a_set_that_changes_stops_the_run_and_it_says_how_far_it_came(foreign: Foreign, files: Files) -> None:
    gate, source = Gate(), files.rows(150)
    async with foreign.serving(gate.activity("weigh"), echo, max_concurrent_activities=200):
        handle = await foreign.start(request(foreign, source, results=files.results, maxParallel=100))
        await gate.reached(100)
        files.rows(150, first=2)
        gate.opened.set()
        with pytest.raises(WorkflowFailureError) as failed:
            await ended(handle)
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    (result,) = cause.details
    assert (cause.type, result["status"]) == ("SetChanged", "failed")
    counts = result["instances"]
    assert counts["completed"] == len(files.lines()) == 100
    assert " has changed since the run began: its lines 1" in cause.message
    assert "100 of 150 rows have ended (100 completed, 0 failed), 50 did not run to their end" in cause.message


async def test_a_cancelled_run_has_a_line_for_what_ran_and_says_how_far_it_came(foreign: Foreign, files: Files) -> None:
    gate = Gate()
    gate.opened.set()
    async with foreign.serving(weigh, gate.activity("echo")):
        handle = await foreign.start(request(foreign, files.rows(500), results=files.results))
        await gate.reached(40)
        gate.opened.clear()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
    assert isinstance(failed.value.cause, CancelledError)
    found = await status(handle)
    counts = found["instances"]
    lines = files.lines()
    assert len({line["id"] for line in lines}) == len(lines) == counts["completed"] + counts["failed"] < 500
    assert Counter(line["status"] for line in lines)["completed"] == counts["completed"]
    assert (counts["total"], counts["running"]) == (500, 0)


async def test_a_budget_of_calls_ends_the_run_between_two_batches(foreign: Foreign, files: Files) -> None:
    async with foreign.serving(weigh, echo):
        result = await ended(
            await foreign.start(request(foreign, files.rows(100), results=files.results, budget={"calls": 120}))
        )
    assert (result["status"], result["instances"]["completed"], result["instances"]["failed"]) == ("partial", 49, 1)
    assert result["errors"][0]["code"] == "BudgetExceeded"
    assert "50 of 100 rows have ended (49 completed, 1 failed), 50 did not run" in result["errors"][0]["message"]


async def test_a_results_file_that_cannot_be_written_is_waited_for(foreign: Foreign, files: Files) -> None:
    gate = Gate()
    async with foreign.serving(gate.activity("weigh"), echo):
        handle = await foreign.start(request(foreign, files.rows(3), results=files.results))
        await gate.reached(3)
        away = files.path(files.results).rename(files.path("away"))
        gate.opened.set()

        async def waits() -> bool:
            batch = await foreign.client.get_workflow_handle(f"{handle.id}/batch-1").describe()
            return any("cannot be written" in a.last_failure.message for a in batch.raw_description.pending_activities)

        await assert_eventually(waits, why="an attempt that failed, in the Web UI")
        away.rename(files.path(files.results))
        result = await ended(handle)
    assert (result["instances"]["completed"], len(files.lines())) == (3, 3)


async def test_a_run_over_many_batches_continues_as_new_between_them(
    foreign: Foreign, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acts.machines.set_run.BATCHES_PER_RUN", 2)
    async with foreign.serving(weigh, echo):
        handle = await foreign.start(request(foreign, files.rows(110), results=files.results, budget={"calls": 500}))
        result = await ended(handle)
    assert (result["instances"]["completed"], result["failures"], len(files.lines())) == (109, ["o13"], 110)
    first = handle.result_run_id
    assert (first is not None, len(await run_chain(foreign.client, handle.id))) == (True, 3)


class Scale:
    """A Tool that fails for some weights, and remembers the ``_id``s of its Calls."""

    def __init__(self) -> None:
        self.broken: set[Json] = set()
        self.ids: dict[Json, list[str]] = {}

    @activity.defn(name="weigh")
    async def weigh(self, call: dict[str, Json], _tool: dict[str, Json], _context: list[Json]) -> Json:
        self.ids.setdefault(call["value"], []).append(call["_id"])
        if call["value"] in self.broken:
            raise ApplicationError("too heavy", type="heavy", non_retryable=True)
        return call["value"]


@pytest.mark.long
async def test_a_run_that_resumes_another_runs_the_rows_that_failed_with_the_same_ids(
    foreign: Foreign, files: Files
) -> None:
    scale = Scale()
    scale.broken = {7, 8, 55}
    texts = [json.dumps({"id": f"o{n}", "weight": n}) for n in range(1, 61)]
    source = files.write("\n".join([*texts[:20], "{", *texts[21:]]))
    async with foreign.serving(scale.weigh, echo):
        first = await foreign.start(request(foreign, source, results=files.results, instancesPerChild=7))
        assert (await ended(first))["instances"] == {"total": 60, "completed": 56, "failed": 4, "running": 0}
        earlier = files.path(files.results).read_bytes()
        files.path(source).write_text("\n".join(texts))  # line 21 is corrected
        resume = {"workflowId": first.id, "only": "failed"}
        scale.broken, before = {55}, {n: len(ids) for n, ids in scale.ids.items()}
        refused = await failure(await foreign.start(request(foreign, source, results=files.results, resume=resume)))
        assert refused.type == "ResultsExist"
        own = f"2.{files.results}"
        second = await foreign.start(request(foreign, source, results=own, resume=resume))
        result = await ended(second)
        assert result["instances"] == {"total": 4, "completed": 3, "failed": 1, "running": 0}
        assert (result["failures"], result["results"]) == (["o55"], own)
        assert result["resumedFrom"] == {
            "workflowId": first.id, "runId": first.result_run_id, "keep": "completed", "ids": "same", "only": "failed",
            "instances": {"takenOver": 56, "leftOut": 0},
        }  # fmt: skip
        again = {n: ids for n, ids in scale.ids.items() if len(ids) != before.get(n, 0)}
        assert {n: (len(ids), len(set(ids))) for n, ids in again.items()} == {
            7: (2, 1),
            8: (2, 1),
            55: (2, 1),
            21: (1, 1),
        }
        lines = [json.loads(line) for line in files.path(own).read_text().splitlines()]
        assert {line["id"]: line["status"] for line in lines} == {
            "o7": "completed", "o8": "completed", "o21": "completed", "o55": "failed",
        }  # fmt: skip
        assert files.path(files.results).read_bytes() == earlier

        # What the first run had completed is taken over by the third, though the second did not run it
        files.path(source).write_text("\n".join([*texts, json.dumps({"id": "o61", "weight": 61})]))
        scale.broken = set()
        third = request(foreign, source, results=f"3.{files.results}", resume={"workflowId": second.id, "ids": "new"})
        result = await ended(await foreign.start(third))
        assert (result["instances"]["completed"], result["resumedFrom"]["instances"]) == (2, {"takenOver": 59})
        assert (len(set(scale.ids[55])), len(scale.ids[61])) == (2, 1)

        files.path(own).unlink()
        gone = await failure(await foreign.start(request(foreign, source, resume={"workflowId": second.id})))
        assert (gone.type, f"'{own}' of the earlier run is not there any more" in gone.message) == (
            "ResumeRefused",
            True,
        )


class HeldScale(Scale):
    """Calls for some weights wait until ``opened``."""

    def __init__(self, held: set[Json]) -> None:
        super().__init__()
        self.held, self.opened = held, asyncio.Event()

    @activity.defn(name="weigh")
    async def weigh(self, call: dict[str, Json], _tool: dict[str, Json], _context: list[Json]) -> Json:
        if call["value"] in self.held:
            self.ids.setdefault(call["value"], []).append(call["_id"])
            await self.opened.wait()
            return call["value"]
        return await super().weigh(call, _tool, _context)


async def test_rows_of_a_batch_that_is_terminated_or_cancelled_alone_have_lines_and_run_again_with_their_ids(
    foreign: Foreign, files: Files
) -> None:
    source, scale = files.rows(75), HeldScale({*range(6, 26), *range(31, 51)})
    async with foreign.serving(scale.weigh, echo, max_concurrent_activities=200):
        handle = await foreign.start(request(foreign, source, results=files.results, instancesPerChild=5))

        async def has_written() -> bool:
            return files.path(files.results).exists() and len(files.lines()) == 35 and len(scale.ids) == 75

        await assert_eventually(has_written, why="the lines of the rows that nothing holds")
        await foreign.client.get_workflow_handle(f"{handle.id}/batch-1").terminate("by hand")
        await foreign.client.get_workflow_handle(f"{handle.id}/batch-2").cancel()
        result = await ended(handle)
        assert (result["status"], result["instances"]) == (
            "partial", {"total": 75, "completed": 35, "failed": 40, "running": 0},
        )  # fmt: skip
        by_id = {line["id"]: line for line in files.lines()}
        assert len(files.lines()) == len(by_id) == 75
        assert Counter(line["status"] for line in by_id.values()) == {"completed": 35, "failed": 20, "cancelled": 20}
        (error,) = by_id["o6"]["errors"]
        assert (error["code"], "batch-1 was terminated before it reported this row" in error["message"]) == (
            "BatchLost", True,
        )  # fmt: skip
        assert f"acts retry {handle.id} --only-failed" in error["message"]

        scale.held.clear()
        scale.opened.set()
        resume = {"workflowId": handle.id, "only": "failed"}
        again = await foreign.start(request(foreign, source, results=f"2.{files.results}", resume=resume))
        result = await ended(again)
    assert result["instances"] == {"total": 20, "completed": 20, "failed": 0, "running": 0}
    assert result["resumedFrom"]["instances"] == {"takenOver": 35, "leftOut": 20}
    again_by_number = {n: (len(ids), len(set(ids))) for n, ids in scale.ids.items() if len(ids) > 1}
    assert again_by_number == dict.fromkeys(range(6, 26), (2, 1))


@pytest.mark.long
async def test_a_run_without_a_results_file_is_resumed_by_what_its_batches_reported(
    foreign: Foreign, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acts.machines.set_run.BATCHES_WITH_RESULTS", 2)
    texts = [json.dumps({"id": f"o{n}", "weight": n}) for n in range(1, 111)]
    source, scale = files.write("\n".join([*texts[:20], "{", *texts[21:]])), HeldScale({30})
    scale.broken = {7, 60}
    async with foreign.serving(scale.weigh, echo):
        first = await foreign.start(request(foreign, source))

        async def is_held() -> bool:
            return 30 in scale.ids

        await assert_eventually(is_held, why="a row of the second Batch runs")
        await foreign.client.get_workflow_handle(f"{first.id}/batch-2").terminate("by hand")
        result = await ended(first)
        assert result["instances"] == {"total": 110, "completed": 82, "failed": 28, "running": 0}
        scale.broken, scale.held = {60}, set()
        scale.opened.set()
        files.path(source).write_text("\n".join(texts))  # line 21 is corrected
        resume = {"workflowId": first.id}
        second = await foreign.start(request(foreign, source, resume=resume))
        result = await ended(second)
        assert result["instances"] == {"total": 28, "completed": 27, "failed": 1, "running": 0}
        assert result["resumedFrom"]["instances"] == {"takenOver": 82}
        assert {n: len(set(scale.ids[n])) for n in (7, 30, 60)} == {7: 1, 30: 1, 60: 1}
        scale.broken = set()
        resume = {"workflowId": second.id}
        result = await ended(await foreign.start(request(foreign, source, results=files.results, resume=resume)))
    assert (result["instances"]["total"], result["resumedFrom"]["instances"]) == (1, {"takenOver": 109})
    assert [line["id"] for line in files.lines()] == ["o60"]
