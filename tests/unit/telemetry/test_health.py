"""``/live`` and ``/ready``, asked over HTTP while the loop beside them does what it does."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from acts.telemetry import observation as module
from acts.telemetry.observation import Observation, serve_health


class Loop:
    """An event loop in a thread, as a worker has."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.stop()


def ask(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def polling(answer: bool | Exception) -> Any:  # noqa: FBT001 - the answer
    async def is_polling() -> bool:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return is_polling


ANY = "127.0.0.1:0"


def test_a_worker_lives_while_its_loop_comes_back(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    health, release = Observation(), threading.Event()
    with serve_health(ANY, health) as port:
        assert ask(port, "/live") == (200, {"ok": True})  # it starts
        health.loop = loop.loop
        assert ask(port, "/live") == (200, {"ok": True})
        monkeypatch.setattr(module, "LOOP_SECONDS", 0.2)
        loop.loop.call_soon_threadsafe(release.wait)
        assert ask(port, "/live") == (
            503, {"ok": False, "problem": "the event loop did not come back within 0.2 s"},
        )  # fmt: skip
        release.set()


def test_a_worker_without_threads_for_workflow_tasks_does_not_live() -> None:
    lost = [0]
    with serve_health(ANY, Observation(count_lost=lambda: lost[0], threads=3)) as port:
        assert ask(port, "/live")[0] == 200
        lost[0] = 3
        assert ask(port, "/live") == (503, {"ok": False, "problem": "stuck workflow tasks have taken all 3 threads"})


def test_a_worker_is_ready_from_its_first_poll_until_a_stop_is_requested(loop: Loop) -> None:
    health = Observation()
    with serve_health(ANY, health) as port:
        assert ask(port, "/ready")[1]["problem"] == "the worker has not started yet"
        health.loop = loop.loop
        health.is_polling = polling(answer=False)
        problem = ask(port, "/ready")[1]["problem"]
        assert problem.startswith("the server knows of no poll of this worker within two minutes")
        health.is_polling = polling(answer=True)
        assert ask(port, "/ready") == (200, {"ok": True})
        health.is_stopping = True
        assert ask(port, "/ready") == (503, {"ok": False, "problem": "a stop was requested"})
        assert ask(port, "/live")[0] == 200  # what it has begun, it ends


def test_a_server_that_is_away_makes_no_worker_dead(loop: Loop) -> None:
    health = Observation()
    health.loop = loop.loop
    health.is_polling = polling(OSError("secret address"))
    with serve_health(ANY, health) as port:
        assert ask(port, "/ready") == (503, {"ok": False, "problem": "the server does not answer: OSError"})
        assert ask(port, "/live")[0] == 200


def test_a_client_that_hangs_up_leaves_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    asked, gone = threading.Event(), threading.Event()

    def count_lost() -> int:
        asked.set()
        gone.wait(10)
        return 0

    with serve_health(ANY, Observation(count_lost=count_lost)) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            client.sendall(b"GET /live HTTP/1.1\r\n\r\n")
            assert asked.wait(10)
        gone.set()
        assert ask(port, "/live")[0] == 200
    assert "Traceback" not in capsys.readouterr().err
