"""Activities of any name that do what a script says, by the id of the Call, after as long as it says.

On a queue of their own, in a worker that knows nothing of the engine: one dynamic Activity.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowFailureError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from tests.workflow.foreign import Foreign, Handle, came_to

Json = Any
OPTIONS = {"retry": {"maxAttempts": 1}}


@dataclass
class Script:
    """``results`` by Call id, failures as ``{"$fail": {"type", "message"}}``; ``delays`` in seconds.

    ``started`` is what the Activities were called with: parameters and scoped context.
    """

    results: dict[str, Json]
    delays: dict[str, float] = field(default_factory=dict)
    started: dict[str, tuple[dict[str, Json], list[Json]]] = field(default_factory=dict)
    identities: list[str] = field(default_factory=list)


class Stage:
    """Where scripts are played: one worker for all runs of a test."""

    def __init__(self, foreign: Foreign) -> None:
        self.foreign = foreign
        self._scripts: dict[str, Script] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Stage]:
        @activity.defn(dynamic=True)
        async def play(arguments: Sequence[RawValue]) -> Json:
            call, _, context = [activity.payload_converter().from_payload(a.payload) for a in arguments]
            return await self._play(call, context)

        async with Worker(self.foreign.client, task_queue=self.foreign.queue, activities=[play]):
            yield self

    async def _play(self, call: dict[str, Json], context: list[Json]) -> Json:
        info = activity.info()
        run, id_ = str(info.workflow_id), info.activity_id
        if run not in self._scripts:  # fire-and-forget: a run of its own
            run, id_ = run.rsplit("/", 1)
        script = self._scripts[run]
        assert id_ not in script.started, f"{id_} was started twice"
        script.started[id_] = ({k: v for k, v in call.items() if not k.startswith("_")}, context)
        script.identities.append(call["_id"])
        await asyncio.sleep(script.delays.get(id_, 0))
        result = script.results.get(id_, script.results.get(id_.partition("[")[0]))  # one for all elements
        if isinstance(result, dict) and set(result) == {"$fail"}:
            failure = result["$fail"]
            details = [failure["details"]] if "details" in failure else []
            raise ApplicationError(failure["message"], *details, type=failure["type"], non_retryable=True)
        return result

    async def play(self, request: dict[str, Json], script: Script) -> tuple[dict[str, Json], Handle]:
        """The result of a request whose tools are played here; that of its failure, if it fails."""
        request = self._on_own_queue(request)
        id_ = f"{self.foreign.queue}-{len(self._scripts)}"
        self._scripts[id_] = script
        handle = await self.foreign.start(request, id=id_)
        result = await came_to(handle)
        for call in result["calls"]:
            if call["state"] == "detached":
                elements = [f"[{i}]" for i in range(call["elements"]["total"])] if "elements" in call else [""]
                await asyncio.gather(*(self._has_ended(f"{id_}/{call['id']}{element}") for element in elements))
        return result, handle

    async def _has_ended(self, id_: str) -> None:
        handle = self.foreign.client.get_workflow_handle(id_)
        try:
            await asyncio.wait_for(handle.result(), 180)
        except WorkflowFailureError:
            return
        except RPCError as error:  # an element that its condition left out never started
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
        except TimeoutError:
            events = (await handle.fetch_history()).to_json_dict()["events"]
            raise AssertionError([(e["eventTime"], e["eventType"]) for e in events]) from None

    def _on_own_queue(self, request: dict[str, Json]) -> dict[str, Json]:
        request = copy.deepcopy(request)
        for message in request["context"]:
            if message["type"] == "tool":
                named = message["tool"].get("properties", {}).get("_tool")
                for schema in [message["tool"]] if named else message["tool"].values():
                    schema["properties"]["_options"] = {"const": {**OPTIONS, "taskQueue": self.foreign.queue}}
        return request
