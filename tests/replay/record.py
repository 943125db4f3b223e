"""Records histories for the replay test: ``python -m tests.replay.record NAME…`` (without a name: those not there yet).

A history is recorded once: runs that are under way when new code is deployed replay just such ones. Those without a
scenario were recorded by earlier versions of this program. What would tell of the machine (identities, names of
sticky queues, stack traces) is taken out.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from temporalio.client import Client

from cli.dev.temporal_server import dev_server
from tests.replay import scenarios, trees
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, Handle

Json = Any
FOLDER = Path(__file__).parent / "histories"
SMALL = ("--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=50")
SCENARIOS = scenarios.SCENARIOS  # those of ``trees`` have joined them
SECONDS = 60  # for one scenario; it needs about one


def scrubbed(value: Json) -> Json:
    """A history without what tells of the machine it was recorded on."""
    if isinstance(value, list):
        return [scrubbed(v) for v in value]
    if not isinstance(value, dict):
        return value
    out = {k: scrubbed(v) for k, v in value.items() if k != "stackTrace"}
    if "identity" in out:
        out["identity"] = "recorded"
    if out.get("kind") == "TASK_QUEUE_KIND_STICKY":
        out["name"] = "sticky"
    return out


async def record(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as files:
        os.environ["ACTS_SCRIPTS"] = files
        for name, answers in {**scenarios.ANSWERS, **trees.ANSWERS}.items():
            (Path(files) / f"{name}.json").write_text(json.dumps({"answers": answers}), "utf-8")
        definitions = Path(files) / "delegates"
        definitions.mkdir()
        for name, definition in trees.DEFINITIONS.items():
            (definitions / f"{name}.json").write_text(json.dumps(definition), "utf-8")
        (Path(files) / "orders.jsonl").write_text(trees.ROWS, "utf-8")
        await record_all(names, definitions, Path(files))


async def record_all(names: list[str], definitions: Path, sets: Path) -> None:
    for renewed in (False, True):
        wanted = [n for n in names if (n in scenarios.RENEWED) is renewed]
        if not wanted:
            continue
        with dev_server(ui=False, extra_args=SMALL if renewed else ()) as server:
            client = await Client.connect(server.address, namespace=server.namespace)
            async with engine_on(server, "acts", definitions, sets) as engine:
                for name in wanted:
                    handles = await asyncio.wait_for(SCENARIOS[name](Foreign(client, engine, "tools")), SECONDS)
                    for number, handle in enumerate(handles, 1):
                        await keep(f"{name}-{number}" if len(handles) > 1 else name, handle)


async def keep(name: str, handle: Handle) -> None:
    history = scrubbed(json.loads((await handle.fetch_history()).to_json()))
    (FOLDER / f"{name}.json").write_text(json.dumps(history, indent=1, ensure_ascii=False) + "\n", "utf-8")
    sys.stdout.write(f"{name}: {len(history['events'])} events\n")


def missing() -> list[str]:
    """The scenarios of which there is no history."""
    return [n for n in SCENARIOS if not list(FOLDER.glob(f"{n}.json")) + list(FOLDER.glob(f"{n}-*.json"))]


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1:] or missing()))
