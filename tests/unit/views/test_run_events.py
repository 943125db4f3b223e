"""The events of a run, read from its history: the stored histories of every kind, and single events that matter."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core import Event as AgUiEvent
from pydantic import TypeAdapter
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from acts.client.ag_ui_events import AgUiStream
from acts.client.event_stream import _payloads_of
from acts.views import run_events
from acts.views.run_events import (
    MAX_VALUE,
    TYPES,
    EventFilter,
    EventsRefused,
    HistoryView,
    RunEvent,
    RunPlace,
    offset_micros,
    words_event,
)

FOLDER = Path(__file__).parents[2] / "replay" / "histories"
HISTORIES = sorted(FOLDER.glob("*.json"))
AG_UI: TypeAdapter[Any] = TypeAdapter(AgUiEvent)


@cache
def stored(file: Path) -> tuple[str, str, list[HistoryEvent]]:
    """The workflow id, the parent's, and the events of a stored history."""
    text = file.read_text("utf-8")
    begun = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    parent = begun.get("parentWorkflowExecution", {}).get("workflowId", "")
    return begun["workflowId"], parent, list(WorkflowHistory.from_json(begun["workflowId"], text).events)


def read(file: Path, events: list[HistoryEvent] | None = None) -> list[RunEvent]:
    id_, parent, every = stored(file)
    view = HistoryView(RunPlace(id_, "run", parent=parent or None))
    seen = [event for item in (every if events is None else events) for event in view.read(item)]
    until = 1 << 63 if view.ended else view.held_from(view.micros, 1 << 63)
    return sorted((event for event in seen if event.order[0] < until), key=lambda event: event.order)


@pytest.mark.parametrize("file", HISTORIES, ids=lambda file: file.stem)
def test_a_history_that_grows_only_adds_events_and_none_changes_its_offset(file: Path) -> None:
    whole, events = read(file), stored(file)[2]
    for end in range(0, len(events), 7):
        beginning = read(file, events[:end])
        assert beginning == whole[: len(beginning)]
    assert len({event.offset for event in whole}) == len(whole)
    assert all(offset_micros(event.offset) == event.order[0] for event in whole)
    assert {event.type for event in whole} <= TYPES.keys()
    json.dumps([event.to_json() for event in whole])


@pytest.mark.parametrize("file", HISTORIES, ids=lambda file: file.stem)
def test_of_a_run_that_has_ended_each_call_that_started_has_ended_once(file: Path) -> None:
    events = read(file)
    if events[-1].type != "runEnded":
        assert events[-1].type == "runContinued"
        return
    started = Counter((e.call, e.instance) for e in events if e.type == "callStarted")
    ended = Counter((e.call, e.instance) for e in events if e.type == "callEnded")
    assert set((started | ended).values()) <= {1}
    assert started.keys() <= ended.keys()  # what was skipped has ended alone
    ticks = Counter((e.type, e.tick) for e in events if e.type in ("tickStarted", "tickEnded"))
    assert set(ticks.values()) <= {1}


@pytest.mark.parametrize("file", HISTORIES, ids=lambda file: file.stem)
def test_every_event_is_one_of_ag_ui_in_an_order_that_it_allows(file: Path) -> None:
    stream, open_calls, steps = AgUiStream(), set[str](), set[str]()
    for event in read(file):
        for part in stream.parts(event):
            told = AG_UI.validate_python(part)
            match part["type"]:
                case "TOOL_CALL_START":
                    open_calls.add(told.tool_call_id)
                case "TOOL_CALL_RESULT":
                    open_calls.remove(told.tool_call_id)
                case "STEP_STARTED":
                    assert not steps
                    steps.add(told.step_name)
                case "STEP_FINISHED":
                    steps.discard(told.step_name)
                case "RUN_FINISHED" | "RUN_ERROR":
                    assert open_calls | steps == set()


def test_words_are_a_message_that_begins_once_and_ends_at_its_end_or_with_the_answer() -> None:
    stream = AgUiStream()
    asked = HISTORIES[[f.stem for f in HISTORIES].index("replanned-1")]
    events = read(asked)
    answered = next(event for event in events if event.type == "modelAnswered")
    said = [words_event(answered.run, "tick-1", "m1", pieces) for pieces in (["{"], ['"a', '":'], ["1}", ""])]
    again = [words_event(answered.run, "tick-1", "m2", ["{}"]), answered]
    parts = [part for event in (events[0], *said, *again) for part in stream.parts(event)]
    assert [AG_UI.validate_python(part).type.value for part in parts[2:-1]] == [
        "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END",
    ]  # fmt: skip
    assert "".join(part.get("delta", "") for part in parts[2:6]) == '{"a":1}'


