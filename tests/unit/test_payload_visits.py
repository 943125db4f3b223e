"""Payloads of workflow tasks: those that need no work are passed on as they are, all others take the SDK's way."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.bridge import worker as sdk
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import DataConverter

from acts.payloads.codec import CIPHER, CIPHER_KEY, ENCODING, KEY_ID, LockedCodec, UnknownKey
from acts.worker.slots import leave_out_visits

PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"x"')
ENCRYPTED = Payload(metadata={"encoding": ENCODING, CIPHER_KEY: CIPHER, KEY_ID: b"k"}, data=bytes(40))
STORED = Payload(metadata={"encoding": b"json/external-storage-reference"}, data=b"{}")
WITHOUT_KEYS = replace(DataConverter.default, payload_codec=LockedCodec())


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("decode_activation", "encode_completion"):
        function = getattr(sdk, name)
        monkeypatch.setattr(sdk, name, getattr(function, "__wrapped__", function))
    leave_out_visits()
    leave_out_visits()  # a second worker of the process changes nothing


def decode(payload: Payload, converter: DataConverter) -> Payload:
    """A result of an activity, as the workflow is given it."""
    activation = WorkflowActivation()
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


@pytest.mark.parametrize("converter", [WITHOUT_KEYS, DataConverter.default])
def test_a_stored_payload_is_refused_without_storage(converter: DataConverter) -> None:
    with pytest.raises(RuntimeError, match="external storage is not configured"):
        decode(STORED, converter)
