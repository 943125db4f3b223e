"""docs/patterns.md: each pattern that it shows as a plan is walked here, and has what makes it that pattern."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acts.language.references import Path as ReferencePath
from acts.plan.context_log import END
from tests.case_rows import fails, tool
from tests.property.drive import NOW, Drive, data_message

Json = Any
PAGE = (Path(__file__).parents[2] / "docs" / "patterns.md").read_text("utf-8")
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
WALKED: dict[int, Callable[[], None]] = {}


def shows(*numbers: int) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Marks the check of a pattern."""

    def register(check: Callable[[], None]) -> Callable[[], None]:
        WALKED.update(dict.fromkeys(numbers, check))
        return check

    return register


def begin(number: int, results: dict[str, Json] | None = None, **inputs: Json) -> Drive:
    """The walk of a pattern's plan, begun; ``results`` are by Call id, of the others their Tool."""
    request = EXAMPLES[number]
    calls = request["context"][-1]["plan"]
    by_id = {f"{i}:{call['_tool']}": f"{call['_tool']} {i}" for i, call in enumerate(calls, 1)} | (results or {})
    tools = {call["_tool"]: tool(call["_tool"]) for call in calls}
    context = [{"type": "tool", "tool": tools}, {"type": "input", "input": {**INPUT, **inputs}}, *request["context"]]
    return Drive({**request, "context": context}, by_id)


def walk(number: int, results: dict[str, Json] | None = None) -> Drive:
    """The walk of a pattern's plan to its end."""
    drive = begin(number, results)
    drive.finish_all()
    return drive


def provide(drive: Drive, kind: str, **data: Json) -> None:
    drive.perform(drive.walk.provide(data_message({"type": "data", "kind": kind, "data": data}), NOW))


def states(drive: Drive) -> list[str]:
    return [drive.state(node.id) for node in sorted(drive.walk.nodes, key=lambda node: node.index)]


def state_of(drive: Drive) -> Json:
    return drive.walk.log.read(ReferencePath("state"), END)


# -- basic ---------------------------------------------------------------------------------------------


@shows(1)
def each_starts_when_the_one_before_has_ended() -> None:
    drive = begin(1)
    for id_ in ("1:pack", "2:ship", "3:mail"):
        assert drive.running == [id_]
        drive.finish(id_)
    assert drive.final_statuses == ["completed"]


@shows(2)
def both_start_when_the_one_before_has_ended() -> None:
    drive = begin(2)
    drive.finish("1:pay")
    assert drive.running == ["2:ship", "3:invoice"]


@shows(3)
def it_starts_when_both_have_ended_and_only_then() -> None:
    for first, second in (("1:ship", "2:invoice"), ("2:invoice", "1:ship")):
        drive = begin(3)
        drive.finish(first)
        assert drive.running == [second]
        drive.finish(second)
        assert drive.running == ["3:archive"]
    assert states(walk(3, {"1:ship": fails()})) == ["failed", "completed", "skipped"]


@shows(4)
def exactly_one_branch_runs() -> None:
    assert states(walk(4, {"1:score": 0.5})) == ["completed", "completed", "skipped"]
    assert states(walk(4, {"1:score": 0.4})) == ["completed", "skipped", "completed"]


@shows(5)
def it_runs_once_after_whichever_branch_ran() -> None:
    for score, text in ((0.9, "accept 2"), (0.1, "decline 3")):
        assert walk(5, {"1:score": score}).started["4:mail"][0] == {"text": text}


# -- branching -----------------------------------------------------------------------------------------


@shows(6)
def any_of_the_branches_run() -> None:
    for crime, injured in ((True, 2), (True, 0), (False, 1), (False, 0)):
        drive = walk(6, {"1:describe": {"crime": crime, "injured": injured}})
        assert [state == "completed" for state in states(drive)[1:]] == [crime, injured > 0]


@shows(7)
def it_waits_for_the_branches_that_run_and_for_no_other() -> None:
    branches = {"2:police": {"crime": True}, "3:doctor": {"injured": 1}}
    for first, second in (("2:police", "3:doctor"), ("3:doctor", "2:police")):
        both = begin(7, {"1:describe": {"crime": True, "injured": 1}})
        both.finish("1:describe")
        both.finish(first)
        assert both.running == [second]
        both.finish(second)
        assert both.running == ["4:report"]
        one = begin(7, {"1:describe": {"crime": False, "injured": 0, **branches[first]}})
        one.finish("1:describe")
        one.finish(first)
        assert one.running == ["4:report"]
    none = walk(7, {"1:describe": {"crime": False, "injured": 0}})
    assert states(none)[3] == "skipped"


