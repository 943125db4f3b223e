"""A drawing of a plan: what it shows, what it omits and says so, and that no text escapes from it."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from acts.plan.validate import ValidatedPlan, validate_request
from acts.views.drawing import MAX_LINES, MAX_MERMAID_EDGES, MAX_MERMAID_TEXT, draw_mermaid, draw_text

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


def test_a_plan_as_a_flowchart() -> None:
    assert draw_mermaid(plan(WEATHER), BOUGHT) == (
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


def test_a_flowchart_stays_within_what_mermaid_draws_and_says_what_is_missing() -> None:
    wide = [call("do", i, f"†state.s{i}") for i in range(40)] + [call("do", "†state") for _ in range(40)]
    text = draw_mermaid(plan(wide), report({f"{i + 1}:do": "completed" for i in range(80)}))
    assert text.count("-->") == MAX_MERMAID_EDGES
    assert 'note2["only 500 of the lines are drawn"]' in text
    long = [call("do", i and f"†state.s{i - 1}", f"†state.s{i}") for i in range(3000)]
    text = draw_mermaid(plan(long), report({f"{i + 1}:do": "completed" for i in range(3000)}))
    assert len(text) < MAX_MERMAID_TEXT
    assert re.search(r'note1\["2,\d{3} more calls are not drawn"\]', text)


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


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_whatever_the_text_it_stays_text(text: str) -> None:
    prepared = _nasty(text)
    states = {"calls": [{"id": n.id, "state": state} for n in prepared.nodes for state in (text, "completed")]}
    for report in (None, states):
        drawing = draw_mermaid(prepared, report)
        *lines, last = drawing.split("\n")
        assert last == ""
        assert [line for line in lines if not _LINES.fullmatch(line)] == []
        lines = draw_text(prepared, report).split("\n")
        assert sum(line.startswith("│ ") and line[2] != " " for line in lines) == 2
        assert [c for line in lines for c in line if unicodedata.category(c)[0] in "CZ" and c != " "] == []


def test_a_plan_for_the_terminal() -> None:
    rule = "─" * 60
    assert draw_text(plan(WEATHER), BOUGHT) == (
        "4 calls in 3 waves\n"
        f"┌─ 1 {rule}\n"
        "│ ✓ 1:think [latent] → †state.sunny || †state.rainy || †state.unknown\n"
        f"├─ 2 {rule}\n"
        "│ ▶ 2:do → †state.beach ← 1 if †state.sunny\n"
        "│ – 3:ask [delegate] → †state.museum ← 1 if †state.rainy.amount\n"
        f"├─ 3 {rule}\n"
        "│ · 4:do [background] ← 2 †state.beach, 3 †state.museum, 1 on error\n"
        "│     †state.unknown.code\n"
        f"└───{rule}"
    )


def test_a_long_drawing_ends_and_says_so() -> None:
    lines = draw_text(plan([call("do", i and f"†state.s{i - 1}", f"†state.s{i}") for i in range(3000)])).split("\n")
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == "… and more, which are not drawn"
