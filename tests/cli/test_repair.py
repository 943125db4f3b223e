"""``acts retry``, ``fork`` and ``replay``, with a real server and worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.cli.conftest import Acts, new_name

HISTORIES = Path(__file__).parents[1] / "replay" / "histories"

pytestmark = pytest.mark.usefixtures("wide_terminal")


TOOL = {
    "properties": {"_activity": {"const": "askWeather"}, "_outputPath": {"type": "string"}, "city": {"type": "string"}}
}


def ask(city: str) -> dict[str, Any]:
    return {"_tool": "askWeather", "city": city, "_outputPath": "†state.sunny || †state.rainy"}


def write(folder: Path, name: str, value: Any) -> str:
    (folder / name).write_text(json.dumps(value), "utf-8")
    return name


@pytest.fixture
def failed(acts: Acts, tmp_path: Path) -> str:
    """A run of three calls that failed at the second."""
    plan = [ask("Lisbon"), ask("Atlantis"), ask("Bergen")]
    context = [{"type": "tool", "tool": {"askWeather": TOOL}}, {"type": "plan", "plan": plan}]
    name = new_name()
    assert acts("run", write(tmp_path, "plan.json", {"context": context}), "--id", name).exit_code == 1
    return name


async def test_a_mended_plan_is_retried_forked_and_replayed(
    acts: Acts, client: Client, failed: str, tmp_path: Path
) -> None:
    assert acts("retry", failed).exit_code == 1, "nothing was mended"
    mended = [ask("Lisbon"), ask("Seville"), ask("Bergen")]
    done = acts("retry", failed, "--edit", write(tmp_path, "mended.json", mended), "--json", "--id", f"{failed}-2")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["resumedFrom"]["workflowId"] == failed
    assert result["resumedFrom"]["calls"] == ["1:askWeather", "3:askWeather"]
    assert f"2 calls taken over from {failed}\n" in acts("show", f"{failed}-2").stdout
    forked = acts("fork", f"{failed}-2", "--from", "3:askWeather", "--json")
    assert json.loads(forked.stdout)["resumedFrom"]["calls"] == ["1:askWeather", "2:askWeather"]
    assert f"{failed}-2-fork-" in forked.stderr
    replayed = acts("replay", f"{failed}-2")
    assert (replayed.exit_code, replayed.stderr) == (0, "")
    assert replayed.stdout.startswith(f"{failed}-2 replays: ")


def test_what_cannot_be_retried_says_why_and_what_can_be_done(acts: Acts, failed: str, tmp_path: Path) -> None:
    unknown = acts("fork", failed, "--from", "9:refund")
    assert unknown.exit_code == 2
    assert 'names the call "9:refund"' in unknown.stderr
    nobody = acts("retry", "nobody-has-this-id")
    assert nobody.exit_code == 2
    no_plan = acts("retry", failed, "--edit", write(tmp_path, "words.json", "words"))
    assert no_plan.exit_code == 2
    assert "a list of calls" in no_plan.stderr


def test_what_a_run_completed_is_undone_once(acts: Acts, failed: str, tmp_path: Path) -> None:
    nothing = acts("undo", failed)
    assert (nothing.exit_code, "_undo" in nothing.stderr) == (2, True)
    undo = {"_tool": "forget", "city": "†call.city"}
    tools = {"askWeather": {"properties": {**TOOL["properties"], "_undo": undo}}, "forget": TOOL}
    plan = [ask("Lisbon"), ask("Atlantis"), ask("Bergen")]
    context = [{"type": "tool", "tool": tools}, {"type": "plan", "plan": plan}]
    file, name = write(tmp_path, "plan.json", {"context": context}), new_name()
    assert "undone by forget" in acts("simulate", file).stdout
    assert acts("run", file, "--id", name).exit_code == 1
    for state in ("is started", "has ended"):
        done = acts("undo", name)
        assert (done.exit_code, f"{name}/undo {state}" in done.stderr) == (0, True)
    calls = json.loads(acts("show", f"{name}/undo", "--json").stdout)["result"]["calls"]
    assert [call["id"] for call in calls] == ["1:forget", "2:forget"]
    named = write(tmp_path, "again.json", {"context": context, "config": {"onFailure": "undo"}})
    assert "undone: 2 calls\n" in acts("run", named).stdout


def test_rows_of_a_set_that_failed_are_retried_into_a_results_file_of_their_own(
    acts: Acts, worker: dict[str, str], tmp_path: Path
) -> None:
    name, folder = new_name(), Path(worker["ACTS_DATA"])
    cities = ["Lisbon", "Atlantis", "Bergen"]
    plan = {"_tool": "askWeather", "city": "†row.city", "_outputPath": "†state.sunny || †state.rainy"}
    source = {"type": "data", "kind": "row", "_instances": {"source": f"{name}.jsonl"}}
    context = [{"type": "tool", "tool": {"askWeather": TOOL}}, source, {"type": "plan", "plan": [plan]}]
    file = write(tmp_path, "plan.json", {"config": {"results": f"{name}.out.jsonl"}, "context": context})

    def put(*names: str) -> None:
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"city": city}) + "\n" for city in names), "utf-8")

    put(*cities)
    assert json.loads(acts("run", file, "--id", name, "--json").stdout)["failures"] == ["2"]
    put("Lisbon", "Seville", "Bergen")
    done = acts("retry", name, "--only-failed", "--json", "--id", f"{name}-2")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["instances"]["total"], result["results"]) == (1, f"{name}.out.2.jsonl")
    (line,) = map(json.loads, (folder / f"{name}.out.2.jsonl").read_text("utf-8").splitlines())
    assert (line["id"], line["status"]) == ("2", "completed")
    assert f"2 rows taken over from {name}\n" in acts("show", f"{name}-2").stdout
    nothing = acts("retry", f"{name}-2", "--only-failed", "--results", f"{name}.out.9.jsonl")
    assert (nothing.exit_code, "no row of" in nothing.stderr + nothing.stdout) == (2, True), nothing.stderr
    fork = acts("fork", name, "--from", "1:askWeather")
    assert (fork.exit_code, "takes over whole rows" in fork.stderr) == (2, True), fork.stderr
    no_set = acts("retry", name, "--edit", write(tmp_path, "other.json", {"context": context[::2]}), "--results", "x")
    assert (no_set.exit_code, "no set is named" in no_set.stderr) == (2, True), no_set.stderr
    edited = acts("retry", name, "--edit", write(tmp_path, "more.json", [{**plan, "again": 1}]), "--id", f"{name}-3")
    assert "--only-failed leaves them out" in edited.stderr, "it would run what has completed again"


async def test_an_agent_is_retried_with_all_that_it_had_done(
    acts: Acts, client: Client, worker: dict[str, str], tmp_path: Path
) -> None:
    name = new_name()
    script = Path(worker["ACTS_SCRIPTS"]) / f"{name}.json"
    script.write_text(json.dumps({"answers": [{"solution": {"calls": [ask("Lisbon")]}}]}), "utf-8")
    config = {"model": f"scripted:{name}", "maxTicks": 1}
    context = [{"type": "tool", "tool": {"askWeather": TOOL}}]
    file = write(tmp_path, "task.json", {"config": config, "context": context})
    assert acts("run", file, "--id", name).exit_code == 1, "one tick is not enough"
    script.write_text(json.dumps({"answers": [{"solution": {"output": "†state.sunny"}}]}), "utf-8")
    assert acts("retry", name, "--edit", file).exit_code == 2
    done = acts("retry", name, "--json", "--id", f"{name}-2")
    assert done.exit_code == 0, done.stdout
    assert json.loads(done.stdout)["output"]["city"] == "Lisbon"


def test_a_history_that_the_code_here_does_not_make_is_told(acts: Acts, tmp_path: Path) -> None:
    assert acts("replay", str(HISTORIES / "linear.json")).exit_code == 0
    history = (
        (HISTORIES / "linear.json").read_text("utf-8").replace('"activityId": "2:echo"', '"activityId": "2:other"')
    )
    (tmp_path / "other.json").write_text(history, "utf-8")
    other = acts("replay", "other.json", "--json")
    assert other.exit_code == 1
    verdict = json.loads(other.stdout)
    assert verdict["replays"] is False
    assert "2:other" in verdict["error"]
    none = acts("replay", write(tmp_path, "plan.json", {"context": []}))
    assert none.exit_code == 2
    assert "not a workflow history" in none.stderr
