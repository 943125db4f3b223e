"""docs/patterns.md: each pattern that it shows as a plan is walked here, and has what makes it that pattern."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from acts.activities.shipped_tools import SHIPPED
from acts.language.references import parse_condition
from acts.machines.commands import EndEarly
from tests.case_rows import tool
from tests.property.drive import NOW, Drive, data_message

Json = Any
PAGE = (Path(__file__).parents[3] / "docs" / "patterns.md").read_text("utf-8")
# The names of workflowpatterns.com, in the order of their numbers
NAMES = [
    "Sequence", "Parallel Split", "Synchronization", "Exclusive Choice", "Simple Merge", "Multi-Choice",
    "Structured Synchronizing Merge", "Multi-Merge", "Structured Discriminator", "Arbitrary Cycles",
    "Implicit Termination", "Multiple Instances without Synchronization",
    "Multiple Instances with a Priori Design-Time Knowledge", "Multiple Instances with a Priori Run-Time Knowledge",
    "Multiple Instances without a Priori Run-Time Knowledge", "Deferred Choice", "Interleaved Parallel Routing",
    "Milestone", "Cancel Task", "Cancel Case", "Structured Loop", "Recursion", "Transient Trigger",
    "Persistent Trigger", "Cancel Region", "Cancel Multiple Instance Activity", "Complete Multiple Instance Activity",
    "Blocking Discriminator", "Cancelling Discriminator", "Structured Partial Join", "Blocking Partial Join",
    "Cancelling Partial Join", "Generalised AND-Join", "Static Partial Join for Multiple Instances",
    "Cancelling Partial Join for Multiple Instances", "Dynamic Partial Join for Multiple Instances",
    "Local Synchronizing Merge", "General Synchronizing Merge", "Critical Section", "Interleaved Routing",
    "Thread Merge", "Thread Split", "Explicit Termination",
]  # fmt: skip
_NUMBERED = re.compile(r"WCP-(\d+) ([^,|\n]+?)(?=,| \||\n)")
INPUT = {
    "order": "o1", "question": "?", "text": "abc", "people": [{"mail": "a@x"}, {"mail": "b@x"}], "customer": "c1",
    "address": "here", "first": 1, "second": 2, "path": "/",
}  # fmt: skip


def read_examples() -> dict[int, Json]:
    """The Request of each pattern that the page shows as a plan."""
    examples: dict[int, Json] = {}
    for section in PAGE.split("\n### ")[1:]:
        head, _, body = section.partition("\n")
        (text,) = re.findall(r"```json\n(.*?)```", body, re.DOTALL)
        block = json.loads(text)
        request = {"context": [{"type": "plan", "plan": block}]} if isinstance(block, list) else block
        examples.update((int(number), request) for number, _ in _NUMBERED.findall(head + "\n"))
    return examples


EXAMPLES = read_examples()


def tools_of(calls: list[Json]) -> dict[str, Json]:
    inner = (more for call in calls if call["_tool"] == "plan" for more in call["plan"])
    names = {call["_tool"] for call in (*calls, *inner)}
    return {name: SHIPPED[name] if name in ("plan", "wait") else tool(name) for name in names}


def inside(number: int, *ended: str, results: dict[str, Json] | None = None, **inputs: Json) -> Drive:
    """The walk of the plan that a pattern's first Call holds; these Calls of it have ended, in this order."""
    call = EXAMPLES[number]["context"][-1]["plan"][0]
    own = {"type": "input", "input": {"people": INPUT["people"], "previous": None, **inputs}}
    context = [{"type": "tool", "tool": tools_of(call["plan"])}, own, {"type": "plan", "plan": call["plan"]}]
    by_id = {f"{i}:{call['_tool']}": f"{call['_tool']} {i}" for i, call in enumerate(call["plan"], 1)} | (results or {})
    drive = Drive({"context": context}, by_id, is_scripted=True)
    drive.walk.until = parse_condition(call["until"])
    for id_ in ended:
        drive.finish(id_)
    return drive


