"""A model that outlives what is killed: an OpenAI-compatible server in the test's own process.

It answers the tick that a request ends with, counts how often each was asked, and can
hold an answer back until it is let go.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.models.rawserver import chat

Json = Any


class Model:
    def __init__(self, answer: Callable[[int], Json]) -> None:
        self.url = ""
        self.asked: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()
        self.held: set[int] = set()
        self.waiting = asyncio.Event()
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = re.search(r"content-length: (\d+)", head)
            body = json.loads(await reader.readexactly(int(length[1]) if length else 0))
            tick = int(re.findall(r"Tick (\d+):", json.dumps(body["messages"][-1]))[-1])
            self.asked[tick] += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            if tick in self.held:
                self.waiting.set()
                await reader.read()  # returns when whoever asked is gone
            else:
                for _, data in chat(json.dumps(self._answer(tick))):
                    writer.write(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode())
                await writer.drain()
                self.answered[tick] += 1
        writer.close()


@contextlib.asynccontextmanager
async def model(answer: Callable[[int], Json]) -> AsyncIterator[Model]:
    found = Model(answer)
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    try:
        yield found
    finally:
        listening.close()
