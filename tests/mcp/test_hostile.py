"""What a server may do to its worker: fail the Calls that it has, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import sys
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from acts.activities.mcp import connection
from acts.activities.mcp.server_tools import McpServerConfig
from acts.activities.mcp.servers import McpServers
from tests.mcp.conftest import Hostile, entry
from tests.support import assert_eventually


async def failure(hostile: Hostile, tool: str, **more: Any) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await hostile.call(tool, **more)
    return caught.value


async def test_a_call_carries_its_arguments_and_its_id(lasting: Hostile) -> None:
    assert (await lasting.call("add", a=1, b=2))["structuredContent"] == {"sum": 3}
    sent = lasting.calls()[-1]
    assert sent["arguments"] == {"a": 1, "b": 2}
    assert sent["meta"]["_id"] == "k"


async def test_500_tools_are_offered_and_bad_ones_are_not(lasting: Hostile) -> None:
    names = [f"h.many{i}" for i in range(500)]
    found, missing = await lasting.servers.find_tools([*names, "h.net", "h.twice", "h.nope", "other", "o.ther"])
    assert list(found) == names
    assert list(missing) == ["h.net", "h.twice", "h.nope"]
    assert "leads out of the schema" in missing["h.net"]
    assert "two different tools" in missing["h.twice"]


async def test_a_call_without_an_answer_ends_in_time(lasting: Hostile) -> None:
    error = await failure(lasting, "hang", seconds=0.5)
    assert (error.type, error.non_retryable) == ("timeout", False)
    assert await lasting.text("add", a=1, b=1) == "2"
    assert lasting.lives() == 1


async def test_a_cancelled_call_is_cancelled_at_the_server(lasting: Hostile) -> None:
    call = asyncio.create_task(lasting.call("waits"))
    await assert_eventually(lambda: _is_true((lasting.folder / "waiting").exists()))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await assert_eventually(lambda: _is_true((lasting.folder / "cancelled").exists()))


async def _is_true(value: bool) -> bool:  # noqa: FBT001 - the value is the answer
    return value


async def test_a_crash_fails_the_calls_in_flight_and_the_server_comes_back(hostile: Hostile) -> None:
    waiting = asyncio.create_task(failure(hostile, "hang"))
    await assert_eventually(lambda: _is_true(bool(hostile.calls())))
    errors = await asyncio.gather(failure(hostile, "crash"), waiting)
    assert [error.type for error in errors] == ["McpInterrupted"] * 2
    assert not any(error.non_retryable for error in errors)
    assert await hostile.text("add", a=1, b=1) == "2"
    assert hostile.lives() == 2
    assert [call["tool"] for call in hostile.calls()] == ["hang", "crash", "add"]


@pytest.mark.long
async def test_a_server_that_answers_nothing_more_is_started_again(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LIST_SECONDS", 0.5)
    await hostile.text("add", a=1, b=1)
    assert (await failure(hostile, "stall", seconds=0.5)).type == "timeout"
    assert await hostile.text("add", a=1, b=1) == "2"
    assert hostile.lives() == 2


async def test_a_tool_that_has_changed_is_not_called(hostile: Hostile) -> None:
    found, _ = await hostile.servers.find_tools(["h.add"])
    digest = found["h.add"]["x-mcp"]["digest"]
    (hostile.folder / "changed").touch()

    async def noted(*_: Any) -> None: ...

    async def call() -> ApplicationError | None:
        try:
            arguments = {"a": 1, "b": 2}
            await (await hostile.servers.connection("h")).call("add", arguments, {}, digest, 30, noted)
        except ApplicationError as error:
            return error
        return None  # the list is up to a second old

    error = await assert_eventually(call)
    assert error is not None
    assert (error.type, error.non_retryable) == ("McpToolChanged", True)
    assert '"add"' in error.message


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ([sys.executable, "-c", "import os, sys; sys.exit('bad key ' + os.environ['KEY'])"], "bad key [secret]"),
        # Of a line that is cut, half a key could be left
        (
            [sys.executable, "-c", "import os, sys; sys.exit('x' * 4_080 + os.environ['KEY'] * 9 + '\\nit ends')"],
            "wrote: it ends",
        ),
        (
            [sys.executable, "-c", "import sys; print('hello', flush=True); sys.stdin.read()"],
            "did not start within 1 s",
        ),
    ],
)
async def test_a_server_that_does_not_start_says_why(command: list[str], reason: str) -> None:
    acts = {"startTimeout": "1s"}
    config = {"name": "h", "command": command[0], "args": command[1:], "env": {"KEY": "sk-1234"}, "acts": acts}
    servers = McpServers([McpServerConfig.model_validate(config)])
    servers.start()
    try:

        async def told() -> bool:
            error = await failure(Hostile(Path(), servers), "add", seconds=0.2)
            assert error.type == "McpUnavailable"
            return reason in error.message

        await assert_eventually(told)
    finally:
        await servers.stop()


async def test_servers_get_none_of_the_workers_secrets_and_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    config = McpServerConfig.model_validate({"name": "h", **entry(tmp_path), "env": {"OWN": "1"}})
    servers = McpServers([config])
    servers.start()
    shown = await Hostile(tmp_path, servers).text("environment")
    assert "secret" not in shown
    assert "OWN=1" in shown
    process = int(shown.partition("pid=")[2].split()[0])
    await servers.stop()
    assert not Path(f"/proc/{process}").exists() or not Path("/proc").exists()


PACKED = gzip.compress(bytes(connection.MAX_ANSWER_BYTES + 1))


@pytest.mark.parametrize(
    ("head", "body", "reason"),
    [
        ("Content-Encoding: gzip\r\n", PACKED, "the encoding gzip; only identity is read"),
        ("Content-Encoding: gzip, gzip\r\n", gzip.compress(PACKED), "the encoding gzip, gzip; only"),
        ("", bytes(connection.MAX_ANSWER_BYTES + 1), "more than 16,777,216 bytes"),
    ],
)
async def test_an_answer_is_read_no_further_than_it_may_be_large(head: str, body: bytes, reason: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(65_536)
            head_ = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{head}Content-Length: {len(body)}\r\n\r\n"
            writer.write(head_.encode() + body)
            await writer.drain()
            writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as site:
        url = f"http://127.0.0.1:{site.sockets[0].getsockname()[1]}/"
        servers = McpServers([McpServerConfig.model_validate({"name": "h", "url": url})])
        servers.start()
        try:

            async def told() -> bool:
                return reason in (await failure(Hostile(Path(), servers), "add", seconds=0.2)).message

            await assert_eventually(told)
        finally:
            await servers.stop()
