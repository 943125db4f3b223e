"""Batches that end without a word of all their rows: each row has one line all the same, and is counted once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.set_work import SetActivities
from acts.language.errors import CallError
from acts.machines.events import CancelRequested, ChildEnded, SetActivityEnded
from acts.machines.past_sets import read_set_facts
from acts.machines.run_commands import StartSetActivity
from acts.tree.past_run import PastSet
from acts.views.set_view import SetView
from sets import results_file
from sets.past_results import PastFile
from sets.results_file import append, create, find_results
from sets.set_sources import SetSources
from tests.unit.test_past_rows import running, select
from tests.unit.test_set_run import World, request
from tests.unit.test_set_work import no_rows

Json = Any
TERMINATED = CallError("TerminatedError", "Workflow execution terminated")
CANCELLED = CallError("cancelled", "the call was cancelled")


def closing(world: World) -> StartSetActivity:
    """The activity that closes a page; it has not ended."""
    return next(a for a in world.activities if a.activity == "acts.closePage")


def close(world: World, error: CallError | None = None, **answer: Json) -> None:
    command = closing(world)
    world.activities.remove(command)
    world.handle(SetActivityEnded(command.key, None if error else {"failures": [], **answer}, error))


@pytest.mark.parametrize(
    ("error", "status", "code", "text", "advice"),
    [
        (TERMINATED, "failed", "BatchLost", "root/batch-2 was terminated before", "acts retry root --only-failed"),
        (CallError("timeout", "30 s"), "failed", "BatchLost", "batch-2 timed out before", "--only-failed"),
        (CallError("TaskStuck", "in f"), "failed", "BatchLost", "failed ([TaskStuck] in f) before", "--only-failed"),
        (CANCELLED, "cancelled", "cancelled", "batch-2 was cancelled before", "they had: acts retry root"),
        (None, "failed", "BatchLost", "batch-2 ended before", "--only-failed"),
    ],
)
def test_a_lost_batch_concerns_its_rows_and_no_others(
    error: CallError | None, status: str, code: str, text: str, advice: str
) -> None:
    world = World(request(results="out.jsonl"), [25] * 9)
    world.begin()
    world.open.pop("batch-2")
    world.handle(ChildEnded("batch-2", None if error else {}, error))
    argument = closing(world).argument
    assert (argument["line"]["status"], argument["line"]["code"]) == (status, code)
    assert text in argument["line"]["message"]
    assert argument["line"]["message"].endswith(advice)
    assert (argument["file"], argument["run"], argument["page"]["row"]) == ("out.jsonl", "me", 26)
    for _ in range(8):
        world.end(min(world.open))
    assert (world.finish, SetView(world.run).counts()["running"]) == (None, 25)
    close(world, completed=5, failed=20, failures=[{"id": "o30", "status": status, "errors": []}])
    found = SetView(world.run).result()
    assert (world.finish, len(world.batches), found["failures"]) == ("partial", 9, ["o30"])
    assert found["instances"] == {"total": 225, "completed": 205, "failed": 20, "running": 0}
    (note,) = world.run.all_notes
    assert note.endswith(f"its 25 rows that it had not reported count as {status}")


def test_without_a_results_file_what_a_cancelled_batch_reported_is_kept() -> None:
    world = World(request(), [25])
    world.begin()
    bad = {"status": "failed", "errors": [{"call": None, "code": "badRow", "message": "no"}]}
    own = {"a": {"status": "completed", "errors": []}, "line 2": bad, "line 3": {"status": "completed", "errors": []}}
    world.handle(ChildEnded("batch-1", {"completed": 2, "failed": 1, "failures": [], "instances": own}, CANCELLED))
    assert closing(world).argument["ended"] == ["a", "line 2", "line 3"]
    close(world, completed=0, failed=22, instances={"d": {"status": "cancelled", "errors": []}})
    assert SetView(world.run).counts() == {"total": 25, "completed": 2, "failed": 23, "running": 0}
    facts = read_set_facts(world.run, "r1", 9).set
    assert facts is not None
    assert [(row.id, row.status, row.isLine) for row in facts.rows] == [
        ("a", "completed", False), ("line 2", "failed", True), ("line 3", "completed", False),
        ("d", "cancelled", False),
    ]  # fmt: skip
    assert [item.to_json() for item in facts.results] == [{"workflowId": "root", "runId": "r1"}]
    assert PastSet.from_json(facts.to_json()) == facts


def test_a_page_that_cannot_be_closed_stops_the_run() -> None:
    world = World(request(results="out.jsonl"), [25, 25])
    world.begin()
    world.end("batch-1")
    world.handle(ChildEnded("batch-2", None, TERMINATED))
    close(world, CallError("SetChanged", "it has changed"))
    text = SetView(world.run).failure_text
    assert (world.finish, "25 of 50 rows have ended" in text, "it has changed" in text) == ("failed", True, True)


class LineFile:
    """What the activities do to a results file, as far as a run can tell: a row keeps its first line."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {}

    def write(self, rows: list[int], status: str) -> None:
        for row in rows:
            self.rows.setdefault(row, status)

    def close(self, argument: dict[str, Json]) -> dict[str, Json]:
        page = argument["page"]
        rows = [n for n in range(page["row"], page["row"] + page["rows"]) if n not in argument.get("skipped", ())]
        if "line" in argument:
            self.write(rows, argument["line"]["status"])
        counts = Counter(self.rows[n] == "completed" for n in rows if n in self.rows)
        return {"completed": counts[True], "failed": counts[False], "failures": []}


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_is_lost_every_row_has_one_line_and_is_counted_once(
    pages: list[int], seed: int, is_cancelled: bool  # noqa: FBT001
) -> None:  # fmt: skip
    choose, file = random.Random(seed), LineFile()  # noqa: S311 - an order, no secret
    world = World(request(results="out.jsonl"), pages)
    world.begin()
    cancel_at = choose.randrange(2 * len(pages)) if is_cancelled else -1
    for step in range(1_000):
        if world.finish is not None:
            break
        if step == cancel_at:
            world.handle(CancelRequested())
        if world.activities and choose.random() < 0.5:
            end_closing(world, file, choose)
        elif world.open:
            end_batch(world, file, choose)
    assert world.finish is not None
    counts = SetView(world.run).counts()
    assert (counts["completed"], counts["running"]) == (list(file.rows.values()).count("completed"), 0)
    assert counts["completed"] + counts["failed"] == len(file.rows)
    if world.finish != "cancelled":
        assert len(file.rows) == counts["total"] == sum(pages)


