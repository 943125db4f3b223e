"""A drawing of a plan: what it shows, what it omits and says so, and that no text escapes from it."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from acts.machines.instance_results import child_progress
from acts.machines.walk import Walk
from acts.plan.validate import ValidatedPlan, validate_request
from acts.tree.batches import expand_template, split_into_children
from acts.views.mermaid import MAX_MERMAID_EDGES, MAX_MERMAID_TEXT, mermaid, render_graph
from acts.views.plan_drawing import MAX_EDGES, draw_waves, find_edges
from acts.views.state_marks import CALL_STATES, STATE_MARKS
from cli.render.terminal_plan import MAX_COLUMNS, render_plan

META: dict[str, Any] = {
    "_outputPath": {"type": "string"}, "_errorPath": {"type": "string"}, "_outputMethod": {"type": "string"},
    "_scopes": {"type": "array"}, "x": {},
}  # fmt: skip


def tool(**meta: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**META, **meta}}


TOOLS: dict[str, Any] = {
    "do": tool(_activity={"const": "run"}),
    "think": tool(_activity={"const": ""}, _output=True),
    "ask": tool(_delegate={"const": "helper"}),
}


def call(tool_: str, x: Any = 1, to: str | None = None, **more: Any) -> dict[str, Any]:
    out = {"_tool": tool_, "x": x, **more}
    return out if to is None else {**out, "_outputPath": to}


def plan(calls: list[dict[str, Any]], *context: Any, tools: dict[str, Any] | None = None) -> ValidatedPlan:
    messages = [{"type": "tool", "tool": {**TOOLS, **(tools or {})}}, *context, {"type": "plan", "plan": calls}]
    return validate_request({"config": {"model": "scripted:x"}, "context": messages})


WEATHER = [
    call("think", "Paris", "†state.sunny || †state.rainy", _errorPath="†state.unknown"),
    call("do", "†state.sunny", "†state.beach"),
    call("ask", "†state.rainy.amount", "†state.museum"),
    call("do", ["†state.beach || †state.museum", "†state.unknown.code"]),
]


def report(states: dict[str, str], **instances: Any) -> dict[str, Any]:
    """What a result says of the calls, by id, and of instances."""
    return {"calls": [{"id": id_, "state": state} for id_, state in states.items()], "instances": instances}


BOUGHT = report(
    {"1:think": "completed", "2:do": "running", "3:ask": "skipped", "4:do": "pending", "9:nobody": "completed"}
)


def graph_edges(prepared: ValidatedPlan) -> list[tuple[int, int, str]]:
    return [(e.writer, e.reader, e.label) for e in find_edges(prepared)[0]]


def terminal(prepared: ValidatedPlan, report: Any = None, width: int = 100) -> str:
    return render_plan(draw_waves(prepared, report), width) + "\n"


# -- edges ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([call("do")], []),
        ([call("do", to="†state.a"), call("do", "†state.a")], [(0, 1, "†state.a")]),
        ([call("do", to="†state.a"), call("do", "†state.a.b.c")], [(0, 1, "†state.a.b.c")]),
        ([call("do", to="†state.a.b"), call("do", "†state.a")], [(0, 1, "†state.a.b")]),
        ([call("do", to="†state.a && †state.b"), call("do", "†state")], [(0, 1, "†state.a"), (0, 1, "†state.b")]),
        ([call("do", to="†state.a"), call("do", 1, _scopes=["state"])], [(0, 1, "†state.a")]),
        ([call("do", "†state.a"), call("do", to="†state.a")], [(0, 1, "†state.a")]),  # plan order: ranks
        (  # a chain of changes is drawn as a chain: the first is implied by the second
            [call("do", "†state.n", "†state.n") for _ in range(4)],
            [(0, 1, "†state.n"), (1, 2, "†state.n"), (2, 3, "†state.n")],
        ),
        (  # independent writers of one list are all drawn
            [*[call("do", 1, "†state.list", _outputMethod="push") for _ in range(3)], call("do", "†state.list")],
            [(0, 3, "†state.list"), (1, 3, "†state.list"), (2, 3, "†state.list")],
        ),
    ],
)
def test_edges_lead_from_writers_to_readers(calls: Any, expected: Any) -> None:
    held = {"type": "state", "n": 0} if calls[0].get("x") == "†state.n" else {"type": "input", "i": 0}
    assert graph_edges(plan(calls, held)) == expected


def test_edges_and_what_they_imply_are_the_dependencies() -> None:
    calls = [call("do", [f"†state.s{j}" for j in range(i % 3, i, 3)] or 1, f"†state.s{i % 7}") for i in range(30)]
    prepared = plan(calls, {"type": "state", "state": {f"s{i}": 0 for i in range(30)}})
    reached: list[set[int]] = [set() for _ in calls]
    for writer, reader, _ in graph_edges(prepared):
        reached[reader] |= {writer} | reached[writer]
    for rank in range(len(calls)):
        assert set(prepared.graph.dependencies(rank)) <= reached[rank]
        assert all(w in prepared.graph.dependencies(r) for w, r, _ in graph_edges(prepared))


def test_edges_are_bounded() -> None:
    calls = [call("do", i, f"†state.s{i}") for i in range(60)] + [call("do", "†state") for _ in range(60)]
    assert len(graph_edges(plan(calls))) == MAX_EDGES == 2000


# -- Mermaid -------------------------------------------------------------------


def test_a_plan_as_a_flowchart() -> None:
    assert mermaid(plan(WEATHER), BOUGHT) == (
        "flowchart TD\n"
        '  c1(["1:think<br/>→ †state.sunny #124;#124; †state.rainy #124;#124; †state.unknown"])\n'
        '  c2["2:do<br/>→ †state.beach"]\n'
        '  c3[["3:ask<br/>→ †state.museum"]]\n'
        '  c4>"4:do"]\n'
        '  c1 -.->|"if †state.sunny"| c2\n'
        '  c1 -.->|"if †state.rainy.amount"| c3\n'
        '  c2 -->|"†state.beach"| c4\n'
        '  c3 -->|"†state.museum"| c4\n'
        '  c1 -.->|"on error †state.unknown.code"| c4\n'
        "  classDef pending fill:#f6f6f6,stroke:#999,color:#333\n"
        "  class c4 pending\n"
        "  classDef running fill:#cfe2ff,stroke:#0d6efd,color:#123\n"
        "  class c2 running\n"
        "  classDef completed fill:#d1e7dd,stroke:#198754,color:#132\n"
        "  class c1 completed\n"
        "  classDef skipped fill:#fff,stroke:#bbb,color:#888,stroke-dasharray:4\n"
        "  class c3 skipped\n"
    )


def test_an_outcome_that_was_given_is_no_condition() -> None:
    calls = [call("think", 1, "†state.a", _output=1, _errorPath="†state.e"), call("do", "†state.a")]
    assert '-->|"†state.a"|' in mermaid(plan(calls))


def test_an_unknown_state_colours_nothing() -> None:
    assert mermaid(plan(WEATHER), report({"1:think": "x fill:red\n  click c1 evil"})) == mermaid(plan(WEATHER))


def test_a_flowchart_stays_within_what_mermaid_draws_and_says_what_is_missing() -> None:
    wide = [call("do", i, f"†state.s{i}") for i in range(40)] + [call("do", "†state") for _ in range(40)]
    text = mermaid(plan(wide), report({f"{i + 1}:do": "completed" for i in range(80)}))
    assert text.count("-->") == MAX_MERMAID_EDGES
    assert 'note2["only 500 of the lines are drawn"]' in text
    long = [call("do", i and f"†state.s{i - 1}", f"†state.s{i}") for i in range(3000)]
    text = mermaid(plan(long), report({f"{i + 1}:do": "completed" for i in range(3000)}))
    assert len(text) < MAX_MERMAID_TEXT
    assert re.search(r'note1\["2,\d{3} more calls are not drawn"\]', text)


def test_a_flowchart_of_hostile_names_stays_within_mermaids_limit() -> None:
    name = "<" * 190
    calls = [call(f"{name}{i % 9}", f"†state.s{i - 1}" if i else 1, f"†state.s{i}") for i in range(900)]
    text = mermaid(plan(calls, tools={f"{name}{i}": tool(_activity={"const": "run"}) for i in range(9)}))
    assert len(text) < MAX_MERMAID_TEXT


# What may stand in a label: letters, digits, harmless marks, codes, and our own line break
_LABEL = r'"(?:[\w .,:/†→-]|#\d+;|<br/>)*"'
_LINES = re.compile(
    rf"flowchart TD|  c\d+(?:\[|\(\[|\[\[|>){_LABEL}(?:\]|\]\)|\]\])|  c\d+ (?:-->|-\.->)\|{_LABEL}\| c\d+"
    r"|  classDef [a-z]+ [a-z#0-9:,-]+|  class [c0-9,]+ [a-z]+"
)
NASTY = [
    '"]; click c1 "javascript:alert(1)"',
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a\n  c9[evil]\nend",
    "#quot;#35;`**bold**`",
    "%%{init: {'securityLevel': 'loose'}}%%",
    "]]])))}}}|||>>>",
    "\x1b[31mred\x07\x9b31m",
    "right\u202eleft\u2028\u2029\ufeff\u00a0",
    "\U0001f600\U0001d400",
    "end",
]


def _nasty(text: str) -> ValidatedPlan:
    printable = "".join(c if c.isprintable() else "?" for c in text).strip() or "x"
    reader = call(printable, f"†state[{_json(text)}] || †state.a", "†state.b", _instance=text)
    context = [{"type": "state", "_instance": text, "state": {"q": 1}}]
    return plan([call("do", 1, "†state"), reader], *context, tools={printable: tool(_activity={"const": "run"})})


def _json(text: str) -> str:
    return '"' + "".join(f"\\u{ord(c):04x}" if ord(c) < 1 << 16 else c for c in text) + '"'


def _check_mermaid(text: str) -> None:
    *lines, last = text.split("\n")
    assert last == ""
    assert [line for line in lines if not _LINES.fullmatch(line)] == []


def _check_terminal(text: str, width: int) -> None:
    for line in text.split("\n"):
        assert [c for c in line if unicodedata.category(c)[0] in "CZ" and c != " "] == []
        assert cell_len(line) <= width


@pytest.mark.parametrize("text", NASTY)
def test_no_text_breaks_out_of_its_label(text: str) -> None:
    prepared = _nasty(text)
    states = [{"id": n.id, "state": state} for n in prepared.nodes for state in (text, "completed")]
    text = mermaid(prepared, {"calls": states})
    _check_mermaid(text)
    for markup in ("<script", "<img", "%%{", '"javascript'):
        assert markup not in text
    _check_terminal(terminal(prepared), 100)
    _check_terminal(terminal(prepared, {"calls": states}), 100)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), st.integers(20, 60))
def test_whatever_the_text_it_stays_text(text: str, width: int) -> None:
    prepared = _nasty(text)
    _check_mermaid(mermaid(prepared))
    _check_terminal(terminal(prepared, width=width), width)


# -- the terminal --------------------------------------------------------------


def test_a_plan_for_the_terminal() -> None:
    assert terminal(plan(WEATHER), BOUGHT, width=76) == (
        "4 calls in 3 waves\n"
        f"┌─ 1 {'─' * 71}\n"
        "│ ✓ 1:think [latent] → †state.sunny || †state.rainy || †state.unknown\n"
        f"├─ 2 {'─' * 71}\n"
        "│ ▶ 2:do → †state.beach ← 1 if †state.sunny\n"
        "│ – 3:ask [delegate] → †state.museum ← 1 if †state.rainy.amount\n"
        f"├─ 3 {'─' * 71}\n"
        "│ · 4:do [background] ← 2 †state.beach, 3 †state.museum, 1 on error †state.…\n"
        f"└{'─' * 75}\n"
    )


@pytest.mark.parametrize(
    ("state", "mark"), [*((state, STATE_MARKS[state]) for state in CALL_STATES), ("\x1b[31m", "?")]
)
def test_each_state_has_its_mark(state: str, mark: str) -> None:
    assert f"│ {mark} 1:do" in terminal(plan([call("do")]), report({"1:do": state}))


def test_without_states_there_are_no_marks() -> None:
    assert "│ • 1:do" in terminal(plan([call("do")]))
    assert terminal(plan([])) == "0 calls in 0 waves\n"


def test_a_long_plan_is_cut_and_says_so() -> None:
    chain = [call("do", i and f"†state.s{i - 1}", f"†state.s{i}") for i in range(3000)]
    text = terminal(plan(chain))
    assert "and 2,940 more waves with 2,940 calls" in text
    assert "only the first 2,000 reads are shown" in text
    wide = terminal(plan([call("do", i, f"†state.s{i}") for i in range(1000)]))
    assert "and 960 more calls" in wide
    assert max(text.count("\n"), wide.count("\n")) < 200


def test_wide_and_combining_characters_are_measured() -> None:
    text = terminal(plan([call("do", 1, "†state." + "長" * 60)]), width=40)
    assert text.split("\n")[2] == "│ • 1:do → †state." + "長" * 10 + "…"
    text = terminal(plan([call("do", 1, "†state." + "e\u0301" * 10)]), width=40)
    assert "e\u0301" * 10 in text


def test_the_same_plan_gives_the_same_picture() -> None:
    other = {"calls": BOUGHT["calls"][::-1]}
    assert mermaid(plan(WEATHER), BOUGHT) == mermaid(plan(WEATHER), other)
    assert terminal(plan(WEATHER), BOUGHT) == terminal(plan(WEATHER), other)


def test_an_instance_is_named_where_the_call_names_one() -> None:
    people = [{"type": "state", "_instance": name, "state": {"n": 1}} for name in ("①", "②")]
    named = plan([call("do", "†state.n", "†state.m", _instance="①")], *people)
    assert "1:do<br/>instance ①<br/>→ †state.m" in mermaid(named)
    assert "1:do @① → †state.m" in terminal(named)
    assert "①" not in terminal(plan([call("do", "†state.n", "†state.m")], *people))  # a template


# -- many instances ------------------------------------------------------------

CHAIN = [call("do", "†state.n", "†state.m"), call("do", "†state.m")]


def people(count: int) -> list[dict[str, Any]]:
    return [{"type": "state", "_instance": f"p{i}", "state": {"n": i}} for i in range(count)]


def ended(*states: str) -> dict[str, Any]:
    calls = [{"id": f"{i}:do", "state": s} for i, s in enumerate(states, 1)]
    return {"status": "completed" if "failed" not in states else "failed", "calls": calls}


def test_a_template_says_how_many_instances_are_in_which_state_and_has_the_mark_of_the_worst() -> None:
    instances = {f"p{i}": ended("completed", "completed") for i in range(99)} | {"p99": ended("failed", "skipped")}
    prepared, progress = plan(CHAIN, *people(100)), report({}, **instances)
    drawn = terminal(prepared, progress)
    assert drawn.startswith("2 calls in 2 waves, for each of 100 instances\n")
    assert "│ ✗ 1:do [99 completed, 1 failed] → †state.m\n" in drawn
    assert "│ ✓ 2:do [background] [99 completed, 1 skipped] ← 1 †state.m\n" in drawn
    boxes = mermaid(prepared, progress)
    assert '  c1["1:do<br/>→ †state.m<br/>99 completed, 1 failed"]\n' in boxes
    assert "  class c1 failed\n" in boxes
    assert "  class c2 completed\n" in boxes


def test_where_the_instances_are_alike_nothing_is_counted() -> None:
    drawn = terminal(
        plan(CHAIN, *people(2)), report({}, p0=ended("completed", "skipped"), p1=ended("completed", "skipped"))
    )
    assert "│ ✓ 1:do → †state.m\n" in drawn
    assert "│ – 2:do [background] ← 1 †state.m\n" in drawn
    assert "for each" not in terminal(plan(CHAIN, *people(1)))


@pytest.mark.parametrize(
    ("status", "state", "mark"),
    [("running", "open", "▶"), ("awaiting", "open", "▶"), ("pending", "pending", "·"), ("failed", "failed", "✗")],
)
def test_calls_of_an_instance_that_tells_none_have_its_status(status: str, state: str, mark: str) -> None:
    progress = report({}, p0=ended("completed", "completed"), p1={"status": status, "calls": []})
    assert f"│ {mark} 1:do [1 completed, 1 {state}]" in terminal(plan(CHAIN, *people(2)), progress)
    assert f"1 completed, 1 {state}" in mermaid(plan(CHAIN, *people(2)), progress)


def test_calls_that_name_their_instance_have_the_state_that_it_tells() -> None:
    calls = [call("do", "†state.n", "†state.m", _instance=f"p{i}") for i in range(3)]
    progress = report({"3:do": "failed"}, p0=ended("skipped"), p1={"status": "pending"})
    drawn = terminal(plan(calls, *people(3)), progress)
    for line in ("│ – 1:do @p0 →", "│ · 2:do @p1 →", "│ ✗ 3:do @p2 →"):
        assert line in drawn


def test_a_child_of_several_instances_draws_each_call_once() -> None:
    members = ["p0", "p1", "p2"]
    prepared = expand_template(plan(CHAIN, *people(3)), members)
    assert len(prepared.nodes) == 6
    calls = [{"id": f"{i}:do", "state": s} for i, s in ((1, "completed"), (2, "running")) for _ in members]
    boxes = mermaid(prepared, {"calls": calls})
    assert boxes.count('["1:do') == boxes.count('>"2:do') == boxes.count("-->") == 1
    assert "not drawn" not in boxes
    assert "  class c1 completed\n" in boxes
    drawn = terminal(prepared, {"calls": calls})
    assert drawn.startswith("2 calls in 2 waves, for each of 3 instances\n")
    assert drawn.count("1:do") == drawn.count("2:do") == 1
    assert drawn.count("← 1 †state.m") == 1


def test_what_children_walk_is_drawn_from_the_walk_of_the_run_above() -> None:
    prepared = split_into_children(plan(CHAIN, *people(3)))
    walk = Walk(prepared, lambda node: node.id)
    walk.calls[0].stage, walk.calls[0].value = "completed", {"p0": ended("completed", "failed")}
    walk.calls[1].stage = "running"
    progress = {"calls": [], "instances": child_progress(walk)}
    assert prepared.unsplit is not None
    drawn = terminal(prepared.unsplit, progress)
    assert "│ ▶ 1:do [1 completed, 1 open, 1 pending]" in drawn
    assert "│ ✗ 2:do [background] [1 failed, 1 open, 1 pending]" in drawn


@pytest.mark.parametrize("options", [None, {}, 5, {"format": "x"}, {"width": 76}])
def test_the_query_answers_with_mermaid_by_default(options: Any) -> None:
    assert render_graph(plan(WEATHER), BOUGHT, options) == mermaid(plan(WEATHER), BOUGHT)


def test_the_query_answers_with_waves_as_json_on_request() -> None:
    drawing = render_graph(plan(WEATHER), BOUGHT, {"format": "json"})
    assert json.loads(json.dumps(drawing)) == drawing == draw_waves(plan(WEATHER), BOUGHT)
    assert max(map(len, render_plan(drawing, 10**9).split("\n"))) == MAX_COLUMNS
