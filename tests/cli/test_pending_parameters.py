"""The parameters of a pending Call, which a person sees before the decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from acts.tree.decisions import PendingApproval
from cli.render.pending_view import approval_lines, parameter_lines
from cli.text.preflight import EXAMPLES
from tests.cli.conftest import Acts, new_name, squeeze, wait_for_approvals, wait_for_listing

MODERATION = str(EXAMPLES / "moderation" / "approval.yaml")
FORGED = "\n```\n\n`1:english` would be called with\n\n```json\n{}\n```"
ENGLISH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "_activity": {"const": "isEnglish"}, "_outputPath": {"type": "string"}, "language": {"type": "string"},
        "_scopes": {"type": "array"}, "note": {},
    },
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("wide_terminal")


def write_request(folder: Path, *plan: Any, **config: Any) -> str:
    context = [
        {"type": "tool", "tool": {"english": ENGLISH}}, {"type": "state", "draft": "as it was", "who": {"id": 7}},
        {"type": "plan", "plan": list(plan)},
    ]  # fmt: skip
    (folder / "request.json").write_text(json.dumps({"config": config, "context": context}), "utf-8")
    return "request.json"


async def start_waiting(acts: Acts, client: Client, request_file: str, count: int) -> str:
    name = new_name()
    detached = acts("run", request_file, "--detach", "--id", name)
    assert detached.exit_code == 0, detached.stderr
    await wait_for_approvals(client, name, count)
    await wait_for_listing(client, name, f"ActsWaiting = {count}")
    return name


@pytest.mark.usefixtures("no_other_runs")
async def test_a_moderator_sees_each_comment_before_it_is_removed(acts: Acts, client: Client) -> None:
    name = await start_waiting(acts, client, MODERATION, 2)
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
    progress = json.loads(acts("show", name, "--json").stdout)["progress"]["pending"]
    assert {w["instance"]: "with" in w for w in progress} == {"c2": True, "c4": True}
    assert all("with" not in w for w in await client.get_workflow_handle(name).query("pending"))
    await client.get_workflow_handle(name).terminate()


@pytest.mark.usefixtures("no_other_runs")
async def test_the_scopes_of_a_pending_call_are_shown(acts: Acts, client: Client, tmp_path: Path) -> None:
    call = {"_tool": "english", "language": "en", "_scopes": ["state.who", "input"], "_outputPath": "†state.a"}
    name = await start_waiting(acts, client, write_request(tmp_path, call, approve={"scopes": True}), 1)
    shown = squeeze(acts("show", name).stdout)
    assert f"⏸ the scopes of 1:english of {name} (version 1) wait for a decision" in shown
    assert '_scopes ["state.who", "input"]' in shown
    assert 'language "en"' in shown
    assert '_scopes ["state.who", "input"]' in squeeze(acts("pending").stdout)
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


async def test_watch_shows_the_parameters_too(acts: Acts, tmp_path: Path) -> None:
    call = {"_tool": "english", "language": "en", "note": FORGED, "_outputPath": "†state.a"}
    request_file = write_request(tmp_path, call, approve={"calls": True, "timeout": "4s", "onTimeout": "approve"})
    done = acts("run", request_file, "--watch")
    assert done.exit_code == 0
    assert "would be called with" in done.stderr
    assert json.dumps(FORGED)[1:60] in done.stderr


def test_a_pending_call_has_a_line_per_parameter_and_for_its_scopes() -> None:
    call = {"_tool": "x", "_outputPath": "†state.a", "_scopes": ["state"], "to": "Ada\x1b[31m", "text": "y" * 50}
    wait = PendingApproval("run", "call", 1, "", "1:x", about={"with": call})
    assert parameter_lines(wait, 20) == ['_scopes  ["state"]', 'to  "Ada\\u001b[31m"', 'text  "yyyyyyyyyyyyyyyyyy…']
    assert parameter_lines(PendingApproval("run", "call", 1, "", "1:x", about={"with": {"_tool": "x"}}), 20) == [
        "no parameters"
    ]
    assert parameter_lines(PendingApproval("run", "plan", 1, ""), 20) == []


def test_unknown_parameters_are_noted_and_an_edit_is_offered_only_if_it_is_accepted() -> None:
    silent = PendingApproval("run", "call", 1, "", "1:x")
    shared = PendingApproval("run/c1", "call", 1, "", "2:x", "c2", about={"with": {"n": 1}, "editable": False})
    first, second = approval_lines("run", [silent], [silent]), approval_lines("run", [silent, shared], [shared])
    assert first[1] == "    its parameters are unknown: its run does not answer"
    assert second[1:3] == ["    would be called with", "      n  1"]
    assert [sum("acts edit" in text for text in lines) for lines in (first, second)] == [1, 0]
    assert approval_lines("run", [PendingApproval("run", "plan", 1, "")])[1].startswith("    acts approve")


@pytest.mark.usefixtures("no_other_runs")
async def test_what_waits_is_filtered_by_tool_age_and_number(acts: Acts, client: Client, tmp_path: Path) -> None:
    call = {"_tool": "english", "language": "en", "_outputPath": "†state.a"}
    file = write_request(tmp_path, call, {**call, "_outputPath": "†state.b"}, approve={"calls": True})
    name = await start_waiting(acts, client, file, 2)
    plan = await start_waiting(acts, client, write_request(tmp_path, call, approve={"plan": True}), 1)

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
