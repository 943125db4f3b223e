"""The keys that payloads are encrypted with: a file, a folder, or a function of yours that asks a key service.

``ACTS_CODEC_KEYS`` names one of

* a file with a line ``id key`` for each key; the first encrypts, all decrypt; ``#`` begins a comment;
* a folder with a file for each key, named by its id (a mounted secret); the last by name encrypts, or the one that the
  file ``current`` names;
* ``module:function``: it returns or yields pairs ``(id, 32 bytes)``; the first encrypts.

A key is 32 random bytes in base64. Laws of this file: it encrypts nothing (``codec`` does), and no error of it contains
a key.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "ACTS_CODEC_KEYS"
KEY_BYTES: Final = 32  # AES-256
# A changed file is read again after this long at most, an unknown id is looked up no more often than this
REFRESH_SECONDS: Final = 5.0
# A key service is asked again after this long: one request per process and five minutes
SERVICE_SECONDS: Final = 300.0
MAX_KEYS: Final = 1_000
# The id is in the metadata of each payload
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_CURRENT: Final = "current"
_MAX_FILE_BYTES: Final = 1024 * 1024
_HINT: Final = "`acts keygen --codec` prints a line for the file"


class CodecError(RuntimeError):
    """Payloads cannot be encrypted or decrypted: names the setting or the key's id, and what to do."""


class KeySettingsError(CodecError):
    """``ACTS_CODEC_KEYS`` has no usable keys."""


def is_encrypting() -> bool:
    """True where this program encrypts: its logs and traces then have no text that may hold values."""
    return bool(os.environ.get(VARIABLE))


def encode_key(key: bytes) -> str:
    """A key as the file has it."""
    return base64.b64encode(key).decode()


def decode_key(text: str, where: str) -> bytes:
    """The key in base64; ``where`` names its place in an error.

    Raises:
        KeySettingsError: it is none.
    """
    try:
        key = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise KeySettingsError(f"{where} is not a key: {KEY_BYTES} bytes in base64; {_HINT}")
    return key


def read_keys(setting: str) -> dict[str, bytes]:
    """All keys by id; the first of the dict encrypts.

    Raises:
        KeySettingsError: there is none, or one cannot be used.
    """
    path = Path(setting)
    try:
        if path.is_dir():
            keys = _read_folder(path)
        elif path.is_file():
            keys = _read_lines(path)
        elif _FUNCTION.fullmatch(setting):
            keys = _checked(setting, _call(setting))
        else:
            text = f"{VARIABLE} is {setting!r}: there is no such file or folder, and it is no module:function"
            raise KeySettingsError(text)
    except OSError as error:
        raise KeySettingsError(f"{VARIABLE} names {setting}, which cannot be read: {error.strerror}") from None
    if not keys:
        raise KeySettingsError(f"{VARIABLE} names {setting}, which has no key; {_HINT}")
    return keys


def _read_lines(path: Path) -> dict[str, bytes]:
    pairs = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{path}, line {number}"
        if len(words) != 2:  # noqa: PLR2004 - an id and a key
            raise KeySettingsError(f"{where}: a line is an id and a key, with a space between them")
        pairs.append((words[0], decode_key(words[1], where)))
    return _checked(str(path), pairs)


def _read_folder(path: Path) -> dict[str, bytes]:
    # A mounted secret has ..data and the like beside the files
    files = sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith("."))
    keys = _checked(str(path), [(f.name, decode_key(_text(f), str(f))) for f in files if f.name != _CURRENT])
    pointer = path / _CURRENT
    current = _text(pointer).strip() if pointer.is_file() else next(reversed(keys), "")
    if keys and current not in keys:
        raise KeySettingsError(f"{pointer} names the key {current[:64]!r}; there are: {', '.join(keys)}")
    return {current: keys[current], **keys} if keys else {}


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise KeySettingsError(f"{path} has more than {_MAX_FILE_BYTES:,} bytes: it is no file of keys")
    return data.decode(errors="replace")


def _call(setting: str) -> Iterable[tuple[str, bytes]]:
    module, _, name = setting.partition(":")
    try:
        function: Callable[[], Iterable[tuple[str, bytes]]] = getattr(importlib.import_module(module), name)
        return [(id_, key) for id_, key in function()]
    except Exception as error:
        # Its text could hold a key
        raise KeySettingsError(f"{VARIABLE}: {setting} failed with {type(error).__name__}") from error


def _checked(where: str, pairs: Iterable[tuple[Any, Any]]) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for id_, key in pairs:
        if not isinstance(id_, str) or not _ID.fullmatch(id_):
            text = "the id of a key is 1 to 64 letters, digits, and . _ -, beginning with a letter or digit"
            raise KeySettingsError(f"{where}: {text}")
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise KeySettingsError(f"{where}: the key {id_!r} has to be {KEY_BYTES} bytes; {_HINT}")
        if id_ in keys:
            raise KeySettingsError(f"{where}: the id {id_!r} is there twice; an id names one key for ever")
        keys[id_] = key
    if len(keys) > MAX_KEYS:
        raise KeySettingsError(f"{where} has {len(keys):,} keys; at most {MAX_KEYS:,}")
    return keys


class KeyRing:
    """The keys by id, read again when they may have changed. ``refresh`` may block; all else is quick.

    ``seconds`` is the age at which the keys are read again although no id was missing.
    """

    def __init__(
        self, read: Callable[[], Mapping[str, bytes]], source: str, seconds: float = REFRESH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.source = source
        self._read, self._seconds, self._clock = read, seconds, clock
        self._lock = threading.Lock()
        self._keys = dict(read())
        self._read_at = clock()

    @classmethod
    def from_setting(cls, setting: str) -> KeyRing:
        """The ring of ``ACTS_CODEC_KEYS``.

        Raises:
            KeySettingsError: it has no usable keys.
        """
        is_function = not Path(setting).exists()
        return cls(lambda: read_keys(setting), setting, SERVICE_SECONDS if is_function else REFRESH_SECONDS)

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids; the first encrypts."""
        return tuple(self._keys)

    @property
    def newest(self) -> tuple[str, bytes]:
        """The id and the key that encrypt."""
        return next(iter(self._keys.items()))

    def find(self, id_: str) -> bytes | None:
        """The key of an id; None when it is nowhere."""
        return self._keys.get(id_)

    def is_due(self, ids: Iterable[str] = ()) -> bool:
        """True when the keys should be read again: they are old, or lack one of these ids."""
        age = self._clock() - self._read_at
        return age >= self._seconds or (age >= REFRESH_SECONDS and any(id_ not in self._keys for id_ in ids))

    def refresh(self) -> None:
        """Read the keys again; what cannot be read now leaves those that are there."""
        with self._lock:
            try:
                self._keys = dict(self._read())
            except KeySettingsError:
                logging.getLogger(__name__).exception("the keys of %s cannot be read again", VARIABLE)
            self._read_at = self._clock()
