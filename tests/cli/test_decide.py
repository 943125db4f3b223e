"""Decisions about pending approvals from the command line, with a real server and worker."""

from __future__ import annotations

import json
import re
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from typer.testing import CliRunner

from cli.text.plan_text import format_plan
from tests.cli.conftest import Acts, new_name, squeeze, wait_for_approvals, wait_for_listing
from tests.support import assert_eventually

ENGLISH: dict[str, Any] = {
    "type": "object",
    "properties": {
        "_activity": {"const": "isEnglish"}, "_outputPath": {"type": "string"}, "language": {"type": "string"},
    },
    "required": ["language"],
}  # fmt: skip
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


async def start_waiting(acts: Acts, client: Client, request_file: str, count: int = 1) -> str:
    name = new_name()
    assert acts("run", request_file, "--detach", "--id", name).exit_code == 0
    await wait_for_approvals(client, name, count)
    return name


# -- approve and reject -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_other_runs")
async def test_a_pending_plan_is_listed_shown_and_approved(acts: Acts, client: Client, tmp_path: Path) -> None:
    name = await start_waiting(acts, client, write_request(tmp_path, FIRST))
    await wait_for_listing(client, name, "ActsWaiting = 1")
    listed = squeeze(acts("pending").stdout)
    assert f"{name} the plan 1 " in listed
    assert f"acts approve {name} --version 1" in listed
    answer = json.loads(acts("pending", "--json").stdout)
    (wait,) = [w for w in answer["waits"] if w["run"] == name]
    assert (wait["what"], wait["version"], wait["workflowId"]) == ("plan", 1, name)
    shown = acts("show", name).stdout
    assert f"the plan of {name} (version 1) waits for a decision" in shown
    for command in (f"acts approve {name} --version 1", f'acts reject {name} --version 1 --reason "…"'):
        assert command in shown

    done = acts("approve", name, "--version", "1", "--note", "looks right")
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
    assert "rejected by onTimeout: nobody decided in time" in done.stdout
    name = await start_waiting(acts, client, write_request(tmp_path, FIRST))
    assert acts("reject", name, "--reason", f"too {ESCAPE}", "--by", "Bob\nthe boss").exit_code == 0
    await result_of(client, name)
    shown = acts("show", name).stdout
    assert "rejected by Bob the boss: too �[31mred[/]" in shown
    assert "Bob the boss rejected the plan (version 1): too �[31mred[/]" in shown
    assert "\x1b" not in shown


async def test_each_call_is_decided_by_its_id(acts: Acts, client: Client, tmp_path: Path) -> None:
    request_file = write_request(tmp_path, FIRST, SECOND, mode="eager", approve={"calls": True})
    name = await start_waiting(acts, client, request_file, 2)
    shown = squeeze(acts("show", name).stdout)
    assert "⏸ 1:english awaiting waits for a decision" in shown
    assert f"acts approve {name} --call 2:english --version 1" in shown
    several = acts("approve", name)
    assert several.exit_code == 2
    assert "2 waits are matched" in several.stderr
    assert "name one with --call, --instance, --workflow-id" in several.stderr
    assert acts("approve", name, "-c", "1:english").exit_code == 0
    assert acts("reject", name, "--call", "2:english", "--reason", "not this one").exit_code == 0
    assert (await result_of(client, name))["state"] == {"first": True}
    shown = acts("show", name).stdout
    assert "rejected by ada (2:english): not this one" in shown
    assert "ada approved 1:english (version 1)" in shown


async def test_watch_prints_what_waits_and_how_to_decide_it(acts: Acts, tmp_path: Path) -> None:
    request_file = write_request(tmp_path, FIRST, approve={"timeout": "4s", "onTimeout": "approve"})
    done = acts("run", request_file, "--watch", "--id", name := new_name())
    assert done.exit_code == 0
    assert f"the plan of {name} (version 1) waits for a decision since" in done.stderr
    assert f"acts approve {name} --version 1" in done.stderr
    assert "onTimeout approved the plan (version 1): nobody decided in time" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["approve", "--version", "7"], "version 7 is not what waits"),
        (["approve", "--call", "9:english"], "nothing that waits is matched by call '9:english'"),
        (["approve", "--workflow-id", "another"], "nothing that waits is matched"),
        (["reject", "--reason", " "], "a rejection needs a reason"),
        (["reject"], "--reason"),
        (["approve", "--note", "x" * 3000], '"reason" is a string of at most 2000 characters'),
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


@pytest.mark.parametrize("command", [["approve"], ["reject", "--reason", "no"], ["edit"], ["diff"], ["pending"]])
def test_a_decision_about_a_missing_run_is_an_error(acts: Acts, command: list[str]) -> None:
    done = acts(command[0], "no-such-run", *command[1:])
    assert done.exit_code == 2
    assert 'there is no run "no-such-run"' in done.stderr


