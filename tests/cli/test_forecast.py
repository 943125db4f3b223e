"""The forecast of each example beside what the example really came to, as `acts show` tells it."""

from __future__ import annotations

import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from acts.simulation.billable_actions import ACTIONS, CHILD_WORKFLOW
from cli.runs.billed_actions import count_actions
from cli.runs.run_forecast import PROPOSED
from cli.text import yaml_text
from cli.text.preflight import EXAMPLES
from tests.cli.conftest import Acts
from tests.examples.running import started

# Agents propose each plan, as lazy ones do by themselves; that nobody decides takes the least time
SOON = {"timeout": "100ms", "onTimeout": "approve"}
LAZY = {"type": "plan", "plan": [], "mode": "lazy"}
AGENTS = {
    "refund": True, "replan": True, "research": False, "translation": True, "trip": False,
    # Lazy: with ``approve.plan`` the plans of delegates would wait for people too
    "greetings": True, "loan": True, "moderation": True, "music": True, "speaker": True, "summary": True,
}  # fmt: skip
DELEGATING = ("greetings", "loan", "moderation", "speaker", "summary", "music")
UNFORESEEN = {"requests", "tokens", "cost", "actions"}
GUEST = '{"name": "Ada", "people": 2}'
RUNS = {
    "fanout": ["fanout/plan.yaml"], "linear": ["linear/plan.yaml"], "accepted": ["payment/accepted.yaml"],
    "declined": ["payment/plan.yaml"], "trip": ["trip/plan.yaml", "--plan"],
    "wait": ["wait/plan.yaml", "--input", f"guest={GUEST}"], "weather": ["weather/plan.yaml"],
    "rain": ["weather/plan.yaml", "--input", "city=Bergen"], "login": ["login/plan.yaml"],
    "recipient": ["recipient/plan.yaml"],
}  # fmt: skip
ENGLISH = {
    "type": "object",
    "properties": {"_activity": {"const": "isEnglish"}, "_outputPath": {"type": "string"}, "language": {}},
}

LATENT = {
    "type": "object",
    "properties": {
        "_outputPath": {"type": "string"}, "_activity": {"const": ""}, "_output": {"type": "string"}, "text": {},
    },
}  # fmt: skip


def assert_holds(table: dict[str, Any], *figures: str) -> None:
    """Each figure is within its range, tokens within a quarter of it."""
    for figure in figures:
        expected, actual = table[figure]["expected"], table[figure]["actual"]
        error = 0.25 if figure == "tokens" else 0
        assert expected["min"] * (1 - error) <= actual <= expected["max"] * (1 + error), (figure, table[figure])


