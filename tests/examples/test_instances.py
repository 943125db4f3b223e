"""The examples of instances: each sees its own, and a failing one stays where it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from temporalio.client import Client

from acts.language.wire import AGENT
from tests.examples.running import (
    ActsWorker,
    Handle,
    below,
    children,
    finished,
    load,
    start,
    states,
)
from tests.support import assert_eventually

TEXTS = {"①": "Привет", "②": "Bonjour", "③": "こんにちは"}
JUDGED = {"c024": "queued", "c052": "published", "c090": "published"}
RUDE = ("c013", "c038", "c066", "c081")
DAMAGED = "c057"


def outcomes(result: dict[str, Any]) -> dict[str, str | None]:
    return {id_: item["state"].get("outcome") for id_, item in result["instances"].items()}


@pytest.fixture
async def greetings(client: Client, worker: ActsWorker) -> tuple[Handle, dict[str, Any]]:
    handle = await start(client, worker, load("examples/greetings/plan.yaml"), AGENT)
    return handle, await finished(handle)


async def test_greetings_are_translated_each_in_its_own_instance(greetings: tuple[Handle, dict[str, Any]]) -> None:
    _, result = greetings
    translated = {id_: item["state"] for id_, item in result["instances"].items()}
    assert translated == {
        "①": {"text": "Привет", "translation": "Hi"},
        "②": {"text": "Bonjour", "translation": "Good day"},
        "③": {"text": "こんにちは", "translation": "Hello"},
    }
    assert [item["from"] for item in result["output"]] == ["Russian", "French", "Japanese"]
    assert (result["ticks"], result["usage"]["requests"]) == (2, 5)  # two of the parent, one of each translator


async def test_moderation_plans_once_for_a_hundred_comments(client: Client, worker: ActsWorker) -> None:
    handle = await start(client, worker, load("examples/moderation/plan.yaml"), AGENT)
    result = await finished(handle)
    assert result["output"] == {"moderated": 99, "unreadable": [DAMAGED]}
    assert len([m for m in result["context"] if m["type"] == "plan"]) == 1
    # one plan, one look at what failed, and one verdict on each of three
    assert (result["ticks"], result["usage"]["requests"]) == (2, 5)
    assert list((await children(client, below(client, handle, "plan-1"))).values()) == ["Instance"] * 100
    found = outcomes(result)
    assert {id_: found[id_] for id_ in JUDGED} == JUDGED
    assert [id_ for id_, outcome in found.items() if outcome == "removed"] == list(RUDE)
    assert [id_ for id_, outcome in found.items() if outcome is None] == [DAMAGED]
    assert Counter(found.values())["published"] == 94
    assert [(e["call"], e["instance"], e["code"]) for e in result["errors"]] == [
        ("1:screenComment", DAMAGED, "unreadable")
    ]
    assert {id_ for id_, item in result["instances"].items() if item["status"] != "completed"} == {DAMAGED}


@pytest.fixture(scope="module")
async def moderated(client: Client, worker: ActsWorker) -> tuple[Handle, dict[str, Any]]:
    """The plan in the file, run as it stands."""
    handle = await start(client, worker, load("examples/moderation/plan.yaml"))
    return handle, await finished(handle)


async def test_moderation_asks_a_person_about_each_removal(client: Client, worker: ActsWorker) -> None:
    handle = await start(client, worker, load("examples/moderation/approval.yaml"))

    async def both() -> Any:
        found = await handle.query("pending")
        return found if len(found) == 2 else None

    waits = await assert_eventually(both)
    assert sorted((w["call"], w["instance"]) for w in waits) == [("3:removeComment", "c2"), ("3:removeComment", "c4")]
    await handle.execute_update("decide", {"decision": "approve", "instance": "c2", "by": "Ada"})
    joke = {"decision": "reject", "instance": "c4", "by": "Ada", "reason": "A joke among friends."}
    await handle.execute_update("decide", joke)
    result = await finished(handle)
    assert (result["status"], outcomes(result)) == (
        "partial", {"c1": "published", "c2": "removed", "c3": "published", "c4": None, "c5": "published"}
    )  # fmt: skip
    assert result["instances"]["c4"]["status"] == "rejected"
    assert states(result["instances"]["c4"])["3:removeComment"] == "rejected"
