"""Pictures of a plan and of a run's time: well-formed whatever the names are, a box for each Call, none on another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from acts.plan.validate import ValidatedPlan
from acts.views.gantt_svg import gantt_svg, read_bars
from acts.views.plan_svg import MAX_BOXES, MAX_CHARS, as_file, plan_svg
from acts.views.run_events import RunEvent
from tests.unit.views.test_draw import BOUGHT, NASTY, WEATHER, _nasty, call, plan

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


def read(svg: str) -> ET.Element:
    """The picture, with nothing in it that runs or loads anything, and nothing that ends a block of Markdown."""
    root = ET.fromstring(svg)  # noqa: S314 - our own
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= {"svg", "g", "a", "rect", "path", "text", "title"}
    assert not [name for e in root.iter() for name in e.attrib if name.startswith("on") or name == "style"]
    assert "\n" not in svg
    return root


def calls_of(root: ET.Element) -> list[str]:
    return [g.attrib["data-call"] for g in root.iter(f"{SVG}g") if "data-call" in g.attrib]


def boxes(root: ET.Element) -> list[tuple[float, float, float, float]]:
    places = [[float(r.attrib[key]) for key in ("x", "y", "width", "height")] for r in root.iter(f"{SVG}rect")]
    return [(x, y, x + width, y + height) for x, y, width, height in places]


def arrows(root: ET.Element) -> set[str]:
    return {str(p.findtext(f"{SVG}title")) for p in root.iter(f"{SVG}path") if p.find(f"{SVG}title") is not None}


def lines_of(prepared: ValidatedPlan) -> int:
    return sum(p.find(f"{SVG}title") is not None for p in read(plan_svg(prepared)).iter(f"{SVG}path"))


def check_boxes(root: ET.Element) -> None:
    own, (_, _, width, height) = boxes(root), map(float, root.attrib["viewBox"].split())
    assert all(x >= 0 and y >= 0 and right <= width and bottom <= height for x, y, right, bottom in own)
    for at, (x, y, right, bottom) in enumerate(own):
        for other in own[:at]:
            assert right <= other[0] or other[2] <= x or bottom <= other[1] or other[3] <= y


@settings(max_examples=60, deadline=None, derandomize=True)
@given(HOSTILE)
def test_no_name_is_more_than_text_in_a_picture(text: str) -> None:
    prepared = _nasty(text)
    states = {"calls": [{"id": prepared.nodes[1].id, "state": "failed", "error": {"code": text, "message": text}}]}
    root = read(plan_svg(prepared, states))
    assert len(calls_of(root)) == 2
    check_boxes(root)
    read(gantt_svg([event("callStarted", 1, text), event("callEnded", 2, text, error={"message": text})]))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.integers(0, 11), max_size=4), min_size=1, max_size=12))
def test_each_call_has_a_box_of_its_own_and_every_wait_is_a_way_of_lines(reads: list[list[int]]) -> None:
    wanted = [sorted({i for i in row if i < at}) for at, row in enumerate(reads)]
    prepared = plan([call("do", [f"†state.s{i}" for i in row], f"†state.s{at}") for at, row in enumerate(wanted)])
    root = read(plan_svg(prepared))
    assert sorted(calls_of(root)) == sorted(f"{at + 1}:do" for at in range(len(reads)))
    check_boxes(root)
    above: list[set[int]] = []
    for row in wanted:
        above.append(set(row).union(*(above[i] for i in row)))
    needed = sum(not any(i in above[j] for j in row) for row in wanted for i in row)
    assert lines_of(prepared) == needed


def test_a_state_is_a_word_and_a_mark_and_a_branch_that_was_not_taken_is_faint() -> None:
    root = read(plan_svg(plan(WEATHER), BOUGHT))
    groups = {g.attrib["data-call"]: g for g in root.iter(f"{SVG}g")}
    texts = {name: [t.text for t in g.iter(f"{SVG}text")] for name, g in groups.items()}
    assert texts["2:do"][0] == "▶"
    assert str(texts["2:do"][2]).startswith("running · if †state.sunny")
    assert [name for name, g in groups.items() if "opacity" in g.attrib] == ["3:ask"]
    assert "on error †state.unknown.code" in arrows(root)
    assert [a.attrib["href"] for a in root.iter(f"{SVG}a")] == ["#call-1", "#call-2", "#call-3", "#call-4"]
    assert not list(read(plan_svg(plan(WEATHER), links="")).iter(f"{SVG}a"))


def test_a_picture_is_bounded_and_a_file_has_colours_of_its_own() -> None:
    prepared = plan([call("do", i, f"†state.s{i}") for i in range(MAX_BOXES + 7)])
    root = read(plan_svg(prepared))
    assert len(boxes(root)) == MAX_BOXES
    assert "7 more calls are not drawn" in "".join(root.itertext())
    dense = [call("do", i, f"†state.s{i}") for i in range(40)] + [call("do", "†state") for _ in range(40)]
    assert len(plan_svg(plan(dense))) <= MAX_CHARS
    assert "prefers-color-scheme:dark" in as_file(plan_svg(prepared))
    assert "no calls" in "".join(read(plan_svg(plan([]))).itertext())


def event(type_: str, second: int, call_: str | None = None, run: str = "run", **data: Any) -> RunEvent:
    return RunEvent(type_, run, order=(second * 1_000_000, 0, "", 0, 0, 0), call=call_, data=data)


TIMES = [
    event("callStarted", 0, "1:quick"),
    event("callStarted", 0, "2:slow"),
    event("callEnded", 1, "1:quick", state="completed"),
    event("callEnded", 5, "2:slow", state="failed", attempts=3),
    event("waitOpened", 5, "3:ask", what="call"),
    event("waitClosed", 7, "3:ask", what="call"),
    event("callStarted", 7, "3:ask", child="run/3"),
    event("callStarted", 7, "1:inner", "run/3"),
    event("callEnded", 9, "1:inner", "run/3", state="completed"),
    event("callEnded", 9, "3:ask", state="completed"),
]


def test_the_critical_path_goes_back_from_what_ended_last() -> None:
    bars = read_bars(TIMES)
    critical = [bar.name for bar in bars if bar.is_critical]
    assert critical == ["2:slow", "3:ask waits", "1:inner"]
    assert [bar.attempts for bar in bars if bar.name == "2:slow"] == [3]
    root = read(gantt_svg(TIMES))
    assert len(boxes(root)) == len(bars) == 5
    assert "×3" in "".join(root.itertext())
    assert "nothing has started" in "".join(read(gantt_svg([])).itertext())


def test_what_has_not_ended_goes_on_to_the_last_event() -> None:
    bars = read_bars(TIMES[:3])
    assert [bar.name for bar in bars if bar.end is None] == ["2:slow"]
    assert [bar.name for bar in bars if bar.is_critical] == ["2:slow"]
    assert "9.0 s" in "".join(read(gantt_svg(TIMES[:3], now=9.0)).itertext())


def test_an_instance_waits_for_no_other_one() -> None:
    rows = [("callStarted", 0, "a"), ("callEnded", 2, "a"), ("callStarted", 0, "b"), ("callEnded", 1, "b"),
            ("callStarted", 3, "b"), ("callEnded", 5, "b")]  # fmt: skip
    events = [replace(event(type_, at, "1:x"), instance=name) for type_, at, name in rows]
    critical = [(bar.instance, bar.start) for bar in read_bars(events) if bar.is_critical]
    assert critical == [("b", 0), ("b", 3)]
