"""Decisions about pending approvals from the command line, with a real server and worker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.cli.conftest import ENGLISH, Acts, squeeze, start_waiting, wait_for_approvals, wait_for_listing

FIRST = {"_tool": "english", "language": "en", "_outputPath": "†state.first"}
SECOND = {"_tool": "english", "language": "fr", "_outputPath": "†state.second"}
ESCAPE = "\x1b[31mred[/]"

pytestmark = pytest.mark.usefixtures("wide_terminal")


@pytest.fixture(autouse=True)
def login_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")


def write_request(folder: Path, *plan: Any, mode: str = "lazy", **config: Any) -> str:
    context = [{"type": "tool", "tool": {"english": ENGLISH}}, {"type": "plan", "plan": list(plan), "mode": mode}]
    (folder / "request.json").write_text(json.dumps({"config": config, "context": context}), "utf-8")
    return "request.json"


async def result_of(client: Client, run: str) -> Any:
    return await client.get_workflow_handle(run).result()


@pytest.mark.usefixtures("no_other_runs")
async def test_a_pending_plan_is_listed_shown_and_approved(acts: Acts, client: Client, tmp_path: Path) -> None:
    name = await start_waiting(acts, client, write_request(tmp_path, FIRST))
    await wait_for_listing(client, name, "ActsWaiting = 1")
    listed = squeeze(acts("pending").stdout)
    assert f"the plan of {name} (version 1) waits" in listed
    assert f"acts approve {name} --version 1 --subject " in listed
    answer = json.loads(acts("pending", "--json").stdout)
    (wait,) = [w for w in answer["waits"] if w["run"] == name]
    assert (wait["what"], wait["version"], wait["workflowId"]) == ("plan", 1, name)
    shown = acts("show", name).stdout
    assert f"the plan of {name} (version 1) waits for a decision" in shown
    short = wait["subject"][:16]
    for word, more in (("approve", ""), ("reject", ' --reason "…"')):
        assert f"acts {word} {name} --version 1 --subject {short}{more}\n" in shown

    for subject in ("", "0" * 16, short[:15]):
        assert acts("approve", name, "--subject", subject).exit_code == 2
    done = acts("approve", name, "--version", "1", "--subject", short, "--note", "looks right")
    assert (done.exit_code, done.stdout) == (0, "")
    assert re.search(rf"approved: the plan of {name} \(version 1\); the run is (running|completed)", done.stderr)
    (record,) = (await result_of(client, name))["decisions"]
    assert (record["by"], record["reason"]) == ("ada", "looks right")
    assert "ada approved the plan (version 1): looks right" in acts("show", name).stdout
    await wait_for_listing(client, name, "ExecutionStatus = 'Completed'")
    assert all(w["run"] != name for w in json.loads(acts("pending", "--json").stdout)["waits"])


async def test_a_rejected_run_exits_with_1_and_says_who_rejected_it_and_why(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    request_file = write_request(tmp_path, FIRST, approve={"timeout": "300ms"})
    done = acts("run", request_file)
    assert done.exit_code == 1
    assert "✗ rejected" in done.stdout
    assert "onTimeout rejected the plan (version 1): nobody decided in time" in done.stdout
    name = await start_waiting(acts, client, write_request(tmp_path, FIRST))
    assert acts("reject", name, "--reason", f"too {ESCAPE}", "--by", "Bob\nthe boss").exit_code == 0
    assert (await result_of(client, name))["state"] == {}
    shown = acts("show", name).stdout
    assert "Bob the boss rejected the plan (version 1): too \\u001b[31mred[/]" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["approve", "--version", "7"], "version 7 is not what waits"),
        (["approve", "--call", "9:english"], "nothing that waits is matched by call '9:english'"),
        (["reject", "--reason", " "], "a rejection needs a reason"),
        (["reject"], "--reason"),
        (["approve", "--note", "x" * 3000], "reason: String should have at most 2000 characters"),
    ],
)  # fmt: skip
async def test_a_decision_that_cannot_be_applied_is_one_error(
    acts: Acts, client: Client, tmp_path: Path, arguments: list[str], words: str
) -> None:
    name = await start_waiting(acts, client, write_request(tmp_path, FIRST))
    done = acts(arguments[0], name, *arguments[1:])
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(await wait_for_approvals(client, name)) == 1
    await client.get_workflow_handle(name).terminate()


async def test_a_run_that_has_ended_accepts_no_decision(acts: Acts, client: Client, tmp_path: Path) -> None:
    name = await start_waiting(acts, client, write_request(tmp_path, FIRST))
    acts("approve", name)
    await result_of(client, name)
    done = acts("approve", name)
    assert done.exit_code == 2
    assert f'the run "{name}" has ended' in done.stderr


def use_editor(folder: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Set an editor that replaces a text."""
    program = f"import pathlib,sys; p=pathlib.Path(sys.argv[1]); p.write_text(p.read_text('utf-8').replace({old!r}, {new!r}), 'utf-8')"  # noqa: E501
    (folder / "editor.py").write_text(program, "utf-8")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("EDITOR", f"python3 {folder / 'editor.py'}")
    monkeypatch.delenv("VISUAL", raising=False)


