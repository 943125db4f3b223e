"""Takes the pictures of docs/web-ui.md: a server and a worker of its own, two examples, a browser.

    python -m tools.screenshots [--into docs/images]

It needs Chromium, its driver and Selenium (`apt-get install chromium chromium-driver`, `pip install selenium`) and says
so where one is missing. Nothing outside of the folder is written: what the examples write goes to a temporary one.
Dates and run ids differ from one time to the next; texts, sizes and places do not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from temporalio.client import Client, WorkflowHandle

import examples
import worker
from activities import registry
from acts.language.wire import AGENT, PLAN, TASK_QUEUE
from cli.dev.temporal_server import dev_server
from cli.text import yaml_text
from tests.browser import webui

ROOT: Final = Path(__file__).parents[1]
MAX_BYTES: Final = 150_000  # of a picture: a page with three of them opens at once
RUN_SECONDS: Final = 60  # a run needs less than one
MARGIN: Final = 16  # pixels around what is pictured
TOP: Final = 64  # pixels of its bar above the page
BESIDE: Final = 256  # pixels of the Web UI's own menu, left of the page
SMALLER: Final = 0.8  # of the long page: below the limit, and still to be read
# The page of what waits and a timeline are longer than a screen, and drawn as far as they are on it
TALL: Final = 1400
# A timeline writes each label beside its bar, whether there is room for it or not
WIDE: Final = 1600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "images", metavar="FOLDER")
    folder = parser.parse_args().into
    problem = webui.missing()
    if problem:
        print(f"No pictures: {problem}", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state, dev_server() as server, webui.browser() as driver:
        os.environ.update(TEMPORAL_ADDRESS=server.address, TEMPORAL_NAMESPACE=server.namespace, ACTS_STATE=state)
        asyncio.run(taken(webui.WebUI(driver, server.ui_url or ""), folder))
    too_large = [p for p in sorted(folder.glob("*.png")) if p.stat().st_size > MAX_BYTES]
    for path in sorted(folder.glob("*.png")):
        print(f"{path.name}: {path.stat().st_size:,} bytes" + (f", more than {MAX_BYTES:,}" * (path in too_large)))
    return 1 if too_large else 0


async def taken(person: webui.WebUI, folder: Path) -> None:
    """All pictures. The browser is driven in a thread: the loop serves the worker meanwhile."""
    async with served() as client:
        waiting = await started(client, PLAN, "examples/payment/plan.yaml", "payment")
        await asyncio.to_thread(pictures_of_a_decision, person, waiting.id, folder)
        await finished(waiting)
        agent = await started(client, AGENT, "examples/research/plan.yaml", "research")
        await finished(agent)
        await asyncio.to_thread(picture_of_a_timeline, person, agent.id, folder)


@asynccontextmanager
async def served() -> AsyncIterator[Client]:
    """The engine's worker with all examples, in this process."""
    client = await worker.connect()
    with ThreadPoolExecutor(20) as executor:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # fewer threads than slots, on purpose
            running = worker.build(client, worker.Settings(), registry.load(list(examples.MODULES), []), executor)
        async with running:
            yield client


async def started(client: Client, workflow: str, file: str, workflow_id: str) -> WorkflowHandle[Any, Any]:
    """A run of an example; that of a plan waits to be approved."""
    request = yaml_text.parse((ROOT / file).read_text("utf-8"))
    if not isinstance(request, dict):
        raise TypeError(f"{file} is no Request")
    if workflow == PLAN:
        for message in request["context"]:
            if message["type"] == "plan":
                message["mode"] = "lazy"
    return await client.start_workflow(workflow, request, id=workflow_id, task_queue=TASK_QUEUE)


async def finished(handle: WorkflowHandle[Any, Any]) -> None:
    await asyncio.wait_for(handle.result(), RUN_SECONDS)


def pictures_of_a_decision(person: webui.WebUI, workflow_id: str, folder: Path) -> None:
    """What waits, and the dialog in which it is approved; then it is."""
    webui.size(person.driver, TALL)
    person.opens(workflow_id)
    page = person.details("Waits for a decision", "The plan")
    bottom = below(person, "#user-metadata-current-details")
    webui.size(person.driver, math.ceil(bottom))  # what is below the window is not drawn
    whole = {"x": BESIDE, "y": TOP, "width": webui.WIDTH - BESIDE, "height": bottom - TOP}
    person.photographs(whole, folder / "waits.png", SMALLER)
    webui.size(person.driver, webui.HEIGHT)
    asked = json.loads(page.to_send(decision="approve"))
    person.begins(webui.UPDATE)
    person.fills_in("decide", json.dumps({**asked, "by": "Ada", "reason": "the amount is right"}))
    person.photographs(around(person, "dialog[open]"), folder / "decide.png")
    person.submits()
    person.says("COMPLETED")


def picture_of_a_timeline(person: webui.WebUI, workflow_id: str, folder: Path) -> None:
    """The ticks of an agent: what the model was asked, and a child for each plan."""
    webui.size(person.driver, TALL, WIDE)
    person.opens(workflow_id)
    person.timeline("tick 3: ")
    person.photographs(around(person, "main h2", levels=3), folder / "timeline.png", SMALLER)


def around(person: webui.WebUI, css: str, levels: int = 0) -> Mapping[str, float]:
    """Where an element is on the page (or one so many levels above it), with a margin."""
    script = """
    let e = [...document.querySelectorAll(arguments[0])].find(e => e.offsetParent || e.open)
    for (let i = 0; i < arguments[1]; i++) e = e.parentElement
    const r = e.getBoundingClientRect()
    return {x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height}
    """
    found = person.driver.execute_script(script, css, levels)
    x, y = max(0, found["x"] - MARGIN), max(0, found["y"] - MARGIN)
    return {"x": x, "y": y, "width": found["width"] + 2 * MARGIN, "height": found["height"] + 2 * MARGIN}


def below(person: webui.WebUI, css: str) -> float:
    """Where an element ends."""
    where = around(person, css)
    return where["y"] + where["height"]


if __name__ == "__main__":
    sys.exit(main())
