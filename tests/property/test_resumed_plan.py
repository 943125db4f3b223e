"""A run that resumes another ends as the serial run in which the Calls that it takes over return what they returned.

The oracle knows nothing of that: it runs the edited plan one Call after another, with the old result for each Call that
was taken over and a new one for each that ran. That no Call is taken over whose reads have changed is checked besides:
what the oracle starts it with is what it was started with in the earlier run.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from acts.language.errors import CallError
from acts.language.wire import WRONG_KIND
from acts.machines.past import PastCalls, past_of_state
from acts.machines.walk import Walk
from acts.plan.calls import PlannedCall
from acts.plan.validate import ValidatedPlan
from acts.tree.past_run import PastCall, PastRun, PastState
from acts.tree.records import WalkState
from tests import oracle
from tests.property.drive import NOW, Drive, assert_equal_to_the_serial_run, many, without_wording
from tests.property.test_changed_plan import Edit, apply_edit, approvals, edited_cases, finish_plan, prepared, step
from tests.strategies import MOST_CALLS, Case, orders, tool, values

Json = Any
PROMPT = "what both runs show to a model"


def identify(node: PlannedCall) -> str:
    return f"new/{node.id}"


class ResumedDrive(Drive):
    """A walk that takes over what an earlier one had done."""

    def __init__(self, plan: ValidatedPlan, results: dict[str, Json], past: PastCalls) -> None:
        self.past = past
        super().__init__(plan, results)

    def perform(self, commands: list[Any]) -> None:
        if not hasattr(self, "ids"):  # the first commands are those of a walk that resumes nothing
            self.ids: dict[str, str] = {}
            self.started.clear()
            self.walk = Walk(self.prepared, self.identify, past=self.past)
            commands = self.walk.begin(NOW)
        self.ids |= {c.node.id: c.call["_id"] for c in commands if hasattr(c, "context")}
        super().perform(commands)

    def identify(self, node: PlannedCall) -> str:
        return self.past.identify(node) or identify(node)

    def carry_over(self) -> None:
        """Continue-as-new, with what of the earlier run is not used yet."""
        snapshot = json.loads(json.dumps(self.walk.snapshot().to_json(), sort_keys=True))
        state = PastState.from_json(json.loads(json.dumps(self.past.to_state(self.walk.calls).to_json())))
        self.past = past_of_state(state, self.prepared, ())
        self.past.prompt = PROMPT
        self.walk = Walk(self.prepared, self.identify, past=self.past)
        self.walk.restore(WalkState.from_json(snapshot))
        self.perform(self.walk.begin(NOW))


def facts_of(drive: Drive) -> tuple[PastCall, ...]:
    """What is known of a walk, as another run reads it."""
    calls = drive.walk.read_calls(PROMPT)
    return tuple(PastCall.from_json(json.loads(json.dumps(call.to_json()))) for call in calls)


def resumed(drive: Drive, plan: ValidatedPlan, results: dict[str, Json], *, keeps_ids: bool) -> ResumedDrive:
    past = PastRun(workflowId="old", runId="r", calls=facts_of(drive))
    state = PastState(source={"workflowId": "old"}, past=(past,), keepsIds=keeps_ids)
    return ResumedDrive(plan, results, PastCalls(state, PROMPT))


def is_part(id_: str, of: str) -> bool:
    """The same Call or element, or an element of this Call."""
    return id_ == of or oracle.call_of(id_) == of


def old_id(key: str, taken: str) -> str:
    """The id in the earlier run of what was taken over: of an element, that of its Call with its index."""
    return taken.removeprefix("run/") + key.removeprefix(oracle.call_of(key))


@many(25)
@given(
    edited_cases(), orders(), st.lists(st.booleans(), max_size=MOST_CALLS), approvals, st.data(), st.booleans(),
    st.integers(0, MOST_CALLS),
)  # fmt: skip
def test_a_resumed_run_is_the_serial_run_with_the_results_that_were_taken_over(
    pair: tuple[Case, Edit],
    order: list[int],
    script: list[bool],
    approve: dict[str, Json],
    data: st.DataObject,
    keeps_ids: bool,  # noqa: FBT001
    carry_at: int,
) -> None:
    case, edit = pair
    config = {**case.request["config"], "approve": approve}
    new_request, new_results = apply_edit(case, edit, config)
    old, new = Drive(prepared({**case.request, "config": config}), case.results), prepared(new_request)
    for approving in script:
        step(old, order, approving=approving)
    # What runs again answers something else than it did
    answered = {id_ for id_ in new_results if oracle.call_of(id_).endswith((":act", ":think", ":alone", ":http"))}
    fresh = {id_: data.draw(values) if id_ in answered and data.draw(st.booleans()) else r
             for id_, r in new_results.items()}  # fmt: skip
    drive = resumed(old, new, fresh, keeps_ids=keeps_ids)
    for _ in range(carry_at):
        step(drive, order, approving=True)
    if not drive.walk.running and not drive.final_statuses:
        drive.carry_over()
    finish_plan(drive, order)

    taken = {key: old_id(key, id_) for key, id_ in drive.past.taken.items()}
    event(f"{min(len(taken), 3)} taken over, {min(len(drive.started), 3)} run")
    results = dict(fresh)
    for id_, was in taken.items():
        own_results = {id_ + key.removeprefix(was): r for key, r in case.results.items() if is_part(key, was)}
        results = {key: r for key, r in results.items() if not is_part(key, id_)} | own_results
        results.setdefault(id_, old.result(was))
        error = old.walk.calls[old.rank(oracle.call_of(was))].error
        if error is not None and error["code"] == WRONG_KIND:  # the write failed, not the Call: that is taken over, too
            results[id_] = {"$fail": {"type": WRONG_KIND, "message": oracle.SOME_TEXT}}
    expected = oracle.run(new_request, results)
    for id_, was in taken.items():
        own = [e for e in expected.started if e == id_ or oracle.call_of(e) == id_]
        started = [without_wording(list(old.started[e.replace(id_, was, 1)])) for e in own]
        assert [list(expected.started[e]) for e in own] == started, "its reads have changed"
        assert not [e for e in own if e in drive.started], "it was taken over, and started besides"
        assert id_ not in drive.questions
    drive.started |= {e: expected.started[e] for e in expected.started if e in taken or oracle.call_of(e) in taken}
    assert_equal_to_the_serial_run(drive, expected)

    ended = {n.id: c.stage for n, c in zip(old.walk.nodes, old.walk.calls, strict=True)}
    for _id in drive.ids.values():
        was = _id.removeprefix("run/")
        if _id.startswith("run/"):
            assert keeps_ids
            assert ended.get(oracle.call_of(was)) not in ("completed", "detached"), "an idempotent tool would ignore it"
    for rank, node in enumerate(new.nodes):  # what could be taken over was
        is_same = any(n.id == node.id and n.planned == node.planned for n in old.walk.nodes)
        has_ended = ended.get(node.id) in ("completed", "detached") and old.walk.calls[old.rank(node.id)].error is None
        if is_same and has_ended and rank not in new.literal_outputs and not node.is_each and node.id in drive.ids:
            assert expected.started[node.id] != old.started[node.id]


@many(25)
@given(edited_cases(), orders(), st.lists(st.booleans(), max_size=MOST_CALLS))
def test_a_run_that_resumes_one_with_the_same_plan_starts_only_what_had_no_result(
    pair: tuple[Case, Edit], order: list[int], script: list[bool]
) -> None:
    case, _ = pair
    plan = prepared(case.request)
    old = Drive(plan, case.results)
    for approving in script:
        step(old, order, approving=approving)
    drive, facts = resumed(old, plan, case.results, keeps_ids=True), facts_of(old)
    finish_plan(drive, order)
    finish_plan(old, order)
    assert drive.observe() == old.observe()
    for id_, _id in drive.ids.items():
        call = oracle.call_of(id_)
        if id_ in old.started and call in [c.call for c in facts]:
            assert _id == f"run/{id_}", "the same call, and not done: it keeps its _id"


@many(10)
@given(orders(), st.integers(1, 3), st.booleans(), st.booleans())
def test_a_call_whose_tool_gains_a_result_takes_over_none(
    order: list[int],
    count: int,
    is_each: bool,  # noqa: FBT001
    keeps_ids: bool,  # noqa: FBT001
) -> None:
    act: dict[str, Json] = {"_tool": "act", "_each": list(range(count))} if is_each else {"_tool": "act"}
    plans = []
    for more in ({}, {"_outputPath": {"const": "†state.x"}}):
        tools = {"type": "tool", "tool": tool("act", **more)}
        plans.append({"context": [tools, {"type": "plan", "plan": [act]}]})
    old = Drive(prepared(plans[0]), {"1:act": 7})
    while old.running:
        id_ = old.running.pop()
        failed = is_each and len(old.running) == 0
        old.perform(old.walk.failed(id_, CallError("Boom", ""), NOW) if failed else old.walk.completed(id_, 7, NOW))
    drive = resumed(old, prepared(plans[1]), {"1:act": 7}, keeps_ids=keeps_ids)
    finish_plan(drive, order)
    assert drive.observe()["views"]["†state"] == {"x": [7] * count if is_each else 7}
