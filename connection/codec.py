"""Encrypts the payloads that a program writes and decrypts those that it reads: AES-256-GCM, by the SDK's codec.

A payload that is encrypted has the encoding ``binary/encrypted``, the id of its key in its metadata, and as its data a
fresh nonce and the ciphertext of the whole payload before. The id and the format are authenticated. Plain payloads are
read as they are, so runs that began without keys continue.

Laws of this file: it decides nothing but how one payload is encoded; where keys come from is in ``codec_keys``. The SDK
encodes before it stores large payloads elsewhere, so what is stored is encrypted too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from connection.codec_keys import VARIABLE, CodecError, KeyRing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ENCODING: Final = b"binary/encrypted"
KEY_ID: Final = "encryption-key-id"
CIPHER_KEY: Final = "encryption-cipher"
CIPHER: Final = b"AES-256-GCM"
NONCE_BYTES: Final = 12  # what GCM is specified for
TAG_BYTES: Final = 16
# What an encrypted payload has more than the plain one: nonce, tag, metadata, and the framing of the inner message
MAX_OVERHEAD_BYTES: Final = 256


class UnknownKey(CodecError):
    """A payload names a key that this program does not have; tasks are retried until it has."""


class UndecryptablePayload(CodecError):
    """A payload does not open with the key that it names: another key has that id, or the payload was changed."""


def is_encrypted(payload: Payload) -> bool:
    """True for a payload that some codec of ours wrote; what others call encrypted is not ours to wait for."""
    metadata = payload.metadata
    return (
        metadata.get("encoding") == ENCODING
        and metadata.get(CIPHER_KEY) == CIPHER
        and bool(metadata.get(KEY_ID))
        and len(payload.data) >= NONCE_BYTES + TAG_BYTES
    )


def _key_id(payload: Payload) -> str:
    return payload.metadata.get(KEY_ID, b"").decode(errors="replace")[:64]


def _associated_data(id_: str) -> bytes:
    return b"acts payload 1 " + id_.encode()


class AesGcmCodec(PayloadCodec):
    """Encrypts with the newest key of the ring, decrypts with the one that a payload names."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._ciphers: dict[bytes, AESGCM] = {}  # by key: making one takes longer than a small payload

    def _cipher(self, key: bytes) -> AESGCM:
        cipher = self._ciphers.get(key)
        if cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            cipher = self._ciphers[key] = AESGCM(key)
        return cipher

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each payload that is not encrypted yet."""
        if self._ring.is_due():
            await asyncio.to_thread(self._ring.refresh)
        return self.encrypt(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt each payload that is encrypted.

        Raises:
            UnknownKey, UndecryptablePayload: one cannot be read.
        """
        if self._ring.is_due(_key_id(p) for p in payloads if is_encrypted(p)):
            await asyncio.to_thread(self._ring.refresh)
        return self.decrypt(payloads)

    def encrypt(self, payloads: Sequence[Payload]) -> list[Payload]:
        """As ``encode``, with the keys as they are."""
        id_, key = self._ring.newest
        cipher, data = self._cipher(key), _associated_data(id_)
        metadata = {"encoding": ENCODING, KEY_ID: id_.encode(), CIPHER_KEY: CIPHER}
        out = []
        for payload in payloads:
            if is_encrypted(payload):
                out.append(payload)
                continue
            nonce = os.urandom(NONCE_BYTES)
            out.append(
                Payload(metadata=metadata, data=nonce + cipher.encrypt(nonce, payload.SerializeToString(), data))
            )
        return out

    def decrypt(self, payloads: Sequence[Payload]) -> list[Payload]:
        """As ``decode``, with the keys as they are."""
        return [self._open(p) if is_encrypted(p) else p for p in payloads]

    def _open(self, payload: Payload) -> Payload:
        from cryptography.exceptions import InvalidTag

        id_ = _key_id(payload)
        key = self._ring.find(id_)
        if key is None:
            raise UnknownKey(
                f"a payload is encrypted with the key {id_!r}; {VARIABLE} ({self._ring.source}) has: "
                f"{', '.join(self._ring.ids)}; add that key to it"
            )
        try:
            nonce, sealed = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
            plain = self._cipher(key).decrypt(nonce, sealed, _associated_data(id_))
            return Payload.FromString(plain)
        except (InvalidTag, ValueError):
            text = f"a payload does not open with the key {id_!r} of {VARIABLE} ({self._ring.source})"
            raise UndecryptablePayload(f"{text}: that id names another key there, or the payload was changed") from None


class LockedCodec(PayloadCodec):
    """A program without keys: writes plain payloads, and says what an encrypted one needs.

    ``refuses`` is in each payload that it does not read as it is (``worker_runtime/payload_visits.py``).
    """

    refuses: ClassVar[tuple[bytes, ...]] = (ENCODING,)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads as they are."""
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads as they are.

        Raises:
            UnknownKey: one is encrypted.
        """
        for payload in payloads:
            if is_encrypted(payload):
                raise UnknownKey(
                    f"a payload is encrypted with the key {_key_id(payload)!r}, and {VARIABLE} is not set: set it to "
                    "the keys of the workers"
                )
        return list(payloads)


def codec_from_environment() -> AesGcmCodec | LockedCodec:
    """The codec that ``ACTS_CODEC_KEYS`` describes.

    Raises:
        KeySettingsError: it has no usable keys.
    """
    setting = os.environ.get(VARIABLE)
    return AesGcmCodec(KeyRing.from_setting(setting)) if setting else LockedCodec()
