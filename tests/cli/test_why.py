"""``acts why``: where a value of a real run came from, while it runs and after it has ended."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from typer.testing import CliRunner

from acts.language.wire import PLAN
from cli.dev.temporal_server import DevServer
from cli.main import app
from cli.text.preflight import EXAMPLES
from tests.cli.conftest import Acts, new_name, wait_for_end, wait_for_state
from tests.workflow.conftest import engine_on

WEATHER = str(EXAMPLES / "weather" / "plan.yaml")
WAIT = str(EXAMPLES / "wait" / "plan.yaml")
REFUND = str(EXAMPLES / "refund" / "plan.yaml")
REPLAN = str(EXAMPLES / "replan" / "plan.yaml")
# Text from outside: markup, a color, a line break
HOSTILE = "Ada [bold red]x[/] \x1b[31m\nthe Request"

pytestmark = pytest.mark.usefixtures("wide_terminal")


def run_file(acts: Acts, file: str, *more: str, code: int = 0) -> str:
    """A run that has ended."""
    name = new_name()
    done = acts("run", file, "--id", name, *more)
    assert done.exit_code == code, done.stderr
    return name


def why_lines(acts: Acts, *arguments: str) -> list[str]:
    """The lines of the tree, each indented by two spaces per level."""
    done = acts("why", *arguments)
    assert done.exit_code == 0, done.stderr
    shown = done.stdout.translate(str.maketrans("├└│─", "    ")).splitlines()
    return [" " * ((len(line) - len(line.lstrip())) // 2) + line.strip() for line in shown]


def without_date(line: str) -> str:
    """A line without the date."""
    return "  ".join(part for part in line.split("  ") if not (part.endswith("Z") and part[:2] == "20"))


def test_a_value_is_traced_back_to_the_request(acts: Acts) -> None:
    name = run_file(acts, WEATHER, "--input", "city=Bergen")
    answer = [without_date(line) for line in why_lines(acts, name, "†state.museum.what")]
    assert answer == [
        '†state.museum.what = "the museum, with 4 tickets"   from outside',
        "  3:bookMuseum  Activity bookMuseum",
        '    weather  †state.rainy = {"celsius": 9, "city": "Bergen", "sky": "rain"}',
        "      1:askWeather  Activity askWeather",
        '        city  †input.city = "Bergen"',
        "          the Request, /context/3",
        "    people  †input.people = 4",
        "      the Request, /context/1",
    ]


def test_a_value_of_the_request_is_not_from_outside_and_unneeded_paths_are_marked(acts: Acts) -> None:
    name = run_file(acts, WEATHER)
    assert why_lines(acts, name, "input.city")[0] == '†input.city = "Lisbon"   from the Request alone'
    shown = why_lines(acts, name, "state.invitation.text")
    assert any(line.strip() == "outing  †state.picnic || †state.museum" for line in shown)
    assert any(line.strip() == "†state.museum: not needed" for line in shown)


def test_the_trace_of_an_agent_has_ticks_and_planners(acts: Acts) -> None:
    name = run_file(acts, REPLAN)
    shown = [without_date(line).strip() for line in why_lines(acts, name, "state.apology")]
    assert "1:reportFailure  Activity reportFailure  tick 2  planned by the model" in shown
    assert "1:processPayment  Activity processPayment  tick 1  failed: card_declined  planned by the model" in shown
    assert shown[-1] == "the Request, /context/3"
    plan = why_lines(acts, f"{name}/plan-2", "state.error.code")
    assert plan[-1].strip() == f"passed by the parent run {name} (message 1)"
    assert plan[0].endswith("from outside")


def test_a_depth_limits_the_tree(acts: Acts) -> None:
    name = run_file(acts, WEATHER)
    shown = why_lines(acts, name, "state.picnic", "--depth", "1")
    assert len(shown) == 2
    assert shown[1].endswith("(more with --depth)")


async def test_a_running_plan_names_possible_writers_and_later_what_was_provided(acts: Acts, client: Client) -> None:
    name = new_name()
    acts("run", WAIT, "--detach", "--id", name)
    await wait_for_state(client, name, "2:bookRoom", "awaiting")
    nothing = acts("why", name, "state.booking")
    assert nothing.exit_code == 2
    assert "there is no value at †state.booking" in nothing.stderr
    assert "2:bookRoom, which is awaiting" in nothing.stderr
    assert why_lines(acts, name, "state.quote.cents")[0] == "†state.quote.cents = 21600   from outside"

    guest = {"type": "input", "input": {"guest": {"name": HOSTILE, "people": 2}}}
    assert acts("provide", name, json.dumps(guest)).exit_code == 0
    await wait_for_end(client, name)
    done = acts("why", name, "state.booking.guest")
    assert "\x1b" not in done.stdout
    shown = why_lines(acts, name, "state.booking.guest")
    assert shown[0] == '†state.booking.guest = "Ada [bold red]x[/] \\u001b[31m\\nthe Request"   from outside'
    assert shown[-1].strip() == "provided to the run (message 3)"


def test_why_as_json_has_the_whole_trace(acts: Acts) -> None:
    name = run_file(acts, REFUND)
    done = acts("why", name, "state.refund", "--json")
    answer = json.loads(done.stdout)
    assert (answer["path"], answer["outside"], answer["value"]["cents"]) == ("†state.refund", True, 5000)
    (source,) = answer["sources"]
    facts = {k: source[k] for k in ("origin", "id", "tool", "tick", "plannedBy", "method", "outputPath")}
    assert facts == {
        "origin": "activity", "id": "1:issueRefund", "tool": "issueRefund", "tick": 2, "plannedBy": "model",
        "method": "set", "outputPath": "†state.refund",
    }  # fmt: skip
    read = {r["at"]: r["values"][0]["value"] for r in source["reads"]}
    assert read == {"customerId": "cust_123", "amount": 50.0}
    assert source["reads"][0]["values"][0]["sources"][0]["origin"] == "request"


def request(*calls: dict[str, Any], context: list[dict[str, Any]]) -> dict[str, Any]:
    tools = {
        "detect": {"properties": {"text": {}, "_activity": {"const": "detectLanguage"}, "_outputPath": {}}},
        "english": {
            "properties": {"language": {}, "_activity": {"const": "isEnglish"}, "_outputPath": {}, "_scopes": {}}
        },
    }
    return {"context": [{"type": "tool", "tool": tools}, *context, {"type": "plan", "plan": list(calls)}]}


def test_the_values_of_a_batchs_instances_are_traced(acts: Acts, tmp_path: Path) -> None:
    texts = {"one": "the sun and the moon", "two": "der Mond und die Sonne"}
    plan = request(
        {"_tool": "detect", "text": "†state.text", "_outputPath": "†state.language"},
        context=[{"type": "state", "text": text, "_instance": name} for name, text in texts.items()],
    )
    (tmp_path / "batch.json").write_text(json.dumps(plan))
    name = run_file(acts, "batch.json")
    for instance, place, language in (("one", 1, "en"), ("two", 2, "de")):
        assert [
            without_date(line).strip() for line in why_lines(acts, name, "state.language", "--instance", instance)
        ] == [
            f'†state.language = "{language}"   from outside',
            "1:detect  Activity detectLanguage",
            f'text  †state.text = "{texts[instance]}"',
            f"the Request, /context/{place}",
        ]


def test_a_value_of_an_instance_is_traced_in_its_own_view(acts: Acts, tmp_path: Path) -> None:
    plan = request(
        {"_tool": "detect", "text": "†state.text", "_outputPath": "†state.language"},
        {"_tool": "english", "language": "†state.language", "_scopes": ["†state.who"], "_outputPath": "†state.english",
         "_instance": "one"},
        context=[
            {"type": "state", "text": "the sun and the moon"},
            *({"type": "state", "who": name, "_instance": name} for name in ("one", "two")),
        ],
    )  # fmt: skip
    (tmp_path / "two.json").write_text(json.dumps(plan))
    name = run_file(acts, "two.json")
    assert [without_date(line) for line in why_lines(acts, name, "state.english", "--instance", "one")] == [
        "†state.english = true   from outside",
        "  2:english  Activity isEnglish",
        '    language  †state.language = "en"',
        "      1:detect  Activity detectLanguage",
        '        text  †state.text = "the sun and the moon"',
        "          the Request, /context/1",
        '    scope  †state.who = "one"',
        "      the Request, /context/2",
    ]
    assert json.loads(acts("why", name, "state.who", "--instance", "two", "--json").stdout)["instance"] == "two"
    everywhere = acts("why", name, "state.english")
    assert "one has a value there: --instance one" in everywhere.stderr
    unknown = acts("why", name, "state.english", "--instance", "three")
    assert (unknown.exit_code, "it has: one, two" in unknown.stderr) == (2, True)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("state.pcnic", ["there is no value at †state.pcnic", "did you mean †state.picnic?", "†state.invitation"]),
        ("state.picnic.wat", ["there is  †state.picnic.bring", "did you mean †state.picnic.what?"]),
        ("state.picnic.city.x", ['found  †state.picnic.city = "Lisbon"']),
        ("stat", ["there is  †input, †state", "did you mean †state?"]),
        ("output", ["an agent's output is its model's own answer"]),
        ("state.museum", ["there is no value at †state.museum", "3:bookMuseum, which is skipped"]),
        ("state.", ['a name must follow "."', "like †state.order[0].price"]),
        ("†state.a || †state.b", ["is several paths", "ask for one of them"]),
    ],
)
def test_the_error_of_a_path_without_a_value_has_a_hint(acts: Acts, weather: str, where: str, words: list[str]) -> None:
    done = acts("why", weather, where)
    assert (done.exit_code, done.stdout) == (2, "")
    for word in words:
        assert word in " ".join(done.stderr.split()) or word in done.stderr


@pytest.fixture(scope="session")
def weather_runs() -> dict[str, str]:
    return {}


@pytest.fixture
def weather(acts: Acts, weather_runs: dict[str, str]) -> str:
    """One run of the weather example, shared by all cases of a table."""
    if "name" not in weather_runs:
        weather_runs["name"] = run_file(acts, WEATHER)
    return weather_runs["name"]


def test_why_of_a_missing_run_is_an_error(acts: Acts) -> None:
    done = acts("why", "no-such-run", "state")
    assert (done.exit_code, 'there is no run "no-such-run"' in done.stderr) == (2, True)


async def test_why_of_a_running_plan_needs_a_worker(acts: Acts, client: Client) -> None:
    name = new_name()
    handle = await client.start_workflow(PLAN, {"context": []}, id=name, task_queue=f"nobody-{name}")
    done = acts("why", name, "state")
    assert (done.exit_code, "no worker serves the queue" in done.stderr) == (3, True)
    await handle.terminate("the test is over")


async def test_a_run_that_has_ended_is_traced_from_its_result_without_a_worker(
    acts: Acts, client: Client, server: DevServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = {
        "counts": {"properties": {"items": {}, "_activity": {"const": "house.count"}, "_outputPath": {}}},
        "greet": {"properties": {"name": {}, "_outputPath": {}}},
    }
    calls = [
        {"_tool": "counts", "items": "†input.x", "_outputPath": "†state.a"},
        {"_tool": "greet", "name": "†state.a", "_outputPath": "†state.b"},
    ]
    context = [{"type": "tool", "tool": tools}, {"type": "input", "x": [1, 2]}, {"type": "plan", "plan": calls}]
    name = new_name()
    async with engine_on(server, f"gone-{name}") as queue:
        await client.execute_workflow(PLAN, {"context": context}, id=name, task_queue=queue)
    # the server still lists the worker, which has stopped
    monkeypatch.setattr("cli.runs.run_reader.QUERY_TIMEOUT", timedelta(seconds=0.2))
    monkeypatch.setattr("cli.runs.run_reader.SECONDS_PER_EVENT", 0.0)
    done = acts("why", name, "state.b")
    assert done.exit_code == 0, done.stderr
    assert "2:greet  unknown" in done.stdout
    assert "1:counts  Activity house.count" in done.stdout
    assert "from outside" in done.stdout.splitlines()[0]
    assert "no worker answers" in done.stderr


async def test_a_context_that_is_too_large_for_the_result_is_read_page_by_page(
    acts: Acts, client: Client, server: DevServer
) -> None:
    tools = {"big": {"properties": {"n": {}, "_outputPath": {}, "_outputMethod": {}}}}
    calls = [{"_tool": "big", "n": "†input.n", "_outputPath": "†state.l", "_outputMethod": "push"}] * 2
    context = [{"type": "tool", "tool": tools}, {"type": "input", "n": 900_000}, {"type": "plan", "plan": calls}]
    name = new_name()
    async with engine_on(server, f"big-{name}") as queue:
        result = await client.execute_workflow(PLAN, {"context": context}, id=name, task_queue=queue)
        assert "context" in result["omitted"]["bytes"]
        done = await asyncio.to_thread(acts, "why", name, "state.l[1]")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith('†state.l.1 = "xxx')
    assert "2:big  Activity big" in done.stdout


async def test_a_run_with_an_invalid_request_has_no_context(acts: Acts, client: Client, worker: dict[str, str]) -> None:
    name = new_name()
    await client.start_workflow(PLAN, {"context": []}, id=name, task_queue=worker["ACTS_TASK_QUEUE"])
    await wait_for_end(client, name)
    done = acts("why", name, "state")
    assert (done.exit_code, "has no context to read" in done.stderr) == (2, True)
    assert f"acts show {name}" in done.stderr


async def test_a_workflow_of_another_type_is_refused(acts: Acts, client: Client) -> None:
    name = new_name()
    handle = await client.start_workflow("Other", {}, id=name, task_queue=f"nobody-{name}")
    done = acts("why", name, "state")
    assert (done.exit_code, "is of the type Other, which has no context" in done.stderr) == (2, True)
    await handle.terminate("the test is over")


@pytest.mark.parametrize("depth", ["0", "51", "x"])
def test_the_depth_is_a_number_from_1_to_50(depth: str) -> None:
    assert CliRunner().invoke(app, ["why", "run", "state", "--depth", depth]).exit_code == 2
