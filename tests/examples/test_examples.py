"""Every example does what its comments say: on a real server, in a worker of its own process, with real effects."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from acts.cli.text.preflight import run_preflight
from examples.fanout.activities import summarize
from examples.loan.activities import pay_installment
from examples.moderation.activities import apply_verdict, publish_comment, remove_comment, screen_comment
from examples.music.activities import mix, synthesize
from examples.payment.activities import confirm_order, process_payment, report_failure
from examples.recipient.activities import send_message
from examples.refund.activities import check_billing_history, escalate_to_supervisor, issue_refund
from examples.research.activities import write_answer
from examples.speaker.activities import deliver
from examples.translation.activities import detect_language
from examples.trip.activities import book_flight, book_hotel, find_pet_friendly_hotel
from examples.weather.activities import book_museum, plan_picnic, write_invitation
from tests.examples.running import (
    RESULT_SECONDS,
    ROOT,
    ActsWorker,
    activities_of,
    below,
    files,
    finished,
    load,
    rows,
    start,
    states,
)
from tests.support import assert_eventually

PLANS = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "examples").glob("*/*.yaml"))
AGENTS = {
    "refund/plan", "trip/plan", "replan/plan", "translation/plan", "research/plan", "recipient/approval",
    "speaker/plan", "speaker/upfront", "music/plan", "loan/plan", "greetings/plan", "moderation/plan",
}  # fmt: skip


@pytest.mark.parametrize("plan", PLANS)
def test_the_plan_validates(plan: str) -> None:
    verdict = run_preflight(load(plan), strict=True, file=str(ROOT / plan))
    assert verdict.problems == []
    assert verdict.agent is (plan.removeprefix("examples/").removesuffix(".yaml") in AGENTS)


@pytest.mark.parametrize("plan", PLANS)
def test_the_plan_opens_with_what_it_shows_and_the_command_that_runs_it(plan: str) -> None:
    text = (ROOT / plan).read_text("utf-8")
    opening = text[: text.index("\n\n")]
    assert all(line.startswith("#") for line in opening.splitlines())
    assert f"acts run {plan} --watch" in opening


def test_the_readme_tells_of_every_plan() -> None:
    text = (ROOT / "examples" / "README.md").read_text("utf-8")
    assert [p for p in PLANS if f"acts run {p} --watch" not in text] == []
    named = re.findall(r"acts run (\S+)", text)
    assert [p for p in named if not (ROOT / p).is_file()] == []


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder for Activities that are called directly."""
    monkeypatch.setenv("ACTS_STATE", str(tmp_path))
    return tmp_path


WEATHER = {"city": "Lisbon", "sky": "clear", "celsius": 24}
OUTING = {"city": "Lisbon", "what": "a picnic", "bring": ["a blanket"]}
COUNTS = [{"file": "a.txt", "words": 2, "sha256": "0" * 64}]
ANSWER = {"text": "Because.", "files": ["a.txt"]}
RUDE = {"text": "Shut up!", "why": "the word"}
SCOPED = {  # what a Call's scopes show
    process_payment: [{"type": "input", "input": {"card": "card-of-ada"}}],
    send_message: [{"type": "input", "input": {"user": {"id": "user_B"}}}],
}

# Activity, parameters, and where its effect is counted: a table, or None for its one file
EFFECTS: list[tuple[str, Callable[..., Any], dict[str, Any], str | None]] = [
    ("weather", plan_picnic, {"weather": WEATHER}, "outings"),
    ("weather", book_museum, {"weather": WEATHER, "people": 2}, "outings"),
    ("weather", write_invitation, {"outing": OUTING}, None),
    ("payment", process_payment, {"amount": 9.99}, "payments"),
    ("payment", confirm_order, {"receipt": {"number": 1, "card": "x", "cents": 999}}, "letters"),
    ("payment", report_failure, {"error": {"code": "card_declined", "message": "No."}}, "letters"),
    ("fanout", summarize, {"counts": COUNTS}, None),
    ("refund", issue_refund, {"customerId": "cust_123", "amount": 50.0}, "refunds"),
    ("refund", escalate_to_supervisor, {"customerId": "cust_123", "reason": "x"}, "cases"),
    ("trip", book_flight, {"destination": "Berlin"}, "bookings"),
    ("trip", book_hotel, {"destination": "Berlin"}, "bookings"),
    ("trip", find_pet_friendly_hotel, {"destination": "Berlin"}, "bookings"),
    ("research", write_answer, {"question": "Why?", "answer": ANSWER}, None),
    ("recipient", send_message, {"recipientId": "user_B", "message": "Welcome!"}, "messages"),
    ("speaker", deliver, {"recipientId": "u_1", "messageBody": "Hello!"}, "outbox"),
    ("music", synthesize, {"wave": "noise", "seconds": 0.1, "loudness": 0.5}, None),
    ("loan", pay_installment, {"owed": 500, "installment": 200, "month": 0}, "installments"),
    ("moderation", publish_comment, {"comment": RUDE}, "outcomes"),
    ("moderation", remove_comment, {"comment": RUDE}, "outcomes"),
    ("moderation", apply_verdict, {"comment": RUDE, "verdict": "review"}, "outcomes"),
]


