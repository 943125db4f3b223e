"""Takes the screenshots of docs/web-ui.md, with a server, a worker and a browser of its own.

    python -m tools.screenshots [--into docs/images]

It needs Chromium, its driver and Selenium (`apt-get install chromium chromium-driver`, `pip install selenium`), and
names the one that is missing. Only the output folder is written; the files of the examples go to a temporary folder.
Dates and run ids differ between runs; texts, sizes and positions do not.
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
import worker_settings
from activities import registry
from acts.language.wire import AGENT, PLAN, TASK_QUEUE
from cli.dev.temporal_server import dev_server
from cli.text import yaml_text
from tests.browser import webui

ROOT: Final = Path(__file__).parents[1]
MAX_BYTES: Final = 150_000  # of a picture: a page with three of them opens at once
RUN_SECONDS: Final = 60  # a run needs less than one
MARGIN: Final = 16  # pixels around the element
TOP: Final = 64  # pixels of the Web UI's bar above the page
BESIDE: Final = 256  # pixels of the Web UI's own menu, left of the page
SCALE: Final = 0.8  # of the long page: below the size limit, and still legible
# The page of pending approvals and the timeline are longer than a screen; the browser draws only the visible part
TALL: Final = 1400
# The timeline writes each label beside its bar, even where there is no room
WIDE: Final = 1600


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "images", metavar="FOLDER")
    folder = parser.parse_args().into
    problem = webui.missing()
    if problem:
        print(f"No screenshots: {problem}", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state, dev_server() as server, webui.browser() as driver:
        os.environ.update(TEMPORAL_ADDRESS=server.address, TEMPORAL_NAMESPACE=server.namespace, ACTS_STATE=state)
        asyncio.run(take_screenshots(webui.WebUI(driver, server.ui_url or ""), folder))
    too_large = [p for p in sorted(folder.glob("*.png")) if p.stat().st_size > MAX_BYTES]
    for path in sorted(folder.glob("*.png")):
        print(f"{path.name}: {path.stat().st_size:,} bytes" + (f", more than {MAX_BYTES:,}" * (path in too_large)))
    return 1 if too_large else 0


async def take_screenshots(person: webui.WebUI, folder: Path) -> None:
    """All screenshots. The browser is driven from a thread, because the event loop runs the worker."""
    async with run_worker() as client:
        payment = await start_example(client, PLAN, "examples/payment/plan.yaml", "payment")
        await asyncio.to_thread(screenshot_decision, person, payment.id, folder)
        await wait_for_end(payment)
        agent = await start_example(client, AGENT, "examples/research/plan.yaml", "research")
        await wait_for_end(agent)
        await asyncio.to_thread(screenshot_timeline, person, agent.id, folder)


@asynccontextmanager
async def run_worker() -> AsyncIterator[Client]:
    """The engine's worker with all examples, in this process."""
    client = await worker.connect()
    with ThreadPoolExecutor(20) as executor:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # fewer threads than slots, on purpose
            running = worker.build(
                client, worker_settings.Settings(), registry.load(list(examples.MODULES), []), executor
            )
        async with running:
            yield client


async def start_example(client: Client, workflow: str, file: str, workflow_id: str) -> WorkflowHandle[Any, Any]:
    """Start an example; a plan waits for its approval."""
    request = yaml_text.parse((ROOT / file).read_text("utf-8"))
    if not isinstance(request, dict):
        raise TypeError(f"{file} is no Request")
    if workflow == PLAN:
        for message in request["context"]:
            if message["type"] == "plan":
                message["mode"] = "lazy"
    return await client.start_workflow(workflow, request, id=workflow_id, task_queue=TASK_QUEUE)


async def wait_for_end(handle: WorkflowHandle[Any, Any]) -> None:
    await asyncio.wait_for(handle.result(), RUN_SECONDS)


def screenshot_decision(person: webui.WebUI, workflow_id: str, folder: Path) -> None:
    """The pending approval and the dialog that approves it, which is then submitted."""
    webui.size(person.driver, TALL)
    person.opens(workflow_id)
    page = person.details("Waits for a decision", "The plan")
    bottom = bottom_of(person, "#user-metadata-current-details")
    webui.size(person.driver, math.ceil(bottom))  # anything below the window is not drawn
    box = {"x": BESIDE, "y": TOP, "width": webui.WIDTH - BESIDE, "height": bottom - TOP}
    person.photographs(box, folder / "waits.png", SCALE)
    webui.size(person.driver, webui.HEIGHT)
    decision = json.loads(page.to_send(decision="approve"))
    person.begins(webui.UPDATE)
    person.fills_in("decide", json.dumps({**decision, "by": "Ada", "reason": "the amount is right"}))
    person.photographs(box_around(person, "dialog[open]"), folder / "decide.png")
    person.submits()
    person.says("COMPLETED")


def screenshot_timeline(person: webui.WebUI, workflow_id: str, folder: Path) -> None:
    """The ticks of an agent: the requests to the model, and a child for each plan."""
    webui.size(person.driver, TALL, WIDE)
    person.opens(workflow_id)
    person.timeline("tick 3: ")
    person.photographs(box_around(person, "main h2", levels=3), folder / "timeline.png", SCALE)


def box_around(person: webui.WebUI, css: str, levels: int = 0) -> Mapping[str, float]:
    """The box of an element on the page, or of its ancestor ``levels`` above it, with a margin."""
    script = """
    let e = [...document.querySelectorAll(arguments[0])].find(e => e.offsetParent || e.open)
    for (let i = 0; i < arguments[1]; i++) e = e.parentElement
    const r = e.getBoundingClientRect()
    return {x: r.x + scrollX, y: r.y + scrollY, width: r.width, height: r.height}
    """
    box = person.driver.execute_script(script, css, levels)
    x, y = max(0, box["x"] - MARGIN), max(0, box["y"] - MARGIN)
    return {"x": x, "y": y, "width": box["width"] + 2 * MARGIN, "height": box["height"] + 2 * MARGIN}


def bottom_of(person: webui.WebUI, css: str) -> float:
    """The lower edge of an element, with a margin."""
    box = box_around(person, css)
    return box["y"] + box["height"]


if __name__ == "__main__":
    sys.exit(main())