def begin(number: int, results: dict[str, Json] | None = None, **inputs: Json) -> Drive:
    """The walk of a pattern's plan, begun; ``results`` are by Call id, of the others their Tool."""
    request = EXAMPLES[number]
    calls = request["context"][-1]["plan"]
    by_id = {f"{i}:{call['_tool']}": f"{call['_tool']} {i}" for i, call in enumerate(calls, 1)} | (results or {})
    tools = tools_of(calls)
    context = [{"type": "tool", "tool": tools}, {"type": "input", "input": {**INPUT, **inputs}}, *request["context"]]
    return Drive({**request, "context": context}, by_id, is_scripted=True)


def walk(number: int, results: dict[str, Json] | None = None) -> Drive:
    """The walk of a pattern's plan to its end."""
    drive = begin(number, results)
    drive.finish_all()
    return drive


def provide(drive: Drive, kind: str, **data: Json) -> None:
    drive.perform(drive.walk.provide(data_message({"type": "data", "kind": kind, "data": data}), NOW))


def states(drive: Drive) -> list[str]:
    return [drive.state(node.id) for node in sorted(drive.walk.nodes, key=lambda node: node.index)]


DONE, SKIPPED, WAITS, DETACHED = "completed", "skipped", "awaiting", "detached"
# Results that a plan needs, and in what its Calls then end; by pattern, the others complete
ENDS: dict[int, tuple[dict[str, Json], list[str]]] = {
    4: ({"1:score": 0.9}, [DONE, DONE, SKIPPED, DONE]),
    9: ({}, [DETACHED, DETACHED, WAITS]),
    12: ({}, [DETACHED, DONE]),
    14: ({"1:findOrders": [{"id": 1}, {"id": 2}]}, [DONE, DONE, DONE]),
    16: ({}, [WAITS, "pending", "pending"]),
    19: ({"1:plan": {"stop": True}}, [DONE, DONE]),
    21: ({"1:plan": {"text": "t"}}, [DONE, DONE]),
    29: ({"1:plan": {"south": "s"}}, [DONE, DONE]),
    22: ({"1:listFolder": {"folders": ["/a"], "files": 1}}, [DONE, DONE, DONE]),
    30: ({}, [DETACHED, DETACHED, DETACHED, WAITS]),
    37: ({"1:describe": {"amount": 10, "stolen": False}}, [DONE, SKIPPED, SKIPPED, DONE]),
}
ENDS |= {
    5: ({"1:score": 0.1}, [DONE, SKIPPED, DONE, DONE]),
    6: ({"1:describe": {"amount": 2000, "stolen": True}}, [DONE, DONE, DONE, DONE]),
    7: ({"1:describe": {"amount": 10, "stolen": True}}, [DONE, SKIPPED, DONE, DONE]),
}
ENDS |= {38: ENDS[37], 24: ENDS[16], 34: ENDS[30], 25: ENDS[19], 26: ENDS[19]}
ENDS |= dict.fromkeys((13, 41, 42), ENDS[14])


@pytest.mark.parametrize("number", sorted(EXAMPLES))
def test_a_plan_of_the_page_does_what_its_pattern_says(number: int) -> None:
    results, ends = ENDS.get(number, ({}, None))
    ended = states(walk(number, results))
    assert ended == (ends or [DONE] * len(ended))


def test_what_comes_first_decides_and_what_comes_later_changes_nothing() -> None:
    for first, second in (("north", "south"), ("south", "north")):
        drive = begin(9)
        drive.finish_all()
        assert states(drive) == ["detached", "detached", "awaiting"]
        provide(drive, "first", text=first)
        provide(drive, "first", text=second)
        drive.finish_all()
        assert drive.started["3:publish"][0] == {"text": first}


def test_two_of_three_votes_release_a_call() -> None:
    drive = begin(30)
    drive.finish_all()
    provide(drive, "votes", c="yes")
    assert drive.state("4:decide") == "awaiting"
    provide(drive, "votes", a="no")
    assert drive.running == ["4:decide"]


