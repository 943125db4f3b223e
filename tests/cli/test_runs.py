"""The commands that need a server, with a real server and a worker process."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from cli.text.preflight import EXAMPLES
from tests.cli.conftest import Acts, new_name, squeeze, wait_for_end, wait_for_state
from tests.support import assert_eventually

WEATHER = str(EXAMPLES / "weather" / "plan.yaml")
PAYMENT = str(EXAMPLES / "payment" / "plan.yaml")
WAIT = str(EXAMPLES / "wait" / "plan.yaml")
GUEST = {"type": "input", "input": {"guest": {"name": "Ada", "people": 2}}}


def test_run_waits_for_the_result_and_shows_it(acts: Acts) -> None:
    done = acts("run", WEATHER, "--input", "city=Bergen")
    assert done.exit_code == 0, done.stderr
    assert "✓ completed" in done.stdout
    assert "1:askWeather" in done.stdout
    assert '"what": "the museum, with 4 tickets"' in done.stdout


def test_run_as_json_prints_the_result_and_nothing_else(acts: Acts) -> None:
    done = acts("run", WEATHER, "--json")
    result = json.loads(done.stdout)
    assert result["status"] == "completed"
    assert result["state"]["picnic"]["city"] == "Lisbon"
    assert {c["id"]: c["state"] for c in result["calls"]}["3:bookMuseum"] == "skipped"


def test_a_plan_that_fails_exits_with_1_and_prints_its_result(acts: Acts) -> None:
    done = acts("run", WEATHER, "-i", "city=Atlantis", "--json")
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    assert result["status"] == "failed"
    assert [e["code"] for e in result["errors"]] == ["unknown_city"]
    shown = acts("run", WEATHER, "-i", "city=Atlantis")
    assert shown.exit_code == 1
    assert 'unknown_city: no weather for "Atlantis"' in shown.stdout


def test_watch_prints_each_change_without_a_terminal(acts: Acts) -> None:
    done = acts("run", PAYMENT, "--watch")
    assert done.exit_code == 0
    for words in ("1:processPayment completed", "2:confirmOrder skipped", "3:reportFailure completed"):
        assert words in done.stderr
    assert "card_declined" in done.stdout


def test_problems_that_the_worker_reports_have_the_lines_of_the_file(acts: Acts, tmp_path: Path) -> None:
    request = {"context": [{"type": "tool", "tool": "noSuchTool"}, {"type": "plan", "plan": [{"_tool": "noSuchTool"}]}]}
    (tmp_path / "a.json").write_text(json.dumps(request, indent=1))
    done = acts("run", "a.json")
    assert done.exit_code == 2
    assert "the worker refuses the request" in done.stderr
    assert 'a.json:5: no tool "noSuchTool" is registered with the worker' in done.stderr


async def test_a_detached_run_is_shown_drawn_and_provided_with_a_message(acts: Acts, client: Client) -> None:
    name = new_name()
    detached = acts("run", WAIT, "--detach", "--id", name)
    assert (detached.exit_code, detached.stdout) == (0, f"{name}\n")
    await wait_for_state(client, name, "2:bookRoom", "awaiting")

    shown = acts("show", name)
    assert shown.exit_code == 0
    assert "waits for †input.guest" in shown.stdout
    assert "acts provide" in shown.stdout
    drawn = acts("graph", name)
    assert "✓ 1:quoteRoom" in drawn.stdout
    assert "⏸ 2:bookRoom" in drawn.stdout
    assert "class c1 completed" in acts("graph", name, "--mermaid").stdout
    progress = json.loads(acts("show", name, "--json").stdout)
    assert (progress["id"], progress["status"], progress["progress"]["phase"]) == (name, "running", "awaiting")

    assert acts("provide", name, json.dumps(GUEST)).exit_code == 0
    await wait_for_end(client, name)
    after = acts("show", name)
    assert "✓ completed" in after.stdout
    assert '"guest": "Ada"' in after.stdout
    assert "✓ 3:writeWelcome" in acts("graph", name).stdout
    assert json.loads(acts("show", name, "--json").stdout)["result"]["state"]["booking"]["guest"] == "Ada"


async def test_a_run_is_paused_resumed_and_cancelled(acts: Acts, client: Client, tmp_path: Path) -> None:
    name = new_name()
    acts("run", WAIT, "--detach", "--id", name)
    await wait_for_state(client, name, "2:bookRoom", "awaiting")
    assert acts("pause", name).exit_code == 0
    assert "⏸ paused" in acts("show", name).stdout
    (tmp_path / "guest.yaml").write_text("type: input\ninput: {guest: {name: Ada, people: 2}}\n")
    assert acts("provide", name, "guest.yaml").exit_code == 0
    await wait_for_state(client, name, "2:bookRoom", "ready")
    assert acts("cancel", name).exit_code == 0
    await wait_for_end(client, name)
    assert "⊘ cancelled" in acts("show", name).stdout
    for command in ("pause", "resume", "cancel"):
        late = acts(command, name)
        assert late.exit_code == 2
        assert f'the run "{name}" has ended' in late.stderr


async def test_a_paused_run_is_resumed(acts: Acts, client: Client) -> None:
    name = new_name()
    acts("run", WAIT, "--detach", "--id", name)
    await wait_for_state(client, name, "2:bookRoom", "awaiting")
    acts("pause", name)
    acts("provide", name, json.dumps(GUEST))
    assert acts("resume", name).exit_code == 0
    await wait_for_end(client, name)


async def test_an_id_in_use_is_refused(acts: Acts, client: Client) -> None:
    name = new_name()
    acts("run", WAIT, "--detach", "--id", name)
    again = acts("run", WAIT, "--id", name)
    assert again.exit_code == 2
    assert f'the run "{name}" is still running' in again.stderr
    await client.get_workflow_handle(name).terminate(reason="the test is over")
    shown = acts("show", name)
    assert "✗ terminated" in shown.stdout
    assert "the test is over" in shown.stdout


@pytest.mark.parametrize("command", [["show"], ["pause"], ["cancel"], ["graph"]])
def test_a_missing_run_is_an_error(acts: Acts, command: list[str]) -> None:
    done = acts(command[0], "no-such-run", *command[1:])
    assert done.exit_code == 2
    assert 'there is no run "no-such-run"' in done.stderr


def test_an_id_that_cannot_be_one_is_refused(acts: Acts) -> None:
    for name in ("", "x" * 901, "a\tb"):
        done = acts("run", WEATHER, "--id", name)
        assert done.exit_code == 2
        assert "an id is 1 to 900 bytes" in done.stderr


def test_a_request_that_is_too_large_is_refused_before_it_is_sent(acts: Acts, tmp_path: Path) -> None:
    (tmp_path / "big.json").write_text(json.dumps({"x": "y" * 3_000_000}))
    big = json.dumps({"context": [{"type": "input", "input": {"x": "y" * 3_000_000}}, {"type": "plan", "plan": []}]})
    (tmp_path / "big.json").write_text(big)
    done = acts("run", "big.json")
    assert done.exit_code == 2
    assert "a run takes at most" in done.stderr


def test_without_a_worker_run_and_show_say_so(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_TASK_QUEUE", new_name())
    monkeypatch.setattr("cli.runs.run_reader.QUERY_TIMEOUT", timedelta(seconds=1))
    done = acts("run", WEATHER, "--detach")
    assert done.exit_code == 0
    assert "no worker serves the task queue" in done.stderr
    shown = acts("show", done.stdout.strip())
    assert shown.exit_code == 0
    assert "no worker answers" in shown.stderr


@pytest.mark.usefixtures("wide_terminal")
async def test_a_call_that_no_worker_has_taken_is_shown_in_its_queue(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    name, queue = new_name(), f"nobody-{new_name()}"
    meta = {"_tool": "lost", "_activity": "lost", "_options": {"taskQueue": queue}}
    lost = {**meta, "_outputPath": {"type": "string"}}
    plan = [{"_tool": "lost", "_outputPath": "†state.a"}]
    request = {"context": [{"type": "tool", "tool": {"properties": lost}}, {"type": "plan", "plan": plan}]}
    (tmp_path / "a.json").write_text(json.dumps(request))
    assert acts("run", "a.json", "--detach", "--id", name).exit_code == 0
    await wait_for_state(client, name, "1:lost", "ready")
    shown = acts("show", name).stdout
    assert f'· 1:lost ready waits for a worker of the task queue "{queue}"' in squeeze(shown)
    assert f'note: no worker polls the task queue "{queue}"' in shown

    async def answer(_call: Any, _tool: Any, _context: Any) -> None:
        # Too large for the server, which keeps the message as the cause of a failure of its own
        raise ApplicationError("not yet", "x" * 5_000, type="busy", next_retry_delay=timedelta(hours=1))

    served = activity.defn(name="lost")(answer)
    async with Worker(client, task_queue=queue, activities=[served]):  # the server knows of it before the run does

        async def is_retried() -> bool:
            (item,) = json.loads(acts("show", name, "--json").stdout)["progress"]["calls"]
            return (item["state"], item.get("attempt"), item.get("lastFailure")) == ("running", 2, "[busy] not yet")

        await assert_eventually(is_retried)
    await client.get_workflow_handle(name).terminate()