def end_closing(world: World, file: LineFile, choose: random.Random) -> None:
    """It closes the page, unless the run is cancelled before or after it has done so."""
    argument, kind = closing(world).argument, choose.randrange(3) if world.run.is_cancelling else 0
    answer = file.close(argument) if kind < 2 else {}
    close(world, CANCELLED if kind else None, **answer)


def end_batch(world: World, file: LineFile, choose: random.Random) -> None:
    """It walks its page, or ends after a part of it: cancelled, with a word of what it did, or terminated."""
    name = choose.choice(sorted(world.open))
    page = world.open[name].input.page
    rows = list(range(page.row, page.row + page.rows))
    if choose.random() < 0.5 and not world.run.is_cancelling:
        file.write(rows, "completed")
        world.end(name)
        return
    written = rows[: choose.randrange(len(rows) + 1)]
    file.write(written, choose.choice(["completed", "failed"]))
    del world.open[name]
    counts = Counter(file.rows[n] == "completed" for n in written)
    report = {"completed": counts[True], "failed": counts[False], "failures": []}
    is_terminated = choose.random() < 0.5
    event = ChildEnded(name, None, TERMINATED) if is_terminated else ChildEnded(name, report, CANCELLED)
    world.handle(event)


# -- the activity --------------------------------------------------------------------------


