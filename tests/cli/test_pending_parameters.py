"""The parameters of a pending Call, which a person sees before the decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from acts.cli.text.preflight import EXAMPLES
from tests.cli.conftest import ENGLISH, Acts, start_waiting, wait_for_approvals, wait_for_listing

MODERATION = str(EXAMPLES / "moderation" / "approval.yaml")
pytestmark = pytest.mark.usefixtures("wide_terminal")


def write_request(folder: Path, *plan: Any, **config: Any) -> str:
    context = [
        {"type": "tool", "tool": {"english": ENGLISH}}, {"type": "state", "draft": "as it was", "who": {"id": 7}},
        {"type": "plan", "plan": list(plan)},
    ]  # fmt: skip
    (folder / "request.json").write_text(json.dumps({"config": config, "context": context}), "utf-8")
    return "request.json"


@pytest.mark.usefixtures("no_other_runs")
async def test_a_moderator_sees_each_comment_before_it_is_removed(acts: Acts, client: Client) -> None:
    name = await start_waiting(acts, client, MODERATION, 2)
    await wait_for_listing(client, name, "ActsWaiting = 2")
    shown = acts("show", name).stdout
    rude = '"text": "The mayor is a liar and you print it."'
    before, _, after = shown.partition(rude)
    assert "3:removeComment of " in before
    assert f"acts approve {name} " in after
    assert shown.count("would be called with") == 2
    assert rude in acts("pending").stdout
    listed = [w for w in json.loads(acts("pending", "--json").stdout)["waits"] if w["run"] == name]
    assert {w["instance"]: w["with"]["comment"]["text"] for w in listed} == {
        "c2": "The mayor is a liar and you print it.",
        "c4": "You forgot your hat again, you idiot. See you on Monday!",
    }
    await client.get_workflow_handle(name).terminate()


async def test_the_parameters_shown_are_those_of_the_call_and_not_current_values(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    first = {"_tool": "english", "language": "en", "note": "†state.draft", "_outputPath": "†state.a"}
    later = {"_tool": "english", "language": "en", "_outputPath": "†state.draft"}
    other = {**first, "_outputPath": "†state.b"}
    name = await start_waiting(acts, client, write_request(tmp_path, first, later, other, approve={"calls": True}), 2)
    assert acts("approve", name, "--call", "2:english").exit_code == 0
    await wait_for_approvals(client, name, 2)
    calls = {w["call"]: w["with"] for w in json.loads(acts("show", name, "--json").stdout)["progress"]["pending"]}
    assert {call: item["note"] for call, item in calls.items()} == {"1:english": "as it was", "3:english": True}
    await client.get_workflow_handle(name).terminate()


@pytest.mark.usefixtures("no_other_runs")
async def test_what_waits_is_filtered_by_tool_age_and_number(acts: Acts, client: Client, tmp_path: Path) -> None:
    call = {"_tool": "english", "language": "en", "_outputPath": "†state.a"}
    file = write_request(tmp_path, call, {**call, "_outputPath": "†state.b"}, approve={"calls": True})
    name = await start_waiting(acts, client, file, 2)
    plan = await start_waiting(acts, client, write_request(tmp_path, call, approve={"plan": True}), 1)
    await wait_for_listing(client, name, "ActsWaiting = 2")
    await wait_for_listing(client, plan, "ActsWaiting = 1")

    def waits(*arguments: str) -> list[tuple[str, str | None]]:
        listed = json.loads(acts("pending", "--json", *arguments).stdout)["waits"]
        return [(w["run"], w.get("call")) for w in listed if w["run"] in (name, plan)]

    every = [(name, "1:english"), (name, "2:english"), (plan, None)]
    assert waits("--tool", "english", "--older", "0.01s") == every
    assert waits(name, "--tool", "french") == waits(plan, "--older", "1h") == []
    assert waits(name, "--limit", "1") == every[:1]
    assert waits(plan, "--tool", "english") == every[2:]
    assert "may wait; --limit lists more" in acts("pending", "--limit", "1").stderr
    for id_ in (name, plan):
        await client.get_workflow_handle(id_).terminate()
