"""The world outside, the same for all: a shop whose ledger notes each call, and a scripted model.

    python -m benchmarks.compare.services LEDGER_FILE

It prints its address. ``POST /shop/KIND`` is one call: noted as an attempt, and as an effect unless its ``key`` has been
seen. ``POST /begin`` names the run that calls belong to from now on, ``POST /hold`` delays the next answers of a kind
*after* they are booked, ``GET /calls?run=`` counts. ``POST /v1/chat/completions`` is the model; ``GET /usage`` counts it.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

Json = Any

TICKS: Final = 20
PAGE: Final = "All work and no play makes Jack a dull boy. " * 22
CHARACTERS_PER_TOKEN: Final = 4
SCHEMA: Final = """
pragma journal_mode = wal; pragma synchronous = off;
create table attempts (run text, kind text, key text);
create table effects (run text, kind text, key text unique);
"""


class World:
    """All state, behind one lock."""

    def __init__(self, path: str) -> None:
        self.run, self.usage, self.holds = "", Counter[str](), dict[str, float]()
        self.lock = threading.Lock()
        self.book = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.book.executescript(SCHEMA)

    def call(self, kind: str, body: Json) -> Json:
        """One call of the shop: booked, then answered, later if it is held."""
        with self.lock:
            note = (self.run, kind, body.get("key"))
            self.book.execute("insert into attempts values (?, ?, ?)", note)
            self.book.execute("insert or ignore into effects values (?, ?, ?)", note)
            pause = self.holds.get(kind, 0.0)
        time.sleep(pause)
        order = body.get("order", "")
        answers = {
            "look_up": {"order": order, "customer": "ada", "cents": 1200},
            "pay": {"receipt": f"R-{order}"},
            "read_page": {"text": PAGE},
        }
        return answers.get(kind, {"done": True})

    def count(self, run: str) -> Json:
        """``{attempts: {kind: n}, effects: {kind: n}}`` of a run."""
        with self.lock:
            return {
                table: dict(self.book.execute(f"select kind, count(*) from {table} where run = ? group by 1", (run,)))  # noqa: S608
                for table in ("attempts", "effects")
            }

    def ask(self, body: Json) -> Json:
        """The model's message."""
        told = {key: body[key] for key in ("messages", "tools", "response_format") if body.get(key)}
        message = script(body)
        with self.lock:
            self.usage["requests"] += 1
            self.usage["input"] += len(json.dumps(told, ensure_ascii=False)) // CHARACTERS_PER_TOKEN
            self.usage["output"] += len(json.dumps(message, ensure_ascii=False)) // CHARACTERS_PER_TOKEN
        return message


def script(body: Json) -> Json:
    """One script in the form that each asks for: pages 1 to 20 in turn, then a sentence; a decision is an example."""
    turn = 1 + sum(message["role"] == "assistant" for message in body["messages"])
    schema = (body.get("response_format") or {}).get("json_schema", {}).get("schema") or {}
    tools = {tool["function"]["name"]: tool["function"] for tool in body.get("tools") or ()}
    if "calls" in schema.get("properties", {}):  # acts: calls as JSON under a schema, not as the API's tool calls
        page = {"_tool": "read_page", "number": turn, "_outputPath": f"†state.page{turn}"}
        more = turn <= TICKS
        return _text(json.dumps({"calls": [page] if more else [], "output": None if more else "All pages are read."}))
    if "read_page" in tools:
        return _call("read_page", {"number": turn}) if turn <= TICKS else _text("All pages are read.")
    if tools:  # an answer in the form of a tool call
        name, function = next(iter(tools.items()))
        return _call(name, example(function["parameters"], function["parameters"]))
    return _text(json.dumps(example(schema, schema)))


def _text(content: str) -> Json:
    return {"role": "assistant", "content": content}


def _call(name: str, arguments: Json) -> Json:
    call = {"id": f"call_{time.monotonic_ns()}", "type": "function"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**call, "function": {"name": name, "arguments": json.dumps(arguments)}}],
    }


def example(schema: Json, root: Json) -> Json:
    """A value that fits: 1200 for a number, true, a text."""
    if "$ref" in schema:
        return example(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if choices := schema.get("enum") or ([schema["const"]] if "const" in schema else None):
        return choices[0]
    if options := schema.get("anyOf"):
        return example(options[0], root)
    if "properties" in schema:
        return {name: example(part, root) for name, part in schema["properties"].items()}
    return {"integer": 1200, "number": 1200, "boolean": True, "array": []}.get(schema.get("type"), "as agreed")


class Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 with connections that stay open; each answer is one packet."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    world: World

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/usage":
            self._send(dict(self.world.usage))
        else:
            self._send(self.world.count(parse_qs(url.query)["run"][0]))

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        content = self.rfile.read(size)
        if len(content) < size:
            return  # who asked was killed in the middle
        body = json.loads(content or b"{}")
        if self.path.startswith("/shop/"):
            self._send(self.world.call(self.path.removeprefix("/shop/"), body))
        elif self.path == "/begin":
            self.world.run = body["run"]
            self._send({})
        elif self.path == "/hold":
            self.world.holds = body
            self._send({})
        elif body.get("stream"):
            self._stream(self.world.ask(body), body)
        else:
            self._send(self._answer(self.world.ask(body), body, "message", "chat.completion"))

    def _answer(self, message: Json, body: Json, part: str, kind: str) -> Json:
        usage = {"prompt_tokens": len(json.dumps(body)) // CHARACTERS_PER_TOKEN, "completion_tokens": 20}
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, part: message, "finish_reason": finish}
        head = {"id": f"chat-{time.monotonic_ns()}", "object": kind, "created": int(time.time())}
        return {
            **head,
            "model": body["model"],
            "choices": [choice],
            "usage": {**usage, "total_tokens": sum(usage.values())},
        }

    def _stream(self, message: Json, body: Json) -> None:
        for index, call in enumerate(message.get("tool_calls") or ()):
            call["index"] = index
        event = json.dumps(self._answer(message, body, "delta", "chat.completion.chunk"))
        self._write(f"data: {event}\n\ndata: [DONE]\n\n", "text/event-stream")

    def _send(self, value: Json) -> None:
        self._write(json.dumps(value), "application/json")

    def _write(self, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Server(ThreadingHTTPServer):
    """Takes a hundred connections at once."""

    daemon_threads = True
    request_queue_size = 1024


def main() -> None:
    """Serve until killed."""
    Handler.world = World(sys.argv[1])
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
