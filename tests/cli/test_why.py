"""``acts why``: where a value of a real run came from, while it runs and after it has ended."""

from __future__ import annotations

import json

import pytest
from temporalio.client import Client

from acts.cli.text.preflight import EXAMPLES
from tests.cli.conftest import Acts, new_name, wait_for_end, wait_for_state

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


def test_the_trace_of_an_agent_has_ticks_and_planners(acts: Acts) -> None:
    name = run_file(acts, REPLAN)
    shown = [without_date(line).strip() for line in why_lines(acts, name, "state.apology")]
    assert "1:reportFailure  Activity reportFailure  tick 2  planned by the model" in shown
    assert "1:processPayment  Activity processPayment  tick 1  failed: card_declined  planned by the model" in shown
    assert shown[-1] == "the Request, /context/3"
    plan = why_lines(acts, f"{name}/plan-2", "state.error.code")
    assert plan[-1].strip() == f"passed by the parent run {name} (message 1)"
    assert plan[0].endswith("from outside")


async def test_a_running_plan_names_possible_writers_and_later_what_was_provided(acts: Acts, client: Client) -> None:
    name = new_name()
    acts("run", WAIT, "--detach", "--id", name)
    await wait_for_state(client, name, "2:bookRoom", "awaiting")
    nothing = acts("why", name, "state.booking")
    assert nothing.exit_code == 2
    assert "there is no value at †state.booking" in nothing.stderr
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