@shows(8)
def it_runs_once_for_each_branch_without_waiting_for_the_other() -> None:
    drive = begin(8)
    drive.finish("2:invoice")
    assert drive.running == ["1:ship", "4:log"]
    drive.finish_all()
    assert state_of(drive)["log"] == ["log 3", "log 4"]


@shows(9)
def the_first_answer_releases_it_and_the_second_changes_nothing() -> None:
    for first, second in (("north", "south"), ("south", "north")):
        drive = begin(9)
        drive.finish_all()
        assert states(drive) == ["detached", "detached", "awaiting"]
        provide(drive, "first", text=first)
        assert drive.running == ["3:publish"]
        provide(drive, "first", text=second)
        drive.finish_all()
        assert drive.started["3:publish"][0] == {"text": first}
        assert drive.final_statuses == ["completed"]


@shows(30)
def two_of_three_release_it() -> None:
    two_votes_release(begin(30), "4:decide")


@shows(34)
def two_of_three_elements_release_it() -> None:
    drive = begin(34)
    assert [id_ for id_ in drive.running if id_ != "2:decide"] == [f"1:ask[{i}]" for i in range(3)]
    two_votes_release(drive, "2:decide")


def two_votes_release(drive: Drive, decide: str) -> None:
    drive.finish_all()
    assert drive.state(decide) == "awaiting"
    provide(drive, "votes", c="yes")
    assert drive.state(decide) == "awaiting"
    provide(drive, "votes", a="no")
    assert drive.running == [decide]
    assert drive.started[decide][1] == [{"type": "data", "kind": "votes", "data": {"c": "yes", "a": "no"}}]
    provide(drive, "votes", b="late")
    drive.finish_all()
    assert drive.final_statuses == ["completed"]


@shows(37, 38)
def a_merge_of_branches_that_are_not_nested_waits_for_those_that_run() -> None:
    small = begin(37, {"1:describe": {"amount": 10, "stolen": False}})
    small.finish("1:describe")
    assert small.running == ["4:pay"]
    stolen = begin(37, {"1:describe": {"amount": 10, "stolen": True}})
    stolen.finish("1:describe")
    assert stolen.running == ["3:askPolice"]
    large = begin(37, {"1:describe": {"amount": 5000, "stolen": False}, "2:inspect": {"crime": True}})
    large.finish("1:describe")
    large.finish("2:inspect")
    assert large.running == ["3:askPolice"]
    large.finish("3:askPolice")
    assert large.running == ["4:pay"]


@shows(41, 42)
def one_thread_becomes_as_many_as_there_are_pages_and_they_become_one_again() -> None:
    drive = begin(41, {"1:split": ["p", "q"]})
    drive.finish("1:split")
    assert drive.running == ["2:translate[0]", "2:translate[1]"]
    drive.finish("2:translate[1]")
    assert drive.running == ["2:translate[0]"]
    drive.finish("2:translate[0]")
    assert drive.running == ["3:bind"]
    assert drive.started["3:bind"][0] == {"pages": ["translate 2"] * 2}


# -- multiple instances --------------------------------------------------------------------------------


@shows(12)
def each_is_started_and_the_plan_waits_for_none() -> None:
    drive = walk(12, {"1:notify": fails()})
    assert drive.started["1:notify[1]"][0] == {"to": "b@x"}
    assert states(drive) == ["detached", "completed"]
    assert drive.final_statuses == ["completed"]


@shows(13)
def as_many_as_the_plan_says_run_side_by_side_and_are_waited_for() -> None:
    drive = begin(13)
    assert drive.running == [f"1:translate[{i}]" for i in range(3)]
    drive.finish_all()
    assert drive.started["2:publish"][0] == {"texts": ["translate 1"] * 3}


@shows(14)
def as_many_as_are_found_run_side_by_side_and_are_waited_for() -> None:
    for count in (0, 1, 40):
        drive = begin(14, {"1:findOrders": [{"id": i} for i in range(count)]})
        drive.finish("1:findOrders")
        assert sum(id_.startswith("2:refund") for id_ in drive.running) == count
        drive.finish_all()
        assert drive.started["3:report"][0] == {"refunds": ["refund 2"] * count}


# -- state ---------------------------------------------------------------------------------------------


