"""Plans by name: what a worker serves, how any client starts it, and that a run keeps the plan that it began with."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import acts
from acts.activities.plan_folders import read_plans
from acts.activities.registry import load
from acts.cli.commands.testing import rehearse_plan
from acts.cli.dev.temporal_server import DevServer
from acts.client.run_reader import RunReader
from acts.client.server import has_pollers
from acts.language.errors import InvalidRequest, SettingsError
from acts.testing.rehearsal import find_mismatches, read_case_file
from acts.testing.saved_plan import save_plan
from tests.crash.resets import reset, reset_points
from tests.support import assert_eventually
from tests.workflow.agents import Agents
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, call, ended, failure, phase, run_chain

Json = Any
GREET = """\
context:
  - {type: tool, tool: greet}
  - type: plan
    plan:
      - {_tool: greet, name: †input.name, _outputPath: †state.greeting}
"""
TRIAGE = """\
config: {model: "scripted:none", maxTicks: 1}
schema: {type: object, properties: {output: {type: string}}}
context: [{type: text, text: Sort the mail.}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "welcome.yaml").write_text(GREET, "utf-8")
    (tmp_path / "welcome.test.yaml").write_text("cases: []", "utf-8")
    (tmp_path / "triage.yml").write_text(TRIAGE, "utf-8")
    return tmp_path


@pytest.fixture
async def named(server: DevServer, foreign: Foreign, folder: Path) -> AsyncIterator[Foreign]:
    """Somebody whose engine serves the plans of the folder, as they are now."""
    async with engine_on(server, f"{foreign.queue}-plans", plans=folder) as queue:
        yield Foreign(foreign.client, queue, foreign.queue)


async def test_any_client_starts_a_plan_by_its_name_and_the_run_keeps_it(
    server: DevServer, foreign: Foreign, folder: Path
) -> None:
    queue = f"{foreign.queue}-plans"
    user = Foreign(foreign.client, queue, foreign.queue)
    async with engine_on(server, queue, plans=folder):
        handle = await user.start({"plan": "welcome", "input": {"name": "Ada"}})
        assert (await ended(handle))["state"] == {"greeting": "hello Ada"}
    kept, _ = await run_chain(foreign.client, handle.id)
    memo = await (await kept.describe()).memo_value("actsPlan")
    assert memo == {"name": "welcome", "source": "welcome.yaml", "sha256": read_plans([folder])["welcome"].sha256}
    reader = RunReader(foreign.client, handle.id)
    request: Any = await reader.request()
    assert [message["type"] for message in request["context"]] == ["tool", "plan", "input"]
    assert await reader.request(as_started=True) == {"plan": "welcome", "input": {"name": "Ada"}}

    (folder / "welcome.yaml").write_text(GREET.replace("†input.name", "Bob"), "utf-8")
    async with engine_on(server, queue, plans=folder):
        points = await reset_points(kept)
        again = await reset(foreign.client, handle.id, points[0])
        assert (await ended(again))["state"] == {"greeting": "hello Ada"}
        anew = await user.start({"plan": "welcome", "input": {"name": "Ada"}})
        assert (await ended(anew))["state"] == {"greeting": "hello Bob"}


async def test_what_was_sent_before_the_plan_was_there_is_not_lost(named: Foreign) -> None:
    handle = await named.start(
        {"plan": "welcome", "input": {"name": "Cleo"}}, start_signal="pause", start_signal_args=[{}]
    )
    await phase(handle, "paused")
    await handle.signal("resume")
    assert (await ended(handle))["state"] == {"greeting": "hello Cleo"}


@pytest.mark.parametrize(
    ("request_", "code", "says"),
    [
        ({"plan": "welcom"}, "PlanNotFound", 'did you mean "welcome"'),
        ({"plan": "x" * 10_000}, "PlanNotFound", "there are: triage, welcome"),
        ({"plan": "welcome", "input": [1]}, "InvalidRequest", "input is an object, not list"),
        ({"plan": "welcome", "config": {}}, "InvalidRequest", 'unknown key "config" beside the name of a plan'),
        ({"plan": "triage"}, "InvalidRequest", "plan"),
    ],
)
async def test_a_name_or_an_input_that_cannot_be_used_is_an_error_with_advice(
    request_: Json, code: str, says: str, named: Foreign
) -> None:
    error = await failure(await named.start(request_))
    assert (error.type, says in error.message) == (code, True), error


async def test_a_client_starts_the_plan_of_a_file_and_names_its_line(named: Foreign, folder: Path) -> None:
    user = acts.Client(named.client, task_queue=named.engine)
    run = await user.start(folder / "welcome.yaml", {"name": "Ada"})
    assert (await run.result()).require().state == {"greeting": "hello Ada"}
    (folder / "broken.yaml").write_text("context: []\nx: [", "utf-8")
    for name, says in {"broken.yaml": "broken.yaml:3: not valid YAML", "none.json": "it cannot be read"}.items():
        with pytest.raises(acts.ClientError, match=says):
            await user.start(folder / name)