async def test_a_run_that_has_ended_accepts_no_decision(acts: Acts, client: Client, tmp_path: Path) -> None:
    name = await start_waiting(acts, client, write_request(tmp_path, FIRST))
    acts("approve", name)
    await result_of(client, name)
    done = acts("approve", name)
    assert done.exit_code == 2
    assert f'the run "{name}" has ended' in done.stderr


@pytest.mark.usefixtures("no_other_runs")
async def test_a_decision_without_a_worker_is_an_error_with_a_hint(
    acts: Acts, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTS_TASK_QUEUE", f"nobody-{uuid.uuid4().hex[:8]}")
    monkeypatch.setattr("cli.runs.run_reader.QUERY_TIMEOUT", timedelta(seconds=1))
    name = new_name()
    acts("run", write_request(tmp_path, FIRST), "--detach", "--id", name)
    done = acts("approve", name)
    assert done.exit_code == 3
    assert "no worker serves the queue" in done.stderr
    assert "start a worker" in done.stderr
    await wait_for_listing(client, name)
    assert name in json.loads(acts("pending", "--json").stdout)["unanswered"]
    assert "no worker answered for" in acts("pending").stderr
    acts("cancel", name)


async def test_an_update_without_an_answer_does_not_hang(
    acts: Acts, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acts.tree.decisions import PendingApproval
    from cli.command_errors import CommandError
    from cli.commands.decide import ApprovalTarget, send_decision
    from cli.runs.run_reader import RunReader

    monkeypatch.setenv("ACTS_TASK_QUEUE", f"nobody-{uuid.uuid4().hex[:8]}")
    monkeypatch.setattr("cli.commands.decide.UPDATE_TIMEOUT", timedelta(seconds=1))
    name = new_name()
    acts("run", write_request(tmp_path, FIRST), "--detach", "--id", name)
    target, approval = ApprovalTarget(name), PendingApproval(name, "plan", 1, "")
    with pytest.raises(CommandError, match="the decision is not applied yet") as refused:
        await send_decision(RunReader(client, name), target, approval, {"decision": "approve"})
    assert refused.value.code == 3
    acts("cancel", name)


# -- edit and diff ------------------------------------------------------------------------------------------------


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
    assert "version 2 waits, and an edit is no approval" in done.stderr
    assert f"acts approve {name} --version 2" in done.stdout
    assert list(tmp_path.glob("acts-edit-*")) == []
    shown = acts("diff", name).stdout
    assert "--- as it was started\n+++ version 2, waits" in shown
    assert "-  language: en\n+  language: fr" in shown
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
    assert {w["version"] for w in await wait_for_approvals(client, name, 2)} == {1}
    (tmp_path / "call.yaml").write_text("_tool: english\nlanguage: en\n_outputPath: †state.second\n", "utf-8")
    done = acts("edit", name, "--call", "2:english", "--file", "call.yaml", "--yes")
    assert done.exit_code == 0, done.stderr
    assert f"acts approve {name} --call 2:english --version 2" in done.stdout
    acts("approve", name, "--call", "1:english")
    acts("approve", name, "--call", "2:english", "--version", "2")
    assert (await result_of(client, name))["state"] == {"first": True, "second": True}


async def test_a_request_file_gives_the_plan_of_an_edit(acts: Acts, client: Client, tmp_path: Path) -> None:
    name = await start_waiting(acts, client, write_request(tmp_path, FIRST))
    other = write_request(tmp_path, FIRST, SECOND)
    assert acts("edit", name, "--file", other, "--yes").exit_code == 0
    assert "· 2:english" in acts("graph", name).stdout
    acts("approve", name)
    assert (await result_of(client, name))["state"] == {"first": True, "second": False}
    assert "✓ 2:english" in acts("graph", name).stdout


async def test_the_error_of_a_refused_edit_is_the_workers_reason(acts: Acts, client: Client, tmp_path: Path) -> None:
    request_file = write_request(tmp_path, FIRST, {**SECOND, "language": "fr"}, mode="eager", approve={"calls": True})
    name = await start_waiting(acts, client, request_file, 2)
    acts("approve", name, "--call", "1:english")
    await wait_for_approvals(client, name, 1)
    other = write_request(tmp_path, {**FIRST, "language": "xx"}, SECOND)
    done = acts("edit", name, "--call", "2:english", "--file", other, "--yes")
    assert done.exit_code == 2
    assert "1:english" in done.stderr
    assert "nothing has changed" in done.stderr
    await client.get_workflow_handle(name).terminate()


def test_only_yes_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    from cli.commands.edit import confirm

    @(program := typer.Typer()).command()
    def ask() -> None:
        raise typer.Exit(0 if confirm() else 1)

    assert [CliRunner().invoke(program, input=request_file).exit_code for request_file in ("y\n", "n\n", "")] == [
        0,
        1,
        1,
    ]


@pytest.mark.parametrize("value", [["1e5", "yes", "2024-01-01", "0123", "<<", "=", "~", "a: b", "†state.a", ESCAPE]])
def test_the_text_of_a_plan_parses_to_the_same_plan(value: Any) -> None:
    from cli.text.source_text import parse_source

    text, format_ = format_plan([{"_tool": "x", "x": value, "n": [1, 1.5, None, True]}])
    assert parse_source("the plan", text, format_).value[0]["x"] == value
    assert format_plan({"_tool": "x", "to": "†state.a"}) == ("_tool: x\nto: †state.a\n", "YAML")


# -- agents -------------------------------------------------------------------------------------------------------


async def start_agent(acts: Acts, worker: dict[str, str], client: Client, folder: Path, **config: Any) -> str:
    """An agent that plans one call, and after that answers with the state; it plans less after a rejection."""
    script = f"script-{uuid.uuid4().hex[:8]}"
    answers = [
        {"when": {"tick": 1}, "solution": {"calls": [FIRST, SECOND]}},
        {"when": {"tick": 2, "says": ["one is enough"]}, "solution": {"calls": [FIRST], "output": "†state"}},
        {"when": {"tick": 2}, "solution": {"output": "†state"}},
    ]
    (Path(worker["ACTS_SCRIPTS"]) / f"{script}.json").write_text(json.dumps({"answers": answers}), "utf-8")
    request_file = write_request(folder, mode=config.pop("mode", "lazy"), model=f"scripted:{script}", **config)
    name = new_name()
    assert acts("run", request_file, "--agent", "--detach", "--id", name).exit_code == 0
    return name


async def test_an_agent_plans_again_with_the_reason_of_a_rejection(
    acts: Acts, worker: dict[str, str], client: Client, tmp_path: Path
) -> None:
    name = await start_agent(acts, worker, client, tmp_path)
    await wait_for_approvals(client, name)
    assert "waits for a decision" in acts("show", name).stdout
    assert acts("reject", name, "--reason", "one is enough").exit_code == 0

    async def waits_again() -> bool:
        answer: dict[str, Any] = await client.get_workflow_handle(name).query("status")
        return bool(answer["tick"] == 2 and answer["phase"] == "awaiting")

    await assert_eventually(waits_again, why="the second plan waits")
    assert acts("approve", name).exit_code == 0
    assert (await result_of(client, name))["output"] == {"first": True}
    shown = acts("show", name).stdout
    assert "ada rejected the plan (version 1): one is enough" in shown
    assert "ada approved the plan (version " in shown


@pytest.mark.usefixtures("no_other_runs")
async def test_the_calls_of_an_agents_plan_are_decided_by_the_agents_id(
    acts: Acts, worker: dict[str, str], client: Client, tmp_path: Path
) -> None:
    name = await start_agent(acts, worker, client, tmp_path, mode="eager", approve={"calls": True})
    await wait_for_approvals(client, name, 2)
    await wait_for_listing(client, name, "ActsWaiting = 2")
    listed = [w for w in json.loads(acts("pending", "--json").stdout)["waits"] if w["run"] == name]
    assert [(w["call"], w["workflowId"]) for w in listed] == [
        ("1:english", f"{name}/plan-1"), ("2:english", f"{name}/plan-1"),
    ]  # fmt: skip
    of_root, of_plan = acts("pending", name), acts("pending", f"{name}/plan-1")
    assert (of_root.stdout.count("1:english"), of_root.stderr) == (2, "")
    assert f"{name}/plan-1 is part of the run {name}, and lists only its own approvals" in of_plan.stderr
    assert f"`acts pending {name}` lists those of the whole tree" in of_plan.stderr
    missing = acts("approve", f"{name}/plan-1", "--call", "9:english")
    assert f"`acts pending {name}` lists those of its tree" in missing.stderr
    (tmp_path / "call.yaml").write_text("_tool: english\nlanguage: en\n_outputPath: †state.second\n", "utf-8")
    done = acts("edit", name, "--call", "2:english", "--file", "call.yaml", "--yes")
    assert done.exit_code == 0, done.stderr
    assert f"acts approve {name} --call 2:english --version 2" in done.stdout
    assert "+  language: en" in acts("diff", f"{name}/plan-1").stdout
    assert acts("approve", name, "--call", "1:english").exit_code == 0
    assert acts("approve", name, "--call", "2:english", "--version", "2").exit_code == 0
    assert (await result_of(client, name))["output"] == {"first": True, "second": True}


async def test_the_plan_that_an_agent_proposes_is_compared_and_edited(
    acts: Acts, worker: dict[str, str], client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await start_agent(acts, worker, client, tmp_path)
    await wait_for_approvals(client, name)
    shown = acts("diff", name).stdout
    assert "--- the plan before\n+++ version 1, waits" in shown
    assert "+  language: fr" in shown
    use_editor(tmp_path, monkeypatch, "language: fr", "language: en")
    done = acts("edit", name, "--call", "2:english", "--yes")
    assert done.exit_code == 0, done.stderr
    assert acts("approve", name, "--version", "2").exit_code == 0
    assert (await result_of(client, name))["output"] == {"first": True, "second": True}
