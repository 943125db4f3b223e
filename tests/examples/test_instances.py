"""The examples of instances: each sees its own, and a failing one stays where it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from temporalio.client import Client

from acts.language.request_reader import read_request
from acts.language.wire import AGENT
from acts.planner.prompt import PlannerView, render_planner_prompt
from tests.examples.running import (
    ActsWorker,
    Handle,
    activities_of,
    below,
    children,
    finished,
    held,
    load,
    rows,
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


async def test_greetings_reach_their_own_translator_and_no_other(
    client: Client, greetings: tuple[Handle, dict[str, Any]]
) -> None:
    plan = below(client, greetings[0], "plan-1")
    assert await children(client, plan) == dict.fromkeys(TEXTS, "Instance")
    for id_, text in TEXTS.items():
        instance = below(client, plan, id_)
        (number,) = [name for name in await children(client, instance) if name.endswith(":translate")]
        delegate = below(client, instance, number)
        assert (await delegate.describe()).workflow_type == "Delegate"
        assert await delegate.query("context") == [
            {"type": "system", "message": "You are a translator. Translate the text of the state into English."},
            {"type": "state", "state": {"text": text}},
            {"type": "input", "input": {}},
        ]
        others = [other for other in TEXTS.values() if other != text]
        for run in (instance, delegate):
            inside = await held(run)
            assert text in inside
            assert [other for other in others if other in inside] == []
        assert "Have each greeting translated" not in await held(delegate)


def test_the_plan_of_moderation_is_the_one_that_its_script_makes() -> None:
    request = load("examples/moderation/plan.yaml")
    plan = next(m["plan"] for m in request["context"] if m["type"] == "plan")
    script = load("examples/moderation/script.json")
    assert plan in [a["solution"].get("calls") for a in script["answers"]]
    comments = [m for m in request["context"] if "_instance" in m]
    assert len({m["_instance"] for m in comments}) == len({m["text"] for m in comments}) == 100


def test_moderation_tells_its_planner_what_an_instance_is() -> None:
    request = read_request(load("examples/moderation/plan.yaml"))
    prompt = render_planner_prompt(request.context, (), PlannerView({}))
    assert "_instance" in prompt.system[0].text
    assert 'instance="c100"' in prompt.turns[0].text


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


async def test_moderation_keeps_each_comment_to_its_child(
    client: Client, moderated: tuple[Handle, dict[str, Any]]
) -> None:
    handle, _ = moderated
    context = load("examples/moderation/plan.yaml")["context"]
    texts = {m["_instance"]: m["text"] for m in context if "_instance" in m}
    judged = below(client, handle, "c024")
    for run in (below(client, handle, "c001"), judged, below(client, judged, "4:judgeComment")):
        own = run.id.split("/")[1]
        inside = await held(run)
        assert [id_ for id_, text in texts.items() if text in inside] == [own]


async def test_moderation_as_a_plan_is_partial_and_the_damaged_one_stays_where_it_is(
    client: Client, worker: ActsWorker, moderated: tuple[Handle, dict[str, Any]]
) -> None:
    handle, result = moderated
    assert result["status"] == "partial"
    assert Counter(item["status"] for item in result["instances"].values()) == {"completed": 99, "failed": 1}
    damaged = result["instances"][DAMAGED]
    assert states(damaged) == {
        "1:screenComment": "failed", "2:publishComment": "skipped", "3:removeComment": "skipped",
        "4:judgeComment": "skipped", "5:applyVerdict": "skipped",
    }  # fmt: skip
    assert result["usage"]["requests"] == 3  # nobody planned
    key = (await activities_of(client, below(client, handle, "c024")))["5:applyVerdict"].call["_id"]
    assert rows(worker.state, "moderation", "SELECT outcome FROM outcomes WHERE call = ?", key) == [("queued",)]


async def test_moderation_gives_the_same_with_several_comments_per_child(client: Client, worker: ActsWorker) -> None:
    request = load("examples/moderation/plan.yaml")
    request["config"]["instancesPerChild"] = 25
    handle = await start(client, worker, request)
    result = await finished(handle)
    assert list(await children(client, handle)) == ["c001", "c026", "c051", "c076"]
    found = outcomes(result)
    assert [id_ for id_, outcome in found.items() if outcome == "removed"] == list(RUDE)
    assert {id_: found[id_] for id_ in JUDGED} == JUDGED
    assert [id_ for id_, item in result["instances"].items() if item["status"] != "completed"] == [DAMAGED]


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
