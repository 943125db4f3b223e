"""Batches that end without a word of all their rows: each row has one line all the same, and is counted once."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.activities.set_work import SetActivities
from acts.language.errors import CallError
from acts.machines.commands import StartSetActivity
from acts.machines.events import CallEnded, CancelRequested, ChildEnded
from acts.sets.results_file import append, create, find_results
from acts.sets.set_files import SetSources
from acts.sets.survey import RowIds
from acts.views.run_views import SetView
from tests.unit.test_past_rows import running, select
from tests.unit.test_row_reader import no_rows
from tests.unit.test_set_run import World, request

Json = Any
TERMINATED = CallError("TerminatedError", "Workflow execution terminated")
CANCELLED = CallError("cancelled", "the call was cancelled")


def closing(world: World) -> StartSetActivity:
    """The activity that closes a page; it has not ended."""
    return next(a for a in world.activities if a.activity == "acts.closePage")


def close(world: World, error: CallError | None = None, **answer: Json) -> None:
    command = closing(world)
    world.activities.remove(command)
    world.handle(CallEnded(command.key, None if error else {"failures": [], **answer}, error=error))


class LineFile:
    """What the activities do to a results file, as far as a run can tell: a row keeps its first line."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {}

    def write(self, rows: list[int], status: str) -> None:
        for row in rows:
            self.rows.setdefault(row, status)

    def close(self, argument: dict[str, Json]) -> dict[str, Json]:
        page, skipped = argument["reading"]["page"], argument["reading"].get("skipped", ())
        rows = [n for n in range(page["row"], page["row"] + page["rows"]) if n not in skipped]
        self.write(rows, argument["line"]["status"])
        counts = Counter(self.rows[n] == "completed" for n in rows if n in self.rows)
        return {"completed": counts[True], "failed": counts[False], "failures": []}


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(), st.booleans())
@settings(max_examples=50, deadline=None)
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
    assert counts["running"] == 0
    if world.finish == "cancelled":  # what a Batch wrote that said nothing of it is not counted
        assert counts["completed"] + counts["failed"] <= len(file.rows)
    else:
        assert counts["completed"] == list(file.rows.values()).count("completed")
        assert counts["completed"] + counts["failed"] == len(file.rows) == counts["total"] == sum(pages)


def end_closing(world: World, file: LineFile, choose: random.Random) -> None:
    """It closes the page, unless the run is cancelled before or after it has done so."""
    argument, kind = closing(world).argument, choose.randrange(3) if world.run.is_cancelling else 0
    answer = file.close(argument) if kind < 2 else {}
    close(world, CANCELLED if kind else None, **answer)


def end_batch(world: World, file: LineFile, choose: random.Random) -> None:
    """It walks its page, or ends after a part of it: cancelled, with a word of what it did, or terminated."""
    name = choose.choice(sorted(world.open))
    page = world.open[name].input.reading.page
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
    found = json.loads(work.count_rows("a.jsonl", "id", RowIds()).payload.data)
    (size, rows, lines, hash_) = found["pages"][0]
    page = {"offset": 0, "line": 1, "row": 1, "rows": rows, "lines": lines, "hash": hash_}
    assert (size, rows) == (len(ROWS), 6)
    query = {"source": "a.jsonl", "id": "id", "dialect": found["dialect"], "page": page, "repeated": [5]}
    return work.close_page({"run": "me", "reading": query, **more})


def test_rows_without_a_line_get_one_and_all_lines_are_counted(work: SetActivities, tmp_path: Path) -> None:
    own = find_results([tmp_path], "out.jsonl")
    append(own, "me", [(3, b'{"id": "o3", "status": "completed", "state": {}, "errors": []}')])
    append(own, "me", [(99, b'{"id": "o99", "status": "completed", "state": {}, "errors": []}')])  # of another page
    append(own, "me", [(2, b'{"id": "o2", "status": "rejected", "state": {}, "errors": []}')])
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
    assert running(select(ROWS, (own, "me"), only_failed=True)) == [1, 4, 5, 6]
