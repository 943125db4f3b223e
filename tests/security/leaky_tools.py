"""Tools that get a secret and give it away by every way there is. Served by the worker of ``test_planted_values``."""

from __future__ import annotations

import asyncio
import base64
import logging
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
    "leakThread": _schema("leak.thread"),
    "leakLocal": _schema("leak.echo", _options={"const": {"local": True}}),
    "late": _schema("leak.echo", secret="comes-later"),  # noqa: S106 - a name
}