def forecast_of(acts: Acts, name: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(acts("show", name, "--json").stdout)["forecast"]
    return table


@pytest.mark.parametrize("example", RUNS)
def test_what_an_example_comes_to_is_within_its_forecast(acts: Acts, example: str) -> None:
    file, *more = RUNS[example]
    name = f"cli-{uuid.uuid4().hex[:8]}"
    assert acts("run", str(EXAMPLES / file), "--id", name, *more).exit_code == 0
    table = forecast_of(acts, name)
    assert_holds(table, "calls", "requests", "actions")
    output = acts("show", name).stdout
    assert "forecast of the plan as it was started" in output
    assert f"{table['actions']['actual']:,}" in output


def _local(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "properties": {**tool["properties"], "_options": {"const": {"local": True}}}}


def _chain(tool: str, count: int) -> list[dict[str, Any]]:
    reads = ["en", *(f"†state.s{i}" for i in range(count - 1))]
    return [{"_tool": tool, "language": value, "_outputPath": f"†state.s{i}"} for i, value in enumerate(reads)]


@pytest.mark.parametrize(
    ("plan", "mode", "config"),
    [
        (_chain("english", 4), "lazy", {"approve": {"timeout": "300ms", "onTimeout": "approve"}}),
        (_chain("quick", 6), "eager", {}),
        ([{"_tool": "english", "language": "en"}, *_chain("english", 2)], "eager", {}),
        ([*_chain("english", 1), {"_tool": "translate", "text": "bon", "_outputPath": "†state.t"}], "eager", {}),
    ],
    ids=["approved", "local", "background", "latent"],
)  # fmt: skip
async def test_other_ways_to_run_a_call_are_forecast_too(
    acts: Acts, client: Client, worker: dict[str, str], tmp_path: Path, plan: Any, mode: str, config: dict[str, Any]
) -> None:
    script = f"script-{uuid.uuid4().hex[:8]}"
    answer = {"when": {"tool": "translate"}, "output": "good", "path": "†state.t"}
    (Path(worker["ACTS_SCRIPTS"]) / f"{script}.json").write_text(json.dumps({"answers": [answer]}), "utf-8")
    tools = {"english": ENGLISH, "quick": _local(ENGLISH), "translate": LATENT}
    used = {call["_tool"] for call in plan}
    context = [{"type": "tool", "tool": {k: v for k, v in tools.items() if k in used}}]
    model = {"model": f"scripted:{script}"} if "translate" in used else {}
    request = {"config": {**config, **model}, "context": [*context, {"type": "plan", "plan": plan, "mode": mode}]}
    (tmp_path / "a.json").write_text(json.dumps(request), "utf-8")
    name = f"cli-{uuid.uuid4().hex[:8]}"
    done = acts("run", "a.json", "--plan", "--id", name)
    assert done.exit_code == 0, done.stdout + done.stderr
    table = forecast_of(acts, name)
    assert_holds(table, "calls", "requests", "tokens")
    started = await client.get_workflow_handle(name).describe()
    actual = await count_actions(client, name, started.run_id)
    expected = json.loads(acts("simulate", "a.json", "--json").stdout)["actions"]
    assert_holds({"actions": {"expected": expected, "actual": actual}}, "actions")


@pytest.mark.parametrize("per_child", [1, 4])
def test_a_batch_is_forecast_with_its_children(acts: Acts, tmp_path: Path, per_child: int) -> None:
    own = [{"type": "state", "state": {"lang": "en" * n}, "_instance": f"person {n}"} for n in range(1, 21)]
    plan = [{"_tool": "english", "language": lang, "_outputPath": f"†state.{to}"}
            for lang, to in (("†state.lang", "a"), ("†state.a", "b"))]  # fmt: skip
    context = [{"type": "tool", "tool": {"english": ENGLISH}}, *own, {"type": "plan", "plan": plan}]
    (tmp_path / "a.json").write_text(json.dumps({"config": {"instancesPerChild": per_child}, "context": context}))
    simulated = json.loads(acts("simulate", "a.json", "--json").stdout)
    assert simulated["runs"] == 20 // per_child
    name = f"cli-{uuid.uuid4().hex[:8]}"
    assert acts("run", "a.json", "--plan", "--id", name).exit_code == 0
    table = forecast_of(acts, name)
    assert_holds(table, "calls", "requests", "actions")
    least = 1 + 1 + 2 * simulated["runs"] + 2 * 20  # the second one asks for search attributes
    timers = simulated["runs"] if per_child > 1 else 0
    assert least <= table["actions"]["actual"] <= least + timers + 2


def test_the_forecast_holds_for_what_another_worker_does(acts: Acts, worker: dict[str, str], tmp_path: Path) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    program, env = EXAMPLES / "foreign" / "worker.py", {"TEMPORAL_ADDRESS": worker["TEMPORAL_ADDRESS"]}
    with started([sys.executable, str(program)], tmp_path / "foreign.log", tmp_path, env):
        assert acts("run", str(EXAMPLES / "foreign" / "plan.yaml"), "--id", name).exit_code == 0
    assert_holds(forecast_of(acts, name), "calls", "requests", "actions")


def run_agent(acts: Acts, folder: Path, example: str) -> str:
    """Run an example as an agent that proposes each plan; returns the workflow id."""
    request = yaml_text.parse((EXAMPLES / example / "plan.yaml").read_text("utf-8"))
    assert isinstance(request, dict)
    request["config"]["approve"] = SOON if AGENTS[example] else {**SOON, "plan": True}
    request["context"] += [LAZY] * AGENTS[example]
    (folder / "plan.json").write_text(json.dumps(request), "utf-8")
    name = f"cli-{uuid.uuid4().hex[:8]}"
    run = acts("run", "plan.json", "--agent", "--id", name)
    assert (run.exit_code, PROPOSED in run.stdout) == (0, True), run.stdout + run.stderr
    return name


@pytest.mark.parametrize("example", AGENTS)
def test_the_result_of_an_agent_has_the_forecast_of_the_plans_it_proposed(
    acts: Acts, tmp_path: Path, example: str
) -> None:
    name = run_agent(acts, tmp_path, example)
    table = forecast_of(acts, name)
    assert_holds(table, "calls", *({"requests", "tokens", "actions"} & table.keys()))
    result = json.loads(acts("show", name, "--json").stdout)["result"]
    assert result["forecast"] == table
    assert not (UNFORESEEN & table.keys() if example in DELEGATING else {"requests"} - table.keys())
    if "requests" in table:
        assert table["requests"]["actual"] == result["usage"]["requests"] - result["ticks"]


async def test_the_actions_of_the_plans_of_an_agent_are_those_in_their_histories(
    acts: Acts, client: Client, tmp_path: Path
) -> None:
    name = run_agent(acts, tmp_path, "replan")
    result = json.loads(acts("show", name, "--json").stdout)["result"]
    ticks = dict.fromkeys(call["tick"] for call in result["calls"])
    runs = [await client.get_workflow_handle(f"{name}/plan-{tick}").describe() for tick in ticks]
    histories = [await count_actions(client, run.id, run.run_id) or 0 for run in runs]
    assert result["forecast"]["actions"]["actual"] == sum(histories) + ACTIONS[CHILD_WORKFLOW] * len(ticks)


def words(plan: Path) -> set[str]:
    return set(re.findall(r"\w+", plan.read_text("utf-8")))


def test_every_example_is_forecast_here() -> None:
    here = {*AGENTS, "foreign", *(Path(run[0]).parent.name for run in RUNS.values())}
    assert here == {p.parent.name for p in EXAMPLES.glob("*/plan.yaml")}


def test_an_agent_that_proposes_nothing_has_no_forecast(acts: Acts) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    acts("run", str(EXAMPLES / "replan" / "plan.yaml"), "--id", name)
    assert "forecast" not in json.loads(acts("show", name, "--json").stdout)


def test_durations_are_learned_from_a_run(acts: Acts) -> None:
    plan = str(EXAMPLES / "weather" / "plan.yaml")
    name = f"like-{uuid.uuid4().hex[:8]}"
    assert acts("run", plan, "--id", name).exit_code == 0
    learned = acts("simulate", plan, "--like", name, "--json")
    assert learned.exit_code == 0, learned.stderr
    simulation = json.loads(learned.stdout)
    low, high = simulation["seconds"]["min"], simulation["seconds"]["max"]
    assert 0 < low <= high < 60
    # the branch that did not run has no duration yet, so the greatest time is not known
    assert len(simulation["withoutDuration"]) == 1
    assert "seconds" in simulation["unforeseen"]
    shown = acts("simulate", plan, "--like", name)
    assert "s without waits for people, the duration of" in shown.stdout
    assert "(10 % to 90 % of 1)" in shown.stderr
    assert acts("simulate", plan, "--like", "no-such-run").exit_code == 2