@shows(16)
def what_comes_first_decides() -> None:
    for name, ends in (("paid", ["completed", "skipped"]), ("withdrawn", ["skipped", "completed"])):
        drive = begin(16, {"1:accept": {"name": name}})
        assert states(drive) == ["awaiting", "pending", "pending"]
        provide(drive, "event", name=name)
        assert drive.started["1:accept"][0] == {"event": {"name": name}}
        provide(drive, "event", name="too late")
        drive.finish_all()
        assert states(drive)[1:] == ends


@shows(17, 40)
def one_runs_at_a_time_and_none_before_what_it_needs() -> None:
    drive = walk(17)
    assert drive.most_running == 1
    assert list(drive.started) == ["1:testEyes", "2:testEars", "3:fitGlasses"]


@shows(18)
def it_runs_only_until_the_time_is_over() -> None:
    assert states(walk(18)) == ["completed", "completed"]
    closed = begin(18)
    provide(closed, "closing", time="12:00")
    closed.finish_all()
    assert states(closed) == ["completed", "skipped"]
    started = begin(18)
    started.finish("1:pack")
    provide(started, "closing", time="12:00")
    assert started.running == ["2:changeAddress"]


@shows(39)
def the_second_section_starts_after_the_first_however_that_ends() -> None:
    drive = begin(39)
    for id_ in ("1:lift", "2:lower", "3:lift", "4:lower"):
        assert drive.running == [id_]
        drive.finish(id_)
    for failing in ("1:lift", "2:lower"):
        assert walk(39, {failing: fails()}).state("4:lower") == "completed"


# -- iteration, termination ----------------------------------------------------------------------------


@shows(21)
def turns_are_made_until_the_text_is_good() -> None:
    good, bad = {"good": True}, {"good": False, "advice": "longer"}
    for checks, text in (((good, bad), "write 1"), ((bad, good), "write 3"), ((bad, bad), "write 5")):
        drive = walk(21, {"2:check": checks[0], "4:check": checks[1]})
        assert drive.started["6:publish"][0] == {"text": text}
        assert ("4:check" in drive.started) == (checks[0] is bad)
        assert drive.final_statuses == ["completed"]


@shows(22)
def a_definition_that_uses_itself_ends_where_a_list_is_empty() -> None:
    folders = {"/": ["/a", "/b"], "/a": ["/a/c"], "/b": [], "/a/c": []}

    def count(path: str) -> int:
        listing = {"folders": folders[path], "files": 1}
        drive = begin(22, {"1:listFolder": listing}, path=path)
        drive.finish("1:listFolder")
        for id_ in [id_ for id_ in drive.running if id_.startswith("2:")]:
            drive.results[id_] = count(drive.started[id_][0]["path"])
            drive.finish(id_)
        parameters = drive.started["3:addUp"][0]
        drive.results["3:addUp"] = parameters["files"] + sum(parameters["inner"])
        drive.finish("3:addUp")
        return int(state_of(drive)["output"])

    assert count("/") == len(folders)


@shows(11)
def it_ends_when_nothing_is_left_to_do() -> None:
    drive = begin(11)
    drive.finish("2:invoice")
    assert drive.final_statuses == []
    drive.finish("1:ship")
    assert drive.final_statuses == ["completed"]


# -- cancellation, triggers ----------------------------------------------------------------------------


@shows(20)
def nothing_more_starts_and_what_had_completed_stays() -> None:
    drive = begin(20)
    drive.finish("1:ship")
    drive.perform(drive.walk.cancel(NOW))
    drive.results["2:mail"] = fails("cancelled", "cancelled")
    drive.finish("2:mail")
    assert states(drive) == ["completed", "cancelled"]
    assert state_of(drive) == {"shipment": "ship 1"}
    early = begin(20)
    early.perform(early.walk.cancel(NOW))
    early.finish("1:ship")
    assert "2:mail" not in early.started


@shows(24)
def a_trigger_is_kept_whenever_it_comes() -> None:
    early = begin(24)
    provide(early, "truck", id="t1")
    early.finish("1:pack")
    late = begin(24)
    late.finish("1:pack")
    assert late.state("2:ship") == "awaiting"
    provide(late, "truck", id="t1")
    assert early.started["2:ship"] == late.started["2:ship"]


# -- the page ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", sorted(EXAMPLES))
def test_a_plan_of_the_page_is_the_pattern(number: int) -> None:
    WALKED[number]()


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
