"""The machine of a run over a set: how many Batches run, what it carries over, and how it ends."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.config import Resume
from acts.language.errors import CallError, DecisionRefused
from acts.language.request_reader import read_request
from acts.machines import batch_limits
from acts.machines.events import (
    Begin,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    DecisionReceived,
    PauseRequested,
    Provided,
    ResumeRequested,
    SetActivityEnded,
)
from acts.machines.past_sets import read_set_facts, resumed_set
from acts.machines.run_commands import Finish, SignalChildren, StartBatch, StartSetActivity
from acts.machines.set_run import SetRun
from acts.machines.set_setup import SetSetup
from acts.plan.validate import validate, validate_parsed
from acts.tree.past_run import PastResults, PastRun, PastSet
from acts.tree.records import Accounting, Capabilities, TreePosition
from acts.tree.row_numbers import pack_numbers
from acts.tree.set_records import ResumedSet, SetState
from acts.views.set_view import SetView

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
    return SetSetup(raw, prepared, parsed.set, Capabilities(), state.position if state else position)


def survey(pages: list[int], repeated: tuple[int, ...] = ()) -> dict[str, Json]:
    total = sum(pages)
    dialect = {"format": "jsonl", "columns": [], "delimiter": ",", "start": 0, "lines": 0}
    listed = [[10 * rows, rows, rows, f"{n:012x}"] for n, rows in enumerate(pages)]
    return {"total": total, "dialect": dialect, "pages": listed, "repeated": pack_numbers(repeated, total)}


class World:
    """Drives the machine: it ends Batches in any order, and goes on in another run when the machine wants to."""

    def __init__(
        self, raw: dict[str, Json], pages: list[int], repeated: tuple[int, ...] = (), resumed: ResumedSet | None = None
    ) -> None:
        self.raw, self.survey = raw, survey(pages, repeated)
        self.run = SetRun(OWN, replace(setup_of(raw), resumed=resumed))
        self.open: dict[str, StartBatch] = {}
        self.batches: list[StartBatch] = []
        self.activities: list[StartSetActivity] = []
        self.most = self.runs = 0
        self.finish: str | None = None

    def handle(self, event: Any) -> None:
        for command in self.run.handle(event, NOW):
            if isinstance(command, StartBatch):
                self.open[command.name] = command
                self.batches.append(command)
            elif isinstance(command, StartSetActivity):
                self.activities.append(command)
            elif isinstance(command, Finish):
                self.finish = command.status
        self.most = max(self.most, len(self.open))
        self.run.flush(NOW)

    def begin(self) -> None:
        self.handle(Begin())
        while self.activities and self.finish is None:
            done = self.activities.pop(0)
            self.handle(SetActivityEnded(done.key, self.survey if done.key == "survey" else {}))

    def end(self, name: str, error: CallError | None = None, **report: Json) -> None:
        batch = self.open.pop(name)
        self.handle(ChildStarted(name, f"{OWN}/{name}"))
        full = {"completed": batch.input.page.rows - len(batch.input.skipped), "failed": 0, "failures": [], **report}
        lease = batch.input.lease
        assert lease is not None
        accounting = Accounting(permits=lease.permits)
        self.handle(ChildEnded(name, None if error else full, error, accounting=accounting))

    def renew(self) -> None:
        """Another run, from what this one carries over."""
        state = SetState(**self.run.common_snapshot(), **self.run.snapshot_fields())
        state = SetState.from_json(state.to_json())
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
@settings(max_examples=100, deadline=None)
def test_every_page_is_walked_once_in_order_whatever_ends_first(
    pages: list[int], parallel: int, per_run: int, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_limits, "BATCHES_PER_RUN", per_run)
        world = World(request(maxParallel=parallel, results="out.jsonl"), pages)
        world.begin()
        world.run_to_end(random.Random(seed))  # noqa: S311 - an order, no secret
    assert world.finish == "completed"
    assert [b.input.page.row for b in world.batches] == [1 + sum(pages[:n]) for n in range(len(pages))]
    assert [b.input.page.offset for b in world.batches] == [10 * sum(pages[:n]) for n in range(len(pages))]
    assert SetView(world.run).counts() == {"total": sum(pages), "completed": sum(pages), "failed": 0, "running": 0}
    # What its Batches may have in flight together is what the tree may
    assert world.most * (world.batches[0].input.lease or Accounting()).permits <= parallel  # type: ignore[operator]
    assert world.runs == (len(pages) - 1) // per_run


RESUMED = ResumedSet(
    source={"workflowId": "order-7", "runId": "r", "keep": "completed", "ids": "same", "only": "failed"},
    results=(PastResults(file="out.jsonl", run="then"),), identity="then",
)  # fmt: skip


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.data(), st.integers(1, 5), st.integers())
@settings(max_examples=100, deadline=None)
def test_a_run_that_resumes_another_walks_the_other_rows_once_and_no_page_without_them(
    pages: list[int], data: st.DataObject, per_run: int, seed: int
) -> None:
    total = sum(pages)
    skipped = data.draw(st.sets(st.integers(1, total)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_limits, "BATCHES_PER_RUN", per_run)
        world = World(request(results="out.2.jsonl"), pages, resumed=RESUMED)
        world.survey |= {"skipped": pack_numbers(skipped, total), "takenOver": len(skipped), "leftOut": 0}
        world.begin()
        world.run_to_end(random.Random(seed))  # noqa: S311 - an order, no secret
    walked = [
        row for b in world.batches for row in range(b.input.page.row, b.input.page.row + b.input.page.rows)
        if row not in b.input.skipped
    ]  # fmt: skip
    assert walked == [row for row in range(1, total + 1) if row not in skipped]
    assert all(len(b.input.skipped) < b.input.page.rows for b in world.batches)
    assert {(b.input.position.identity, b.input.run) for b in world.batches} <= {("then", "me")}
    result, rest = SetView(world.run).result(), total - len(skipped)
    assert result["instances"] == {"total": rest, "completed": rest, "failed": 0, "running": 0}
    assert result["resumedFrom"] == RESUMED.source | {"instances": {"takenOver": len(skipped), "leftOut": 0}}


def test_what_a_run_over_a_set_had_done_is_in_its_results_file_and_those_of_the_runs_that_it_resumed() -> None:
    world = World(request(results="out.2.jsonl"), [2], resumed=RESUMED)
    world.handle(Begin())
    before = read_set_facts(world.run, "r2", 5).set
    assert before is not None
    assert [item.file for item in before.results or ()] == ["out.jsonl"]
    world.handle(SetActivityEnded("survey", world.survey))
    world.handle(SetActivityEnded("results", {}))
    world.handle(Provided(read_request({"context": [{"type": "data", "data": 1}]}).context[0]))
    facts = read_set_facts(world.run, "r2", 9)
    assert facts.set == PastSet(
        identity="then", id="id", results=(*RESUMED.results, PastResults(file="out.2.jsonl", run="me"))
    )
    assert PastRun.from_json(facts.to_json()) == facts
    message = setup_of(world.raw).message
    again = resumed_set(Resume(workflowId="order-7-retry"), facts, message)
    assert (again.identity, again.results, facts.provided) == (
        "then",
        facts.set.results,
        ({"type": "data", "data": 1},),
    )
    assert resumed_set(Resume(workflowId="order-7-retry", ids="new"), facts, message).identity is None


def test_a_batch_gets_the_plan_its_page_and_its_share_and_no_budget() -> None:
    world = World(request(results="out.jsonl", budget={"calls": 500}, approve={"calls": ["pay"]}), [25, 25], (3, 30))
    world.begin()
    first, second = world.batches
    assert first.input.request["config"] == {
        "approve": {"calls": ["pay"], "plan": False}, "maxParallel": 25, "instancesPerChild": 25,
    }  # fmt: skip
    assert [m["type"] for m in first.input.request["context"]] == ["tool", "plan"]
    assert (first.input.repeated, second.input.repeated) == ((3,), (30,))
    assert (first.input.results, first.input.run, first.input.position.keepsPermits) == ("out.jsonl", "me", True)


def test_the_budget_of_calls_stops_it_between_two_pages() -> None:
    world = World(request(budget={"calls": 60}), [25, 25, 25])
    world.begin()
    assert len(world.batches) == 2
    for name in list(world.open):
        world.end(name)
    result = SetView(world.run).result()
    assert (world.finish, result["instances"]["completed"], result["errors"][0]["code"]) == (
        "partial",
        50,
        "BudgetExceeded",
    )
    assert (
        "50 of 75 rows have ended (50 completed, 0 failed), 25 did not run to their end"
        in result["errors"][0]["message"]
    )


def test_a_batch_whose_instances_met_a_spent_budget_stops_the_run() -> None:
    world = World(request(maxParallel=2), [25] * 9)
    world.begin()
    world.end("batch-1", completed=20, failed=5, spent="2 requests were made; the budget allows 2")
    world.end("batch-2")
    assert (world.finish, len(world.batches)) == ("partial", 2)


@pytest.mark.parametrize("code", ["SetChanged", "SetNotFound", "ResultsRefused", "InvalidRequest"])
def test_a_set_that_cannot_be_used_any_more_lets_the_other_batches_end_and_fails_the_run(code: str) -> None:
    world = World(request(), [25] * 9)
    world.begin()
    world.end("batch-2", CallError(code, "it is another one now"))
    for name in sorted(world.open):
        world.end(name)
    assert (world.finish, len(world.batches)) == ("failed", 4)
    text = SetView(world.run).failure_text
    assert text.startswith("the run stopped: it is another one now; 75 of 225 rows have ended")


def test_a_paused_run_starts_no_batch_until_it_is_resumed() -> None:
    world = World(request(), [25] * 6)
    world.begin()
    assert SignalChildren("pause") in world.run.handle(PauseRequested(), NOW)
    world.end("batch-1")
    assert (len(world.batches), world.run.phase) == (4, "paused")
    world.handle(ResumeRequested())
    assert len(world.batches) == 5


def test_a_cancelled_run_counts_what_its_batches_report() -> None:
    world = World(request(), [25] * 6)
    world.begin()
    world.handle(CancelRequested())
    for name in sorted(world.open):
        world.end(name, completed=5, failed=1, failures=[{"id": f"{name}-x", "status": "cancelled", "errors": []}])
    found = SetView(world.run).status()
    assert (world.finish, found["phase"]) == ("cancelled", "cancelled")
    assert found["instances"] == {"total": 150, "completed": 20, "failed": 4, "running": 0}


def test_at_most_a_hundred_failures_are_listed() -> None:
    world = World(request(), [250] * 2)
    world.begin()
    failures = [{"id": f"o{n}", "status": "failed", "errors": []} for n in range(80)]
    for name in sorted(world.open):
        world.end(name, completed=170, failed=80, failures=failures)
    result = SetView(world.run).result()
    assert (result["status"], len(result["failures"]), result["instances"]["failed"]) == ("partial", 100, 160)


def test_a_set_that_cannot_be_read_ends_the_run_with_its_error() -> None:
    world = World(request(results="out.jsonl"), [1])
    world.handle(Begin())
    world.handle(SetActivityEnded("survey", error=CallError("SetNotFound", "there is no set")))
    assert world.run.failure is not None
    assert (world.finish, world.run.failure.code) == ("failed", "SetNotFound")
    assert [a.key for a in world.activities] == ["survey"]


def test_its_plan_waits_for_a_person_once_and_takes_no_edits() -> None:
    world = World(request(approve={"plan": True}), [25])
    world.handle(Begin())
    assert (world.run.phase, world.activities) == ("awaiting", [])
    with pytest.raises(DecisionRefused, match="cannot be edited"):
        world.run.approvals.judge({"decision": "edit", "plan": [CALL]}, has_children=False)
    world.handle(DecisionReceived({}, "approve"))
    assert [a.key for a in world.activities] == ["survey"]


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
