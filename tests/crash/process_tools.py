"""Plain ``def`` Tools for the pool of processes: what ``test_tool_processes`` has loaded into the worker."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

Json = Any


@activity.defn
def describe(call: Json, tool: Json, context: Json) -> Json:
    """Where a call runs, and what it knows of itself."""
    activity.heartbeat("here")
    info = activity.info()
    return {"pid": os.getpid(), "id": call["_id"], "workflow": info.workflow_id, "type": info.activity_type}


@activity.defn
def die_once(call: Json, tool: Json, context: Json) -> str:
    if activity.info().attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@activity.defn
def refuse(call: Json, tool: Json, context: Json) -> str:
    raise ApplicationError("not today", type="Refused", non_retryable=True)


@activity.defn
def wait_for_cancel(call: Json, tool: Json, context: Json) -> str:
    """Runs until it is cancelled; "deaf" lets nothing interrupt it."""
    marks = Path(os.environ["MARKS"])
    (marks / f"pid-{call['value']}").write_text(str(os.getpid()))
    while True:
        with contextlib.suppress(BaseException if call["value"] == "deaf" else ZeroDivisionError):
            try:
                while True:
                    time.sleep(0.1)  # a cancellation is raised between two of Python's instructions
                    activity.heartbeat()
            finally:
                (marks / f"cancelled-{call['value']}").touch()


def tool_of(name: str) -> Json:
    properties = {"_activity": {"const": name}, "_outputPath": {"type": "string"}, "value": {}}
    return {"type": "object", "properties": properties}


TOOLS = {name: tool_of(name) for name in ("describe", "die_once", "refuse", "wait_for_cancel")}
TOOLS["wait_for_cancel"]["properties"]["_options"] = {"const": {"heartbeat": "10s"}}
