"""Encrypts the payloads that a program writes and decrypts those that it reads: AES-256-GCM, by the SDK's codec.

A payload that is encrypted has the encoding ``binary/encrypted``, the id of its key in its metadata, and as its data a
fresh nonce and the ciphertext of the whole payload before. The id and the format are authenticated. Plain payloads are
read as they are, so runs that began without keys continue. ``ACTS_CODEC_KEYS`` names one of

* a file with a line ``id key`` for each key; the first encrypts, all decrypt; ``#`` begins a comment;
* a folder with a file for each key, named by its id (a mounted secret); the last by name encrypts, or the one that the
  file ``current`` names;
* ``module:function``: it returns or yields pairs ``(id, 32 bytes)``; the first encrypts.

A key is 32 random bytes in base64. Laws of this file: no error of it contains a key.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import pkgutil
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE: Final = "ACTS_CODEC_KEYS"
KEY_BYTES: Final = 32  # AES-256
# A changed file is read again after this long at most, an unknown id is looked up no more often than this
REFRESH_SECONDS: Final = 5.0
SERVICE_SECONDS: Final = 300.0  # for a key service
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_HINT: Final = "`acts keygen --codec` prints a line for the file"

ENCODING: Final = b"binary/encrypted"
KEY_ID: Final = "encryption-key-id"
CIPHER_KEY: Final = "encryption-cipher"
CIPHER: Final = b"AES-256-GCM"
NONCE_BYTES, TAG_BYTES = 12, 16  # what GCM is specified for
_FORMAT: Final = b"acts payload 1 "  # authenticated together with the id of the key


class CodecError(RuntimeError):
    """Payloads cannot be encrypted or decrypted, or no key is usable: names the setting or the key, and what to do."""


class UnknownKey(CodecError):
    """A payload names a key that this program does not have; tasks are retried until it has."""


class UndecryptablePayload(CodecError):
    """A payload does not open with the key that it names."""


def is_encrypting() -> bool:
    """True where this program encrypts: its logs and traces then have no text that may hold values."""
    return bool(os.environ.get(VARIABLE))


def read_keys(setting: str) -> dict[str, bytes]:
    """All keys by id; the first of the dict encrypts. Raises CodecError: none, or one cannot be used."""
    path = Path(setting)
    try:
        if path.is_dir():
            keys = _read_folder(path)
        else:
            keys = _check(setting, _read_lines(path) if path.is_file() else _call(setting))
    except OSError as error:
        raise CodecError(f"{VARIABLE} names {setting}, which cannot be read: {error.strerror}") from None
    if not keys:
        raise CodecError(f"{VARIABLE} names {setting}, which has no key; {_HINT}")
    return keys


def _read_lines(path: Path) -> Iterable[tuple[str, bytes]]:
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words and len(words) != 2:  # noqa: PLR2004 - an id and a key
            raise CodecError(f"{path}, line {number}: a line is an id and a key, with a space between them")
        if words:
            yield words[0], _decode_key(words[1], f"{path}, line {number}")


def _read_folder(path: Path) -> dict[str, bytes]:
    # A mounted secret has ..data and the like beside the files
    files = {f.name: f.read_text("utf-8", "replace") for f in sorted(path.iterdir()) if f.is_file()}
    current = files.pop("current", "").strip()
    names = [name for name in files if not name.startswith(".")]
    keys = _check(str(path), [(name, _decode_key(files[name], str(path / name))) for name in names])
    current = current or next(reversed(keys), "")
    if keys and current not in keys:
        raise CodecError(f"{path / 'current'} names the key {current[:64]!r}; there are: {', '.join(keys)}")
    return {current: keys[current], **keys} if keys else {}


def _call(setting: str) -> Iterable[tuple[str, bytes]]:
    if not _FUNCTION.fullmatch(setting):
        text = f"{VARIABLE} is {setting!r}: there is no such file or folder, and it is no module:function"
        raise CodecError(text)
    try:
        return [(id_, key) for id_, key in pkgutil.resolve_name(setting)()]
    except Exception as error:
        # Its text could hold a key
        raise CodecError(f"{VARIABLE}: {setting} failed with {type(error).__name__}") from error


def _decode_key(text: str, where: str) -> bytes:
    try:
        key = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise CodecError(f"{where} is not a key: {KEY_BYTES} bytes in base64; {_HINT}")
    return key


def _check(where: str, pairs: Iterable[tuple[Any, Any]]) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for id_, key in pairs:
        if not isinstance(id_, str) or not _ID.fullmatch(id_):
            text = "the id of a key is 1 to 64 letters, digits, and . _ -, beginning with a letter or digit"
            raise CodecError(f"{where}: {text}")
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise CodecError(f"{where}: the key {id_!r} has to be {KEY_BYTES} bytes; {_HINT}")
        if id_ in keys:
            raise CodecError(f"{where}: the id {id_!r} is there twice; an id names one key for ever")
        keys[id_] = key
    return keys


def is_encrypted(payload: Payload) -> bool:
    """True for a payload that some codec of ours wrote; what others call encrypted is not ours to wait for."""
    metadata = payload.metadata
    is_ours = metadata.get("encoding") == ENCODING and metadata.get(CIPHER_KEY) == CIPHER and metadata.get(KEY_ID)
    return bool(is_ours) and len(payload.data) >= NONCE_BYTES + TAG_BYTES


def _key_id(payload: Payload) -> str:
    return payload.metadata.get(KEY_ID, b"").decode(errors="replace")[:64]


class AesGcmCodec(PayloadCodec):
    """Encrypts with the first of its ``keys``, decrypts with the one that a payload names.

    ``read`` returns them by id; it may block, and is called again when an id is missing, and every ``seconds``.
    """

    def __init__(
        self, read: Callable[[], Mapping[str, bytes]], source: str, seconds: float = REFRESH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._read, self._source, self._seconds, self._clock = read, source, seconds, clock
        self._lock = threading.Lock()
        self.keys = dict(read())
        self._read_at = clock()
        self._ciphers: dict[bytes, AESGCM] = {}  # by key: making one takes longer than a small payload

    async def _refresh(self, payloads: Sequence[Payload] = ()) -> None:
        """Read keys that are old, or lack one that a payload names; if they cannot be read, the old ones remain."""
        age = self._clock() - self._read_at
        lacks_key = any(_key_id(p) not in self.keys for p in payloads if is_encrypted(p))
        if age >= self._seconds or (lacks_key and age >= REFRESH_SECONDS):
            await asyncio.to_thread(self._read_again)

    def _read_again(self) -> None:
        with self._lock:
            try:
                self.keys = dict(self._read())
            except CodecError:
                logging.getLogger(__name__).exception("the keys of %s cannot be read again", VARIABLE)
            self._read_at = self._clock()

    def _cipher(self, key: bytes) -> AESGCM:
        if key not in self._ciphers:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers[key] = AESGCM(key)
        return self._ciphers[key]

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        await self._refresh()
        id_, key = next(iter(self.keys.items()))
        cipher, data = self._cipher(key), _FORMAT + id_.encode()
        metadata = {"encoding": ENCODING, KEY_ID: id_.encode(), CIPHER_KEY: CIPHER}

        def seal(payload: Payload) -> Payload:
            nonce = os.urandom(NONCE_BYTES)
            return Payload(metadata=metadata, data=nonce + cipher.encrypt(nonce, payload.SerializeToString(), data))

        return [p if is_encrypted(p) else seal(p) for p in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt each payload that is encrypted. Raises UnknownKey, UndecryptablePayload."""
        await self._refresh(payloads)
        return [self._open(p) if is_encrypted(p) else p for p in payloads]

    def _open(self, payload: Payload) -> Payload:
        from cryptography.exceptions import InvalidTag

        id_ = _key_id(payload)
        key = self.keys.get(id_)
        if key is None:
            text = f"{VARIABLE} ({self._source}) has: {', '.join(self.keys)}; add that key to it"
            raise UnknownKey(f"a payload is encrypted with the key {id_!r}; {text}")
        try:
            nonce, sealed = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
            return Payload.FromString(self._cipher(key).decrypt(nonce, sealed, _FORMAT + id_.encode()))
        except (InvalidTag, ValueError):
            text = f"a payload does not open with the key {id_!r} of {VARIABLE} ({self._source})"
            raise UndecryptablePayload(f"{text}: that id names another key there, or the payload was changed") from None


class LockedCodec(PayloadCodec):
    """A program without keys: writes plain payloads, and says what an encrypted one needs.

    ``refuses`` is in each payload that it does not read as it is (``acts/worker/slots.py``).
    """

    refuses: ClassVar[tuple[bytes, ...]] = (ENCODING,)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads as they are. Raises UnknownKey for one that is encrypted."""
        for payload in payloads:
            if is_encrypted(payload):
                text = f"and {VARIABLE} is not set: set it to the keys of the workers"
                raise UnknownKey(f"a payload is encrypted with the key {_key_id(payload)!r}, {text}")
        return list(payloads)


def codec_from_environment() -> AesGcmCodec | LockedCodec:
    """The codec that ``ACTS_CODEC_KEYS`` describes. Raises CodecError if it has no usable keys."""
    setting = os.environ.get(VARIABLE)
    if not setting:
        return LockedCodec()
    seconds = REFRESH_SECONDS if Path(setting).exists() else SERVICE_SECONDS
    return AesGcmCodec(lambda: read_keys(setting), setting, seconds)
