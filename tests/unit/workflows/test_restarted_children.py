"""A child whose result does not come starts again, but not for a run that is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from acts.language.wire import CANCELLED
from acts.machines.events import ChildEnded
from acts.tree.signal_records import ChildReset
from acts.tree.wire_format import TYPE_KEY, RecordError
from acts.workflows import payloads
from acts.workflows.in_flight import Start, TasksInFlight
from acts.workflows.payloads import TaskRoom, decode_signal, encode_record

ROWS = {"it goes on": (False, None, True), "cancelled": (True, None, False), "over": (False, "failed", False)}


@pytest.mark.parametrize("case", ROWS)
def test_a_child_is_started_again_only_for_a_run_that_goes_on(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_cancelling, finished, is_sent = ROWS[case]
    run: Any = SimpleNamespace(is_cancelling=is_cancelling, finished=finished)
    events: list[Any] = []
    sent: list[str] = []
    none: Any = None
    tasks = TasksInFlight(run, none, none, TaskRoom(), events.append, none)
    monkeypatch.setattr(tasks, "_launch", lambda start: sent.append(start.key))
    first: Any = object()  # its task
    tasks.in_flight["1:a"] = Start("1:a", "Delegate", 0, none, none, none), first
    tasks.restart_child("1:a")
    tasks.restart_child("1:a")  # once
    assert sent == (["1:a"] if is_sent else [])
    assert [(type(e), e.error.code) for e in events] == ([] if is_sent else [(ChildEnded, CANCELLED)])
    assert not tasks.in_flight


RECORD = ChildReset(workflowId="r/1:a", firstRunId="first")


def test_a_record_is_read() -> None:
    assert decode_signal(encode_record(RECORD), ChildReset) == RECORD


def test_a_compressed_record_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(payloads, "read_json")
    metadata = {"encoding": b"binary/plain", TYPE_KEY: b"ChildReset"}
    with pytest.raises(RecordError, match="not compressed"):
        decode_signal(RawValue(Payload(metadata=metadata, data=b"{}")), ChildReset)
