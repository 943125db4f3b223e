"""Records histories for the replay test: ``python -m tests.replay.record NAME…`` (without a name: those not there yet).

``--release VERSION`` records all of them into a folder of that name, for later versions to replay.

A history is recorded once: runs that are under way when new code is deployed replay just such ones. Those without a
scenario were recorded by earlier versions of this program. What would tell of the machine (identities, names of
sticky queues, stack traces) is taken out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from temporalio.client import Client

from acts.cli.dev.temporal_server import dev_server
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


@contextmanager
def scenario_files() -> Iterator[tuple[Path, Path]]:
    """The folder of the definitions that scenarios use, and that of sets; the environment names the models' scripts."""
    with tempfile.TemporaryDirectory() as files:
        os.environ["ACTS_SCRIPTS"] = files
        for name, answers in {**scenarios.ANSWERS, **trees.ANSWERS}.items():
            (Path(files) / f"{name}.json").write_text(json.dumps({"answers": answers}), "utf-8")
        definitions = Path(files) / "delegates"
        definitions.mkdir()
        for name, definition in trees.DEFINITIONS.items():
            (definitions / f"{name}.json").write_text(json.dumps(definition), "utf-8")
        (Path(files) / "orders.jsonl").write_text(trees.ROWS, "utf-8")
        yield definitions, Path(files)


async def record(names: list[str], target: Path = FOLDER) -> None:
    target.mkdir(exist_ok=True)
    with scenario_files() as (definitions, sets):
        await record_all(names, definitions, sets, target)


async def record_all(names: list[str], definitions: Path, sets: Path, target: Path) -> None:
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
                        await keep(
                            target / f"{name}-{number}.json" if len(handles) > 1 else target / f"{name}.json", handle
                        )


async def keep(file: Path, handle: Handle) -> None:
    history = scrubbed(json.loads((await handle.fetch_history()).to_json()))
    file.write_text(json.dumps(history, indent=1, ensure_ascii=False) + "\n", "utf-8")
    sys.stdout.write(f"{file.stem}: {len(history['events'])} events\n")


def missing() -> list[str]:
    return [n for n in SCENARIOS if not list(FOLDER.glob(f"{n}.json")) + list(FOLDER.glob(f"{n}-*.json"))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--release", metavar="VERSION", help="record all scenarios into a folder of this name")
    options = parser.parse_args()
    if options.release:
        asyncio.run(record(options.names or list(SCENARIOS), FOLDER / options.release))
    else:
        asyncio.run(record(options.names or missing()))
