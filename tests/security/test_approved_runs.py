"""Runs on a server, while people decide and others interfere: what is paid is what an approver has seen and signed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.service import RPCError

from acts.cli.dev.temporal_server import DevServer
from acts.machines import lifetime
from acts.tree.decisions import PendingApproval, make_statement, read_decision
from acts.tree.wire_format import digest
from tests.crash.resets import reset, reset_points
from tests.support import assert_eventually
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, Handle, call, own
from tests.workflow.test_renewal import impatient  # noqa: F401 - a fixture
from tests.workflow.tools import echo

pytestmark = pytest.mark.server
Json = Any
# Of `make soak-approvals`; each is another one
RUNS = int(os.environ.get("TEST_APPROVED_RUNS", "10"))
SEED = int(os.environ.get("TEST_SEED", "1"))
STEPS = 10
NOW = "2026-01-01T00:00:00.000Z"
KEYS = {name: Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32)) for name in ("ada", "eve")}
EACH = call("pay", "†state.b", _each="†state.orders", n="†item.n", to="†{item.n}: †{user.iban}")
PLAN = [call("echo", "†state.seen", value="†state.n"), call("pay", "†state.a", n="†state.seen", to="†user.iban"), EACH]
DATA = [
    {"type": "state", "state": {"n": 1, "orders": [{"n": 2}, {"n": 3}]}},
    {"type": "data", "kind": "user", "data": {"iban": 4}},
]


@pytest.fixture
async def user(
    impatient: DevServer, task_queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Foreign]:
    """A user of an engine that has an approver, and continues as new after 60 events."""
    monkeypatch.setattr(lifetime, "DRAIN_EVENTS", 60)
    file = tmp_path / "approvers.json"
    file.write_text(json.dumps({"ada": base64.b64encode(KEYS["ada"].public_key().public_bytes_raw()).decode()}))
    monkeypatch.setenv("ACTS_APPROVERS", str(file))
    client = await Client.connect(impatient.address, namespace=impatient.namespace)
    async with engine_on(impatient, f"engine-{task_queue}") as engine:
        yield Foreign(client, engine, task_queue)


class Interference:
    """One run, its approver, and somebody who may send it anything but has no key."""

    def __init__(self, user: Foreign, seed: int) -> None:
        self.user, self.random, self.name = user, random.Random(seed), f"{seed}"  # noqa: S311
        self.approved: list[Json] = []
        self.signed: list[Json] = []
        self.number = 1_000

    async def start(self) -> None:
        plan = [{**c, "run": self.name} if c["_tool"] == "pay" else c for c in PLAN]
        two = [own("A", a=1), own("B", a=1)] if self.random.random() < 0.2 else []
        approve = {"calls": ["pay"], "plan": self.random.random() < 0.3}
        request = self.user.request(*plan, context=[*DATA, *two], approve=approve)
        self.handle: Handle = await self.user.start(request, id=f"{self.user.queue}/{self.name}")
        self.is_batch = bool(two)
        await assert_eventually(self.waits, why="the run asks")

    async def waits(self) -> list[PendingApproval]:
        return [PendingApproval.model_validate(w) for w in await self.handle.query("pending")]

    async def shown(self, wait: PendingApproval) -> Json:
        """What an approver is shown; None where it is another thing now."""
        handle = self.user.client.get_workflow_handle(wait.workflow_id)
        listed = (await handle.query("subjects"))["waits"]
        return next((w["subject"] for w in listed if digest(w["subject"]) == wait.subject), None)

    def sign(self, wait: PendingApproval, raw: Json, who: str = "ada") -> Json:
        names = {"workflowId": wait.workflow_id, "call": wait.call, "version": wait.version, "subject": wait.subject}
        raw = {**{k: v for k, v in names.items() if v is not None and not (k == "call" and "plan" in raw)}, **raw}
        value = KEYS[who].sign(make_statement(wait, read_decision(raw), NOW))
        return {**raw, "signature": {"time": NOW, "value": base64.b64encode(value).decode()}}

    async def decide(self, raw: Json) -> bool:
        try:
            await self.handle.execute_update("decide", raw)
        except WorkflowUpdateFailedError:
            return False
        return True

    async def approve(self) -> None:
        for wait in await self.waits():
            subject = await self.shown(wait)
            if subject is None:
                continue
            raw = self.sign(wait, {"decision": "approve", "by": "ada"})
            self.approved.append(subject)  # it may start before the answer is here
            if await self.decide(raw):
                self.signed.append(raw)
            else:
                self.approved.pop()
            return

    async def lie(self) -> None:
        """A decision that is not signed, signed by somebody else, or about something else, is refused."""
        for wait in (await self.waits())[:1]:
            raw: Json = {"decision": "approve", "by": "ada", "workflowId": wait.workflow_id, "call": wait.call}
            lies = [
                raw, self.sign(wait, {"decision": "approve", "by": "ada"}, "eve"),
                {**self.sign(wait, {"decision": "approve", "by": "ada"}), "version": wait.version + 1},
                {k: v for k, v in self.sign(wait, {"decision": "approve", "by": "ada"}).items() if k != "subject"},
                *self.signed[-2:],
            ]  # fmt: skip
            assert not await self.decide(self.random.choice(lies))

    async def provide(self) -> None:
        self.number += 1
        message = self.random.choice([
            {"type": "state", "state": {"n": self.number}},
            {"type": "state", "state": {"orders": [{"n": self.number}, {"n": 5}]}},
            {"type": "data", "kind": "user", "data": {"iban": self.number}},
        ])  # fmt: skip
        if self.random.random() < 0.5:
            await self.handle.signal("provide", message)
        else:
            await self.handle.execute_update("provide", message)

    async def edit(self) -> None:
        for wait in (await self.waits())[:1]:
            self.number += 1
            changed = call("pay", "†state.a", n=self.random.choice([self.number, True, 1]), to="x", run=self.name)
            if wait.call == "2:pay":
                await self.decide(self.sign(wait, {"decision": "edit", "by": "ada", "with": changed}))

    async def flood(self) -> None:
        """So many signals that the run continues as new."""
        for _ in range(70):
            await self.handle.signal("hello")

    async def steer(self) -> None:
        await self.handle.signal(self.random.choice(["pause", "resume"]))

    async def reset(self) -> None:
        """After a reset nothing holds that was signed before it."""
        described = await self.handle.describe()
        points = await reset_points(self.user.client.get_workflow_handle(self.handle.id, run_id=described.run_id))
        if self.is_batch or not points:
            return
        await reset(self.user.client, self.handle.id, self.random.choice(points), described.run_id)
        for raw in self.signed:
            assert not await self.decide(raw), "a signature from before the reset holds"
        self.signed.clear()

    async def finish(self) -> None:
        await self.handle.signal("resume")
        await self.approve()

    async def run(self) -> list[Json]:
        """What was approved of the run, once it has ended."""
        await self.start()
        steps = [self.approve, self.approve, self.lie, self.provide, self.edit, self.steer, self.reset, self.flood]
        for at in count():
            if at >= STEPS and (await self.handle.describe()).close_time is not None:
                break
            with contextlib.suppress(RPCError, WorkflowUpdateFailedError):  # it has ended, or refuses
                await (self.random.choice(steps) if at < STEPS else self.finish)()
        return self.approved


def pays(call: Json, subject: Json) -> bool:
    """True when somebody who approved this has seen what is paid."""
    shown = {k: v for k, v in subject.get("with", {}).items() if not k.startswith("_")}
    items = subject.get("with", {}).get("_each")
    if items is None:
        return json.dumps(shown, sort_keys=True) == json.dumps(call, sort_keys=True)
    seen = [{**shown, "n": item["n"], "to": f"{item['n']}: {subject['values']['†user.iban']}"} for item in items]
    return call in seen


@pytest.mark.long
async def test_what_is_paid_is_what_an_approver_has_signed(user: Foreign) -> None:
    paid: dict[str, list[Json]] = {}
    room = asyncio.Semaphore(5)

    async def pay(call: dict[str, Json], tool: Json, context: Json) -> str:
        paid.setdefault(call["run"], []).append({k: v for k, v in call.items() if not k.startswith("_")})
        return "paid"

    async def one(seed: int) -> None:
        async with room:
            interference = Interference(user, seed)
            approved = await asyncio.wait_for(interference.run(), 120)
            for what in paid.get(interference.name, ()):
                assert any(pays(what, subject) for subject in approved), f"run {seed} paid {what}: {approved}"

    async with user.serving(pay, echo):
        await asyncio.gather(*(one(SEED * 1_000 + at) for at in range(RUNS)))
    assert paid