async def test_a_plan_is_edited_in_an_editor_compared_and_approved(
    acts: Acts, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await start_waiting(acts, client, write_request(tmp_path, FIRST))
    assert "the plan has not changed" in acts("diff", name).stderr
    use_editor(tmp_path, monkeypatch, "language: en", "language: fr")
    done = acts("edit", name, "--yes", "--note", "they speak French there")
    assert done.exit_code == 0, done.stderr
    assert "-  language: en\n+  language: fr" in done.stdout
    assert f"an edit is no approval: `acts pending {name}`" in done.stderr
    assert f"acts approve {name} --version 2" in squeeze(acts("pending", name).stdout)
    assert list(tmp_path.glob("acts-edit-*")) == []
    shown = acts("diff", name).stdout
    assert "--- as it was started\n+++ version 2, waits" in shown
    assert "-  language: en\n+  language: fr" in shown
    for surface in (("diff", name), ("show", name), ("pending", name)):
        assert 'changed: call 1 language: "en" → "fr", by ada, 20' in squeeze(acts(*surface).stdout)
    changed = json.loads(acts("diff", name, "--json").stdout)
    assert (changed["before"][0]["language"], changed["after"][0]["language"]) == ("en", "fr")
    assert acts("approve", name, "--version", "1").exit_code == 2
    assert acts("approve", name, "--version", "2").exit_code == 0
    assert (await result_of(client, name))["state"] == {"first": False}
    assert "+++ as it ended" in acts("diff", name).stdout
    assert "ada edited the plan (version 1): they speak French there" in acts("show", name).stdout


async def test_an_edit_needs_confirmation_and_its_text_survives_if_it_is_not_sent(
    acts: Acts, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await start_waiting(acts, client, write_request(tmp_path, FIRST))
    use_editor(tmp_path, monkeypatch, "language: en", "language: fr")
    done = acts("edit", name)
    assert done.exit_code == 2
    assert "send it?" in done.stderr
    assert "it was not sent" in done.stderr
    assert "your text is kept in" in done.stderr
    (text_file,) = tmp_path.glob("acts-edit-*")
    assert "language: fr" in text_file.read_text("utf-8")
    assert (await wait_for_approvals(client, name))[0]["version"] == 1
    use_editor(tmp_path, monkeypatch, "nothing", "nothing")
    same = acts("edit", name)
    assert (same.exit_code, "nothing was changed" in same.stderr) == (0, True)
    use_editor(tmp_path, monkeypatch, "_tool: english", "_tool: [")
    broken = acts("edit", name, "--yes")
    assert broken.exit_code == 2
    assert "not valid YAML" in broken.stderr
    assert "your text is kept in" in broken.stderr
    await client.get_workflow_handle(name).terminate()


async def test_one_call_is_edited_from_a_file_and_problems_name_its_lines(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    request_file = write_request(tmp_path, FIRST, SECOND, mode="eager", approve={"calls": True})
    name = await start_waiting(acts, client, request_file, 2)
    (tmp_path / "call.yaml").write_text("_tool: english\nlanguage: 7\n_outputPath: †state.second\n", "utf-8")
    wrong = acts("edit", name, "--call", "2:english", "--file", "call.yaml", "--yes")
    assert wrong.exit_code == 2
    assert "call.yaml:2" in wrong.stderr
    whole = acts("edit", name, "--call", "2:english", "--file", request_file, "--yes")
    assert (whole.exit_code, "give the list of calls" in whole.stderr) == (2, True)
    assert {w["version"] for w in await wait_for_approvals(client, name, 2)} == {1}
    (tmp_path / "call.yaml").write_text("_tool: english\nlanguage: en\n_outputPath: †state.second\n", "utf-8")
    done = acts("edit", name, "--call", "2:english", "--file", "call.yaml", "--yes")
    assert done.exit_code == 0, done.stderr
    acts("approve", name, "--call", "1:english")
    acts("approve", name, "--call", "2:english", "--version", "2")
    assert (await result_of(client, name))["state"] == {"first": True, "second": True}


QUESTION = "May this be paid, although the supplier is new and the invoice is twice as high as the order was?"


async def test_a_question_is_answered_by_the_command_that_is_printed(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    form = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    properties = {"_person": {"who": "finance"}, "_output": form, "_outputPath": {}, "question": {}}
    tool = {"type": "tool", "tool": {"ask": {"description": QUESTION, "properties": properties}}}
    plan = [{"_tool": "ask", "question": "now?", "_outputPath": f"†state.{name}"} for name in "ab"]
    (tmp_path / "ask.json").write_text(json.dumps({"context": [tool, {"type": "plan", "plan": plan}]}), "utf-8")
    name = await start_waiting(acts, client, "ask.json", count=2)
    shown = squeeze(acts("pending", name).stdout)
    assert f"the answer to 1:ask of {name} (version 1) waits for an answer" in shown
    assert "for finance" in shown
    assert f'question "{QUESTION}"' in shown
    command = re.search(rf"acts answer {name} 1:ask --version 1 --subject (\w+) --output '(.+?)'", shown)
    assert command is not None
    assert json.loads(command[2]) == {"ok": True}
    refused = acts("answer", name, "1:ask", "--set", "ok=perhaps")
    assert refused.exit_code == 2
    assert "goes on waiting: /ok" in squeeze(refused.stderr)
    assert acts("answer", name, "1:ask", "--subject", command[1], "--output", command[2]).exit_code == 0
    assert acts("answer", name, "--set", "ok=false", "--by", "Bob").exit_code == 0
    assert (await result_of(client, name))["state"] == {"a": {"ok": True}, "b": {"ok": False}}
    assert "Bob answered 2:ask (version 1)" in acts("show", name).stdout


async def test_like_calls_are_approved_until_that_is_revoked(acts: Acts, client: Client, tmp_path: Path) -> None:
    plan = [FIRST, {**SECOND, "language": "†state.third"}]
    name = await start_waiting(
        acts, client, write_request(tmp_path, *plan, mode="eager", approve={"calls": True}, missing="wait")
    )
    assert acts("approve", name, "--call", "1:english", "--count", "2").exit_code == 2
    assert acts("approve", name, "--remember", "--when", "†state.x").exit_code == 2
    assert acts("approve", name, "--remember", "--count", "2", "--until", "8h").exit_code == 0
    shown = squeeze(acts("show", name).stdout)
    assert "ada approves calls like 1:english: 2 more, until " in shown
    assert f"acts revoke {name} 1 ends it" in shown
    assert acts("revoke", name, "7").exit_code == 2
    assert acts("revoke", name, "1").exit_code == 0
    assert "ada revoked 1:english" in acts("show", name).stdout
    assert acts("provide", name, '{"type": "state", "state": {"third": "fr"}}').exit_code == 0
    assert (await wait_for_approvals(client, name)) is not None
    assert acts("approve", name).exit_code == 0
    assert (await result_of(client, name))["status"] == "completed"
