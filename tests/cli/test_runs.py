"""The commands that need a server, with a real server and a worker process."""

from __future__ import annotations

import json
import re
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker

from acts.cli.text.preflight import EXAMPLES
from acts.language.wire import STATUS
from tests.cli.conftest import Acts, new_name, squeeze, wait_for_end, wait_for_state
from tests.support import assert_eventually

WEATHER = str(EXAMPLES / "weather" / "plan.yaml")
REPLAN = str(EXAMPLES / "replan" / "plan.yaml")
# Text from outside: markup, a color, a line break
HOSTILE = "Ada [bold red]x[/] \x1b[31m\nthe Request"
GUEST = {"type": "input", "input": {"guest": HOSTILE}}
LANGUAGE = {"_tool": "detectLanguage", "text": "†input.text", "_outputPath": "†state.language"}
# `deliver` waits for a guest
WAIT = {
    "config": {"missing": "wait"},
    "context": [
        {"type": "tool", "tool": "detectLanguage"}, {"type": "tool", "tool": "deliver"},
        {"type": "input", "input": {"text": "The cat is on the roof."}},
        {"type": "plan", "plan": [LANGUAGE, {"_tool": "deliver", "recipientId": "†input.guest", "messageBody": "Hi"}]},
    ],
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("wide_terminal")


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


def test_problems_that_the_worker_reports_have_the_lines_of_the_file(acts: Acts, tmp_path: Path) -> None:
    request = {"context": [{"type": "tool", "tool": "noSuchTool"}, {"type": "plan", "plan": [{"_tool": "noSuchTool"}]}]}
    (tmp_path / "a.json").write_text(json.dumps(request, indent=1))
    done = acts("run", "a.json")
    assert done.exit_code == 2
    assert "the worker refuses the request" in done.stderr
    assert 'a.json:5: no tool "noSuchTool" is registered with the worker' in done.stderr


@pytest.fixture
def waiting(tmp_path: Path) -> str:
    (tmp_path / "wait.json").write_text(json.dumps(WAIT))
    return "wait.json"


async def test_a_detached_run_is_shown_drawn_and_provided_with_a_message(
    acts: Acts, client: Client, waiting: str
) -> None:
    name = new_name()
    detached = acts("run", waiting, "--detach", "--id", name)
    assert (detached.exit_code, detached.stdout) == (0, f"{name}\n")
    await wait_for_state(client, name, "2:deliver", "awaiting")

    shown = acts("show", name)
    assert shown.exit_code == 0
    assert "waits for †input.guest" in shown.stdout
    assert "acts provide" in shown.stdout
    drawn = acts("graph", name)
    assert "✓ 1:detectLanguage" in drawn.stdout
    assert "⏸ 2:deliver" in drawn.stdout
    assert "class c1 completed" in acts("graph", name, "--mermaid").stdout
    progress = json.loads(acts("show", name, "--json").stdout)
    assert (progress["id"], progress["status"], progress["progress"]["phase"]) == (name, "running", "awaiting")

    nothing = acts("why", name, "state.receipt")
    assert (nothing.exit_code, "there is no value at †state.receipt" in nothing.stderr) == (2, True)
    assert '†state.language = "en" ' in acts("why", name, "state.language").stdout

    assert acts("provide", name, json.dumps(GUEST)).exit_code == 0
    await wait_for_end(client, name)
    after = acts("show", name)
    assert "✓ completed" in after.stdout
    assert '"recipientId": "Ada [bold red]x[/] \\u001b[31m\\nthe Request"' in after.stdout
    assert "✓ 2:deliver" in acts("graph", name).stdout
    assert json.loads(acts("show", name, "--json").stdout)["result"]["state"]["receipt"]["recipientId"] == HOSTILE
    origin = acts("why", name, "state.receipt.recipientId").stdout
    assert "\x1b" not in origin
    assert '= "Ada [bold red]x[/] \\u001b[31m\\nthe Request"   from outside\n' in origin
    assert "provided to the run (message 4)\n" in origin


async def test_a_run_is_paused_resumed_and_cancelled(acts: Acts, client: Client, tmp_path: Path, waiting: str) -> None:
    name = new_name()
    acts("run", waiting, "--detach", "--id", name)
    await wait_for_state(client, name, "2:deliver", "awaiting")
    assert acts("pause", name).exit_code == 0
    assert "⏸ paused" in acts("show", name).stdout
    (tmp_path / "guest.yaml").write_text("type: input\ninput: {guest: Ada}\n")
    assert acts("provide", name, "guest.yaml").exit_code == 0
    await wait_for_state(client, name, "2:deliver", "ready")
    assert acts("cancel", name).exit_code == 0
    await wait_for_end(client, name)
    assert "⊘ cancelled" in acts("show", name).stdout
    for command in ("pause", "resume", "cancel"):
        late = acts(command, name)
        assert late.exit_code == 2
        assert f'the run "{name}" has ended' in late.stderr


@pytest.mark.parametrize("command", ["show", "pause", "graph"])
def test_a_missing_run_is_an_error(acts: Acts, command: str) -> None:
    done = acts(command, "no-such-run")
    assert done.exit_code == 2
    assert 'there is no run "no-such-run"' in done.stderr


def test_a_request_that_is_too_large_is_refused_before_it_is_sent(acts: Acts, tmp_path: Path) -> None:
    big = json.dumps({"context": [{"type": "input", "input": {"x": "y" * 3_000_000}}, {"type": "plan", "plan": []}]})
    (tmp_path / "big.json").write_text(big)
    done = acts("run", "big.json")
    assert done.exit_code == 2
    assert "a run takes at most" in done.stderr


def test_without_a_worker_run_and_show_say_so(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_TASK_QUEUE", new_name())
    monkeypatch.setattr("acts.client.run_reader.QUERY_TIMEOUT", timedelta(seconds=1))
    done = acts("run", WEATHER, "--detach")
    assert done.exit_code == 0
    assert "no worker serves the task queue" in done.stderr
    shown = acts("show", done.stdout.strip())
    assert shown.exit_code == 0
    assert "no worker answers" in shown.stderr


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
        assert re.search(
            r"attempt 2, next try at [\d:]{8} UTC, after: \[busy\] not yet, at \d+@", acts("show", name).stdout
        )
    await client.get_workflow_handle(name).terminate()


RULES: list[dict[str, Any]] = [
    {"type": "tool", "tool": "screenComment"},
    {"type": "plan", "plan": [{"_tool": "screenComment", "text": "†state.text"}]},
]


def test_the_problems_of_an_instances_request_are_printed_in_full(acts: Acts, tmp_path: Path) -> None:
    batch = [
        *RULES, {"type": "state", "_instance": "a", "text": "A fine tram."},
        {"type": "state", "_instance": "b", "txt": "A fine bus."},
    ]  # fmt: skip
    (tmp_path / "batch.json").write_text(json.dumps({"context": batch}), "utf-8")
    name = new_name()
    done = acts("run", "batch.json", "--id", name)
    assert done.exit_code == 1
    for output in (done, acts("show", name)):
        assert "None" not in output.stdout + output.stderr
        assert "error: instance b: the request has 1 problem:" in output.stderr
        assert "\n  - [unknownReference] " in output.stderr
        assert "†state.text" in output.stderr
        assert "✗ b failed the request has 1 problem" in squeeze(output.stdout)


def test_a_failure_is_printed_in_full(acts: Acts, tmp_path: Path) -> None:
    long = "Atlantis" + "!" * 300
    done = acts("run", str(EXAMPLES / "weather" / "plan.yaml"), "-i", f"city={long}", "--id", new_name())
    assert done.exit_code == 1
    (block,) = [text for text in done.stderr.split("error: ") if "[unknown_city]" in text]
    assert block.startswith("call 1:askWeather: ")
    assert long in block


REQUEST = """
context:
  - {type: tool, tool: addInterest}
  - {type: tool, tool: payInstallment}
  - {type: plan, plan: []}
"""


def test_the_worker_lists_its_tools_and_activities(acts: Acts) -> None:
    answers = json.loads(acts("tools", "--json").stdout)["workers"]
    assert [sorted(answer) for answer in answers] == [["activities", "plans", "tools", "version", "worker"]]
    lines = [line for line in acts("tools").stdout.splitlines() if line.startswith("payInstallment ")]
    assert len(lines) == 1
    assert "activity payInstallment" in lines[0]
    assert "activities without a tool: compareLanguage" in acts("tools").stdout
    schema = json.loads(acts("tools", "payInstallment").stdout)
    assert schema == answers[0]["tools"]["payInstallment"]


def test_in_a_pipe_each_event_of_a_watched_run_is_a_line_and_the_result_is_printed_once(acts: Acts) -> None:
    done = acts("run", str(EXAMPLES / "weather" / "plan.yaml"), "--watch")
    told, events = done.stderr.splitlines(), re.findall(r"(?m)^ *[\d.]+ s  (.*)$", done.stderr)
    assert len(events) == len(set(events)) > 0
    assert all(re.match(r"\S \w+  \S+$|\d+:\w+  \w+", event) for event in events), events
    assert not set(map(str.strip, done.stdout.splitlines()[1:])) & set(map(str.strip, told))


def test_run_leaves_tools_that_only_the_worker_has_to_it(
    acts: Acts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "request.yaml").write_text(REQUEST, "utf-8")
    monkeypatch.delenv("ACTS_ACTIVITIES")
    here = acts("tools", "--here")
    assert "no tool is registered" in here.stderr
    checked = acts("validate", "request.yaml")
    assert checked.stderr.count("warning:") == 1
    assert 'the tools "addInterest", "payInstallment" are not registered here' in checked.stderr
    done = acts("run", "request.yaml")
    assert done.exit_code == 0, done.stderr
    assert "warning" not in done.stderr


def test_the_prompt_of_a_file_is_that_of_its_first_tick_with_its_tokens_by_part(acts: Acts) -> None:
    done = acts("prompt", REPLAN)
    assert done.exit_code == 0, done.stderr
    for text in ("=== system: rules", "=== system: tools", "=== user", "=== schema of the answer", "all of tick 1"):
        assert text in done.stdout
    shown = json.loads(acts("prompt", REPLAN, "--json").stdout)
    assert shown["tick"] == 1
    assert sum(shown["tokens"].values()) > shown["tokens"]["rules"] > 1_000
    assert [turn["role"] for turn in shown["turns"]] == ["user"]


def test_a_file_has_one_tick(acts: Acts) -> None:
    done = acts("prompt", REPLAN, "--tick", "2")
    assert done.exit_code == 2
    assert "one tick" in done.stderr


def test_the_prompts_of_a_run_are_those_of_its_ticks(acts: Acts) -> None:
    name = new_name()
    assert acts("run", REPLAN, "--id", name).exit_code == 0
    second = json.loads(acts("prompt", name, "--json").stdout)
    assert (second["tick"], [turn["role"] for turn in second["turns"]]) == (2, ["user", "assistant", "user"])
    assert "card_declined" in json.dumps(second["turns"][2])
    first = json.loads(acts("prompt", name, "--tick", "1", "--json").stdout)
    assert first["turns"] == second["turns"][:1]
    assert first["system"] == second["system"]
    done = acts("prompt", name, "--tick", "3")
    assert done.exit_code == 2
    assert "has come to tick 2, not 3" in done.stderr


GREET = {
    "type": "object",
    "properties": {"_activity": {"const": "isEnglish"}, "_outputPath": {"type": "string"}, "language": {}},
    "required": ["language"],
}
CALL = {"_tool": "greet", "language": "†input.language", "_outputPath": "†state.english"}


def script(worker: dict[str, str], *answers: dict[str, Any]) -> str:
    """A model that gives these answers to the ticks 1, 2, …"""
    name = f"script-{uuid.uuid4().hex[:8]}"
    listed = [{"when": {"tick": i}, **answer} for i, answer in enumerate(answers, 1)]
    (Path(worker["ACTS_SCRIPTS"]) / f"{name}.json").write_text(json.dumps({"answers": listed}))
    return f"scripted:{name}"


def task(folder: Path, model: str, **config: Any) -> str:
    request = {"config": {"model": model, **config}, "context": [{"type": "tool", "tool": {"greet": GREET}}]}
    (folder / "task.json").write_text(json.dumps(request))
    return "task.json"


async def test_a_running_agent_is_shown_with_the_live_calls_of_its_tick(
    acts: Acts, worker: dict[str, str], client: Client, tmp_path: Path
) -> None:
    name = new_name()
    model = script(worker, {"solution": {"calls": [CALL], "output": "†state.english"}})
    file = task(tmp_path, model, missing="wait")
    detached = acts("run", file, "--detach", "--id", name)
    assert (detached.exit_code, detached.stdout) == (0, f"{name}\n")

    async def is_awaiting() -> bool:
        try:
            answer = await client.get_workflow_handle(f"{name}/plan-1").query(STATUS)
        except RPCError:  # not started yet
            return False
        return bool(answer["calls"] and answer["calls"][0]["state"] == "awaiting")

    await assert_eventually(is_awaiting, why="the call of the first tick waits")
    shown = squeeze(acts("show", name).stdout)
    assert f"{name} Agent tick 1" in shown
    assert "1 ⏸ 1:greet awaiting waits for †input.language" in shown
    assert "usage 1 request, " in shown
    assert f"acts provide {name}" in shown
    (call,) = json.loads(acts("show", name, "--json").stdout)["progress"]["calls"]
    assert (call["id"], call["tick"], call["state"]) == ("1:greet", 1, "awaiting")
    drawn = acts("graph", name)
    assert "this run plans as it goes" in drawn.stderr
    assert "1:greet" in drawn.stdout

    acts("provide", name, json.dumps({"type": "input", "input": {"language": "en"}}))

    async def has_ended() -> bool:
        return (await client.get_workflow_handle(name).describe()).close_time is not None

    await assert_eventually(has_ended, why="the agent is over")
    answer = json.loads(acts("show", name, "--json").stdout)
    assert (answer["result"]["output"], answer["result"]["ticks"]) == (True, 1)
    child = acts("show", f"{name}/plan-1")
    assert "✓ completed" in child.stdout
    assert "✓ 1:greet" in acts("graph", f"{name}/plan-1").stdout


def test_a_plan_runs_by_its_name_with_inputs_of_words_and_files(acts: Acts, tmp_path: Path) -> None:
    (tmp_path / "more.json").write_text('{"people": 2}', "utf-8")
    name = new_name()
    done = acts("run", "outing", "--input", "city=Bergen", "--input", "more.json", "--id", name, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["state"]["museum"]["what"] == "the museum, with 2 tickets"
    assert acts("retry", name, "--id", f"{name}-2").exit_code == 0
    assert "outing" in acts("tools").stderr
    wrong = acts("run", "outin")
    assert (wrong.exit_code, 'did you mean "outing"' in wrong.stderr) == (2, True)
    assert "there is no such file" in acts("run", "no/such/plan").stderr


def test_a_plan_by_name_is_checked_and_scheduled_and_its_errors_have_its_file_and_line(
    acts: Acts, worker: dict[str, str]
) -> None:
    place = str(Path(worker["ACTS_PLANS"], "needy.yaml:4"))
    for command in ("validate", "simulate", "run"):
        bare = acts(command, "needy")
        assert (bare.exit_code, place in bare.stderr) == (2, True), bare.stderr
        assert "--input city=VALUE" in bare.stderr
    for command in ("validate", "simulate"):
        assert acts(command, "needy", "--input", "city=Bergen").exit_code == 0
    name = new_name()
    done = acts("schedule", "create", name, "needy", "--cron", "0 0 1 1 *", "--input", "city=Bergen")
    assert f"schedule {name} starts needy as Plan" in done.stderr
    assert acts("schedule", "delete", "--yes", name).exit_code == 0


def test_events_are_printed_a_line_each_and_read_on_from_an_offset(acts: Acts) -> None:
    id_ = new_name()
    acts("run", WEATHER, "--id", id_)
    lines = [json.loads(line) for line in acts("events", id_, "--json").stdout.splitlines()]
    assert [lines[0]["type"], lines[-1]["type"]] == ["runStarted", "runEnded"]
    ends = {line["call"]: line["state"] for line in lines if line["type"] == "callEnded"}
    assert ends["3:bookMuseum"] == "skipped"
    rest = acts("events", id_, "--json", "--follow", "--after", lines[2]["offset"]).stdout.splitlines()
    assert list(map(json.loads, rest)) == lines[3:]
    shown = acts("events", id_, "--type", "callEnded", "--call", "3:bookMuseum").stdout
    assert re.fullmatch(r"[\d:.]+  callEnded      3:bookMuseum  skipped\n", shown)
    for options, text in (
        (["--after", "7"], "is no offset"),
        (["--type", "ended"], "there is no type of event 'ended'"),
    ):
        refused = acts("events", id_, *options)
        assert (refused.exit_code, text in refused.stderr) == (2, True), refused.stderr
    missing = acts("events", "nobody")
    assert (missing.exit_code, 'there is no run "nobody"' in missing.stderr) == (2, True)
