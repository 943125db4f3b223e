"""What a signal between runs may hold: anybody can send one, so nothing in it is unpacked before its token is read."""

from __future__ import annotations

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from acts.tree.signal_records import ChildReset
from acts.tree.wire_format import TYPE_KEY, RecordError
from acts.workflows import payloads
from acts.workflows.payloads import decode_signal, encode_record

RECORD = ChildReset(workflowId="r/1:a", firstRunId="first")


def test_a_record_is_read() -> None:
    assert decode_signal(encode_record(RECORD), ChildReset) == RECORD


def test_a_compressed_record_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(payloads, "read_json")
    metadata = {"encoding": b"binary/plain", TYPE_KEY: b"ChildReset"}
    with pytest.raises(RecordError, match="not compressed"):
        decode_signal(RawValue(Payload(metadata=metadata, data=b"{}")), ChildReset)
