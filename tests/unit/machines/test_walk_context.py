"""Messages that are provided while a plan is walked: they precede the plan, or are refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts.language.admission import LIMITS, TASK, Limit
from acts.language.errors import InvalidRequest
from acts.language.references import Path
from acts.machines.walk_context import WalkContext
from acts.plan.context_log import END, Log
from tests import oracle
from tests.cases import call, own
from tests.property.drive import NOW, begin, data_message

# (path, method, value) of a Call that has completed, and the state that is provided after it
MEETING: list[tuple[str, str, Any, Any]] = [
    ("†state.l", "push", 1, {"l": [0]}),
    ("†state.s", "concat", "b", {"s": "a"}),
    ("†state.l.x", "set", 1, {"l": [0]}),
    ("†state.l", "push", 1, {"l": {"q": 1}}),
    ("†state.l", "merge", {"a": 1}, {"l": [0]}),
    ("†state.l", "merge", {"a": 1}, {"l": {"b": 2}}),
    ("†state.l", "assign", {"a": {}}, {"l": {"a": {"b": 2}}}),
    ("†state.l.x", "set", 1, {"l": 5}),
    ("†state.l", "push", 1, [0]),
    ("†state", "push", 1, {"l": 5}),
]


@pytest.mark.parametrize(("path", "method", "value", "provided"), MEETING)
@pytest.mark.parametrize("instance", [None, "A"])
def test_a_provided_message_is_folded_before_what_was_written_or_is_refused(
    path: str, method: str, value: Any, provided: Any, instance: str | None
) -> None:
    """The state of the walk is always that of its messages, folded again."""
    target = {} if instance is None else {"_instance": instance}
    context = [] if instance is None else [own(instance, id=1)]
    drive = begin(
        call("a", path, method, **target),
        call("b", "†log.b", x="†input.late", **target),
        context=context,
        config={"missing": "wait"},
        results={"a": value, "b": 1},
    )
    drive.finish("1:a")
    before = drive.observe()
    try:
        drive.perform(drive.walk.provide(data_message({"type": "state", "state": provided, **target}), NOW))
    except InvalidRequest:
        assert drive.observe() == before
        return
    messages = [*context, *drive.walk.context.appended()]
    log = Log([data_message(m) for m in messages])
    assert log.problems == []
    assert log.state(instance) == drive.walk.context.log.state(instance)
    slow = oracle.view(oracle.read_messages(messages), "state", instance)
    assert drive.walk.context.log.state(instance) == slow


PLACES = ["†state", "†state.a", "†state.a.b", "†state.l", "†state.s.t"]
PARTS: st.SearchStrategy[Any] = st.sampled_from([1, "x", [1], [], {}, {"b": 1}, {"a": {"b": 2}}, {"l": [1]}, None])
LATE = st.tuples(PARTS, st.none() | st.sampled_from(PLACES), st.sampled_from(["set", "push", "concat", "merge"]))


@given(
    st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(["set", "push", "merge"]), PARTS), max_size=3),
    st.lists(st.tuples(LATE, st.sampled_from([None, "A", "B"])), min_size=1, max_size=4),
    st.sampled_from([None, "A"]),
)
def test_messages_folded_one_by_one_and_all_at_once_give_the_same(
    writes: list[Any], messages: list[Any], instance: str | None
) -> None:
    target = {} if instance is None else {"_instance": instance}
    calls = [call(f"c{i}", path, method, **target) for i, (path, method, _) in enumerate(writes)]
    drive = begin(
        *calls,
        call("w", "†log.b", x="†input.late"),
        context=[own("A", id=1), own("B", id=2)],
        config={"missing": "wait"},
        results={f"c{i}": value for i, (_, _, value) in enumerate(writes)},
    )
    while drive.running:
        drive.finish(drive.running[0])
    for (value, place, method), aim in messages:
        own_aim = {} if aim is None else {"_instance": aim}
        payload = value if place is None else nest(place.removeprefix("†state").split(".")[1:], value)
        path = {} if place is None else {"_outputPath": place, "_outputMethod": method}
        with suppress(InvalidRequest):
            drive.walk.provide(data_message({"type": "state", "state": payload, **own_aim, **path}), NOW)
    again = WalkContext(drive.walk.prepared, drive.walk.calls, drive.walk.context.provided)
    for name in (None, "A", "B"):
        assert drive.walk.context.log.state(name) == again.log.state(name)
        for place in PLACES:
            assert drive.walk.context.log.view_of(name).type_at(parse_path(place), END) == again.log.view_of(
                name
            ).type_at(parse_path(place), END)


def nest(names: list[str], value: Any) -> Any:
    for name in reversed(names):
        value = {name: value}
    return value


def parse_path(text: str) -> Path:
    return Path("state", tuple(text.split(".")[1:]))


def test_messages_that_meet_what_many_calls_wrote_are_folded_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    drive = begin(*[call(f"c{i}", "†state.l", "push") for i in range(8)], call("w", "†out", x="†input.late"),
                  config={"missing": "wait"}, results={f"c{i}": i for i in range(8)})  # fmt: skip
    while drive.running:
        drive.finish(drive.running[0])
    for i in range(100):  # what nothing was written at is not counted
        drive.walk.provide(data_message({"type": "state", "state": {f"k{i}": i}}), NOW)
    meeting = data_message({"type": "state", "state": {"l": [9]}})
    assert drive.walk.work.steps.spent < 200  # the first one, before which there is no state
    drive.walk.work.begin_task()
    drive.walk.provide(meeting, NOW)
    limit = LIMITS[TASK]
    monkeypatch.setattr(
        drive.walk.work.steps, "limit", Limit(limit.subject, drive.walk.work.steps.spent * 5 // 2, limit.advice)
    )
    drive.walk.provide(meeting, NOW)
    with pytest.raises(InvalidRequest, match="evaluating the values of one call or message"):
        drive.walk.provide(meeting, NOW)
    drive.walk.work.begin_task()
    drive.walk.provide(meeting, NOW)
    assert drive.walk.context.log.state()["l"] == [9, *range(8)]
