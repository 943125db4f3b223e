"""A server that sends scripted replies byte by byte: for everything that a well-behaved fake never does.

Each request gets the next ``Reply``; ``requests`` records them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass
class Reply:
    """``events``: server-sent events (name, data); ``frames``: pieces of AWS's event stream; else ``body`` is all.

    ``waits``: before the event of this index is sent, another thing must have happened.
    ``end``: ``clean`` ends the stream properly, ``abrupt`` drops the connection in the
    middle of it, ``hang`` keeps it open until the client goes away.
    """

    events: list[tuple[str | None, Any]] | None = None
    waits: dict[int, asyncio.Event] = field(default_factory=dict)
    frames: list[bytes] | None = None
    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    end: Literal["clean", "abrupt", "hang"] = "clean"


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class RawServer:
    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    is_hanging: asyncio.Event = field(default_factory=asyncio.Event)
    client_closed: asyncio.Event = field(default_factory=asyncio.Event)
    answer: Callable[[str, str, bytes], Reply | None] = lambda *_: None
    """``answer`` (to a method, a path and a body) comes before ``replies``. ``is_hanging``: all of a hanging reply was
    sent. ``client_closed``: its client closed the connection."""

    def reply_with(self, *replies: Reply) -> None:
        self.replies.extend(replies)

    @property
    def body(self) -> dict[str, Any]:
        return self.requests[-1].body

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._serve_one(reader, writer):
                pass
        writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        data = await reader.readexactly(int(headers.get("content-length", "0")))
        reply = self.answer(*first.split(" ")[:2], data)
        if reply is not None:
            _write_head(writer, reply, "application/json", chunked=False)
            await writer.drain()
            return True
        self.requests.append(Request(first.split(" ")[1], headers, json.loads(data or b"{}")))
        reply = self.replies.pop(0) if self.replies else Reply(body={"error": {"message": "no reply left"}}, status=418)
        if reply.frames is not None:
            _write_head(writer, reply, "application/vnd.amazon.eventstream", chunked=True)
            writer.write(b"".join(f"{len(raw):x}\r\n".encode() + raw + b"\r\n" for raw in reply.frames) + b"0\r\n\r\n")
            await writer.drain()
            return True
        if reply.events is None:
            _write_head(writer, reply, "application/json", chunked=False)
            await writer.drain()
            return True
        _write_head(writer, reply, "text/event-stream", chunked=True)
        for index, (name, data) in enumerate(reply.events):
            if index in reply.waits:
                await reply.waits[index].wait()
            event = f"event: {name}\n" if name else ""
            raw = f"{event}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
            writer.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
            await writer.drain()
        if reply.end == "clean":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        if reply.end == "hang":
            self.is_hanging.set()
            await reader.read()  # returns when the client closes
            self.client_closed.set()
        return False


def _write_head(writer: asyncio.StreamWriter, reply: Reply, kind: str, *, chunked: bool) -> None:
    body = b"" if chunked else reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
    lines = [f"HTTP/1.1 {reply.status} X", f"content-type: {kind}", *(f"{k}: {v}" for k, v in reply.headers.items())]
    lines.append("transfer-encoding: chunked" if chunked else f"content-length: {len(body)}")
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


@contextlib.asynccontextmanager
async def raw_server() -> AsyncIterator[RawServer]:
    server = RawServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()


# A client takes half a millisecond for each piece: an answer of 2 MB in pieces of a few letters would take minutes
MAX_PIECES = 2_000


def split(text: str, size: int = 7) -> list[str]:
    size = max(size, len(text) // MAX_PIECES)
    return [text[i : i + size] for i in range(0, len(text), size)]


def claude(
    text: str,
    *,
    stop: str | None = "end_turn",
    usage: dict[str, Any] | None = None,
    details: dict[str, Any] | None = None,
    thinking: str = "",
) -> list[tuple[str | None, Any]]:
    """The events of a Messages stream. ``stop`` None: it ends without a reason."""
    usage = {"input_tokens": 11, "output_tokens": 7, **(usage or {})}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-opus-5-5", "content": []}
    out: list[tuple[str | None, Any]] = [
        ("message_start", {"type": "message_start", "message": {**start, "usage": {**usage, "output_tokens": 1}}})
    ]
    blocks = [("thinking", "thinking_delta", thinking)] if thinking else []
    for index, (kind, delta, content) in enumerate([*blocks, ("text", "text_delta", text)]):
        block = {"type": kind, kind: ""}
        out.append(("content_block_start", {"type": "content_block_start", "index": index, "content_block": block}))
        out.append(("ping", {"type": "ping"}))
        out += [
            (
                "content_block_delta",
                {"type": "content_block_delta", "index": index, "delta": {"type": delta, delta.split("_")[0]: piece}},
            )
            for piece in split(content)
        ]
        if stop is not None:
            out.append(("content_block_stop", {"type": "content_block_stop", "index": index}))
    if stop is not None:
        delta_ = {"stop_reason": stop, "stop_details": details}
        out.append(("message_delta", {"type": "message_delta", "delta": delta_, "usage": usage}))
        out.append(("message_stop", {"type": "message_stop"}))
    return out


def chat(
    text: str, *, finish: str | None = "stop", usage: dict[str, Any] | None = None, refusal: str = ""
) -> list[tuple[str | None, Any]]:
    """The chunks of a Chat Completions stream."""

    def chunk(choices: list[Any], **more: Any) -> tuple[None, Any]:
        base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-6-sol"}
        return None, {**base, "choices": choices, **more}

    def delta(finish: str | None = None, **content: Any) -> tuple[None, Any]:
        return chunk([{"index": 0, "delta": content, "finish_reason": finish}])

    out = [
        delta(role="assistant"),
        *(delta(content=p) for p in split(text)),
        *(delta(refusal=p) for p in split(refusal)),
    ]
    if finish is not None:
        totals = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, **(usage or {})}
        out += [delta(finish), chunk([], usage=totals), (None, "[DONE]")]
    return out


def responses(
    text: str,
    *,
    status: str | None = "completed",
    commentary: str = "",
    refusal: str = "",
    usage: dict[str, Any] | None = None,
    **more: Any,
) -> list[tuple[str | None, Any]]:
    """The events of a Responses stream. ``commentary``: a message before the answer."""
    base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-6-sol", "output": [], "tools": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**base, "status": "in_progress"}}]
    first = [("commentary", commentary, "")] if commentary else []
    for index, (phase, content, refused) in enumerate([*first, ("final_answer", text, refusal)]):
        position = {"output_index": index, "content_index": 0, "item_id": f"m{index}"}
        item = {"id": f"m{index}", "type": "message", "role": "assistant", "phase": phase, "content": []}
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        delta = {"type": "response.output_text.delta", **position, "logprobs": []}
        events += [{**delta, "delta": p} for p in split(content)]
        events += [{"type": "response.refusal.delta", **position, "delta": p} for p in split(refused)]
    if status is not None:
        totals = {
            "input_tokens": 11, "output_tokens": 7, "total_tokens": 18,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0}, **(usage or {}),
        }  # fmt: skip
        events.append({"type": f"response.{status}", "response": {**base, "status": status, "usage": totals, **more}})
    return [(e["type"], {**e, "sequence_number": i}) for i, e in enumerate(events)]
