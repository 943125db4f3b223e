"""All that a tree of runs recorded, and all that its models were shown: searched for planted secrets."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.message import Message
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from acts.activities.models import scripted
from acts.activities.models.interface import CallReceiver, ModelRequest, ModelResponse
from tests.workflow.foreign import Handle

Json = Any
OBJECT = {"type": "object"}
TEXT = {"type": "string"}
# Runs that are read at the same time
AT_ONCE = 4
_SECRET = re.compile(r"zq-([a-z0-9-]+)-qz")


def secret(name: str) -> str:
    """Something that stands nowhere else, and can be found in any history."""
    return f"zq-{name}-qz"


def secrets_in(text: str) -> set[str]:
    return set(_SECRET.findall(text))


def state(**values: Json) -> dict[str, Json]:
    return {"type": "state", "state": values}


@dataclass
class Spy:
    """What models were shown: which run asked, what about, and every word."""

    shown: list[tuple[str, str, str]] = field(default_factory=list)
    schemas: list[str] = field(default_factory=list)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ask = scripted.ask

        async def ask_and_record(
            request: ModelRequest, on_call: CallReceiver | None = None, endpoint: object = None
        ) -> ModelResponse:
            words = [b.text for b in (*request.system, *(b for turn in request.turns for b in turn.blocks))]
            self.schemas.append(json.dumps(request.schema, ensure_ascii=False))
            self.shown.append((activity.info().workflow_id or "", request.topic, "\n".join(words)))
            return await ask(request, on_call, endpoint)

        monkeypatch.setattr(scripted, "ask", ask_and_record)

    def words(self, topic: str) -> list[str]:
        """The prompts about a tick or a tool."""
        return [text for _, about, text in self.shown if about == topic]

    def secrets(self, workflow_id: str) -> set[str]:
        """The secrets that a run's own model requests showed."""
        both = zip(self.shown, self.schemas, strict=True)
        return {s for (by, _, text), schema in both if by == workflow_id for s in secrets_in(text + schema)}


def _payloads(message: Message) -> list[Payload]:
    found: list[Payload] = []
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        if descriptor.message_type.GetOptions().map_entry:
            parts = [v for v in value.values() if isinstance(v, Message)]
        else:
            parts = list(value) if not isinstance(value, Message) else [value]
        for part in parts:
            found += [part] if isinstance(part, Payload) else _payloads(part)
    return found


def _text(message: Message) -> str:
    """Everything in a message, what is compressed included; JSON is read, since it may be escaped."""
    out = [message.SerializeToString().decode("utf-8", "replace")]
    for payload in _payloads(message):
        data = payload.data
        if payload.metadata.get("acts") == b"carried":
            data = zlib.decompress(data)
        out.append(data.decode("utf-8", "replace"))
        try:
            out.append(json.dumps(json.loads(data), ensure_ascii=False))
        except ValueError:
            continue
    return "\n".join(out)


@dataclass(frozen=True)
class Run:
    """One run of a tree: its type, its parent, and every word of its history and its description."""

    id: str
    type: str
    parent: str | None
    text: str
    queried: str

    @property
    def secrets(self) -> set[str]:
        return secrets_in(self.text) | secrets_in(self.queried)


async def tree(client: Client, root: Handle, *, asked: bool = True) -> dict[str, Run]:
    """All runs of a tree, by what their id has beyond the root's; the root is ``""``.

    ``asked``: what they answer to queries is searched too.
    """
    found: dict[str, Run] = {}
    level: list[tuple[str, str | None]] = [(root.id, None)]
    few = asyncio.Semaphore(AT_ONCE)

    async def read_one(id_: str, parent: str | None) -> tuple[Run, list[str]]:
        async with few:
            return await _run(client, id_, parent, asked=asked)

    while level:
        read = await asyncio.gather(*(read_one(*one) for one in level))
        found |= {run.id.removeprefix(root.id).lstrip("/"): run for run, _ in read}
        level = [(child, run.id) for run, children in read for child in children]
    return found


async def _run(client: Client, id_: str, parent: str | None, *, asked: bool) -> tuple[Run, list[str]]:
    handle = client.get_workflow_handle(id_)
    described = await handle.describe()
    words, children = [_text(described.raw_description)], []
    async for event in handle.fetch_history_events():
        words.append(_text(event))
        if event.HasField("child_workflow_execution_started_event_attributes"):
            children.append(event.child_workflow_execution_started_event_attributes.workflow_execution.workflow_id)
    type_ = described.workflow_type
    queries = () if type_ == "Background" or not asked else ("status", "context", "__temporal_workflow_metadata")
    queried = "\n".join([await _queried(handle, name) for name in queries])
    return Run(id_, type_, parent, "\n".join(words), queried), children


async def _queried(handle: Handle, name: str) -> str:
    for _ in range(60):
        try:
            return str(await handle.query(name, rpc_timeout=timedelta(seconds=1)))
        except WorkflowQueryFailedError as error:  # a run that never began answers so, and that is searched too
            return str(error)
        except RPCError as error:  # a worker that forgets a run that has just ended drops the query, too
            if error.status not in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
                raise
    raise AssertionError(f"{handle.id} does not answer {name}")


async def leaks(
    client: Client, root: Handle, allowed: dict[str, set[str]], spy: Spy, may: set[str] | None = None
) -> dict[str, set[str]]:
    """What stands in a run or in what its models were shown and should not, or should and does not, by run.

    ``allowed`` has every run below the root, so that a tree of another shape fails too; ``may`` are secrets that
    plans and instances, which are no clean rooms, may have.
    """
    runs = await tree(client, root)
    runs.pop("")
    assert sorted(runs) == sorted(allowed)
    out = {}
    for name, run in runs.items():
        wrong = (run.secrets | spy.secrets(run.id)) ^ allowed[name]
        if run.type in ("Instance", "Plan"):
            wrong -= may or set()
        if wrong:
            out[name] = wrong
    return out
