"""The support desk: money moves once, people are asked, what fails is undone; on a real server, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

import acts
from acts.cli.commands.testing import PlanTests
from acts.cli.dev.temporal_server import DevServer
from examples.support_desk.__main__ import (
    HERE,
    make_commands,
    make_settings,
    running,
    wait_for_shop,
)
from examples.support_desk.database import Row, transaction
from tests.support import assert_eventually, free_port

Json = dict[str, Any]
ORDERS = 60
CASES = [("refund", "A-1"), ("refund", "A-2"), ("refund", "A-4"), *(("exchange", f"A-{n}") for n in (3, 5, 6))]


@dataclass(frozen=True)
class Desk:
    settings: dict[str, str]
    client: acts.Client

    async def send(self, kind: str, order: str) -> acts.Run:
        case = {"kind": kind, "orderId": order, "message": "My money back, please."}
        return self.client.run((await self.post("/cases", case)).json()["run"])

    async def post(self, path: str, content: Json, **headers: str) -> httpx2.Response:
        async with httpx2.AsyncClient(base_url=self.settings["DESK_SITE"], timeout=60) as site:
            return await site.post(path, json=content, headers=headers)

    def payments(self, order: str) -> list[tuple[str, int]]:
        """What the ledger has of an order besides its sale, oldest first."""
        ledger = httpx2.get(f"{self.settings['DESK_PAYMENTS']}/ledger").json()
        return [(row["kind"], row["cents"]) for row in reversed(ledger) if row["order"] == order]

    def select(self, query: str, *values: Any) -> list[Row]:
        with transaction(self.settings["DESK_DATABASE"]) as run:
            return run(query, *values)

    def acts(self, *command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "acts.cli", *command],
            env=self.settings, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that the user of PostgreSQL reaches, too."""
    with tempfile.TemporaryDirectory(prefix="acts-desk-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
async def desk(server: DevServer) -> AsyncIterator[Desk]:
    queue = f"desk-{uuid.uuid4().hex[:8]}"
    with public_folder() as folder:
        settings = make_settings(folder, free_port()) | {
            "TEMPORAL_ADDRESS": server.address, "ACTS_TASK_QUEUE": queue, "DESK_ORDERS": str(ORDERS),
        }  # fmt: skip
        commands = make_commands(settings, folder) | {"engine": [sys.executable, "-m", "acts.worker"]}
        del commands["inbox"], commands["notices"]
        with running(commands, settings, folder) as programs:
            wait_for_shop(programs)
            async with await acts.Client.connect(server.address, task_queue=queue) as client:
                running_desk = Desk(settings, client)
                for kind, order in CASES:  # all at once: the payment service has them wait now and then
                    await running_desk.send(kind, order)
                yield running_desk


@pytest.mark.parametrize("name", ["exchange", "pay_back"])
def test_the_plans_pass_their_tests(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_ACTIVITIES", "examples.support_desk.tools")
    tests = PlanTests(HERE / "plans" / f"{name}.test.yaml")
    assert [tests.run_case(case).faults for case in tests.cases] == [[]] * 3


@pytest.mark.long
async def test_a_small_refund_goes_through_and_the_mail_waits_for_the_payment_service(desk: Desk) -> None:
    run = await desk.send("refund", "A-1")  # for the second time: it is the same run
    result = (await run.result()).require()
    assert (result.output["paidBack"], result.usage["requests"]) == (True, 2)
    assert result.state["article"]["result"].startswith("Refunds")
    assert desk.payments("A-1") == [("refund", 9_119)]
    assert desk.select("SELECT text FROM mails WHERE customer = ?", "customer1@example.com") == [
        ("Your money is on its way: 9119 cents for order A-1.",)
    ]


@pytest.mark.long
async def test_a_big_refund_waits_for_a_lead_who_is_told(desk: Desk) -> None:
    run = await desk.send("refund", "A-2")
    (waiting,) = await run.wait_for_decision()
    desk.acts("notify", "--once")
    assert any(name == run.id and "(for lead)" in text for name, text in desk.select("SELECT run, text FROM notices"))
    assert desk.payments("A-2") == []
    await run.approve(by="lead", version=waiting.version, subject=waiting.subject)
    assert (await run.result()).require().output["paidBack"]
    assert desk.payments("A-2") == [("refund", 17_038)]


async def test_a_refund_that_is_rejected_moves_no_money(desk: Desk) -> None:
    run = await desk.send("refund", "A-4")
    await run.wait_for_decision()
    await run.reject("worn for a year", by="lead")
    assert (await run.result()).require().output["paidBack"] is False
    assert desk.payments("A-4") == []


async def test_an_exchange_that_fails_is_undone(desk: Desk) -> None:
    result = await (await desk.send("exchange", "A-3")).result()
    assert (result.status, result.errors[0]["code"], result.raw["undone"]["calls"]) == ("failed", "no_courier", 2)
    assert desk.payments("A-3") == [("charge", 500), ("refund", 500)]
    assert desk.select("SELECT count FROM stock WHERE item = 'chair'") == [(50,)]


@pytest.mark.parametrize(("order", "good", "fee"), [("A-5", True, [("charge", 500)]), ("A-6", False, [])])
async def test_a_person_looks_at_what_is_dear(desk: Desk, order: str, good: bool, fee: list[Any]) -> None:  # noqa: FBT001
    run = await desk.send("exchange", order)
    (question,) = await run.wait_for_decision()
    await run.answer({"good": good}, question.call, by="warehouse")
    (await run.result()).require()
    assert desk.payments(order) == fee


async def test_every_night_each_order_is_compared_with_the_ledger(desk: Desk) -> None:
    (await (await desk.client.start("export")).result()).require()
    run = await desk.client.start("nightly")
    result = (await run.result()).require()
    lines = (Path(desk.settings["ACTS_RESULTS"]) / f"nightly-{run.id}.jsonl").read_text().splitlines()
    rows = {row["id"]: row["state"]["check"]["ok"] for row in map(json.loads, lines)}
    assert (result.raw["instances"]["completed"], len(rows)) == (ORDERS, ORDERS)
    assert [name for name, ok in rows.items() if not ok] == ["A-8"]


def test_the_payment_service_pays_a_key_once_and_is_busy_now_and_then(desk: Desk) -> None:
    body = {"kind": "refund", "order": "A-9", "cents": 1, "run": "none"}

    def pay(key: str) -> httpx2.Response:
        return httpx2.post(f"{desk.settings['DESK_PAYMENTS']}/payments", json=body, headers={"Idempotency-Key": key})

    answers = {key: pay(key) for key in ("a", "b", "c")}
    busy = [key for key, answer in answers.items() if answer.status_code == 429]
    assert (len(busy), answers[busy[0]].headers["Retry-After"]) == (1, "1")
    assert {pay(key).status_code for key in ("a", "b", "c", "a")} == {202}
    assert desk.payments("A-9") == [("refund", 1)] * 3


async def test_nobody_else_calls_back_or_starts_cases(desk: Desk) -> None:
    for path, headers in {
        "/webhooks/payments": {"Signature": "x"},
        "/webhooks/notices": {},
        "/cases": {"Origin": "http://e"},
    }.items():
        assert (await desk.post(path, {"notices": []}, **headers)).status_code == 403


def test_the_readme_is_short() -> None:
    assert len((HERE / "README.md").read_text("utf-8").split()) <= 700


def find_process(root: int, words: str) -> int:
    """The process below another one whose command line has these words."""
    lines = subprocess.check_output(["/bin/ps", "-eo", "pid=,ppid=,args="], text=True).splitlines()
    rows = [(int(pid), int(parent), line) for pid, parent, line in (line.split(None, 2) for line in lines)]
    below, found = [root], []
    for process in below:
        below += [pid for pid, parent, _ in rows if parent == process]
        found += [pid for pid, _, line in rows if pid == process and words in line]
    assert found, f"{words} is not there"
    return found[-1]


@contextmanager
def one_command(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    settings = {**os.environ, "DESK_STATE": str(folder), "DESK_PORT": str(port), "DESK_ORDERS": str(ORDERS)}
    command = [sys.executable, "-m", "examples.support_desk"]
    with (
        (folder / "main.log").open("ab") as log,
        subprocess.Popen(command, env=settings, stdout=log, stderr=log) as main,
    ):
        try:
            yield main
        finally:
            main.terminate()


async def ask(method: str, url: str, content: Json | None = None) -> Any:
    """The answer; what is not there yet is asked again by ``assert_eventually``."""
    try:
        async with httpx2.AsyncClient(timeout=60) as client:
            answer = await client.request(method, url, json=content)
    except httpx2.TransportError as error:
        raise AssertionError(url) from error
    assert answer.is_success, answer.text
    return answer.json()


CHARGED, TAKEN_BACK = [("charge", 500)], [("charge", 500), ("refund", 500)]
# By order: what the ledger must have of its exchange. No courier goes to the customer of every fourth
ENDS = {
    f"A-{n}": TAKEN_BACK if n % 4 == 3 else CHARGED
    for n in (3, 9, 10, 11, 12, 16, 18, 19, 20, 23, 24, 25, 26, 27, 31, 32)
}
VICTIMS = ("support_desk.payments", "acts.worker", "postgres", "start-dev", "")


@pytest.mark.long
@pytest.mark.skipif("TEST_SUPPORT_DESK" not in os.environ, reason="make support-desk-kill: it wants the machine alone")
async def test_everything_is_killed_and_each_payment_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with public_folder() as folder:
        settings = make_settings(folder, port := free_port())
        monkeypatch.setenv("ACTS_STATE", settings["ACTS_STATE"])

        async def payments() -> list[Json]:
            rows: list[Json] = await ask("GET", f"{settings['DESK_PAYMENTS']}/ledger")
            return rows

        async def count() -> int:  # from 1: zero would be "not yet"
            return 1 + len(await payments())

        async def has_grown(before: int) -> bool:
            return await count() > before

        async def has_ended(order: str) -> bool:
            try:
                async with await acts.Client.connect() as client:
                    return (await client.run(f"exchange-{order}").result(timeout=5)).status in {"completed", "failed"}
            except acts.ClientError as error:
                raise AssertionError(str(error)) from error

        waiting = list(ENDS)[1:]  # A-3 is one of the cases that the command sends
        with one_command(folder, port) as main:
            for victim in VICTIMS:
                before = await assert_eventually(count)
                for order in waiting[:3]:
                    case = {"kind": "exchange", "orderId": order}
                    await assert_eventually(lambda case=case: ask("POST", f"{settings['DESK_SITE']}/cases", case))
                del waiting[:3]
                await assert_eventually(lambda before=before: has_grown(before))
                os.kill(find_process(main.pid, victim), signal.SIGKILL) if victim else main.kill()
        with one_command(folder, port):
            for order in ENDS:
                await assert_eventually(lambda order=order: has_ended(order))
            ledger = await payments()
            made = {order: [(p["kind"], p["cents"]) for p in reversed(ledger) if p["order"] == order] for order in ENDS}
            assert made == ENDS
            with transaction(settings["DESK_DATABASE"]) as run:
                ((left,),) = run("SELECT sum(count) FROM stock")
                ((reserved,),) = run("SELECT count(*) FROM reservations")
            assert (left + reserved, reserved) == (250, sum(end == CHARGED for end in ENDS.values()))
