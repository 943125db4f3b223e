"""What every alternative is given: the client library of the shop, and the commands that the measuring program sends.

Not counted as user code. An alternative calls ``await serve(run, waiting, approve, resume)``.
"""

from __future__ import annotations

import asyncio
import http.client
import inspect
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

Json = Any

SHOP = os.environ.get("SHOP_URL", "")
MODEL = f"{SHOP}/v1"
_local = threading.local()


def _post(kind: str, **body: Json) -> Json:
    """Over a connection of this thread that stays open."""
    if not hasattr(_local, "connection"):
        _local.connection = http.client.HTTPConnection(SHOP.removeprefix("http://"), timeout=30)
    _local.connection.request("POST", f"/shop/{kind}", json.dumps(body).encode(), {"content-type": "application/json"})
    return json.loads(_local.connection.getresponse().read())


def look_up(order: str) -> dict[str, Any]:
    """``{order, customer, cents}``."""
    return _post("look_up", order=order)


def pay(order: str, cents: int, key: str) -> dict[str, str]:
    """``{receipt}``; once per key."""
    return _post("pay", order=order, cents=cents, key=key)


def notify(order: str, text: str) -> dict[str, bool]:
    """A mail. This service knows no keys: each call is a mail."""
    return _post("notify", order=order, text=text)


def work(order: str, number: int) -> dict[str, bool]:
    """A small piece of work; once per order and number."""
    return _post("work", order=order, number=number, key=f"{order}/{number}")


def read_page(number: int) -> str:
    """The text of a page: a kilobyte."""
    return _post("read_page", number=number)["text"]


async def serve(
    run: Callable[..., Json], waiting: Callable[..., Json], approve: Callable[..., Json], resume: Callable[..., Json]
) -> None:
    """Carry out commands, one JSON per line of stdin, until it ends. Functions may be plain or async.

    ``run(task, order)`` starts a task and returns its result; ``waiting(order)`` is what a person is shown, or None;
    ``approve(order)`` decides it; ``resume(task, order)`` is the result of a task that was interrupted by a crash.
    """
    commands = {"run": run, "waiting": waiting, "approve": approve, "resume": resume}
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print("@ready", flush=True)
    tasks = set()

    async def carry_out(number: int, name: str, arguments: list[str]) -> None:
        function = commands[name]
        try:
            done = (
                function(*arguments)
                if inspect.iscoroutinefunction(function)
                else asyncio.to_thread(function, *arguments)
            )
            answer = {"result": await done}
        except Exception:  # noqa: BLE001 - told to who asked
            answer = {"error": traceback.format_exc()}
        print("@" + json.dumps({"number": number, **answer}, default=str), flush=True)

    while line := await lines.readline():
        tasks.add(asyncio.create_task(carry_out(*json.loads(line))))
