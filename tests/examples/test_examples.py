"""Every example does what its comments say: on a real server, in a worker of its own process, with real effects."""

from __future__ import annotations

import ast
import asyncio
import importlib
import os
import re
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

import examples
from acts.validate import validate
from acts.wire import PLAN, PLAN_FAILED, PROVIDE, STATUS, TASK_QUEUE
from cli import yamltext
from cli.devserver import DevServer
from examples import effects
from examples.fanout.activities import count_words, summarize
from examples.foreign.activities import write_factors
from examples.linear.activities import compute_totals, read_orders, write_report
from examples.payment.activities import confirm_order, process_payment, report_failure
from examples.wait.activities import book_room, quote_room, write_welcome
from examples.weather.activities import ask_weather, book_museum, plan_picnic, write_invitation
from tests.support import assert_eventually

ROOT = Path(__file__).parents[2]
PLANS = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "examples").glob("*/*.yaml"))
NAMES = sorted({Path(p).parent.name for p in PLANS})

RESULT_SECONDS = 60  # a run needs less than one; a laptop under full load may take many times that
STOP_SECONDS = 30


# -- the files -----------------------------------------------------------------


def load(plan: str) -> dict[str, Any]:
    """The Request in a plan file, as the CLI reads it."""
    found = yamltext.parse((ROOT / plan).read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def registered() -> dict[str, Any]:
    """The Tools that a worker with all examples registers."""
    tools: dict[str, Any] = {}
    for name in examples.MODULES:
        tools.update(getattr(importlib.import_module(name), "TOOLS", {}))
    return tools


@pytest.mark.parametrize("plan", PLANS)
def test_the_plan_validates(plan: str) -> None:
    problems = validate(load(plan), registered())
    expected = ["unknownReference"] if plan == "examples/wait/plan.yaml" else []  # that nobody has said it is the point
    assert [p.code for p in problems] == expected
    assert not any(p.fatal for p in problems)


@pytest.mark.parametrize("plan", PLANS)
def test_the_plan_opens_with_what_it_shows_and_the_command_that_runs_it(plan: str) -> None:
    text = (ROOT / plan).read_text("utf-8")
    opening = text[: text.index("\n\n")]
    assert all(line.startswith("#") for line in opening.splitlines())
    assert f"acts run {plan} --watch" in opening


def test_the_list_of_modules_names_every_example_once() -> None:
    found = sorted((ROOT / "examples").glob("*/activities.py"))
    assert sorted(examples.MODULES) == [f"examples.{p.parent.name}.activities" for p in found]
    assert [p.parent.name for p in found] == NAMES


def test_the_readme_tells_of_every_plan() -> None:
    text = (ROOT / "examples" / "README.md").read_text("utf-8")
    assert [p for p in PLANS if f"acts run {p} --watch" not in text] == []
    named = re.findall(r"acts run (\S+)", text)
    assert [p for p in named if not (ROOT / p).is_file()] == []


def test_the_foreign_worker_imports_temporal_and_nothing_of_ours() -> None:
    tree = ast.parse((ROOT / "examples" / "foreign" / "worker.py").read_text("utf-8"))
    names = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    foreign = {name.split(".")[0] for name in names} - sys.stdlib_module_names
    assert foreign == {"temporalio"}


# -- one attempt more ----------------------------------------------------------


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder for Activities that are called directly."""
    monkeypatch.setenv("ACTS_STATE", str(tmp_path))
    return tmp_path


def rows(state: Path, example: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """What an example's database holds; opened for reading, so that a look at it cannot create it."""
    path = state / "examples" / example / f"{example}.db"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        return connection.execute(query, values).fetchall()


def files(state: Path, example: str) -> list[str]:
    """The names of the texts that an example has written, drafts among them if any were left."""
    return sorted(p.name for p in (state / "examples" / example).iterdir() if not p.name.endswith(".db"))


ORDERS = [{"order": 1, "customer": "Ada", "cents": 250}, {"order": 2, "customer": "Tony", "cents": 900}]
TOTALS = [{"customer": "Tony", "orders": 1, "cents": 900}, {"customer": "Ada", "orders": 1, "cents": 250}]
WEATHER = {"city": "Lisbon", "sky": "clear", "celsius": 24}
OUTING = {"city": "Lisbon", "what": "a picnic", "bring": ["a blanket"]}
COUNTS = [{"file": "a.txt", "words": 2, "sha256": "0" * 64}]
FACTORS = {"number": 6, "factors": [2, 3]}
BOOKING = {"number": 1, "guest": "Ada", "room": "tower", "nights": 1}
QUOTE = {"room": "tower", "nights": 1, "cents": 11_000}

# Activity, parameters, and where its effect is counted: a table, or None for its one file
EFFECTS: list[tuple[str, Callable[..., Any], dict[str, Any], str | None]] = [
    ("linear", compute_totals, {"orders": ORDERS}, "totals WHERE customer = 'Ada'"),
    ("linear", write_report, {"title": "Orders", "totals": TOTALS}, None),
    ("weather", plan_picnic, {"weather": WEATHER}, "outings"),
    ("weather", book_museum, {"weather": WEATHER, "people": 2}, "outings"),
    ("weather", write_invitation, {"outing": OUTING}, None),
    ("payment", process_payment, {"card": "card-of-ada", "amount": 9.99}, "payments"),
    ("payment", confirm_order, {"receipt": {"number": 1, "card": "x", "cents": 999}}, "letters"),
    ("payment", report_failure, {"error": {"code": "card_declined", "message": "No."}}, "letters"),
    ("fanout", summarize, {"counts": COUNTS}, None),
    ("wait", book_room, {"guest": {"name": "Ada", "people": 1}, "quote": QUOTE}, "bookings"),
    ("wait", write_welcome, {"booking": BOOKING}, None),
    ("foreign", write_factors, {"first": FACTORS, "second": FACTORS}, None),
]


@pytest.mark.parametrize(
    ("example", "function", "parameters", "table"), EFFECTS, ids=lambda v: getattr(v, "__name__", "")
)
def test_another_attempt_at_a_call_gives_the_same_answer_and_no_second_effect(
    own_state: Path, example: str, function: Callable[..., Any], parameters: dict[str, Any], table: str | None
) -> None:
    def effects_so_far() -> int:
        if table is None:
            return len(files(own_state, example))
        return int(rows(own_state, example, f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608 - the table above

    first = function({"_id": "one", **parameters}, {}, [])
    assert function({"_id": "one", **parameters}, {}, []) == first
    assert effects_so_far() == 1
    function({"_id": "two", **parameters}, {}, [])
    assert effects_so_far() == 2


def test_every_effect_of_the_examples_is_in_that_table() -> None:
    without = {read_orders, ask_weather, count_words, quote_room}  # they only look, and may look again
    known = {f.__name__ for f in without} | {f.__name__ for _, f, _, _ in EFFECTS}
    modules = [importlib.import_module(name) for name in examples.MODULES]
    found = {f.__name__ for m in modules for f in vars(m).values() if hasattr(f, "__temporal_activity_definition")}
    assert found == known


def test_a_refused_card_stays_refused_on_another_attempt(own_state: Path) -> None:
    call = {"_id": "one", "card": "card-of-tony", "amount": 20.01}
    for _ in range(2):
        with pytest.raises(ApplicationError, match="declined") as refused:
            process_payment(call, {}, [])
        assert (refused.value.type, refused.value.non_retryable) == ("card_declined", True)
    assert rows(own_state, "payment", "SELECT call, cents, outcome FROM payments") == [("one", 2001, "declined")]


@pytest.mark.parametrize("name", ["../linear/orders.csv", "/etc/passwd", "texts", "texts/13-undecember.txt"])
def test_an_activity_reads_only_what_ships_with_its_example(name: str) -> None:
    with pytest.raises(ApplicationError, match=r"there is: texts/01-january\.txt") as refused:
        count_words({"_id": "one", "file": name}, {}, [])
    assert (refused.value.type, refused.value.non_retryable) == ("no_such_file", True)


def test_a_row_that_is_no_order_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "linear").mkdir()
    (tmp_path / "linear" / "orders.csv").write_text(
        "order,customer,item,quantity,price\n1,Ada,ink,1,2.00\n2,Ada,ink,1,?\n"
    )
    monkeypatch.setattr(effects, "_HERE", tmp_path)
    with pytest.raises(ApplicationError, match=r"orders\.csv, line 3 is no order") as refused:
        read_orders({"_id": "one", "file": "orders.csv"}, {}, [])
    assert refused.value.type == "bad_order"


# -- on a real server ----------------------------------------------------------


@dataclass(frozen=True)
class ActsWorker:
    """The project's worker in a process of its own."""

    process: subprocess.Popen[str]
    queue: str
    state: Path


@contextmanager
def started(command: list[str], log: Path, folder: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that has said its first line; it is stopped, and waited for, at the end."""
    settings = {k: v for k, v in os.environ.items() if not k.startswith(("TEMPORAL_", "ACTS_"))}
    with (
        log.open("a", encoding="utf-8") as errors,
        subprocess.Popen(
            command, cwd=folder, env=settings | env, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), f"{command} ended: {log.read_text('utf-8')}"
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def acts_worker(server: DevServer, queue: str, folder: Path) -> Iterator[ActsWorker]:
    """``python -m worker`` with all examples, started in an empty folder where nothing may appear."""
    state, cwd = folder / "state", folder / "empty"
    cwd.mkdir(exist_ok=True)
    env = {
        "TEMPORAL_ADDRESS": server.address,
        "TEMPORAL_NAMESPACE": server.namespace,
        "ACTS_TASK_QUEUE": queue,
        "ACTS_ACTIVITIES": ",".join(examples.MODULES),
        "ACTS_STATE": str(state),
        "PYTHONPATH": str(ROOT),
    }
    with started([sys.executable, "-m", "worker"], folder / "worker.log", cwd, env) as process:
        yield ActsWorker(process, queue, state)
    assert list(cwd.iterdir()) == []


@pytest.fixture(scope="module")
def worker(server: DevServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActsWorker]:
    with acts_worker(server, f"examples-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("examples")) as running:
        yield running


Handle = WorkflowHandle[Any, Any]


async def start(client: Client, worker: ActsWorker, request: dict[str, Any]) -> Handle:
    return await client.start_workflow(PLAN, request, id=f"example-{uuid.uuid4()}", task_queue=worker.queue)


async def finished(handle: Handle) -> dict[str, Any]:
    found = await asyncio.wait_for(handle.result(), RESULT_SECONDS)
    assert isinstance(found, dict)
    return found


def states(result: dict[str, Any]) -> dict[str, str]:
    return {call["id"]: call["state"] for call in result["calls"]}


@dataclass(frozen=True)
class Started:
    """An Activity as history has it. ``decision`` is the same for all that one workflow task scheduled."""

    call: dict[str, Any]
    queue: str
    decision: int
    identity: str


async def activities_of(client: Client, handle: Handle) -> dict[str, Started]:
    """What was really started, by the id of the Call."""
    events = (await handle.fetch_history()).events
    identities = {
        e.activity_task_started_event_attributes.scheduled_event_id: e.activity_task_started_event_attributes.identity
        for e in events
        if e.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
    }
    out = {}
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            what = event.activity_task_scheduled_event_attributes
            (call, *_) = await client.data_converter.decode(what.input.payloads)
            decision, identity = what.workflow_task_completed_event_id, identities.get(event.event_id, "")
            out[what.activity_id] = Started(call, what.task_queue.name, decision, identity)
    return out


async def test_linear_turns_a_csv_into_rows_and_a_report(client: Client, worker: ActsWorker) -> None:
    handle = await start(client, worker, load("examples/linear/plan.yaml"))
    result = await finished(handle)
    assert states(result) == {"1:readOrders": "completed", "2:computeTotals": "completed", "3:writeReport": "completed"}
    assert len(result["state"]["orders"]) == 10
    expected = [("Grace", 2, 4650), ("Tony", 1, 7800), ("Barbara", 2, 3650), ("Ada", 3, 3295), ("Edsger", 2, 2120)]
    key = (await activities_of(client, handle))["2:computeTotals"].call["_id"]
    query = "SELECT customer, orders, cents FROM totals WHERE call = ?"
    assert sorted(rows(worker.state, "linear", query, key)) == sorted(expected)
    report = Path(result["state"]["report"]["file"])
    assert report.is_relative_to(worker.state)
    assert "together                    215.15" in report.read_text("utf-8")
    assert result["state"]["report"]["cents"] == 21515 == sum(cents for _, _, cents in expected)


async def test_linear_gives_the_same_in_any_order_of_listing(client: Client, worker: ActsWorker) -> None:
    request = load("examples/linear/plan.yaml")
    request["context"][-1]["plan"].reverse()
    result = await finished(await start(client, worker, request))
    assert result["status"] == "completed"
    assert result["state"]["report"]["cents"] == 21515


@pytest.mark.parametrize(
    ("city", "outing", "skipped", "people"),
    [("Lisbon", "picnic", "3:bookMuseum", None), ("Bergen", "museum", "2:planPicnic", 4)],
)
async def test_weather_takes_the_way_that_the_service_says(
    client: Client, worker: ActsWorker, city: str, outing: str, skipped: str, people: int | None
) -> None:
    request = load("examples/weather/plan.yaml")
    assert request["context"][-2]["input"]["city"] == "Lisbon"
    request["context"][-2]["input"]["city"] = city
    handle = await start(client, worker, request)
    result = await finished(handle)
    assert [id_ for id_, state in states(result).items() if state != "completed"] == [skipped]
    assert states(result)[skipped] == "skipped"
    ran = await activities_of(client, handle)
    assert skipped not in ran
    key = ran["2:planPicnic" if outing == "picnic" else "3:bookMuseum"].call["_id"]
    assert rows(worker.state, "weather", "SELECT kind, city, people FROM outings WHERE call = ?", key) == [
        (outing, city, people)
    ]
    invitation = result["state"]["invitation"]
    assert outing in invitation["text"]
    assert city in invitation["text"]
    assert Path(invitation["file"]).read_text("utf-8").strip() == invitation["text"]


async def test_weather_of_an_unknown_city_fails_the_plan_and_says_which_are_known(
    client: Client, worker: ActsWorker
) -> None:
    request = load("examples/weather/plan.yaml")
    request["context"][-2]["input"]["city"] = "Atlantis"
    with pytest.raises(WorkflowFailureError) as failed:
        await finished(await start(client, worker, request))
    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == PLAN_FAILED
    assert '[unknown_city] no weather for "Atlantis"; known: Lisbon' in cause.message


async def test_payment_declined_goes_down_its_error_path(client: Client, worker: ActsWorker) -> None:
    handle = await start(client, worker, load("examples/payment/plan.yaml"))
    result = await finished(handle)
    assert result["status"] == "completed"
    assert states(result) == {
        "1:processPayment": "completed", "2:confirmOrder": "skipped", "3:reportFailure": "completed"
    }  # fmt: skip
    declined = {"code": "card_declined", "message": "Your card was declined."}
    assert result["calls"][0]["error"] == result["state"]["error"] == declined
    assert result["calls"][0]["outputPath"] == "†state.error"
    assert set(result["state"]) == {"error", "apology"}
    ran = await activities_of(client, handle)
    assert set(ran) == {"1:processPayment", "3:reportFailure"}
    ids = {name: found.call["_id"] for name, found in ran.items()}
    query = "SELECT card, cents, outcome FROM payments WHERE call = ?"
    assert rows(worker.state, "payment", query, ids["1:processPayment"]) == [("card-of-tony", 5000, "declined")]
    query = "SELECT kind, text FROM letters WHERE call = ?"
    text = "Nothing was paid. Your card was declined. (card_declined)"
    assert rows(worker.state, "payment", query, ids["3:reportFailure"]) == [("apology", text)]


async def test_payment_accepted_is_confirmed(client: Client, worker: ActsWorker) -> None:
    handle = await start(client, worker, load("examples/payment/accepted.yaml"))
    result = await finished(handle)
    assert states(result) == {
        "1:processPayment": "completed", "2:confirmOrder": "completed", "3:reportFailure": "skipped"
    }  # fmt: skip
    assert set(result["state"]) == {"receipt", "confirmation"}
    ran = await activities_of(client, handle)
    query = "SELECT number, card, cents, outcome FROM payments WHERE call = ?"
    found = rows(worker.state, "payment", query, ran["1:processPayment"].call["_id"])
    assert found == [(result["state"]["receipt"]["number"], "card-of-ada", 5000, "charged")]
    query = "SELECT kind FROM letters WHERE call = ?"
    assert rows(worker.state, "payment", query, ran["2:confirmOrder"].call["_id"]) == [("confirmation",)]


def test_both_payments_are_one_plan() -> None:
    declined, accepted = (load(f"examples/payment/{name}.yaml") for name in ("plan", "accepted"))
    declined["context"][-2]["input"]["card"] = accepted["context"][-2]["input"]["card"]
    assert declined == accepted


async def test_a_second_run_is_a_second_payment(client: Client, worker: ActsWorker) -> None:
    request = load("examples/payment/accepted.yaml")
    first, second = [await finished(await start(client, worker, request)) for _ in range(2)]
    assert first["state"]["receipt"]["number"] != second["state"]["receipt"]["number"]


async def test_fanout_starts_all_at_once_and_joins_in_plan_order(client: Client, worker: ActsWorker) -> None:
    request = load("examples/fanout/plan.yaml")
    listed = [call["file"] for call in request["context"][-1]["plan"] if call["_tool"] == "countWords"]
    shipped = sorted(f"texts/{p.name}" for p in (ROOT / "examples" / "fanout" / "texts").iterdir())
    assert listed == shipped
    assert len(listed) == 12
    handle = await start(client, worker, request)
    result = await finished(handle)
    assert [count["file"] for count in result["state"]["counts"]] == listed
    ran = await activities_of(client, handle)
    decisions = [found.decision for id_, found in ran.items() if id_.endswith(":countWords")]
    assert len(decisions) == 12
    assert set(decisions) == {min(found.decision for found in ran.values())}
    summary = result["state"]["summary"]
    words = [len((ROOT / "examples" / "fanout" / name).read_text("utf-8").split()) for name in listed]
    assert (summary["files"], summary["words"]) == (12, sum(words))
    lines = Path(summary["file"]).read_text("utf-8").splitlines()
    assert [line.split()[-1] for line in lines[:-1]] == listed
    assert [int(line.split()[0]) for line in lines] == [*words, sum(words)]


async def test_wait_ends_when_the_input_is_provided_even_to_another_worker(
    server: DevServer, client: Client, tmp_path: Path, task_queue: str
) -> None:
    async def waits_for() -> Any:
        calls = {call["id"]: call for call in (await handle.query(STATUS))["calls"]}
        return calls["1:quoteRoom"]["state"] == "completed" and calls["2:bookRoom"].get("waitsFor")

    with acts_worker(server, task_queue, tmp_path) as first:
        handle = await start(client, first, load("examples/wait/plan.yaml"))
        assert await assert_eventually(waits_for, within=timedelta(seconds=RESULT_SECONDS)) == ["†input.guest"]
        assert not (first.state / "examples" / "wait" / "wait.db").exists()
        first.process.kill()
        first.process.wait(STOP_SECONDS)
    with acts_worker(server, task_queue, tmp_path) as second:
        await handle.signal(PROVIDE, {"type": "input", "input": {"guest": {"name": "Ada", "people": 2}}})
        result = await finished(handle)
        assert result["status"] == "completed"
        booking = {"number": 1, "guest": "Ada", "room": "garden", "nights": 3}
        assert result["state"]["booking"] == booking
        key = (await activities_of(client, handle))["2:bookRoom"].call["_id"]
        query = "SELECT call, guest, people, room, nights, cents FROM bookings"
        assert rows(second.state, "wait", query) == [(key, "Ada", 2, "garden", 3, 21600)]
        assert "Welcome, Ada!" in Path(result["state"]["welcome"]["file"]).read_text("utf-8")


async def test_foreign_calls_wait_for_the_worker_of_the_other_queue(
    server: DevServer, client: Client, worker: ActsWorker, tmp_path: Path
) -> None:
    handle = await start(client, worker, load("examples/foreign/plan.yaml"))

    async def both_wait() -> bool:
        calls = [call["state"] for call in (await handle.query(STATUS))["calls"]]
        return calls == ["running", "running", "pending"]

    await assert_eventually(both_wait, within=timedelta(seconds=RESULT_SECONDS))
    program = ROOT / "examples" / "foreign" / "worker.py"
    env = {"TEMPORAL_ADDRESS": server.address, "TEMPORAL_NAMESPACE": server.namespace}
    with started([sys.executable, str(program)], tmp_path / "foreign.log", tmp_path, env) as foreign:
        result = await finished(handle)
        assert foreign.poll() is None
    ran = await activities_of(client, handle)
    for id_ in ("1:factorize", "2:factorize"):
        assert ran[id_].queue == "examples-foreign"
        assert ran[id_].identity.startswith(f"{foreign.pid}@")
    assert ran["3:writeFactors"].queue == worker.queue
    assert ran["3:writeFactors"].identity.startswith(f"{worker.process.pid}@")
    assert result["state"]["first"] == {"number": 3600360, "factors": [2, 2, 2, 3, 3, 5, 73, 137]}
    assert result["state"]["answer"]["common"] == [2, 3, 5]
    text = Path(result["state"]["answer"]["file"]).read_text("utf-8")
    assert text.splitlines()[0] == "3600360 = 2 * 2 * 2 * 3 * 3 * 5 * 73 * 137"


def test_the_foreign_queue_is_not_ours() -> None:
    tool = load("examples/foreign/plan.yaml")["context"][0]["tool"]["factorize"]
    program = (ROOT / "examples" / "foreign" / "worker.py").read_text("utf-8")
    queue = tool["properties"]["_options"]["const"]["taskQueue"]
    assert f'TASK_QUEUE = "{queue}"' in program
    assert queue != TASK_QUEUE