def test_who_does_not_know_the_token_of_a_tree_opens_no_wait_in_its_stream() -> None:
    file = FOLDER / "tree_waits-1.json"
    events = [HistoryEvent.FromString(event.SerializeToString()) for event in stored(file)[2]]
    assert [e.type for e in read(file, events)].count("waitOpened") == 2
    for event in events:
        signal = event.workflow_execution_signaled_event_attributes
        if signal.signal_name == "pendingChanged":
            record = json.loads(signal.input.payloads[0].data) | {"token": "a guess"}
            signal.input.payloads[0].data = json.dumps(record).encode()
    assert [e.type for e in read(file, events)].count("waitOpened") == 0


@pytest.mark.parametrize(("seconds", "place"), [(0, 44), (20, 61)])
def test_a_decision_comes_where_it_was_accepted_unless_its_answer_took_long(seconds: int, place: int) -> None:
    file = FOLDER / "tree_waits-1.json"
    events = [HistoryEvent.FromString(event.SerializeToString()) for event in stored(file)[2]]
    for event in events[60:]:
        event.event_time.seconds += seconds
    assert [e.order[4] for e in read(file, events) if e.data.get("outcome") == "accepted"] == [place]


def test_a_large_value_is_named_by_its_size_and_digest() -> None:
    file = FOLDER / "linear.json"
    events = [HistoryEvent.FromString(event.SerializeToString()) for event in stored(file)[2]]
    large = json.dumps("x" * MAX_VALUE).encode()
    reference = {"encoding": b"json/external-storage-reference"}
    for event, payload in zip(
        [e for e in events if e.HasField("activity_task_completed_event_attributes")],
        [Payload(metadata={"encoding": b"json/plain"}, data=large), Payload(metadata=reference, data=b"{}")],
        strict=False,
    ):
        event.activity_task_completed_event_attributes.result.payloads[0].CopyFrom(payload)
    first, second, third = (e.data for e in read(file, events) if e.type == "callEnded")
    assert first["resultOmitted"] == {"bytes": len(large), "sha256": run_events.hashlib.sha256(large).hexdigest()}
    assert "resultOmitted" in second
    assert "result" in third


def test_all_payloads_of_an_event_are_found_so_that_they_can_be_decrypted() -> None:
    for file in HISTORIES:
        raw = json.loads(file.read_text("utf-8"))["events"]
        for event, text in zip(stored(file)[2], map(json.dumps, raw), strict=True):
            assert len(list(_payloads_of(event))) == text.count('"metadata": {"')


HOSTILE: list[Any] = [
    None, 1, "x", [], [[1]], {}, {"calls": [1], "instances": {"a": 1}, "status": 3, "output": [], "usage": 1},
    {"opened": [1, {"call": 1}], "closed": [1, [], [[]]], "workflowId": {}, "call": [], "instance": {}, "decision": 1},
    {"ask": "solution", "tick": "x", "solution": 1}, {"ask": "output", "call": 1, "tool": {}}, {"instances": [{}]},
    {"_tool": [], "_instance": {}, "_id": [1]}, {"activity_type": "x", "activity_id": [], "attempt": "x"},
    {"calls": [{"id": {}, "state": []}, {"id": "1:a", "state": "failed", "instance": []}], "position": 1, "input": [1]},
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=str)
def test_whatever_stands_in_a_history_the_reader_reads_on(value: Any) -> None:
    data = json.dumps(value).encode()
    for file in HISTORIES:
        if file.stem.startswith(("batch", "tree_waits", "replanned", "served", "several", "delegated")):
            events = [HistoryEvent.FromString(event.SerializeToString()) for event in stored(file)[2]]
            for payload in (payload for event in events for payload in _payloads_of(event)):
                payload.data = data
            stream = AgUiStream()
            for event in read(file, events):
                AG_UI.validate_python(list(stream.parts(event))[-1])


@pytest.mark.parametrize("offset", ["", "1", "12-3", "x" * 5_000, "12-3-zzzzzzzzzzzz", "12-3-0123456789ab\n", "†"])
def test_a_malformed_offset_is_refused_with_advice(offset: str) -> None:
    with pytest.raises(EventsRefused, match="read from the beginning"):
        offset_micros(offset)


def test_a_filter_admits_what_it_names_and_refuses_a_type_that_is_none() -> None:
    events = read(FOLDER / "together.json")

    def kept(**parts: Any) -> list[str]:
        wanted = EventFilter(**parts)
        return [f"{e.type} {e.call} {e.instance}" for e in events if wanted.admits(e)]

    assert kept(types=frozenset({"callEnded"}), instance="a") == ["callEnded 2:echo a"]
    assert kept(calls=frozenset({"3:echo"})) == ["callStarted 3:echo b", "callEnded 3:echo b"]
    assert len(kept(calls=frozenset({"echo"}))) == 4
    assert kept(run="recorded/tog") == []
    assert len(kept(run="recorded")) == len(kept())
    with pytest.raises(EventsRefused, match="callStarted"):
        kept(types=frozenset({"callstarted"}))
