"""Approvals over the inbox's API while two hundred pages are open, compared with none.

Twenty plans wait for approval and are approved one after another. Half of the pages show the inbox, half the run that is
approved last; each reads its page again when an event says so, as the script of the page does. They are a process of
their own. The latency is that of ``POST /api/decide``, which reads what waits, sends the decision, and has the answer
of the run. A page that stays open is no reason for an event of a run's history: its length is compared, too.

    python -m benchmarks viewers
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import quote

import httpx2

from acts.client.server import HOST, ServerTarget
from acts.ui.access import Access
from acts.ui.ui_server import listen, serve
from benchmarks import live, shapes
from benchmarks.live import ROOT, Bench, Process
from benchmarks.tables import Table, median, print_progress, run_program

ROUNDS: Final = 3
RUNS: Final = 20
VIEWERS: Final = 200
TOKEN: Final = "the benchmark"  # noqa: S105 - of a server that ends with it
WAIT_SECONDS: Final = 0.7, 2.2  # of ui.js, between an event and the page that is read again: by chance
COLUMNS: Final = ["open pages", "approval, ms", "the slowest, ms", "history, events", "pages read"]


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table."""
    table = Table(f"{RUNS} approvals", COLUMNS, note="Medians of the rounds.")
    for viewers, rows in live.on_server(lambda bench: _measure(bench, rounds or ROUNDS)).items():
        table.rows.append([viewers, *(median(column) for column in zip(*rows, strict=True))])
        table.raw.append({"viewers": viewers, "rounds": rows})
    yield table


async def _measure(bench: Bench, rounds: int) -> dict[int, list[list[float]]]:
    out: dict[int, list[list[float]]] = {0: [], VIEWERS: []}
    with live.worker(bench.server.address) as process:
        async with _inbox(bench) as address:
            for round_ in range(-1, rounds):  # the first one warms up and does not count
                print_progress(f"viewers: round {round_ + 1} of {rounds}")
                for viewers, rows in out.items():
                    row = await _run_once(bench, process, address, viewers)
                    if round_ >= 0:
                        rows.append(row)
    return out


@asynccontextmanager
async def _inbox(bench: Bench) -> AsyncIterator[str]:
    listening = listen(HOST, 0)
    port = listening.getsockname()[1]
    target = ServerTarget(bench.server.address, "the benchmark", {"namespace": bench.server.namespace})
    serving = asyncio.create_task(serve(listening, Access(HOST, port, {"ACTS_UI_TOKEN": TOKEN}), target))
    yield f"http://{HOST}:{port}"
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def _client(address: str) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx2.AsyncClient(base_url=address, headers=headers, timeout=60, limits=limits)


async def _run_once(bench: Bench, process: Process, address: str, viewers: int) -> list[float]:
    request = shapes.chain(5).request(shapes.STEP)
    request["context"][-1]["mode"] = "lazy"
    ids = [f"viewed-{uuid.uuid4().hex[:8]}" for _ in range(RUNS)]
    for id_ in ids:
        await bench.client.start_workflow("Plan", request, id=id_, task_queue=process.queue)
    async with _client(address) as client:
        while len(waits := (await client.get("/api/pending")).json()["waits"]) < RUNS:  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.1)
        command = (sys.executable, "-m", "benchmarks.viewers", "--view", address, ids[-1], str(viewers))
        viewing = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        if viewing.stdout is None or await viewing.stdout.readline() != b"ready\n":
            raise RuntimeError("the viewers did not start")
        taken = [await _approve(client, next(w for w in waits if w["run"] == id_)) for id_ in ids]
        for id_ in ids:
            await bench.client.get_workflow_handle(id_).result()
        read, _ = await viewing.communicate(b"")
    length = (await bench.info(ids[-1])).history_length
    return [1000 * sorted(taken)[RUNS // 2], 1000 * max(taken), length, float(read)]


async def _approve(client: httpx2.AsyncClient, wait: dict[str, Any]) -> float:
    start = time.perf_counter()
    seen = {name: wait[name] for name in ("run", "wait", "version", "subject")}
    (await client.post("/api/decide", json={**seen, "decision": "approve"})).raise_for_status()
    return time.perf_counter() - start


# -- viewers, in a process of their own ----------------------------------------------------------------


async def _view_all(address: str, run_id: str, count: int) -> None:
    ready, read = asyncio.Barrier(count + 1), [0]
    pages = [("/api/pending/events", "/"), (f"/api/runs/{quote(run_id, '')}/events", f"/run?id={quote(run_id, '')}")]
    async with _client(address) as client:
        tasks = [asyncio.create_task(_view(client, *pages[n % 2], ready, read)) for n in range(count)]
        await ready.wait()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    print(read[0])


async def _view(client: httpx2.AsyncClient, events: str, page: str, ready: asyncio.Barrier, read: list[int]) -> None:
    async with client.stream("GET", events) as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        await ready.wait()
        waiting: asyncio.Task[Any] | None = None
        async for line in lines:
            if line.startswith("data") and (waiting is None or waiting.done()):
                read[0] += 1
                waiting = asyncio.create_task(_read_again(client, page))


async def _read_again(client: httpx2.AsyncClient, page: str) -> None:
    await asyncio.sleep(random.uniform(*WAIT_SECONDS))  # noqa: S311
    with suppress(httpx2.HTTPError, RuntimeError):  # the end has come
        await client.get(page)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--view"]:
        asyncio.run(_view_all(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    else:
        run_program("viewers", run)
