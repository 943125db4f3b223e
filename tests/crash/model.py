"""A model that outlives what is killed: an OpenAI-compatible server in the test's own process.

It tells requests apart by a key (the tick that a request ends with, or what a test makes of its
text), counts how often each was asked and answered, and can hold answers back until whoever asked is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from tests.models.rawserver import chat

Json = Any

_BUSY = b"HTTP/1.1 503 Busy\r\nretry-after: 1\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


def tick_of(text: str) -> Json:
    return int(re.findall(r"Tick (\d+):", text)[-1])


class Model:
    """``held`` are the keys of the requests that are answered after ``release``, ``holding`` those that wait for it.

    A request in ``cut`` is answered as far as the end of that text, and is held then. One in ``busy`` is refused so
    many times as by a model without capacity, which wants to be left alone for a second.
    """

    def __init__(self, answer: Callable[[Json], Json], key: Callable[[str], Json]) -> None:
        self.url = ""
        self.asked: Counter[Json] = Counter()
        self.answered: Counter[Json] = Counter()
        self.held: set[Json] = set()
        self.cut: dict[Json, str] = {}
        self.busy: Counter[Json] = Counter()
        self.holding: Counter[Json] = Counter()
        self.waiting, self.release = asyncio.Event(), asyncio.Event()
        self._answer, self._key = answer, key

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = re.search(r"content-length: (\d+)", head)
            body = json.loads(await reader.readexactly(int(length[1]) if length else 0))
            key = self._key(_told(body["messages"]))
            self.asked[key] += 1
            if self.busy[key]:
                self.busy[key] -= 1
                writer.write(_BUSY)
                writer.close()
                return
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            if key in self.cut:
                text = json.dumps(self._answer(key)).partition(self.cut[key])[0] + self.cut[key]
                self._write(writer, chat(text, finish=None))
                await writer.drain()
            if key in self.held or key in self.cut:
                self.waiting.set()
                self.holding[key] += 1
                waits = [asyncio.ensure_future(reader.read()), asyncio.ensure_future(self.release.wait())]
                try:  # until it is answered, or whoever asked is gone
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    self.holding[key] -= 1
                    for wait in waits:
                        wait.cancel()
            if key not in self.cut and (key not in self.held or self.release.is_set()):
                self._write(writer, chat(json.dumps(self._answer(key))))
                await writer.drain()
                self.answered[key] += 1
        writer.close()

    @staticmethod
    def _write(writer: asyncio.StreamWriter, events: list[tuple[str | None, Json]]) -> None:
        for _, data in events:
            writer.write(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode())


def _told(messages: list[Json]) -> str:
    """What a request says; that for a Solution ends with its tick, which is how often the model has answered."""
    text = "\n".join(_texts(messages))
    tick = 1 + sum(message["role"] == "assistant" for message in messages)
    return f"{text}\nTick {tick}:" if "by planning calls of tools" in text else text


def _texts(part: Json) -> Iterable[str]:
    """What a request's messages say, in order, however they are nested."""
    if isinstance(part, dict):
        part = part.get("content", part.get("text"))
    if isinstance(part, str):
        yield part
    for item in part if isinstance(part, list) else ():
        yield from _texts(item)


@contextlib.asynccontextmanager
async def model(answer: Callable[[Json], Json], key: Callable[[str], Json] = tick_of) -> AsyncIterator[Model]:
    found = Model(answer, key)
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield found
    finally:
        listening.close()