# By pattern, what of its inner plan has ended, with results; and whether that is the end of it
RACES: list[tuple[int, tuple[str, ...], dict[str, Json], bool]] = [
    (19, (), {}, False),
    (19, ("2:askStop",), {}, True),
    (26, ("1:callUp[0]",), {}, False),
    (26, ("1:callUp[0]", "1:callUp[1]"), {}, True),
    (27, ("2:ask",), {}, False),
    (27, ("2:ask", "1:ask"), {}, True),
    (29, ("2:askSouth",), {}, True),
    (32, ("3:ask",), {}, False),
    (32, ("3:ask", "1:ask"), {}, True),
    (43, ("2:pack",), {}, False),
    (43, ("2:pack", "1:checkCustomer"), {"1:checkCustomer": {"blocked": True}}, True),
    (43, ("2:pack", "1:checkCustomer"), {"1:checkCustomer": {"blocked": False}}, False),
]


@pytest.mark.parametrize(("number", "ended", "results", "is_over"), RACES, ids=str)
def test_what_still_runs_of_a_race_is_cancelled_as_soon_as_it_is_decided(
    number: int, ended: tuple[str, ...], results: dict[str, Json], is_over: object
) -> None:
    drive = inside(number, *ended, results=results)
    assert any(isinstance(command, EndEarly) for command in drive.commands) is bool(is_over and drive.open)
    assert drive.walk.is_reached is is_over


def test_a_deadline_completes_what_is_there() -> None:
    drive = inside(27, "1:ask")
    drive.perform(drive.walk.wake("2026-01-02T00:00:00Z"))
    assert drive.walk.is_reached
    assert set(drive.walk.context.log.state()) == {"a", "enough"}


# By pattern, the last state of its inner plan, and results; the Calls that are made, and whether it was the last time
TURNS: list[tuple[int, Json, dict[str, Json], list[str], bool]] = [
    (10, None, {"1:draft": "review"}, ["1:draft"], False),
    (10, {"next": "review"}, {"2:review": "draft"}, ["2:review"], False),
    (10, {"next": "draft"}, {"1:draft": "print"}, ["1:draft"], False),
    (10, {"next": "print"}, {"3:print": "end"}, ["3:print"], True),
    (21, None, {"2:check": {"good": False, "advice": "longer"}}, ["1:write", "2:check"], False),
    (21, {"check": {"advice": "longer"}}, {"2:check": {"good": True}}, ["1:write", "2:check"], True),
    (36, None, {"2:count": {"good": 2}}, ["1:ask[0]", "1:ask[1]", "2:count"], False),
    (36, {"count": {"good": 2}}, {"2:count": {"good": 3}}, ["1:ask[0]", "1:ask[1]", "2:count"], True),
]


@pytest.mark.parametrize(("number", "previous", "results", "calls", "is_last"), TURNS, ids=str)
def test_turns_are_made_until_the_condition_holds(
    number: int, previous: Json, results: dict[str, Json], calls: list[str], is_last: object
) -> None:
    drive = inside(number, results=results, previous=previous)
    drive.finish_all()
    assert (list(drive.started), drive.walk.is_reached, drive.open) == (calls, is_last, 0)
    if previous and number == 21:
        assert drive.started["1:write"][0] == {"advice": "longer"}


def test_the_page_has_each_pattern_once_by_its_name() -> None:
    headings = [line + "\n" for line in PAGE.splitlines() if line.startswith(("### ", "| WCP-"))]
    patterns = [(int(number), name) for line in headings for number, name in _NUMBERED.findall(line)]
    assert sorted(patterns) == list(enumerate(NAMES, 1))


def test_the_page_counts_its_patterns() -> None:
    assert f"\n{len(EXAMPLES)} of them can be written." in PAGE
    rows = re.findall(r"^\| ([\d, to]+) \| (yes|no)", PAGE, re.MULTILINE)
    listed: dict[str, set[int]] = {"yes": set(), "no": set()}
    for numbers, answer in rows:
        for part in numbers.split(", "):
            first, _, last = part.partition(" to ")
            listed[answer] |= set(range(int(first), int(last or first) + 1))
    assert listed == {"yes": set(EXAMPLES), "no": set(range(1, len(NAMES) + 1)) - set(EXAMPLES)}
