"""``kill -9`` of workers in the middle of a set: every row has one line, and no effect happens twice."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.crash.test_kill import OPTIONS, Program, World, more_has_begun, world_in
from tests.support import assert_eventually
from tests.workflow.foreign import call, ended, tool

Json = Any
ROWS = 60
END_SECONDS = 90  # it needs ten
PLAN = [
    call("add_one", "†state.more", value="†order.n"), call("weigh", "†state.small || †state.large", value="†order.n"),
]  # fmt: skip


def request() -> dict[str, Json]:
    tools = [tool(name, activity=name, options=OPTIONS) for name in ("add_one", "weigh")]
    rows = {"type": "data", "kind": "order", "_instances": {"source": "orders.jsonl", "id": "n"}}
    config = {"results": "out.jsonl", "instancesPerChild": 5, "maxParallel": 20}
    return {"config": config, "context": [*tools, rows, {"type": "plan", "plan": PLAN}]}


def second_worker(world: World) -> None:
    """Two processes write to one file; both read sets and write results in the folder of the world."""
    env = world.programs["engine"].env | {"ACTS_DATA": str(world.folder), "ACTS_RESULTS": str(world.folder)}
    for name in ("engine", "other"):
        world.programs[name] = Program([sys.executable, "-m", "acts.worker"], env, world.folder / f"{name}.log")


def expected(n: int) -> dict[str, Json]:
    line: dict[str, Json] = {"id": str(n), "status": "completed", "state": {"more": n + 1}, "errors": []}
    if n % 10 == 3:
        error = {"call": "2:weigh", "code": "declined", "message": "no funds"}
        return {**line, "status": "failed", "errors": [error]}
    return {**line, "state": {"more": n + 1, "large" if n % 10 == 7 else "small": n}}


def count_lines(results: Path) -> int:
    return len(results.read_bytes().splitlines()) if results.exists() else 0


@pytest.mark.long
async def test_every_row_has_one_line_whatever_is_killed(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(ROWS)))
    results = tmp_path / "out.jsonl"
    with world_in(tmp_path) as world:
        second_worker(world)
        world.start("engine", "other")
        client = await Client.connect(world.server.address)
        root = f"{world.queue}/set"
        await client.start_workflow("Plan", request(), id=root, task_queue=world.queue)
        lines = begun = 0
        for victim in ("engine", "other"):

            async def has_more(lines: int = lines) -> bool:
                return lines < count_lines(results) or count_lines(results) == ROWS

            await assert_eventually(has_more, within=timedelta(seconds=180), why="more lines")
            await more_has_begun(world, begun)
            world.kill(victim)
            lines, begun = count_lines(results), min(world.begun(), 2 * ROWS - 4)
            world.start(victim)
        result = await ended(client.get_workflow_handle(root), within=END_SECONDS)
        failing = [n for n in range(ROWS) if n % 10 == 3]
        assert result["instances"] == {
            "total": ROWS, "completed": ROWS - len(failing), "failed": len(failing), "running": 0
        }  # fmt: skip
        lines = [json.loads(line) for line in results.read_text("utf-8").splitlines()]
        assert sorted(lines, key=lambda line: int(line["id"])) == [expected(n) for n in range(ROWS)]
        assert world.rows("SELECT count(*) FROM done") == [(2 * ROWS,)]
