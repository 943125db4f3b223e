"""Payloads of workflow tasks: those that need no work are passed on as they are, all others take the SDK's way."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.bridge import worker as sdk
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import DataConverter, PayloadCodec

from connection.codec import CIPHER, CIPHER_KEY, ENCODING, KEY_ID, LockedCodec, UnknownKey
from worker_runtime.payload_visits import VISITS, leave_out_visits

PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"x"')
ENCRYPTED = Payload(metadata={"encoding": ENCODING, CIPHER_KEY: CIPHER, KEY_ID: b"k"}, data=bytes(40))
STORED = Payload(metadata={"encoding": b"json/external-storage-reference"}, data=b"{}")
WITHOUT_KEYS = replace(DataConverter.default, payload_codec=LockedCodec())


class Reversing(PayloadCodec):
    """A codec that changes each payload."""

    async def encode(self, payloads: Any) -> list[Payload]:
        return [Payload(metadata=p.metadata, data=p.data[::-1]) for p in payloads]

    decode = encode


REVERSING = replace(DataConverter.default, payload_codec=Reversing())


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


def test_a_codec_that_changes_payloads_sees_each_of_them() -> None:
    assert decode(PLAIN, REVERSING).data == encode(PLAIN, REVERSING).data == PLAIN.data[::-1]


def test_visits_that_may_take_their_time_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is fetched from a storage, or brought there, is not on its way to the server."""
    begun: list[int] = []
    monkeypatch.setattr(VISITS, "on_begin", lambda: begun.append(VISITS.count))
    for payload, converter in ((PLAIN, WITHOUT_KEYS), (STORED, WITHOUT_KEYS), (ENCRYPTED, REVERSING)):
        with suppress(Exception):
            decode(payload, converter)
    encode(PLAIN, WITHOUT_KEYS)
    encode(PLAIN, REVERSING)
    assert (begun, VISITS.count) == ([1, 1, 1], 0)
