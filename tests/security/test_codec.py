"""Encrypted payloads: each comes back, nothing of it can be read or changed, and each error names its remedy."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.exceptions import ApplicationError

from acts.language.wire import MAX_PAYLOAD_BYTES
from acts.payloads.codec import (
    KEY_ID,
    REFRESH_SECONDS,
    VARIABLE,
    AesGcmCodec,
    CodecError,
    LockedCodec,
    UndecryptablePayload,
    UnknownKey,
    codec_from_environment,
    is_encrypted,
    read_keys,
)
from acts.payloads.converter import worker_converter
from acts.telemetry.failures import EngineFailureConverter

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
# The largest payload that a server takes (limit.blobSize.error)
SERVER_LIMIT = 2 * 1024 * 1024

payloads = st.builds(
    Payload, metadata=st.dictionaries(st.text(max_size=20), st.binary(max_size=40), max_size=4), data=st.binary()
).filter(lambda p: not is_encrypted(p))


def encode_key(key: bytes) -> str:
    return base64.b64encode(key).decode()


class Codec(AesGcmCodec):
    """Without a loop."""

    def encrypt(self, payloads: Sequence[Payload]) -> list[Payload]:
        return asyncio.run(self.encode(payloads))

    def decrypt(self, payloads: Sequence[Payload]) -> list[Payload]:
        return asyncio.run(self.decode(payloads))


def codec(**keys: bytes) -> Codec:
    return Codec(lambda: keys, "the test")


@given(st.lists(payloads, max_size=5))
def test_every_payload_comes_back_as_it_was_whatever_key_is_the_newest(items: list[Payload]) -> None:
    before, after = codec(old=OLD), codec(new=NEW, old=OLD)
    assert after.decrypt(before.encrypt(items)) == items
    assert after.decrypt(after.encrypt(items)) == items
    assert {p.metadata[KEY_ID] for p in after.encrypt(items)} <= {b"new"}


@given(payloads)
def test_two_encryptions_of_one_payload_have_nothing_in_common(item: Payload) -> None:
    [one], [other] = codec(k=OLD).encrypt([item]), codec(k=OLD).encrypt([item])
    assert one.data[:12] != other.data[:12]
    assert one.data != other.data


@given(payloads, st.data())
def test_no_bit_can_be_changed(item: Payload, data: st.DataObject) -> None:
    [sealed] = codec(k=OLD).encrypt([item])
    place = data.draw(st.integers(0, len(sealed.data) - 1))
    changed = bytearray(sealed.data)
    changed[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(UndecryptablePayload, match="'k'"):
        codec(k=OLD).decrypt([Payload(metadata=sealed.metadata, data=bytes(changed))])


def test_the_id_of_the_key_is_authenticated() -> None:
    [sealed] = codec(k=OLD).encrypt([Payload(data=b"x")])
    sealed.metadata[KEY_ID] = b"other"
    with pytest.raises(UndecryptablePayload, match="'other'"):
        codec(other=OLD).decrypt([sealed])


def test_plain_payloads_are_read_and_encrypted_ones_are_not_encrypted_again() -> None:
    plain = Payload(metadata={"encoding": b"json/plain"}, data=b"1")
    assert codec(k=OLD).decrypt([plain]) == [plain]
    once = codec(k=OLD).encrypt([plain])
    assert codec(k=OLD).encrypt(once) == once


def test_the_largest_payload_of_ours_still_fits_when_it_is_encrypted() -> None:
    item = Payload(metadata={"encoding": b"json/plain"}, data=b"x" * MAX_PAYLOAD_BYTES)
    [sealed] = Codec(lambda: {"k" * 64: OLD}, "the test").encrypt([item])
    assert sealed.ByteSize() - item.ByteSize() <= 256  # nonce, tag, metadata, and the framing of the inner message
    assert sealed.ByteSize() < SERVER_LIMIT


def test_an_unknown_key_is_named_with_the_setting() -> None:
    sealed = codec(lost=OLD).encrypt([Payload(data=b"x")])
    with pytest.raises(UnknownKey, match=r"the key 'lost'; ACTS_CODEC_KEYS \(the test\) has: new"):
        codec(new=NEW).decrypt(sealed)
    with pytest.raises(UnknownKey, match="'lost', and ACTS_CODEC_KEYS is not set"):
        asyncio.run(LockedCodec().decode(sealed))


def test_a_key_that_is_added_to_the_file_is_used_without_a_restart(tmp_path: Path) -> None:
    file, now = tmp_path / "keys", [0.0]
    file.write_text(f"old {encode_key(OLD)}\n", "utf-8")
    reader = AesGcmCodec(lambda: read_keys(str(file)), "keys", clock=lambda: now[0])
    sealed = codec(new=NEW).encrypt([Payload(data=b"x")])
    file.write_text(f"old {encode_key(OLD)}\nnew {encode_key(NEW)} # decrypts already\n", "utf-8")
    now[0] += REFRESH_SECONDS
    assert asyncio.run(reader.decode(sealed)) == [Payload(data=b"x")]
    assert next(iter(reader.keys)) == "old"
    file.write_text("broken", "utf-8")
    now[0] += REFRESH_SECONDS
    assert asyncio.run(reader.decode(sealed)) == [Payload(data=b"x")]


def test_keys_come_from_a_file_a_folder_or_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys.txt"
    file.write_text(f"# rotated in spring\nb {encode_key(NEW)}\n\na {encode_key(OLD)}\n", "utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "2025").write_text(encode_key(OLD) + "\n", "utf-8")
    (folder / "2026").write_text(encode_key(NEW), "utf-8")
    (folder / "..data").write_text("not a key", "utf-8")
    (tmp_path / "own_kms.py").write_text(f"def keys():\n    yield 'kms', {OLD!r}\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert list(read_keys(str(file)).items()) == [("b", NEW), ("a", OLD)]
    assert list(read_keys(str(folder)).items()) == [("2026", NEW), ("2025", OLD)]
    (folder / "current").write_text("2025\n", "utf-8")
    assert list(read_keys(str(folder))) == ["2025", "2026"]
    assert read_keys("own_kms:keys") == {"kms": OLD}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no key; `acts keygen --codec`"),
        ("a", "line 1: a line is an id and a key"),
        ("a AAAA", "line 1 is not a key: 32 bytes in base64"),
        (f"a {encode_key(OLD)}\na {encode_key(NEW)}", "'a' is there twice"),
        (f"ö {encode_key(OLD)}", "the id of a key is"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_no_key_is_in_the_error(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text(text, "utf-8")
    with pytest.raises(CodecError) as caught:
        read_keys(str(file))
    assert str(file) in str(caught.value)
    assert says in str(caught.value)
    assert encode_key(OLD) not in str(caught.value)


@pytest.mark.parametrize("setting", ["/no/such/place", "no_module:keys", "os:getcwd", "neither nor"])
def test_a_setting_that_names_nothing_says_so(setting: str) -> None:
    with pytest.raises(CodecError, match=VARIABLE) as caught:
        read_keys(setting)
    assert setting in str(caught.value)


def test_messages_and_stack_traces_of_failures_are_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys.txt"
    file.write_text(f"k {encode_key(OLD)}", "utf-8")
    monkeypatch.setenv(VARIABLE, str(file))
    converter = worker_converter(EngineFailureConverter)

    async def there_and_back() -> tuple[Failure, BaseException]:
        failure = Failure()
        cause = ValueError("planted cause")
        error = ApplicationError("planted message", {"x": "planted detail"}, type="broken")
        error.__cause__ = cause
        await converter.encode_failure(error, failure)
        return failure, await converter.decode_failure(Failure.FromString(failure.SerializeToString()))

    failure, error = asyncio.run(there_and_back())
    assert b"planted" not in failure.SerializeToString()
    assert isinstance(error, ApplicationError)
    assert (error.message, error.type, error.details) == ("planted message", "broken", ({"x": "planted detail"},))
    assert "planted cause" in str(error.__cause__)


def test_without_keys_nothing_is_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert isinstance(codec_from_environment(), LockedCodec)
    converter = worker_converter(EngineFailureConverter)
    assert converter.failure_converter_class is EngineFailureConverter
    [payload] = asyncio.run(converter.encode(["x"]))
    assert payload.data == b'"x"'
    assert base64.b64encode(payload.data)
