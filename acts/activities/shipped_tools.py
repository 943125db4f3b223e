"""Tools that every worker of ours has, unless ``ACTS_SHIPPED_TOOLS`` leaves them out.

``compute`` evaluates Python over values of the plan, in a sandbox: a process of its own without files, network, clock
or randomness, with limits on time, memory and depth. Its failure says what it cannot do, with the line.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import pydantic_monty as monty
from temporalio import activity
from temporalio.exceptions import ApplicationError

from acts.language.errors import SettingsError, format_choices, truncate
from acts.language.values import Json
from acts.language.wire import INNER_PLAN, PLAN_FAILED, PLAN_TOOL, UNTIL_UNMET, WAIT

FAILED: Final = "computeFailed"
_AT_A_LINE: Final = (monty.MontyRuntimeError, monty.MontySyntaxError)
MAX_SECONDS: Final = 1.0
MAX_BYTES: Final = 128 * 1024 * 1024
MAX_DEPTH: Final = 200
# Characters of the JSON of a result, about
MAX_RESULT: Final = 8 * 1024 * 1024
# What each number, list and object counts for: a million of them take half a second
_MIN_PART: Final = 8
_USUAL: Final = 10.0**15  # a number between it and its negative is JSON
# Processes at most, and evaluations that one of them makes before another takes its place
MAX_PROCESSES: Final = 4
_MAX_EVALUATIONS: Final = 1_000
# How long an evaluation waits for a process; then its Call is tried again
_WAIT_SECONDS: Final = 20.0
_MAX_MESSAGE: Final = 2_000
# Of a Tool without a timeout of its own
_REQUEST_SECONDS: Final = 60.0
# A plan that is walked so often takes 15,000 events of its run, which does not continue as new
MAX_TURNS: Final = 1_000

_LIMITS: Final[monty.ResourceLimits] = {
    "max_feed_duration_secs": MAX_SECONDS, "max_memory": MAX_BYTES, "max_recursion_depth": MAX_DEPTH,
    "max_suspensions": 100,  # of names that are not defined, and of what the host would have to answer
}  # fmt: skip
# Asks the host, which answers nothing of it
_POLICY: Final[monty.OSPolicy] = {"datetime": "call_host", "sleep": "call_host", "random_start": "call_host"}

_WRITES: Final = {
    "_outputPath": {"type": "string", "pattern": "^†"},
    "_errorPath": {"type": "string", "pattern": "^†"},
    "_outputMethod": {"type": "string"},
}
COMPUTE: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Evaluates Python. Its other parameters are the names that the code sees; the value of the last "
    "expression is the result. No files, network, clock or randomness; modules: datetime, json, math, re.",
    "properties": {
        "_tool": {"const": "compute"},
        "_activity": {"const": "compute"},
        "_options": {"const": {"local": True, "timeout": "30s"}},
        **_WRITES,
        "code": {"type": "string", "minLength": 1, "description": "like: [o['id'] for o in orders if o['paid']]"},
    },
    "required": ["_tool", "code"],
    "x-hints": {"readOnly": True, "idempotent": True},
    "x-failures": {FAILED: "the code raised an error, took too long or too much memory, or its value is no JSON"},
}
_DURATION: Final = {"type": ["string", "number"], "description": "like 30s, 5m, 24h"}
PLAN: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Walks a plan of its own, for what one plan cannot say: several steps for each element (_each), the "
    "first of several (until), again until something holds (repeat). The result is its state.output, else its state.",
    "properties": {
        "_tool": {"const": PLAN_TOOL},
        "_delegate": {"const": INNER_PLAN},
        "_scopes": {"type": "array", "items": {"type": "string"}},
        **_WRITES,
        "plan": {
            "type": ["array", "string"], "minLength": 1, "items": {"type": "object"},
            "description": "calls like those of any plan; their references are of that plan, which sees †input, what "
            "_scopes name, and its own †state. Or the name of a plan",
        },
        "input": {"type": "object", "description": "what its calls find at †input"},
        "until": {
            "type": "string", "minLength": 1,
            "description": "a condition on its state: as soon as it holds, it ends, and what still runs is cancelled",
        },
        "repeat": {
            "type": "object",
            "description": "walked again until then, at most so often, with its last state at †input.previous",
            "properties": {"max": {"type": "integer", "minimum": 1, "maximum": MAX_TURNS}, "every": _DURATION},
            "required": ["max"], "additionalProperties": False,
        },
    },
    "required": ["_tool", "plan"],
    "additionalProperties": False,
    "x-failures": {
        PLAN_FAILED: "a call of the plan failed without an error path",
        UNTIL_UNMET: "the plan has ended, and until does not hold",
    },
}  # fmt: skip
WAIT_TOOL: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Waits, for seconds or years, and costs nothing meanwhile; the result is the date at which it ends. "
    "Calls that come after it need that: _when.",
    "properties": {
        "_tool": {"const": "wait"},
        "_activity": {"const": WAIT},
        "_each": False,
        **_WRITES,
        "for": {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)\s*$"},
            ],
            "description": "like 30s, 5m, 24h; from when it starts",
        },
        "until": {
            "type": "string", "description": "a date with its zone, like 2026-12-01T09:00:00Z",
            "pattern": r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)$",
        },
    },
    "required": ["_tool"],
    "oneOf": [{"required": ["for"]}, {"required": ["until"]}],
    "additionalProperties": False,
    "x-hints": {"readOnly": True, "idempotent": True},
}  # fmt: skip
HTTP: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Sends an HTTP request to one of the hosts that the operator allows; the result is "
    "{status, headers, json or text}.",
    "properties": {
        "_tool": {"const": "http"},
        "_activity": {"const": "http"},
        "_options": {"const": {"timeout": "1m", "retry": {"maxAttempts": 5}}},
        **_WRITES,
        "method": {"enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"], "description": "GET, if not set"},
        "url": {"type": "string", "minLength": 1},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
        "query": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
        "json": {"description": "the body"},
    },
    "required": ["_tool", "url"],
    "additionalProperties": False,
    "x-hints": {"openWorld": True},
    "x-failures": {
        "httpStatus": "the answer has another status than 2xx: details.status",
        "httpUnavailable": "there was no answer",
        "httpRefused": "the request may not be sent, or its answer not be read",
        "httpTooLarge": "the answer has more than 1 MiB",
    },
}
SHIPPED: Final = {"compute": COMPUTE, PLAN_TOOL: PLAN, "wait": WAIT_TOOL, "http": HTTP}


@activity.defn(name="compute")
async def compute(call: dict[str, Any], _tool: dict[str, Any], _context: list[Any]) -> Json:
    """The value of ``code`` over the Call's other parameters. Fails with ``computeFailed``, once and for all."""
    names = {key: value for key, value in call.items() if not key.startswith("_") and key != "code"}
    try:
        try:
            return await asyncio.to_thread(evaluate, call["code"], names)
        except monty.MontyCrashedError as crash:
            if "timeout" in str(crash):  # the code outlived its time
                raise
            return await asyncio.to_thread(evaluate, call["code"], names)  # its process was ended from outside
    except (monty.MontyError, ValueError) as error:
        text = error.display("traceback") if isinstance(error, _AT_A_LINE) else str(error)
        lines = text.replace('  File "<python-input-0>", line', "  line").removeprefix(
            "Traceback (most recent call last):\n"
        )
        raise ApplicationError(truncate(lines, _MAX_MESSAGE), type=FAILED, non_retryable=True) from None


