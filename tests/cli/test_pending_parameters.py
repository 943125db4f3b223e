"""What a Call that waits would be called with, as a person is shown it before the decision."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from acts.tree.decisions import PendingApproval
from cli.render.pending_view import approval_lines, parameter_lines
from cli.text.preflight import EXAMPLES
from tests.cli.conftest import Acts
from tests.cli.test_decide import squeezed, waits

MODERATION = str(EXAMPLES / "moderation" / "asked.yaml")
FORGED = "\n```\n\n`1:english` would be called with\n\n```json\n{}\n```"
ENGLISH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "_activity": {"const": "isEnglish"}, "_outputPath": {"type": "string"}, "language": {"type": "string"},
        "_scopes": {"type": "array"}, "note": {},
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for every line of a table, whoever runs the tests."""
    monkeypatch.setenv("COLUMNS", "250")


def file(folder: Path, *plan: Any, **config: Any) -> str:
    context = [
        {"type": "tool", "tool": {"english": ENGLISH}}, {"type": "state", "draft": "as it was", "who": {"id": 7}},
        {"type": "plan", "plan": list(plan)},
    ]  # fmt: skip
    (folder / "request.json").write_text(json.dumps({"config": config, "context": context}), "utf-8")
    return "request.json"


async def started(acts: Acts, client: Client, given: str, count: int) -> str:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    begun = acts("run", given, "--detach", "--id", name)
    assert begun.exit_code == 0, begun.stderr
    await waits(client, name, count)
    return name


async def test_a_moderator_sees_each_comment_before_it_is_removed(acts: Acts, client: Client) -> None:
    name = await started(acts, client, MODERATION, 2)
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
    told = json.loads(acts("show", name, "--json").stdout)["progress"]["pending"]
    assert {w["instance"]: "with" in w for w in told} == {"c2": True, "c4": True}
    assert all("with" not in w for w in await client.get_workflow_handle(name).query("pending"))
    await client.get_workflow_handle(name).terminate()


async def test_the_scopes_that_a_call_asks_for_stand_below_it(acts: Acts, client: Client, tmp_path: Path) -> None:
    asks = {"_tool": "english", "language": "en", "_scopes": ["state.who", "input"], "_outputPath": "†state.a"}
    name = await started(acts, client, file(tmp_path, asks, approve={"scopes": True}), 1)
    shown = squeezed(acts("show", name).stdout)
    assert f"⏸ the scopes of 1:english of {name} (version 1) wait for a decision" in shown
    assert '_scopes ["state.who", "input"]' in shown
    assert 'language "en"' in shown
    assert '_scopes ["state.who", "input"]' in squeezed(acts("pending").stdout)
    await client.get_workflow_handle(name).terminate()


async def test_what_is_shown_is_what_will_be_called_and_not_what_stands_there_by_now(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    first = {"_tool": "english", "language": "en", "note": "†state.draft", "_outputPath": "†state.a"}
    later = {"_tool": "english", "language": "en", "_outputPath": "†state.draft"}
    other = {**first, "_outputPath": "†state.b"}
    name = await started(acts, client, file(tmp_path, first, later, other, approve={"calls": True}), 2)
    assert acts("approve", name, "--call", "2:english").exit_code == 0
    await waits(client, name, 2)
    found = {w["call"]: w["with"] for w in json.loads(acts("show", name, "--json").stdout)["progress"]["pending"]}
    assert {call: item["note"] for call, item in found.items()} == {"1:english": "as it was", "3:english": True}
    await client.get_workflow_handle(name).terminate()


async def test_watching_a_run_shows_it_too(acts: Acts, tmp_path: Path) -> None:
    asks = {"_tool": "english", "language": "en", "note": FORGED, "_outputPath": "†state.a"}
    given = file(tmp_path, asks, approve={"calls": True, "timeout": "2s", "onTimeout": "approve"})
    done = acts("run", given, "--watch")
    assert done.exit_code == 0
    assert "would be called with" in done.stderr
    assert json.dumps(FORGED)[1:60] in done.stderr


def test_the_lines_of_a_call_are_its_parameters_and_scopes() -> None:
    asked = {"_tool": "x", "_outputPath": "†state.a", "_scopes": ["state"], "to": "Ada\x1b[31m", "text": "y" * 50}
    wait = PendingApproval("run", "call", 1, "", "1:x", about={"with": asked})
    assert parameter_lines(wait, 20) == ['_scopes  ["state"]', 'to  "Ada\\u001b[31m"', 'text  "yyyyyyyyyyyyyyyyyy…']
    assert parameter_lines(PendingApproval("run", "call", 1, "", "1:x", about={"with": {"_tool": "x"}}), 20) == [
        "no parameters"
    ]
    assert parameter_lines(PendingApproval("run", "plan", 1, ""), 20) == []


def test_a_wait_that_its_run_does_not_explain_says_so_and_an_edit_is_offered_where_it_is_taken() -> None:
    silent = PendingApproval("run", "call", 1, "", "1:x")
    shared = PendingApproval("run/c1", "call", 1, "", "2:x", "c2", about={"with": {"n": 1}, "editable": False})
    first, second = approval_lines("run", [silent], [silent]), approval_lines("run", [silent, shared], [shared])
    assert first[1] == "    its parameters are unknown: its run does not answer"
    assert second[1:3] == ["    would be called with", "      n  1"]
    assert [sum("acts edit" in text for text in lines) for lines in (first, second)] == [1, 0]
    assert approval_lines("run", [PendingApproval("run", "plan", 1, "")])[1].startswith("    acts approve")
