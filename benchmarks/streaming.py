"""An agent whose model writes 30 calls in 20 seconds: when the first call starts, and when the last ends.

The model is a local server that streams OpenAI's Chat Completions at an even pace, through the real SDK. Each
call takes half a second; every third reads the one before. Without streaming nothing starts before the answer ends.

    python -m benchmarks streaming
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Final

from benchmarks import live
from benchmarks.live import Bench
from benchmarks.tables import Table, print_progress, run_program

CALLS: Final = 30
STREAM_SECONDS: Final = 20.0
CALL_SECONDS: Final = 0.5
PIECES: Final = 400
COLUMNS: Final = [
    "streaming",
    "first call starts, s",
    "last call ends, s",
    "of the bound",
    "agent's events",
    "plan's events",
]
NOTE: Final = (
    "From the first byte of the answer. The bound is the time of the answer and the calls that can only follow its end "
    f"({STREAM_SECONDS + CALL_SECONDS:g} s)."
)


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table."""
    yield live.on_server(lambda bench: _measure(bench, rounds or 1))


def _solution() -> dict[str, Any]:
    calls = []
    for i in range(CALLS):
        inputs = {"before": f"†state.r{i - 1}"} if i % 3 == 2 else {}  # noqa: PLR2004 - every third
        calls.append({"_tool": "step", "_outputPath": f"†state.r{i}", "inputs": inputs, "seconds": CALL_SECONDS})
    return {"calls": calls, "output": f"†state.r{CALLS - 1}"}


class _Model:
    """A server that streams one answer at an even pace; ``began`` is when it sent the first byte."""

    def __init__(self) -> None:
        self.began = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        text = json.dumps(_solution())
        size = -(-len(text) // PIECES)
        self.began = time.time()
        for i, start in enumerate(range(0, len(text), size)):
            await asyncio.sleep(max(0.0, self.began + i * STREAM_SECONDS / PIECES - time.time()))
            self._write(writer, {"content": text[start : start + size]})
            await writer.drain()
        await asyncio.sleep(max(0.0, self.began + STREAM_SECONDS - time.time()))
        self._write(writer, {}, "stop")
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()
        writer.close()

    @staticmethod
    def _write(writer: asyncio.StreamWriter, delta: dict[str, str], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "any", "choices": [choice]}
        writer.write(f"data: {json.dumps(chunk)}\n\n".encode())


@asynccontextmanager
async def _model() -> AsyncIterator[tuple[_Model, str]]:
    model = _Model()
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0)
    try:
        yield model, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def _measure(bench: Bench, rounds: int) -> Table:
    table = Table("an answer of 30 calls", COLUMNS, note=NOTE)
    async with _model() as (model, url):
        settings = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none", "ACTS_OPENAI_API": "chat"}
        with live.worker(bench.server.address, **settings) as process:
            for round_ in range(rounds):
                for streams in (True, False):
                    print_progress(f"streaming: round {round_ + 1} of {rounds}, {'on' if streams else 'off'}")
                    table.rows.append(await _measure_once(bench, process, model, streams=streams))
    return table


async def _measure_once(bench: Bench, process: live.Process, model: _Model, *, streams: bool) -> list[Any]:
    tool = {"properties": {"_tool": {"const": "step"}, "_outputPath": {"type": "string"}, "seconds": {"type": "number"},
                           "_activity": {"const": "bench.step"}, "inputs": {"type": "object"}}}  # fmt: skip
    request = {
        "config": {"model": "openai:any", "stream": streams},
        "context": [{"type": "tool", "tool": tool}, {"type": "text", "text": "Take thirty steps."}],
    }
    id_ = f"streaming-{time.monotonic()}"
    handle = await bench.client.start_workflow("Agent", request, id=id_, task_queue=process.queue)
    result = await handle.result()
    if result["status"] != "completed" or result["ticks"] != 1:
        raise RuntimeError(f"unexpected end of the agent: {result['status']}, {result['ticks']} ticks")
    agent = [event async for event in handle.fetch_history_events()]
    plan = [event async for event in bench.client.get_workflow_handle(f"{id_}/plan-1").fetch_history_events()]
    starts = [e.event_time.ToSeconds() + e.event_time.nanos / 1e9 for e in plan
              if e.HasField("activity_task_started_event_attributes")]  # fmt: skip
    ends = [e.event_time.ToSeconds() + e.event_time.nanos / 1e9 for e in plan
            if e.HasField("activity_task_completed_event_attributes")]  # fmt: skip
    first, last = min(starts) - model.began, max(ends) - model.began
    bound = STREAM_SECONDS + CALL_SECONDS
    return ["on" if streams else "off", first, last, last / bound, len(agent), len(plan)]


if __name__ == "__main__":
    run_program("streaming", run)
