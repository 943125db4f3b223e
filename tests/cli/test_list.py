"""``acts list``, ``acts setup`` and ``acts --version``."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from typer.testing import CliRunner

from acts.cli.commands.testing import FILES
from acts.cli.console import trust
from acts.cli.main import app
from acts.client.client_errors import ClientError
from acts.client.run_reader import IS_WAITING, PHASES, runs_query, tag_conditions
from acts.tree.search_attributes import TYPES
from tests.cli.conftest import Acts, new_name, run_acts, wait_for_approvals, wait_for_listing, worker_process
from tests.cli.test_instances import SHARED, write_batch
from tests.support import assert_eventually

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "clause"),
    [
        ({}, "ParentWorkflowId IS NULL"),
        ({"phases": ("partial",)}, "(ActsPhase = 'partial')"),
        ({"phases": ("awaiting",)}, "ActsPhase = 'awaiting' AND ExecutionStatus = 'Running'"),
        ({"phases": ("failed",)}, "ExecutionStatus = 'Failed'"),
        ({"phases": ("terminated",)}, "ExecutionStatus = 'Terminated'"),
        ({"conditions": (IS_WAITING, *tag_conditions(["customer=it's"]))}, "(ActsTags = 'customer=it\\'s')"),
        ({"tool": "it's"}, "ActsTools = 'it\\'s'"),
        ({"min_cost": 0.5}, "ActsCost >= 0.5"),
        ({"since": NOW}, "StartTime >= '2026-01-02T12:00:00Z'"),
        ({"older": NOW}, "StartTime <= '2026-01-02T12:00:00Z'"),
    ],
)
def test_filters_become_one_query(filters: dict[str, Any], clause: str) -> None:
    assert clause in runs_query(**filters)


def test_an_unknown_phase_is_refused_with_those_there_are() -> None:
    with pytest.raises(ClientError) as error:
        runs_query(["done"])
    assert all(phase in error.value.hint for phase in PHASES)


async def test_a_run_that_waits_is_listed(acts: Acts, client: Client, tmp_path: Path) -> None:
    name = new_name()
    acts("run", write_batch(tmp_path, SHARED, approve={"calls": True}), "--detach", "--id", name)
    await wait_for_approvals(client, name)
    await wait_for_listing(client, name, "ActsWaiting = 1 AND ActsPhase = 'awaiting'")
    rows = json.loads(acts("list", "--waiting", "--json", "--limit", "1000").stdout)
    (row,) = [row for row in rows if row["id"] == name]
    assert (row["workflow"], row["phase"], row["waiting"]) == ("Plan", "awaiting", 1)
    assert name in acts("list", "--phase", "awaiting", "--since", "1h").stdout
    assert name not in acts("list", "--older", "1h").stdout
    await client.get_workflow_handle(name).cancel()


def test_a_namespace_is_prepared_once(acts: Acts) -> None:
    assert "has all search attributes" in acts("setup").stderr
    lines = acts("setup", "--show").stdout.splitlines()
    assert len(lines) == len(TYPES)


def test_the_version_is_printed(tmp_path: Path) -> None:
    done = run_acts("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout.split()[0]) == (0, "acts")


PAYMENT = str(Path(__file__).parents[2] / "examples" / "payment" / "plan.yaml")


async def run_id(client: Client, name: str) -> str:
    return str((await client.get_workflow_handle(name).describe()).run_id)


def waiting_plan(folder: Path) -> str:
    file = folder / "plan.json"
    tool = {"type": "object", "properties": {"_tool": {"const": "say"}, "_activity": {"const": "x"}}}
    plan = [{"type": "tool", "tool": tool}, {"type": "plan", "plan": [{"_tool": "say"}]}]
    file.write_text(json.dumps({"config": {"approve": {"plan": True}}, "context": plan}), "utf-8")
    return str(file)


async def test_a_start_is_repeated_without_a_second_run(acts: Acts, client: Client, tmp_path: Path) -> None:
    name, file = new_name(), waiting_plan(tmp_path)
    assert acts("run", "--detach", "--id", name, file).exit_code == 0
    await wait_for_approvals(client, name)
    first = await run_id(client, name)
    refused = acts("run", "--detach", "--id", name, file)
    assert refused.exit_code == 2
    assert "is still running" in refused.stderr
    assert "--if-running use-existing" in refused.stderr
    same = acts("run", "--detach", "--id", name, "--if-running", "use-existing", file)
    assert (same.exit_code, same.stdout) == (0, f"{name}\n")
    assert "no other one is started" in same.stderr
    assert await run_id(client, name) == first
    anew = acts("run", "--detach", "--id", name, "--if-running", "terminate", file)
    assert anew.exit_code == 0
    assert await run_id(client, name) != first
    await client.get_workflow_handle(name).terminate()


async def test_a_run_that_has_ended_runs_again_only_where_the_start_says_so(acts: Acts, client: Client) -> None:
    name = new_name()
    assert acts("run", "--json", "--id", name, PAYMENT).exit_code == 0
    first = await run_id(client, name)
    again = acts("run", "--json", "--id", name, PAYMENT)
    assert again.exit_code == 0
    assert "has ended: no other one is started; --if-ended again runs it again" in again.stderr
    assert json.loads(again.stdout)["status"] == "completed"
    assert await run_id(client, name) == first
    for word in ("fail", "again-if-failed"):
        refused = acts("run", "--id", name, "--if-ended", word, PAYMENT)
        assert refused.exit_code == 2
        assert "has ended" in refused.stderr
    assert acts("run", "--id", name, "--if-ended", "again", PAYMENT).exit_code == 0
    assert await run_id(client, name) != first


async def test_a_start_can_wait(acts: Acts, client: Client) -> None:
    name = new_name()
    assert acts("run", "--detach", "--id", name, "--delay", "2h", PAYMENT).exit_code == 0
    handle = client.get_workflow_handle(name)
    (start, *rest) = [event async for event in handle.fetch_history_events()]
    assert rest == []  # no workflow task yet
    assert start.workflow_execution_started_event_attributes.first_workflow_task_backoff.ToSeconds() == 7_200
    await handle.terminate()


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_the_folder_of_init_tests_green_and_validates_without_a_warning(tmp_path: Path) -> None:
    made = run_acts("init", "mine", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "mine"
    assert {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} == set(FILES)
    tested = run_acts("test", cwd=tmp_path / "mine")
    assert (tested.returncode, tested.stderr) == (0, ""), tested.stdout
    checked = run_acts("validate", "plan.yaml", "--strict", cwd=tmp_path / "mine")
    assert (checked.stdout, checked.stderr) == ("plan.yaml is valid: 4 calls\n", "")


def test_init_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.test.yaml").write_text("mine", "utf-8")
    code, output = invoke("init")
    assert code == 2
    assert "plan.test.yaml is already there" in output
    assert [p.name for p in tmp_path.iterdir()] == ["plan.test.yaml"]
    code, output = invoke("init", "--json", "a/b")
    assert code == 0
    assert json.loads(output) == {"folder": "a/b", "files": [*FILES]}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[environment", "not readable TOML"),
        ("[environmnt]", "environmnt is no variable"),
        ("environment = 5", "environment is no variable"),
        ("[environment]\nPATH = 'x'", "PATH is no variable ACTS_"),
        ("[environment]\nACTS_TOOLS = 1", "ACTS_TOOLS is no variable"),
    ],
)
def test_a_wrong_file_of_settings_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("acts.toml").write_text(text, "utf-8")
    trust(tmp_path)
    code, output = invoke("schema")
    assert code == 2
    assert "acts.toml" in output
    assert part in output


def test_the_environment_comes_before_the_settings_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACTS_TASK_QUEUE", "mine")
    monkeypatch.delenv("ACTS_SCRIPTS", raising=False)
    Path("acts.toml").write_text('[environment]\nACTS_TASK_QUEUE = "theirs"\nACTS_SCRIPTS = "scripts"\n', "utf-8")
    trust(tmp_path)
    invoke("schema")
    assert os.environ["ACTS_TASK_QUEUE"] == "mine"
    assert os.environ.pop("ACTS_SCRIPTS") == "scripts"


@pytest.mark.long
def test_code_that_a_folder_names_runs_only_where_somebody_asks_for_it(tmp_path: Path) -> None:
    assert run_acts("init", "mine", cwd=tmp_path).returncode == 0
    folder, ran = tmp_path / "mine", tmp_path / "ran"
    with (folder / "order_tools.py").open("a", encoding="utf-8") as module:
        module.write(f"\nopen({str(ran)!r}, 'w').close()\n")

    def runs_code(*command: str, note: bool = False, **environment: str) -> bool:
        ran.unlink(missing_ok=True)
        done = run_acts(*command, cwd=folder, **{"XDG_CONFIG_HOME": str(tmp_path / "somebody"), **environment})
        lines = [line for line in done.stderr.splitlines() if "this folder is not trusted yet" in line]
        assert len(lines) == note, done.stderr
        return ran.exists()

    asked = ("--activities", "order_tools")
    for command in (("validate", "plan.yaml"), ("simulate", "plan.yaml"), ("graph", "plan.yaml"), ("test",)):
        assert not runs_code(*command, note=True), command
    assert not runs_code("worker", "--help")
    assert runs_code("validate", "plan.yaml", *asked, note=True)
    assert runs_code("simulate", "plan.yaml", *asked, note=True)
    assert runs_code("validate", "plan.yaml", note=True, ACTS_ACTIVITIES="order_tools")
    own = tmp_path / "own"  # of the user, who only looks into the folder
    own.mkdir()
    (own / "order_tools.py").write_text("TOOLS = {}\n", "utf-8")
    assert not runs_code("validate", "plan.yaml", note=True, ACTS_ACTIVITIES="order_tools", PYTHONPATH=str(own))
    assert runs_code("validate", "plan.yaml", XDG_CONFIG_HOME=os.environ["XDG_CONFIG_HOME"])  # who has made it
    assert not runs_code("trust", ".")
    assert runs_code("validate", "plan.yaml")
    assert not runs_code("trust", "--remove")
    assert not runs_code("validate", "plan.yaml", note=True)


Json = Any


def findings(stdout: str) -> dict[str, Json]:
    return {f["check"]: f for f in json.loads(stdout)["findings"]}


@pytest.mark.usefixtures("no_other_runs")
def test_all_is_well_where_a_worker_serves_the_queue(acts: Acts) -> None:
    done = acts("doctor", "--json")
    found = findings(done.stdout)
    assert (done.exit_code, json.loads(done.stdout)["ok"]) == (0, True), done.stdout
    assert "Temporal 1." in found["server"]["text"]
    assert {name: found[name]["level"] for name in ("namespace", "search attributes", "workers", "runs")} == (
        dict.fromkeys(("namespace", "search attributes", "workers", "runs"), "ok")
    )
    assert "1 worker on" in found["workers"]["text"]
    assert found["models"]["text"] == "no model has a key here"


async def test_workers_are_named_that_cannot_read_what_others_write_or_have_no_folders_for_a_set(
    acts: Acts, worker: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (keys := tmp_path / "keys").write_text(f"k1 {base64.b64encode(b'x' * 32).decode()}\n", "utf-8")
    (tmp_path / "rows.csv").write_text("total\n5\n", "utf-8")
    plan = {"type": "plan", "plan": [{"_tool": "pay", "of": "†row.total"}]}
    (tmp_path / "pay.json").write_text(json.dumps({"context": [{"type": "tool", "tool": "pay"}, plan]}))
    monkeypatch.delenv("ACTS_DATA")
    monkeypatch.setenv("ACTS_TASK_QUEUE", new_name())
    plain = {**worker, "ACTS_TASK_QUEUE": os.environ["ACTS_TASK_QUEUE"], "ACTS_DATA": ""}
    other = {**plain, "ACTS_CODEC_KEYS": str(keys), "ACTS_STORAGE": f"file:{tmp_path / 'values'}"}

    async def differences() -> list[str]:
        done = await asyncio.to_thread(acts, "doctor", "--json")
        texts = [f["text"] for f in json.loads(done.stdout)["findings"] if f["level"] == "fail"]
        return [text for text in texts if "differ" in text]

    with worker_process(plain):
        refused = acts("run", "pay.json", "--set", "rows.csv", "--detach")
        assert (refused.exit_code, "has no ACTS_DATA: a run over a set would fail" in refused.output) == (2, True)
        with worker_process(other):
            of_keys, of_storage = await assert_eventually(differences, why="the server lists both workers")
    assert of_keys.startswith("workers differ in ACTS_CODEC_KEYS; by digest, none: acts/")
    assert of_storage.startswith("workers differ in ACTS_STORAGE; by digest, none: acts/")
    assert of_keys.endswith("; this shell: none")


def test_a_namespace_that_is_not_there_is_the_last_that_the_doctor_asks_for(
    acts: Acts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "nowhere")
    assert list(findings(acts("doctor", "--json").stdout))[-2:] == ["server", "namespace"]


def test_a_queue_without_workers_fails_and_says_what_to_do(acts: Acts) -> None:
    done = acts("doctor", "--queue", "nobody-serves-this")
    assert done.exit_code == 1
    assert "✗ workers" in done.stdout
    assert "no worker polls the task queue 'nobody-serves-this'" in done.stdout
    assert "→ start a worker" in done.stdout


def test_no_server_is_exit_code_3_and_the_rest_is_checked(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    done = acts("doctor", "--json")
    found = findings(done.stdout)
    assert done.exit_code == 3
    assert found["server"]["level"] == "fail"
    assert found["models"]["level"] == "ok"
