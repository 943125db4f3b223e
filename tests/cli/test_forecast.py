"""The forecast of each example beside its actual figures, as `acts show` prints them."""

from __future__ import annotations

import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from acts.simulation.forecast_vs_actual import relative_error
from cli.runs.run_forecast import PROPOSED
from cli.text import yaml_text
from cli.text.preflight import EXAMPLES
from tests.cli.conftest import Acts, new_name
from tests.examples.running import started

# Each plan of an agent is proposed, and approved as soon as possible
SOON = {"timeout": "100ms", "onTimeout": "approve"}
LAZY = {"type": "plan", "plan": [], "mode": "lazy"}
AGENTS = {
    "refund": True, "replan": True, "research": False, "translation": True, "trip": False,
    # lazy, because ``approve.plan`` holds for the plans of delegates too
    "greetings": True, "loan": True, "moderation": True, "music": True, "speaker": True, "summary": True,
}  # fmt: skip
REQUESTS = {"requests"}
# Figures that delegates and children add to
UNFORESEEN = {
    "greetings": REQUESTS, "loan": REQUESTS, "speaker": REQUESTS, "summary": REQUESTS, "moderation": None,
    "music": None,
}  # fmt: skip
EXACT = {"calls", "requests"}
TOLERANCE = 0.25

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


def check_table(example: str, table: dict[str, Any]) -> None:
    """Calls and requests are within the forecast, all other known figures near it.

    Of an example whose figures are unforeseen (None), only the calls are checked.
    """
    unforeseen = UNFORESEEN.get(example, set())
    for name, row in table.items():
        error = relative_error(row)
        if error is None or (name != "calls" and (unforeseen is None or name in unforeseen)):
            continue
        assert abs(error) <= (0 if name in EXACT else TOLERANCE), (name, row)
    assert table["calls"]["actual"] is not None


def forecast_of(acts: Acts, name: str) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(acts("show", name, "--json").stdout)["forecast"]
    return table


@pytest.mark.parametrize("example", RUNS)
def test_the_forecast_of_a_plan_holds(acts: Acts, example: str) -> None:
    file, *more = RUNS[example]
    name = new_name()
    assert acts("run", str(EXAMPLES / file), "--id", name, *more).exit_code == 0
    table = forecast_of(acts, name)
    check_table(example, table)
    shown = acts("show", name).stdout
    assert "forecast of the plan as it was started" in shown
    assert f"{table['calls']['actual']:,}" in shown


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
def test_approved_local_detached_and_latent_calls_have_a_forecast(
    acts: Acts, worker: dict[str, str], tmp_path: Path, plan: Any, mode: str, config: dict[str, Any]
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
    name = new_name()
    done = acts("run", "a.json", "--plan", "--id", name)
    assert done.exit_code == 0, done.stdout + done.stderr
    table = forecast_of(acts, name)
    check_table("other", table)


@pytest.mark.parametrize("per_child", [1, 4])
def test_a_batch_and_each_of_its_children_have_a_forecast(acts: Acts, tmp_path: Path, per_child: int) -> None:
    own = [{"type": "state", "state": {"lang": "en" * n}, "_instance": f"person {n}"} for n in range(1, 21)]
    plan = [{"_tool": "english", "language": lang, "_outputPath": f"†state.{to}"}
            for lang, to in (("†state.lang", "a"), ("†state.a", "b"))]  # fmt: skip
    context = [{"type": "tool", "tool": {"english": ENGLISH}}, *own, {"type": "plan", "plan": plan}]
    (tmp_path / "a.json").write_text(json.dumps({"config": {"instancesPerChild": per_child}, "context": context}))
    simulated = json.loads(acts("simulate", "a.json", "--json").stdout)
    assert (simulated["runs"], "each" in simulated) == (20 // per_child, per_child == 1)
    name = new_name()
    assert acts("run", "a.json", "--plan", "--id", name).exit_code == 0
    check_table("batch", forecast_of(acts, name))


def test_the_forecast_of_a_foreign_worker_holds(acts: Acts, worker: dict[str, str], tmp_path: Path) -> None:
    name = new_name()
    program, env = EXAMPLES / "foreign" / "worker.py", {"TEMPORAL_ADDRESS": worker["TEMPORAL_ADDRESS"]}
    with started([sys.executable, str(program)], tmp_path / "foreign.log", tmp_path, env):
        assert acts("run", str(EXAMPLES / "foreign" / "plan.yaml"), "--id", name).exit_code == 0
    check_table("foreign", forecast_of(acts, name))


@pytest.mark.parametrize(("example", "lazy"), AGENTS.items())
def test_the_result_of_an_agent_compares_the_forecasts_of_its_plans(
    acts: Acts, tmp_path: Path, example: str, *, lazy: bool
) -> None:
    request = yaml_text.parse((EXAMPLES / example / "plan.yaml").read_text("utf-8"))
    assert isinstance(request, dict)
    request["config"]["approve"] = SOON if lazy else {**SOON, "plan": True}
    request["context"] += [LAZY] * lazy
    (tmp_path / "plan.json").write_text(json.dumps(request), "utf-8")
    name = new_name()
    done = acts("run", "plan.json", "--agent", "--id", name)
    assert (done.exit_code, PROPOSED in done.stdout) == (0, True), done.stdout + done.stderr
    table = forecast_of(acts, name)
    check_table(example, table)
    result = json.loads(acts("show", name, "--json").stdout)["result"]
    assert result["forecast"] == table
    assert set(table) & (UNFORESEEN.get(example) or set()) == set()
    if "requests" in table:
        assert table["requests"]["actual"] == result["usage"]["requests"] - result["ticks"]


def words(plan: Path) -> set[str]:
    return set(re.findall(r"\w+", plan.read_text("utf-8")))


def test_every_example_is_forecast_here() -> None:
    here = {*AGENTS, "foreign", *(Path(run[0]).parent.name for run in RUNS.values())}
    assert here == {p.parent.name for p in EXAMPLES.glob("*/plan.yaml")}


def test_an_agent_that_proposes_nothing_has_no_forecast(acts: Acts) -> None:
    name = new_name()
    acts("run", str(EXAMPLES / "replan" / "plan.yaml"), "--id", name)
    assert "forecast" not in json.loads(acts("show", name, "--json").stdout)
