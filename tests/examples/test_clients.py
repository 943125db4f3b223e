"""examples/clients: a client in each language starts and approves a plan whose tool a worker of that language serves.

TypeScript and Go need their toolchain and the SDK: `make clients` installs and builds both, and runs this file.
"""

from __future__ import annotations

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
from temporalio.client import Client

from acts.cli.dev.temporal_server import DevServer
from examples.foreign.worker import factorize
from tests.workflow.conftest import engine_on, plain_client  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[2]
# Where `make clients` builds them
CLIENTS = Path(os.environ.get("TEST_CLIENTS", ROOT / "examples" / "clients"))
SECONDS = 60  # a client needs about one
NODE = shutil.which("node") or "node"

# language: the client, the worker (none: this process serves the tool), what must be there
PROGRAMS: dict[str, tuple[list[str], list[str], Path | None]] = {
    "python": ([sys.executable, str(CLIENTS / "python" / "client.py")], [], None),
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
async def serving(language: str, server: DevServer, client: Client, queue: str) -> AsyncIterator[None]:
    """The worker of a language; Python's activity is served by this process."""
    command = PROGRAMS[language][1]
    if not command:
        from concurrent.futures import ThreadPoolExecutor

        from temporalio.worker import Worker

        with ThreadPoolExecutor(1) as threads:
            async with Worker(client, task_queue=queue, activities=[factorize], activity_executor=threads,
                              max_concurrent_activities=1):  # fmt: skip
                yield
        return
    process = await asyncio.create_subprocess_exec(
        *command, env=environment(server, TASK_QUEUE=queue), stdout=asyncio.subprocess.PIPE,
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
    language: str, server: DevServer, plain_client: Client, tmp_path: Path
) -> None:
    command, _, needed = PROGRAMS[language]
    if needed is not None and not needed.exists():
        pytest.skip(f"the {language} client is not built; `make clients` does it")
    queue, run_id = f"clients-{uuid.uuid4().hex[:8]}", f"clients-{uuid.uuid4().hex[:8]}"
    text = (ROOT / "examples" / "clients" / "request.json").read_text("utf-8")
    request = tmp_path / "request.json"
    request.write_text(text.replace("examples-clients", f"{queue}-tools"), "utf-8")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(engine_on(server, queue))
        await stack.enter_async_context(serving(language, server, plain_client, f"{queue}-tools"))
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
    for source in ("typescript/src/worker.ts", "go/worker/main.go"):
        assert options["taskQueue"] in (ROOT / "examples" / "clients" / source).read_text("utf-8")


def test_no_client_uses_code_of_the_engine() -> None:
    source = (ROOT / "examples" / "clients" / "python" / "client.py").read_text("utf-8")
    imports = {line.split()[1].split(".")[0] for line in source.splitlines() if line.startswith(("import ", "from "))}
    assert imports - sys.stdlib_module_names == {"temporalio"}