def attempt(function: Callable[..., Any], id_: str, parameters: dict[str, Any], context: list[Any]) -> Any:
    """One attempt at a Call of a tool, as a worker makes it."""
    tool: Any = function
    return ActivityEnvironment().run(tool.__acts_tool__.activity, {"_id": id_, **parameters}, {}, context)


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

    scoped = SCOPED.get(function, [])
    first = attempt(function, "one", parameters, scoped)
    assert attempt(function, "one", parameters, scoped) == first
    assert effects_so_far() == 1
    attempt(function, "two", parameters, scoped)
    assert effects_so_far() == 2


REFUSALS: list[tuple[Callable[..., Any], dict[str, Any], str, str]] = [
    (process_payment, {"amount": 1}, "no_card", "the input holds no card"),
    (check_billing_history, {"customerId": "x"}, "unknown_customer", 'no customer "x" has ever ordered'),
    (issue_refund, {"customerId": "cust_123", "amount": 50.01}, "more_than_paid", "50.01 are more than that"),
    (book_flight, {"destination": "Atlantis"}, "no_flight", "no flight to Atlantis"),
    (find_pet_friendly_hotel, {"destination": "Oslo"}, "no_hotel", "no hotel in Oslo takes pets"),
    (detect_language, {"text": "xyzzy"}, "unknown_language", "small words of en, fr, de, es"),
    (synthesize, {"wave": "sine", "loudness": 1}, "no_length", "a sound has notes or seconds"),
    (mix, {"tracks": [{"file": "/etc/passwd", "seconds": 1}]}, "no_such_sound", "/etc/passwd is no sound"),
    (screen_comment, {"text": "Gr\N{REPLACEMENT CHARACTER}t"}, "unreadable", "the comment's text is damaged"),
]


def test_a_message_goes_to_nobody_who_is_not_in_scope(own_state: Path) -> None:
    call = {"recipientId": "user_A", "message": "Welcome!"}
    with pytest.raises(ApplicationError, match="user_A is not in scope; there is: user_B") as refused:
        attempt(send_message, "one", call, [{"type": "input", "input": {"users": [{"id": "user_B"}]}}])
    assert (refused.value.type, refused.value.non_retryable) == ("not_in_scope", True)
    assert not (own_state / "examples").exists()


@pytest.mark.parametrize(
    ("function", "parameters", "code", "words"), REFUSALS, ids=lambda v: getattr(v, "__name__", "")
)
def test_what_cannot_be_done_is_refused_with_a_code_and_not_tried_again(
    own_state: Path, function: Callable[..., Any], parameters: dict[str, Any], code: str, words: str
) -> None:
    with pytest.raises(ApplicationError, match=words) as refused:
        attempt(function, "one", parameters, [])
    assert (refused.value.type, refused.value.non_retryable) == (code, True)


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


async def test_a_pipeline_for_each_order_keeps_the_one_that_fails_apart(client: Client, worker: ActsWorker) -> None:
    result = await finished(await start(client, worker, load("examples/patterns/pipeline.yaml")))
    details = result["state"]["problem"]["details"]
    shipped = [None if at == 1 else f"shelf of A-{at + 1}, receipt of A-{at + 1}" for at in range(3)]
    assert details["results"] == shipped
    assert [(e["index"], e["code"]) for e in details["errors"]] == [(1, "PlanFailed")]
    assert "[declined] 990.00 for A-2" in details["errors"][0]["message"]


async def test_the_first_of_three_quotes_is_booked_and_the_others_are_cancelled(
    client: Client, worker: ActsWorker
) -> None:
    handle = await start(client, worker, load("examples/patterns/quotes.yaml"))
    result = await finished(handle)
    assert result["state"]["booking"] == "south for 10.50"
    inside = await finished(below(client, handle, "1:plan", "plan"))
    assert list(states(inside).values()) == ["cancelled", "completed", "cancelled"]


@pytest.mark.parametrize(("says", "path"), [(True, "approved"), (False, "refused")])
async def test_two_of_three_persons_decide(client: Client, worker: ActsWorker, says: object, path: str) -> None:
    handle = await start(client, worker, load("examples/patterns/votes.yaml"))

    async def asked() -> bool:
        return len(await handle.query("pending")) == 3

    await assert_eventually(asked, within=timedelta(seconds=RESULT_SECONDS))
    for call in ("3:askManager", "1:askManager", *([] if says else ["2:askManager"])):
        await handle.execute_update("answer", {"call": call, "output": {"yes": says}, "by": "Ada"})
    assert list((await finished(handle))["state"]) == [path]


async def test_a_parcel_is_tracked_until_it_is_shipped(client: Client, worker: ActsWorker) -> None:
    result = await finished(await start(client, worker, load("examples/patterns/polling.yaml")))
    assert result["state"] == {"shipment": {"parcel": {"asked": 3, "shipped": True}}}


async def test_documents_are_read_in_groups_of_five_and_merged(client: Client, worker: ActsWorker) -> None:
    result = await finished(await start(client, worker, load("examples/patterns/groups.yaml")))
    assert [group["documents"] for group in result["state"]["groups"]] == [5, 5, 2]
    assert result["state"]["merged"] == {"documents": 12, "words": 22}
