"""Leaves out the SDK's visits to the payloads of a workflow task where they would change nothing.

The SDK visits each payload of a task three times on the way in and three times on the way out: for the codec, for
external storage, and for the codec of its references. Each visit copies the payload. A worker that has neither keys nor
storage has nothing to do on these visits but to refuse what others have encrypted or stored. So a task without a mark
of these is passed on as it is; one with a mark takes the SDK's way, and so do all tasks of other workers.

A visit to a storage takes its time, in which the task is neither at the server nor in line for the interpreter: such
visits are counted (``VISITS``).
"""

from __future__ import annotations

import functools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from temporalio.bridge import worker as sdk
from temporalio.converter import _extstore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from temporalio.converter import DataConverter

# The attribute of a codec that writes payloads as they are, and reads those as they are that hold none of these bytes
REFUSES: Final = "refuses"
_VERSION_TEXT: Final = "this version of temporalio visits payloads in another way; 1.35 has bridge.worker.{name}"


class Visits:
    """How many tasks of this process are visited now; ``on_begin`` is called with each that begins."""

    def __init__(self) -> None:
        self.count = 0
        self.on_begin: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    @contextmanager
    def visit(self) -> Iterator[None]:
        """A block in which a task is visited."""
        self._add(1)
        try:
            self.on_begin()
            yield
        finally:
            self._add(-1)

    def _add(self, number: int) -> None:
        with self._lock:
            self.count += number


VISITS: Final = Visits()


def leave_out_visits() -> None:
    """Install it in this process, once."""
    for name, wrap in (("decode_activation", _decode_if_marked), ("encode_completion", _encode_if_needed)):
        function = getattr(sdk, name, None)
        if function is None:
            raise RuntimeError(_VERSION_TEXT.format(name=name))
        if not hasattr(function, "__wrapped__"):
            setattr(sdk, name, wrap(function))


def find_marks(converter: DataConverter) -> tuple[bytes, ...] | None:
    """The bytes that a task holds if it has payloads that this converter must look at; None: it must look at all."""
    codec = converter.payload_codec
    refused: tuple[bytes, ...] | None = () if codec is None else getattr(codec, REFUSES, None)
    return None if refused is None or converter.external_storage is not None else (*refused, *_STORED)


def _decode_if_marked(decode: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(decode)
    async def decode_activation(activation: Any, data_converter: DataConverter, **more: Any) -> Any:
        marks = find_marks(data_converter)
        if marks is not None:
            data = activation.SerializeToString()
            if not any(mark in data for mark in marks):
                return _extstore.StorageOperationMetrics()
        with VISITS.visit():
            return await decode(activation, data_converter, **more)

    return decode_activation


def _encode_if_needed(encode: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(encode)
    async def encode_completion(completion: Any, data_converter: DataConverter, **more: Any) -> Any:
        if find_marks(data_converter) is not None:
            return _extstore.StorageOperationMetrics()
        with VISITS.visit():
            return await encode(completion, data_converter, **more)

    return encode_completion


# What the SDK knows the references to stored payloads by
_STORED: Final[tuple[bytes, ...]] = (
    _extstore._REFERENCE_ENCODING,  # noqa: SLF001 - no public way
    _extstore._REFERENCE_MESSAGE_TYPE,  # noqa: SLF001
    _extstore._REFERENCE_MARKER_KEY.encode(),  # noqa: SLF001
)
