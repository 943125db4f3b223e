"""Messages that are provided while a plan is walked: they precede the plan, or are refused."""

from __future__ import annotations

from typing import Any

import pytest

from acts.language.errors import InvalidRequest
from acts.language.references import Path
from acts.plan.context_log import Log
from tests import oracle
from tests.cases import call, own
from tests.property.drive import NOW, Drive, begin, data_message


def begin_without_input() -> Drive:
    return begin(
        call("a", "†state.a", x="†input.late"),
        call("b", "†state.b", x="†state.a"),
        config={"missing": "wait"},
        results={"a": 1, "b": 2},
    )


def test_a_call_awaits_missing_input_and_starts_when_it_is_provided() -> None:
    drive = begin_without_input()
    assert drive.state("1:a") == "awaiting"
    drive.perform(drive.walk.provide(data_message({"type": "input", "input": {"other": 1}}), NOW))
    assert drive.state("1:a") == "awaiting"
    drive.perform(drive.walk.provide(data_message({"type": "input", "late": "here"}), NOW))
    assert drive.running == ["1:a"]
    drive.finish_all()
    assert drive.started["1:a"][0] == {"x": "here"}
    assert drive.walk.appended()[:2] == [{"type": "input", "input": {"other": 1}}, {"type": "input", "late": "here"}]


def test_provided_messages_are_carried_over() -> None:
    drive = begin_without_input()
    drive.perform(drive.walk.drain(NOW, on=True))
    drive.perform(drive.walk.provide(data_message({"type": "input", "late": "here"}), NOW))
    drive.carry_over()
    assert drive.running == ["1:a"]
    drive.finish_all()
    assert drive.walk.state() == {"a": 1, "b": 2}


def test_a_provided_message_precedes_what_calls_wrote() -> None:
    drive = begin(
        call("a", "†state.a"),
        call("b", "†state.b", x="†input.late"),
        call("c", "†state.c", x="†state", y="†state.b"),
        config={"missing": "wait"},
        results={"a": 1, "b": 2, "c": 3},
    )
    drive.finish("1:a")
    late = [{"type": "state", "state": {"a": "old", "d": 4}}, {"type": "input", "late": 1}]
    for message in late:
        drive.perform(drive.walk.provide(data_message(message), NOW))
    drive.finish_all()
    assert drive.started["3:c"][0]["x"] == {"a": 1, "b": 2, "d": 4}
    log = Log([data_message(m) for m in drive.walk.appended()])
    assert log.read(Path("state"), 1) == drive.walk.state() == {"a": 1, "d": 4, "b": 2, "c": 3}


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
    messages = [*context, *drive.walk.appended()]
    log = Log([data_message(m) for m in messages])
    assert log.problems == []
    assert log.read_kind("state", instance=instance) == drive.walk.state(instance)
    slow = oracle.view(oracle.read_messages(messages), "state", instance)
    assert drive.walk.state(instance) == slow


def test_a_message_for_an_unknown_instance_is_refused_and_nothing_changes() -> None:
    drive = begin_without_input()
    before = drive.observe()
    with pytest.raises(InvalidRequest, match="unknown instance"):
        drive.walk.provide(data_message({"type": "state", "state": {}, "_instance": "Z"}), NOW)
    assert drive.observe() == before
