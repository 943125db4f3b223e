"""Tools that get a secret and give it away by every way there is. Served by the worker of ``test_planted_values``."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import multiprocessing
import sys
import threading
import warnings
from typing import Any
from urllib.parse import quote

from temporalio import activity
from temporalio.exceptions import ApplicationError

Json = Any


@activity.defn(name="leak.result")
async def leak_result(call: Json, tool: Json, context: Json) -> Json:
    key = call["headers"]["Authorization"]
    activity.heartbeat({"sent": key})
    logging.getLogger("leaky").warning("called with %s", key)
    basic = base64.b64encode(f"ada:{key}".encode()).decode()
    return {"echo": call, "basic": f"Basic {basic}", "url": f"https://x/?k={quote(key)}", key: [key, f"({key})"]}


@activity.defn(name="leak.failure")
async def leak_failure(call: Json, tool: Json, context: Json) -> Json:
    key = call["headers"]["Authorization"]
    if call.get("planted") is None:
        raise ApplicationError("a failure without any secret", {"limit": 3}, type="plain", non_retryable=True)
    try:
        raise ValueError(f"the key {key} was refused")  # noqa: TRY301 - a cause
    except ValueError as error:
        logging.getLogger("leaky").exception("it failed")
        raise ApplicationError(f"{error}: {call['planted']}", {"headers": call["headers"]}, type="leak") from error


@activity.defn(name="leak.thread")
def leak_thread(call: Json, tool: Json, context: Json) -> str:
    logging.getLogger("leaky").error({"key": call["headers"]["Authorization"]})
    return str(call["headers"]["Authorization"])


def _fail(key: str) -> None:
    raise type(f"Error{key}", (Exception,), {})(key)


class _Fails:
    def __init__(self, key: str) -> None:
        self._key = key

    def __del__(self) -> None:
        _fail(self._key)


@activity.defn(name="leak.print")
def leak_print(call: Json, tool: Json, context: Json) -> None:
    """Every way to a log, and an end that is no Exception, with details that are no JSON."""
    key = call["headers"]["Authorization"]
    print(key, json.dumps(key).replace("/", "\\/"))  # noqa: T201 - what a Tool does
    print(base64.encodebytes(b"x" * 50 + key.encode()).decode(), file=sys.stderr)  # noqa: T201
    sys.stdout.buffer.write(quote(key, safe="").replace("%2F", "%2f").encode())
    sys.stdout.writelines([key])
    warnings.warn(key, stacklevel=1)
    process = multiprocessing.get_context("fork").Process(target=_fail, args=(key,))
    for work in (threading.Thread(target=_fail, args=(key,)), process):
        work.start()
        work.join()
    _Fails(key)
    sys.excepthook(ValueError, ValueError(key), None)
    circular: list[Json] = [key]
    circular.append(circular)
    raise KeyboardInterrupt(key) from ApplicationError(key, circular, {("a", key): 1}, type=key)


@activity.defn(name="leak.exit")
async def leak_exit(call: Json, tool: Json, context: Json) -> None:
    ends = {"exit": SystemExit, "generator": GeneratorExit}
    if call["planted"] in ends:
        raise ends[call["planted"]](call["headers"]["Authorization"])
    _fail(call["headers"]["Authorization"])


@activity.defn(name="leak.echo")
async def leak_echo(call: Json, tool: Json, context: Json) -> Json:
    await asyncio.sleep(0)
    return call


def _schema(activity_name: str, secret: str = "crm-token", **more: Json) -> Json:  # noqa: S107 - a name
    properties = {
        "_activity": {"const": activity_name}, "_outputPath": {"type": "string"}, "_errorPath": {"type": "string"},
        "_options": {"const": {"retry": {"maxAttempts": 1}}},
        "headers": {"const": {"Authorization": {"$secret": secret}, "Accept": "text/plain"}},
        "planted": {"type": "string"},
    }  # fmt: skip
    return {
        "type": "object", "properties": {**properties, **more}, "required": ["headers", "_outputPath"],
        "additionalProperties": False,
    }  # fmt: skip


TOOLS = {
    "leakResult": _schema("leak.result"),
    "leakFailure": _schema("leak.failure"),
    "leakPrint": _schema("leak.print"),
    "leakExit": _schema("leak.exit"),
    "leakThread": _schema("leak.thread"),
    "leakLocal": _schema("leak.echo", _options={"const": {"local": True}}),
    "late": _schema("leak.echo", secret="comes-later"),  # noqa: S106 - a name
}
