"""What a signal between runs may hold: anybody can send one, so nothing in it is unpacked before its token is read."""

from __future__ import annotations

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from acts.tree.instance_payload import SHARED_KEY, TYPE_KEY
from acts.tree.signal_records import ChildReset
from acts.tree.wire_format import RecordError
from workflows.runtime import payloads
from workflows.runtime.payloads import decode_signal, encode_record

RECORD = ChildReset(workflowId="r/1:a", firstRunId="first")
PACKED = {
    "as a state is": {"encoding": b"binary/plain", TYPE_KEY: b"ChildReset"},
    "as half of an instance's input is": {"encoding": b"json/plain", TYPE_KEY: b"ChildReset", SHARED_KEY: b"\x01x"},
}


def test_a_record_is_read() -> None:
    assert decode_signal(encode_record(RECORD), ChildReset) == RECORD


@pytest.mark.parametrize("how", PACKED)
def test_a_compressed_record_is_refused_unread(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("join_instance_input", "read_json"):
        monkeypatch.delattr(payloads, name)
    with pytest.raises(RecordError, match="not compressed"):
        decode_signal(RawValue(Payload(metadata=PACKED[how], data=b"{}")), ChildReset)
