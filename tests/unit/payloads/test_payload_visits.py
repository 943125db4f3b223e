"""Payloads of workflow tasks: those that need no work are passed on as they are, all others take the SDK's way."""

import asyncio
import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge import worker as sdk
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.common import RawValue
from temporalio.converter import DataConverter, ExternalStorage

from acts.language.errors import CallError
from acts.payloads.codec import CIPHER, CIPHER_KEY, ENCODING, KEY_ID, LockedCodec, UnknownKey
from acts.payloads.converter import ContentDriver
from acts.payloads.storage_gc import has_encoded_reference
from acts.payloads.stores import FolderStore
from acts.telemetry.logs import read_fields
from acts.worker.slots import _STORED, _UNREADABLE, visit_payloads_our_way
from acts.workflows import payloads
from acts.workflows.payloads import LOST, lost_patch

PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"x"')
ENCRYPTED = Payload(metadata={"encoding": ENCODING, CIPHER_KEY: CIPHER, KEY_ID: b"k"}, data=bytes(40))
WITHOUT_KEYS = replace(DataConverter.default, payload_codec=LockedCodec())


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("decode_activation", "encode_completion"):
        function = getattr(sdk, name)
        monkeypatch.setattr(sdk, name, getattr(function, "__wrapped__", function))
    visit_payloads_our_way()
    visit_payloads_our_way()  # a second worker of the process changes nothing


def decode(
    payload: Payload, converter: DataConverter, patch: str | None = None, *, is_replaying: bool = False
) -> Payload:
    """A result of an activity, as the workflow is given it; ``patch`` is in its history."""
    activation = WorkflowActivation(is_replaying=is_replaying, history_length=5)
    if patch is not None:
        activation.jobs.add().notify_has_patch.patch_id = patch
    job = activation.jobs.add()
    job.resolve_activity.result.completed.result.CopyFrom(payload)
    options: dict[str, Any] = {"decode_headers": False, "storage_concurrency_limit": 1}
    asyncio.run(sdk.decode_activation(activation, converter, **options))
    return job.resolve_activity.result.completed.result


def encode(payload: Payload, converter: DataConverter) -> Payload:
    """An argument of an activity, as the server is sent it."""
    completion = WorkflowActivationCompletion()
    command = completion.successful.commands.add()
    command.schedule_activity.arguments.append(payload)
    options: dict[str, Any] = {"encode_headers": False, "storage_concurrency_limit": 1}
    asyncio.run(sdk.encode_completion(completion, converter, **options))
    return command.schedule_activity.arguments[0]


@pytest.mark.parametrize("converter", [WITHOUT_KEYS, DataConverter.default])
def test_plain_payloads_pass_without_a_visit(converter: DataConverter, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a payload was visited")

    monkeypatch.setattr(sdk.CommandAwarePayloadVisitor, "visit", fail)
    assert decode(PLAIN, converter) == encode(PLAIN, converter) == PLAIN


def test_an_encrypted_payload_is_refused_without_keys() -> None:
    with pytest.raises(UnknownKey):
        decode(ENCRYPTED, WITHOUT_KEYS)


async def test_the_log_lines_of_a_task_that_cannot_be_decrypted_have_the_ids_of_its_run() -> None:
    activation = WorkflowActivation(run_id="019a")
    start = activation.jobs.add().initialize_workflow
    start.workflow_id = "order-7"
    start.arguments.append(ENCRYPTED)
    with pytest.raises(UnknownKey):
        await sdk.decode_activation(activation, WITHOUT_KEYS, decode_headers=False, storage_concurrency_limit=1)
    line = logging.LogRecord("temporalio", logging.ERROR, "", 0, "Failed handling activation", (), None)
    assert read_fields(line) == {"run": "order-7", "runId": "019a"}


REFERENCES = st.builds(
    lambda metadata, data: Payload(metadata=metadata, data=data),
    st.sampled_from([
        {"encoding": b"json/external-storage-reference"}, {"encoding": LOST, "patch": b"acts-external-storage"},
        {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"},
        {"encoding": b"json/plain", "__temporal_external_storage_reference": b"true"},
    ]),
    st.binary(max_size=20) | st.sampled_from([
        b"{}", b'{"driverName": "x"}', b'{"driverName": "acts.folder", "claimData": {"key": "../../etc/passwd"}}',
    ]),
)  # fmt: skip


@pytest.mark.parametrize("has_storage", [True, False])
@given(payload=REFERENCES)
def test_a_reference_that_leads_nowhere_is_lost_once_and_for_all(
    *, payload: Payload, has_storage: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    converter = DataConverter.default
    if has_storage:
        driver = ContentDriver(FolderStore(tmp_path_factory.getbasetemp() / "values"), patience=0.0)
        driver.contents.prepare(creates=True)
        converter = replace(converter, external_storage=ExternalStorage([driver]))
    lost = decode(payload, converter)
    with pytest.raises(CallError, match="a stored value cannot be read") as caught:
        payloads.decode(RawValue(lost))
    assert caught.value.code == "ValueLost"
    again = decode(payload, converter, lost_patch(lost), is_replaying=True)
    assert lost_patch(again) == lost_patch(lost) != "acts-external-storage"
    if lost.metadata["encoding"] == payload.metadata["encoding"]:
        return  # what posed as lost was none of the past of the run
    with pytest.raises(_UNREADABLE):  # a run that had read it waits until it is restored
        decode(payload, converter, is_replaying=True)


@pytest.mark.parametrize("text", [mark.decode() for mark in _STORED])
def test_what_looks_like_a_reference_is_data(text: str) -> None:
    value = {text: text, "metadata": {"encoding": text, "messageType": text}}
    payload = Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())
    assert decode(payload, DataConverter.default) == payload
    assert not has_encoded_reference(history_event(payload))
    marked = Payload(metadata={"__temporal_external_storage_reference": b"true"}, data=b"?")
    assert has_encoded_reference(history_event(marked))


def history_event(payload: Payload) -> HistoryEvent:
    event = HistoryEvent()
    event.activity_task_completed_event_attributes.result.payloads.append(payload)
    return event