async def test_a_client_starts_what_the_worker_says_it_is(named: Foreign) -> None:
    user = acts.Client(named.client, task_queue=named.engine)
    await assert_eventually(lambda: has_pollers(named.client, named.engine, is_for_activities=True), why="it is up")
    agent = await user.start("triage")
    assert (await named.client.get_workflow_handle(agent.id).describe()).workflow_type == "Agent"
    runs = [await user.start("welcome", {"name": "Ada"}, id=f"{named.queue}-7") for _ in range(2)]
    assert [(await run.result()).state for run in runs] == [{"greeting": "hello Ada"}] * 2
    with pytest.raises(acts.ClientError, match="another request"):
        await user.start("welcome", {"name": "Bob"}, id=runs[0].id)
    with pytest.raises(acts.ClientError, match=r'no plan "welcom" is served .*did you mean "welcome"'):
        await user.start("welcom")


BAD = {
    "a.json": ('{"context": [\n1]}', "a.json:2: /context/0: "),
    "b.yaml": ("context: [\n  x: 1\n", "b.yaml:3:1: not valid YAML"),
    "c.yaml": ("context: []\n", "c.yaml: it has no plan, and no config.model that makes one"),
    "d.yaml": ("config: {maxTick: 1}\ncontext: []", "d.yaml:1: /config/maxTick"),
    "e e.yaml": (GREET, "e e.yaml: the name of a plan is letters"),
    "f.yaml": ("", "f.yaml:1: a Request is an object"),
    "g.yaml": ("# x\n" * 300_000, "g.yaml has 1,200,000 bytes"),
    "h.yaml": (b"\xff\xff", "h.yaml cannot be read as text in UTF-8"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_plan_stops_the_worker_with_its_name_and_place(name: str, tmp_path: Path) -> None:
    content, says = BAD[name]
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SettingsError) as error:
        read_plans([tmp_path])
    assert says in str(error.value)


def test_two_things_of_one_name_stop_the_worker_with_both_places(folder: Path, tmp_path: Path) -> None:
    (folder / "greet.json").write_text(json.dumps({"context": [{"type": "plan", "plan": [call("x")]}]}), "utf-8")
    with pytest.raises(SettingsError, match=r'the plan "greet" of .*greet.json has the name of a tool of .*served.py'):
        load(["tests.workflow.served"], [], plans=read_plans([folder]))
    (folder / "greet.yml").write_text(GREET, "utf-8")
    with pytest.raises(SettingsError, match=r'two plans are called "greet": .*greet.json and .*greet.yml'):
        read_plans([folder])


async def test_the_plan_of_an_agent_that_was_saved_is_a_tool_of_its_name(
    server: DevServer, agents: Agents, foreign: Foreign, tmp_path: Path
) -> None:
    greet = [
        call("greet", "†state.greeting", name="†guest.name", _when="†guest.age >= 18"),
        call("greet", "†state.all", _each="†input.names", name="†{item} of †{guest.name}"),
    ]
    guest = {"type": "data", "kind": "guest", "data": {"name": "Ada", "age": 36, "card": "no call reads it"}}
    context = [{"type": "text", "text": "Greet."}, {"type": "tool", "tool": "greet"}, guest]
    context.append({"type": "input", "input": {"names": ["Bo", "Cy"]}})
    handle = await agents.start({"calls": greet, "output": {"said": "†state.greeting"}}, context=context)
    result, (output,) = await ended(handle), await handle.query("plan", {"as": "output"})
    raw = {"config": {"model": "scripted:none", "maxTicks": 3}, "context": context}
    plan, cases = save_plan(raw, await handle.query("plan"), output, result, "greets")
    (folder := tmp_path / "plans").mkdir()
    (folder / "greetAll.json").write_text(json.dumps(plan), "utf-8")

    (case,) = read_case_file(cases).cases
    assert case.input == {"guest": {"name": "Ada", "age": 36}, "names": ["Bo", "Cy"]}
    rehearsed = rehearse_plan(plan, case.results, input=case.input)
    assert find_mismatches(case, rehearsed) == []
    queue = f"{foreign.queue}-saved"
    async with engine_on(server, queue, plans=folder, shipped=None):
        again = call("greetAll", "†state.done", guest={"name": "Eve", "age": 40}, names="†input.x")
        small = [{"type": "tool", "tool": "greetAll"}, {"type": "input", "input": {"x": ["Di"]}}]
        request = {"context": [*small, {"type": "plan", "plan": [again]}]}
        ran = await ended(await Foreign(foreign.client, queue, foreign.queue).start(request))
        assert ran["state"] == {"done": {"said": "hello Eve"}}
        wrong = {"context": [*small, {"type": "plan", "plan": [call("greetAll", "†state.done", guest={})]}]}
        error = await failure(await Foreign(foreign.client, queue, foreign.queue).start(wrong))
        assert "names" in str(error)


def test_a_run_that_planned_in_two_answers_is_not_saved() -> None:
    result = {"calls": [{"id": "1:a", "tick": 1, "state": "completed"}, {"id": "1:a", "tick": 2, "state": "completed"}]}
    with pytest.raises(InvalidRequest, match="planned in 2 answers; what is saved is one plan"):
        save_plan({"context": []}, [], None, {**result, "context": [], "status": "completed"}, "x")