ROWS = b"".join(b'{"id": "o%d"}\n' % n for n in (1, 2, 3)) + b'{\n{"id": "o1"}\n{"id": "o6"}\n'
LOST = {"status": "failed", "code": "BatchLost", "message": "batch-1 was terminated"}


@pytest.fixture
def work(tmp_path: Path) -> SetActivities:
    """Sets and results in one folder, with the results file of the run ``me``."""
    (tmp_path / "a.jsonl").write_bytes(ROWS)
    create(find_results([tmp_path], "out.jsonl"), "me")
    return SetActivities(SetSources(data=(tmp_path,), results=(tmp_path,)), lambda _url, _file: None, no_rows)


def closed(work: SetActivities, **more: Json) -> dict[str, Json]:
    """The page of all rows, of which the fifth repeats an id, closed."""
    found = work.survey({"source": "a.jsonl", "id": "id"})
    (size, rows, lines, hash_) = found["pages"][0]
    page = {"offset": 0, "line": 1, "row": 1, "rows": rows, "lines": lines, "hash": hash_}
    assert (size, rows) == (len(ROWS), 6)
    query = {"source": "a.jsonl", "id": "id", "dialect": found["dialect"], "page": page, "repeated": [5], "run": "me"}
    return work.close_page({**query, **more})


def test_rows_without_a_line_get_one_and_all_lines_are_counted(work: SetActivities, tmp_path: Path) -> None:
    own = find_results([tmp_path], "out.jsonl")
    append(own, "me", [(3, b'{"id": "o3", "status": "completed", "state": {}, "errors": []}')])
    append(own, "me", [(99, b'{"id": "o99", "status": "completed", "state": {}, "errors": []}')])  # of another page
    append(own, "me", [(2, b'{"id": "o2", "status": "rejected", "state": {}, "errors": []}')])
    counted = closed(work, file="out.jsonl")
    assert (counted["completed"], counted["failed"], [f["id"] for f in counted["failures"]]) == (1, 1, ["o2"])
    found = closed(work, file="out.jsonl", line=LOST)
    assert (found["completed"], found["failed"]) == (1, 5)
    codes = {f["id"]: [e["code"] for e in f["errors"]] for f in found["failures"]}
    assert codes == {
        "o2": [], "line 4": ["badRow"], "line 5": ["duplicateId"], "o1": ["BatchLost"], "o6": ["BatchLost"],
    }  # fmt: skip
    text = (tmp_path / "out.jsonl").read_text()
    assert closed(work, file="out.jsonl", line=LOST) == found
    # An append of the lost Batch that its worker still makes comes too late
    assert append(own, "me", [(1, b'{"id": "o1", "status": "completed", "state": {}, "errors": []}')]) == 0
    assert (tmp_path / "out.jsonl").read_text() == text
    assert running(select(ROWS, PastFile(own, "me"), only_failed=True)) == [1, 4, 5, 6]


@pytest.mark.parametrize("point", range(4))
def test_a_writer_that_dies_leaves_lines_that_the_next_attempt_completes(
    work: SetActivities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: int
) -> None:
    class Death(BaseException):
        pass

    seen = iter(range(point))

    def fault(_point: str) -> None:
        if next(seen, None) is None:
            raise Death

    with monkeypatch.context() as patch:
        patch.setattr(results_file, "append", lambda *args: append(*args, fault))
        with pytest.raises(Death):
            closed(work, file="out.jsonl", line=LOST)
    results_file._read_before.clear()
    assert closed(work, file="out.jsonl", line=LOST)["failed"] == 6
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 6


def test_without_a_results_file_the_rows_that_the_batch_did_not_report_are_counted(work: SetActivities) -> None:
    found = closed(work, ended=["o2", "line 4"], line=LOST)
    assert (found["completed"], found["failed"]) == (0, 4)
    assert [f["id"] for f in found["failures"]] == ["line 5", "o1", "o3", "o6"]
