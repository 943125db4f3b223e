"""A run that was reset asks the runs below to say again what it may not know, and starts again what is gone."""

from __future__ import annotations

from acts.language.messages import read_request
from acts.machines.agent_context import AgentContext, StreamedPlan
from acts.machines.approvals import Approvals
from acts.machines.budget import BudgetMachine, RequestSize
from acts.machines.commands import SendRecord, StartTimer
from acts.machines.permits import Permits
from acts.machines.run_machine import RESYNC_SECONDS, RESYNC_TIMER, ResetRecovery
from acts.tree.records import BudgetAccount, TreePosition
from acts.tree.signal_records import BudgetGrant, BudgetRequest, PermitRequest, PlanExtension, Resync

KEPT = {"1:a": "r/1:a", "2:b": "r/2:b"}


def recovery_of(children: dict[str, str]) -> ResetRecovery:
    root = TreePosition()
    return ResetRecovery(Approvals("r", root, lambda *_: None), BudgetMachine("r", root), Permits("r", root), children)


def asked(*keys: str) -> list[SendRecord]:
    return [SendRecord(KEPT[key], Resync(), key=f"resync/{key}") for key in keys]


def next_round(number: int) -> StartTimer:
    return StartTimer(RESYNC_TIMER, RESYNC_SECONDS[number], RESYNC_TIMER)


def test_each_child_is_asked_as_long_as_it_runs() -> None:
    children = dict(KEPT)
    recovery = recovery_of(children)
    assert recovery.on_reset("first") == [*asked("1:a", "2:b"), next_round(0)]
    del children["1:a"]
    children["3:c"] = "r/3:c"  # was started after the reset
    for number in (1, 2, 3, 4, 5, 5):
        assert recovery.on_timer(RESYNC_TIMER) == [*asked("2:b"), next_round(number)]
    children.clear()
    assert recovery.on_timer(RESYNC_TIMER) == []


def test_a_keeper_of_permits_that_was_reset_waits_for_none_that_its_children_gave_back_to_another_run() -> None:
    keeper = Permits("r", TreePosition(maxParallel=2))
    assert keeper.reserve("1:a")
    assert keeper.reserve("2:b")  # both children hand theirs back to a run that is no more
    ask = PermitRequest(workflowId="r/1:a", ancestors=("r",), missing=1, held=0)
    keeper.on_request(ask)
    assert keeper.flush(0) == [], "without a reset it has none to give"
    keeper.count_anew(KEPT)
    keeper.on_request(ask)
    (grant,) = keeper.flush(0)
    assert (grant.workflow_id, grant.record.permits) == ("r/1:a", 1)


def test_a_run_asks_for_its_budget_again_and_gives_back_what_it_gets_twice() -> None:
    account = BudgetAccount.from_json({"id": "r", "limits": {"requests": 3}})
    run = BudgetMachine("r/1:a", TreePosition(ancestors=("r",), accounts=(account,)))
    root = BudgetMachine("r", TreePosition(accounts=(account,)))
    (first,) = run.request(["1:x"], RequestSize())
    (again,) = run.ask_again()
    assert isinstance(first, SendRecord)
    assert first == again
    assert isinstance(first.record, BudgetRequest)
    answers = [effect for _ in range(2) for effect in root.serve(first.record)]
    for answer in answers:
        assert isinstance(answer, SendRecord)
        assert isinstance(answer.record, BudgetGrant)
        run.on_grant(answer.record)
    assert run.ask_again() == []
    assert len(run.take_unreported()) == len(answers) - 1, "the second goes back"


def test_the_plan_of_a_tick_that_is_started_again_gets_all_that_was_written_since_its_first_start() -> None:
    stream = StreamedPlan(AgentContext(read_request({"config": {"model": "scripted:x"}, "context": []}), {}, ()))
    first, last = PlanExtension(calls=({"_tool": "a"},)), PlanExtension(isComplete=True)
    assert stream.send(first) == [], "it is being started"
    assert [r.record for r in stream.child_started("r/plan-1")] == [first]
    assert [r.record for r in stream.send(last)] == [last]
    assert [r.record for r in stream.child_started("r/plan-1")] == [first, last]
