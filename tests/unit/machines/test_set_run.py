"""The machine of a run over a set: how many Batches run, what it carries over, how it ends, what it loses."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.activities.set_work import SetActivities
from acts.language.errors import CallError
from acts.language.messages import Data, parse_message, read_request
from acts.machines import set_run
from acts.machines.commands import Finish, StartChild, StartEngineActivity
from acts.machines.events import (
    Begin,
    CallEnded,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    PauseChanged,
    Provided,
    RunReset,
)
from acts.machines.set_run import SetRun, SetSetup
from acts.plan.validate import validate, validate_parsed
from acts.sets.results_file import append, create, find_results
from acts.sets.set_files import SetSources
from acts.sets.survey import RowIds
from acts.tree.past_run import PastResults
from acts.tree.records import Accounting, Capabilities, TreePosition
from acts.tree.set_records import ResumedSet, SetState, pack_bits
from acts.tree.wire_format import digest
from acts.views.run_views import SetView
from tests.security.test_signed_decisions import APPROVERS
from tests.unit.sets.test_past_rows import running, select
from tests.unit.sets.test_row_reader import no_rows

Json = Any
NOW = "2026-01-01T00:00:00.000Z"
OWN = "root"
TOOL = {"properties": {"_tool": {"const": "pay"}, "of": {}, "_outputPath": {}}, "_activity": "pay"}
CALL = {"_tool": "pay", "of": "†order.total", "_outputPath": "†state.paid"}


def request(*calls: Json, context: tuple[Json, ...] = (), **config: Json) -> dict[str, Json]:
    own = {"type": "data", "kind": "order", "_instances": {"source": "orders.jsonl", "id": "id"}}
    plan = {"type": "plan", "plan": list(calls or [CALL])}
    return {"config": config, "context": [{"type": "tool", "tool": TOOL}, own, *context, plan]}


def setup_of(raw: dict[str, Json], state: SetState | None = None) -> SetSetup:
    parsed = read_request(raw)
    prepared = validate_parsed(parsed, {}, ["pay"])
    assert parsed.set is not None
    position = TreePosition(identity="me", token="t").with_budget(OWN, parsed.config.budget)  # noqa: S106 - of a test
    position = position.with_limit(parsed.config.maxParallel, None)
    return SetSetup(raw, prepared, parsed.set, Capabilities(), state.position if state else position, NOW[:10])


def pack(numbers: tuple[int, ...] | list[int], total: int) -> str:
    return pack_bits(sum(1 << n for n in numbers).to_bytes(total // 8 + 1, "little"))


def survey(pages: list[int], repeated: tuple[int, ...] = ()) -> dict[str, Json]:
    total = sum(pages)
    dialect = {"format": "jsonl", "columns": [], "delimiter": ",", "start": 0, "lines": 0}
    listed = [[10 * rows, rows, rows, f"{n:012x}"] for n, rows in enumerate(pages)]
    return {"total": total, "dialect": dialect, "pages": listed, "repeated": pack(repeated, total)}


class World:
    """Drives the machine: it ends Batches in any order, and goes on in another run when the machine wants to."""

    def __init__(
        self, raw: dict[str, Json], pages: list[int], repeated: tuple[int, ...] = (), resumed: ResumedSet | None = None
    ) -> None:
        self.raw, self.survey = raw, survey(pages, repeated)
        self.run = SetRun(OWN, replace(setup_of(raw), resumed=resumed))
        self.open: dict[str, StartChild] = {}
        self.batches: list[StartChild] = []
        self.activities: list[StartEngineActivity] = []
        self.most = self.runs = 0
        self.finish: str | None = None

    def handle(self, event: Any) -> None:
        for command in self.run.handle(event, NOW):
            if isinstance(command, StartChild):
                self.open[command.name] = command
                self.batches.append(command)
            elif isinstance(command, StartEngineActivity):
                self.activities.append(command)
            elif isinstance(command, Finish):
                self.finish = command.status
        self.most = max(self.most, len(self.open))
        self.run.flush(NOW)

    def begin(self) -> None:
        self.handle(Begin())
        while self.activities and self.finish is None:
            done = self.activities.pop(0)
            self.handle(CallEnded(done.key, self.survey if done.key == "survey" else {}))

    def end(self, name: str, error: CallError | None = None, **report: Json) -> None:
        batch = self.open.pop(name)
        self.handle(ChildStarted(name, f"{OWN}/{name}"))
        full = {
            "completed": batch.input.reading.page.rows - len(batch.input.reading.skipped),
            "failed": 0,
            "failures": [],
            **report,
        }
        lease = batch.input.lease
        assert lease is not None
        accounting = Accounting(permits=lease.permits)
        self.handle(ChildEnded(name, None if error else full, error, accounting=accounting))

    def renew(self) -> None:
        """Another run, from what this one carries over."""
        state = SetState.from_json(self.run.snapshot().to_json())
        self.run = SetRun(OWN, replace(setup_of(state.request, state), resumed=state.resumed))
        self.run.restore(state)
        self.runs += 1
        self.handle(Begin())

    def run_to_end(self, choose: random.Random) -> None:
        while self.finish is None:
            if self.run.wants_new_run:
                self.renew()
            else:
                self.end(choose.choice(sorted(self.open)))


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.integers(1, 400), st.integers(1, 5), st.integers())
@settings(max_examples=40, deadline=None)
def test_every_page_is_walked_once_in_order_whatever_ends_first(
    pages: list[int], parallel: int, per_run: int, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_run, "BATCHES_PER_RUN", per_run)
        world = World(request(maxParallel=parallel, results="out.jsonl"), pages)
        world.begin()
        world.run_to_end(random.Random(seed))  # noqa: S311 - an order, no secret
    assert world.finish == "completed"
    assert [b.input.reading.page.row for b in world.batches] == [1 + sum(pages[:n]) for n in range(len(pages))]
    assert [b.input.reading.page.offset for b in world.batches] == [10 * sum(pages[:n]) for n in range(len(pages))]
    assert SetView(world.run).counts() == {"total": sum(pages), "completed": sum(pages), "failed": 0, "running": 0}
    # What its Batches may have in flight together is what the tree may
    assert world.most * (world.batches[0].input.lease or Accounting()).permits <= parallel  # type: ignore[operator]
    assert world.runs == (len(pages) - 1) // per_run


RESUMED = ResumedSet(
    source={"workflowId": "order-7", "runId": "r", "keep": "completed", "ids": "same", "only": "failed"},
    results=(PastResults(file="out.jsonl", run="then"),), identity="then",
)  # fmt: skip


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.data(), st.integers(1, 5), st.integers())
@settings(max_examples=40, deadline=None)
def test_a_run_that_resumes_another_walks_the_other_rows_once_and_no_page_without_them(
    pages: list[int], data: st.DataObject, per_run: int, seed: int
) -> None:
    total = sum(pages)
    skipped = data.draw(st.sets(st.integers(1, total)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(set_run, "BATCHES_PER_RUN", per_run)
        world = World(request(results="out.2.jsonl"), pages, resumed=RESUMED)
        world.survey |= {"skipped": pack(skipped, total), "takenOver": len(skipped), "leftOut": 0}
        world.begin()
        world.run_to_end(random.Random(seed))  # noqa: S311 - an order, no secret
    walked = [
        row for reading in (b.input.reading for b in world.batches)
        for row in range(reading.page.row, reading.page.row + reading.page.rows) if row not in reading.skipped
    ]  # fmt: skip
    assert walked == [row for row in range(1, total + 1) if row not in skipped]
    assert all(len(b.input.reading.skipped) < b.input.reading.page.rows for b in world.batches)
    assert {(b.input.position.identity, b.input.run) for b in world.batches} <= {("then", "me")}
    result, rest = SetView(world.run).result(), total - len(skipped)
    assert result["instances"] == {"total": rest, "completed": rest, "failed": 0, "running": 0}
    assert result["resumedFrom"] == RESUMED.source | {"instances": {"takenOver": len(skipped), "leftOut": 0}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"_instances": {"source": ""}}, '"source" of a set is the name of a file or a URL'),
        ({"_instances": ["a.jsonl"]}, "not list"),
        ({"_instances": {"source": "a.jsonl", "ID": "x"}}, 'unknown key "ID"'),
        ({"kind": "state"}, "no state"),
        ({"_instance": "a"}, "beside _instances"),
        ({"data": {}}, "beside _instances"),
    ],
)
def test_a_message_that_names_no_set_says_why(change: dict[str, Json], message: str) -> None:
    raw = request()
    raw["context"][1] = {**raw["context"][1], **change}
    assert any(message in p.message for p in validate(raw, {}, ["pay"]) if p.fatal)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (request({**CALL, "_instance": "a"}), "is a template"),
        (request(context=({"type": "state", "n": 1, "_instance": "a"},)), "all instances come from there"),
        (request(context=(request()["context"][1],)), "has one set"),
        (request({**CALL, "of": "†ordr.total"}), "nothing in the context or the plan provides †ordr.total"),
    ],
)
def test_what_a_set_does_not_go_with_is_refused(raw: dict[str, Json], message: str) -> None:
    problems = [p for p in validate(raw, {}, ["pay"]) if p.fatal]
    assert len(problems) == 1
    assert message in problems[0].message


TERMINATED = CallError("TerminatedError", "Workflow execution terminated")
CANCELLED = CallError("cancelled", "the call was cancelled")


def waiting_set(pages: list[int]) -> SetRun:
    """A run over a set whose rows are counted, and which waits for its approval."""
    run = SetRun("r", setup_of(request(CALL, approve={"plan": True})))
    (command,) = run.handle(Begin(), NOW)
    assert run.approvals.pending == []
    assert isinstance(command, StartEngineActivity)
    run.handle(CallEnded(command.key, survey(pages)), NOW)
    return run


def test_the_rows_of_a_set_are_a_part_of_what_is_approved() -> None:
    waits = [waiting_set(pages).approvals.pending[0] for pages in ([2], [2], [3])]
    assert waits[0].subject == waits[1].subject != waits[2].subject


def test_after_a_reset_a_set_waits_again_before_more_of_it_starts() -> None:
    run = waiting_set([2, 3])
    run.position = run.approvals.position = run.position.model_copy(update={"approvers": APPROVERS})
    wait = run.approvals.pending[0]
    run.is_approved = True
    run.approvals.close(wait)
    run.handle(RunReset("first", "another"), NOW)
    assert run.approvals.pending[0].what == "plan"
    assert not any(isinstance(command, StartChild) for command in run.handle(PauseChanged(is_paused=False), NOW))


def test_what_is_provided_to_a_set_that_waits_is_a_part_of_what_is_approved() -> None:
    run = waiting_set([2])
    (before,) = run.approvals.pending
    rate = parse_message({"type": "data", "kind": "rate", "data": {"eur": 2}})
    assert isinstance(rate, Data)
    run.handle(Provided(rate), NOW)
    (after,) = run.approvals.pending
    assert (after.version, after.subject) == (before.version + 1, digest(run.subject_of(after)))
    assert after.subject != before.subject


def closing(world: World) -> StartEngineActivity:
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


ROWS = b"".join(b'{"id": "o%d"}\n' % n for n in (1, 2, 3)) + b'{\n{"id": "o1"}\n{"id": "o6"}\n'
LOST = {"status": "failed", "code": "BatchLost", "message": "batch-1 was terminated"}


@pytest.fixture
def work(tmp_path: Path) -> SetActivities:
    """Sets and results in one folder, with the results file of the run ``me``."""
    (tmp_path / "a.jsonl").write_bytes(ROWS)
    create(find_results([tmp_path], "out.jsonl"), "me")
    return SetActivities(SetSources(data=(tmp_path,), results=(tmp_path,)), no_rows)


def closed(work: SetActivities, **more: Json) -> dict[str, Json]:
    """The page of all rows, of which the fifth repeats an id, closed."""
    found = work.count_rows("a.jsonl", "id", RowIds())
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
