"""examples/clients: a client in each language starts and approves a plan whose tool a worker of that language serves.

TypeScript and Go need their toolchain and the SDK: `make clients` installs and builds both, and runs this file.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import shutil
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acts.cli.dev.temporal_server import DevServer
from tests.workflow.conftest import engine_on, plain_client  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[2]
# Where `make clients` builds them
CLIENTS = Path(os.environ.get("TEST_CLIENTS", ROOT / "examples" / "clients"))
SECONDS = 60  # a client needs about one
NODE = shutil.which("node") or "node"

# language: the client, the worker, what must be there
PROGRAMS: dict[str, tuple[list[str], list[str], Path]] = {
    "python": (
        [sys.executable, str(CLIENTS / "python" / "client.py")],
        [sys.executable, str(CLIENTS / "python" / "worker.py")],
        CLIENTS / "python" / "worker.py",
    ),
    "typescript": (
        [NODE, str(CLIENTS / "typescript" / "dist" / "client.js")],
        [NODE, str(CLIENTS / "typescript" / "dist" / "worker.js")],
        CLIENTS / "typescript" / "dist" / "worker.js",
    ),
    "go": ([str(CLIENTS / "go" / "bin" / "client")], [str(CLIENTS / "go" / "bin" / "worker")],
           CLIENTS / "go" / "bin" / "worker"),
}  # fmt: skip


def environment(server: DevServer, **more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TEMPORAL_", "ACTS_"))}
    return {**own, "TEMPORAL_ADDRESS": server.address, **more}


@asynccontextmanager
async def serving(language: str, server: DevServer, queue: str) -> AsyncIterator[None]:
    """The worker of a language."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAMS[language][1], env=environment(server, TASK_QUEUE=queue), stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), SECONDS)
        assert line.decode() == f"serving {queue}\n"
        yield
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), SECONDS)


@pytest.mark.parametrize("language", PROGRAMS)
async def test_a_client_starts_and_approves_a_plan_whose_tool_its_own_worker_serves(
    language: str, server: DevServer, tmp_path: Path
) -> None:
    command, _, needed = PROGRAMS[language]
    if not needed.exists():
        pytest.skip(f"the {language} client is not built; `make clients` does it")
    queue, run_id = f"clients-{uuid.uuid4().hex[:8]}", f"clients-{uuid.uuid4().hex[:8]}"
    text = (ROOT / "examples" / "clients" / "request.json").read_text("utf-8")
    request = tmp_path / "request.json"
    request.write_text(text.replace("examples-clients", f"{queue}-tools"), "utf-8")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(engine_on(server, queue))
        await stack.enter_async_context(serving(language, server, f"{queue}-tools"))
        process = await asyncio.create_subprocess_exec(
            *command, str(request), run_id, env=environment(server, ACTS_TASK_QUEUE=queue),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, complaint = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode == 0, complaint.decode()
    result: dict[str, Any] = json.loads(out)
    assert result["state"]["answer"] == {"number": 3600360, "factors": [2, 2, 2, 3, 3, 5, 73, 137]}
    assert result["decisions"][0]["by"] == "a client"


def test_every_language_serves_the_queue_that_the_request_names() -> None:
    request = json.loads((ROOT / "examples" / "clients" / "request.json").read_text("utf-8"))
    options = request["context"][0]["tool"]["factorize"]["properties"]["_options"]["const"]
    for source in ("python/worker.py", "typescript/src/worker.ts", "go/worker/main.go"):
        assert options["taskQueue"] in (ROOT / "examples" / "clients" / source).read_text("utf-8")


@pytest.mark.parametrize("program", ["client", "worker"])
def test_python_programs_use_no_code_of_the_engine(program: str) -> None:
    tree = ast.parse((ROOT / "examples" / "clients" / "python" / f"{program}.py").read_text("utf-8"))
    names = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names == {"temporalio"}
