"""The machine of a run over a set: how many Batches run, what it carries over, and how it ends."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.language.errors import CallError
from acts.language.messages import read_request
from acts.machines import set_run
from acts.machines.commands import Finish, StartChild, StartSetActivity
from acts.machines.events import Begin, CallEnded, ChildEnded, ChildStarted
from acts.machines.set_run import SetRun, SetSetup
from acts.plan.validate import validate, validate_parsed
from acts.tree.past_run import PastResults
from acts.tree.records import Accounting, Capabilities, TreePosition
from acts.tree.set_records import ResumedSet, SetState, pack_bits
from acts.views.run_views import SetView

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
        self.activities: list[StartSetActivity] = []
        self.most = self.runs = 0
        self.finish: str | None = None

    def handle(self, event: Any) -> None:
        for command in self.run.handle(event, NOW):
            if isinstance(command, StartChild):
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