@activity.defn(name="http")
async def http(call: dict[str, Any], _tool: dict[str, Any], _context: list[Any]) -> Json:
    """The answer to one request, whose ``Idempotency-Key`` is the ``_id`` of the Call."""
    module = await asyncio.to_thread(importlib.import_module, "acts.activities.http_request")  # it takes 0.1 s
    timeout = activity.info().start_to_close_timeout
    seconds = _REQUEST_SECONDS if timeout is None else timeout.total_seconds()
    return await module.send(call, max(seconds - 0.5, seconds / 2))  # so that its own failure comes first


def evaluate(code: str, names: Mapping[str, Json]) -> Json:
    """Raises MontyError: of the code; ValueError: its value is no JSON."""
    with _pool().checkout(limits=_LIMITS, os_policy=_POLICY) as session:
        value = session.feed_run(code, inputs=dict(names))
    return _to_json(value)


@cache
def _pool() -> monty.Monty:
    pool = monty.Monty(
        min_processes=0, max_processes=MAX_PROCESSES, checkout_timeout=_WAIT_SECONDS,
        max_checkouts_per_worker=_MAX_EVALUATIONS,
    )  # fmt: skip
    pool.__enter__()
    atexit.register(pool.__exit__, None, None, None)
    return pool


def _to_json(value: Any) -> Json:
    size = 0

    def copy(part: Any) -> Json:
        nonlocal size
        size += _MIN_PART + (len(part) if isinstance(part, str) else 0)
        if size > MAX_RESULT:  # a value that holds another many times over is small in the sandbox alone
            raise ValueError(f"the value of the code is longer than the {MAX_RESULT:,} characters allowed")
        if isinstance(part, (int, float)) and not -_USUAL < part < _USUAL:
            json.dumps(part, allow_nan=False)  # raises ValueError
        if part is None or isinstance(part, (bool, str, int, float)):
            return part
        if isinstance(part, (list, tuple)):
            return [copy(item) for item in part]
        if isinstance(part, dict) and all(isinstance(key, str) for key in part):
            size += sum(map(len, part))
            return {key: copy(item) for key, item in part.items()}
        what = "an object with keys that are no texts" if isinstance(part, dict) else type(part).__name__
        hint = "sorted(…) makes a list of a set, str(…) a text of anything"
        raise ValueError(f"the value of the code is no JSON: it has {what}; {hint}")

    return copy(value)


def shipped_tools(setting: str | None) -> dict[str, tuple[dict[str, Any], Callable[..., Any] | None]]:
    """The Tools of ``ACTS_SHIPPED_TOOLS`` with their Activities, if they have one. Raises SettingsError.

    The setting has names with spaces or commas: all where it is not set, none where it is empty.
    """
    names = list(SHIPPED) if setting is None else setting.replace(",", " ").split()
    for name in names:
        if name not in SHIPPED:
            raise SettingsError(f'ACTS_SHIPPED_TOOLS names "{name}"; there are: {format_choices(SHIPPED)}')
    functions: dict[str, Callable[..., Any]] = {"compute": compute, "http": http}
    return {name: (SHIPPED[name], functions.get(name)) for name in names}
