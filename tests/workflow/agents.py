"""Agents with a scripted model: the script of a test, and how its agent is started and what it comes to."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.exceptions import ApplicationError

from tests.workflow.foreign import Foreign, Handle, ended, events, failure, tool

Json = Any


def delegating(name: str, delegate: Json, **properties: Json) -> dict[str, Json]:
    """A Tool with a delegate; what is no text is the schema of ``_delegate``."""
    fixed = {"const": delegate} if isinstance(delegate, str) else delegate
    return tool(name, activity="", _delegate=fixed, **properties)


class Saved:
    """Definitions in the folder that the engine's worker looks into."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, definition: Json, name: str | None = None) -> str:
        name = name or f"d-{uuid.uuid4().hex[:8]}"
        (self.folder / f"{name}.json").write_text(json.dumps(definition), "utf-8")
        return name

    def walked(self, *plan: Json, context: list[Json] | None = None, **more: Json) -> str:
        """A definition whose plan is walked as it stands."""
        return self({"context": [*(context or []), {"type": "plan", "run": True, "plan": list(plan)}], **more})


@dataclass
class Agents:
    """Starts agents whose model answers from a file that the test writes."""

    foreign: Foreign
    folder: Path
    name: str = ""

    def script(self, *answers: Json) -> str:
        """A model that gives these answers: ``(when, answer)`` pairs, or answers for the ticks 1, 2, …"""
        self.name = f"script-{uuid.uuid4().hex[:8]}"
        listed = []
        for index, given in enumerate(answers):
            when, answer = given if isinstance(given, tuple) else ({"tick": index + 1}, given)
            listed.append({"when": when, **(answer if _KEYS & set(answer) else {"solution": answer})})
        (self.folder / f"{self.name}.json").write_text(json.dumps({"answers": listed}), "utf-8")
        return f"scripted:{self.name}"

    async def start(self, *answers: Json, context: list[Json], schema: Json = None, **config: Json) -> Handle:
        request: dict[str, Json] = {"config": {"model": self.script(*answers), **config}, "context": context}
        if schema is not None:
            request["schema"] = schema
        id_ = f"{self.foreign.queue[:60]}/{uuid.uuid4().hex[:8]}"
        return await self.foreign.client.start_workflow("Agent", request, id=id_, task_queue=self.foreign.engine)

    async def run(self, *answers: Json, context: list[Json], schema: Json = None, **config: Json) -> dict[str, Json]:
        return await ended(await self.start(*answers, context=context, schema=schema, **config))

    async def failure(
        self, *answers: Json, context: list[Json], schema: Json = None, **config: Json
    ) -> ApplicationError:
        return await failure(await self.start(*answers, context=context, schema=schema, **config))


_KEYS = {"solution", "text", "error", "path"}


async def prompts(handle: Handle) -> list[dict[str, Json]]:
    """What the model activity was asked, in order: no prompt is among it."""
    found = []
    for event in await events(handle):
        scheduled = event.activity_task_scheduled_event_attributes
        if event.HasField("activity_task_scheduled_event_attributes") and scheduled.activity_type.name == "acts.model":
            found.append(json.loads(scheduled.input.payloads[0].data))
    return found
