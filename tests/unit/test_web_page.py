"""The page of a run: text from outside reads as it was written, JSON can be copied, and no page is too long."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts.language.request_reader import parse_request
from acts.machines.loop import Loop
from acts.plan.validate import validate_request
from acts.tree.batches import split_into_children
from acts.tree.decisions import PendingApproval, read_decision
from acts.views.approval_page import page as proposal
from acts.views.markdown import MAX_ROWS, MAX_SECTION, code_span, fence, fit_lines, row, table
from acts.views.web_page import MAX_TEXT, agent_page, approvals_section, plan_page
from tests.property.drive import Drive

Json = Any
SINCE = "2026-01-01T00:00:00.000Z"
WORSE = "</script><script>alert(1)</script> [x](javascript:y) `z` **b**\n# now\n| a | b |\n```\n![i](http://e) {runId}"
MAX_ADDRESS = 1 << 20  # bytes: the Web UI's server takes no longer one, and the page travels in it
# Python quotes one more than the Web UI's encodeURIComponent does
UNQUOTED = "!'()*~"

_INLINE = re.compile(r"`([^`]+)`|&#(\d+);|( )")


def read_span(markdown: str) -> str:
    """What a reader sees of code spans, references to characters, and spaces; all else may be markup: an error."""
    out, at = [], 0
    while at < len(markdown):
        match = _INLINE.match(markdown, at)
        assert match is not None, f"may be markup: {markdown[at:]!r}"
        code, number, space = match.groups()
        out.append(code or space or chr(int(number)))
        at = match.end()
    return "".join(out)


def texts(page: str) -> list[Json]:
    """The JSON of all fences of a page."""
    return [json.loads(part.partition("\n```")[0]) for part in page.split("```json\n")[1:]]


def tool(name: str, **properties: Json) -> Json:
    meta = {"_tool": {"const": name}, "_activity": {"const": name}, "_outputPath": {"type": "string"}}
    meta |= {"_errorPath": {"type": "string"}, "_scopes": {"type": "array"}}
    return {"type": "tool", "tool": {"type": "object", "properties": {**meta, **properties}}}


def driven(*calls: Json, results: Json = None, context: list[Json] | None = None, **config: Json) -> Drive:
    tools = [tool(name) for name in dict.fromkeys(c["_tool"] for c in calls)]
    plan = {"type": "plan", "plan": list(calls)}
    return Drive({"config": config, "context": [*tools, *(context or []), plan]}, results or {})


# -- text from outside ---------------------------------------------------------------


@given(st.text())
def test_text_from_outside_is_seen_as_it_was_written_on_one_line(text: str) -> None:
    span = code_span(text, 10_000)
    assert read_span(span) == " ".join("".join(c if c.isprintable() else " " for c in text).split())


@pytest.mark.parametrize(
    "text",
    ["a | b", "`", "``` a `` b", "{namespace}", "{{workflowId}}", 'say "no", it\'s', "\\", "<b>", "$x$ 1/2 a--b", ""],
)
def test_signs_are_seen_and_none_is_left_for_a_table_or_the_web_ui_to_take(text: str) -> None:
    span = code_span(text)
    assert read_span(span) == text
    assert "|" not in span
    assert not re.search(r"\{(namespace|workflowId|runId)\}", span)


def test_the_alarm_rings() -> None:
    """What the tests above go by is an error when nothing is done to a text."""
    for text in ("<b>", "a|b", "*a*", "a"):
        with pytest.raises(AssertionError, match="may be markup"):
            read_span(text)


def test_a_long_text_is_cut_before_it_is_written_and_never_within_a_reference() -> None:
    assert read_span(code_span("|" * 500, 100)) == "|" * 99 + "…"


def test_who_and_why_are_shown_as_text() -> None:
    decision = read_decision({"decision": "reject", "reason": WORSE, "by": WORSE})
    record = decision.record(PendingApproval(WORSE, "call", 1, SINCE, call=WORSE, instance=WORSE), SINCE)
    (line,) = [text for text in approvals_section([], [record]).splitlines() if "reject" in text]
    who = call = instance = code_span(WORSE)
    why = code_span(WORSE, 300)
    assert line == f"- 2026-01-01 00:00:00 UTC {who}: reject {call} [{instance}] (version 1): {why}"


def test_a_run_below_may_report_anything_and_it_is_text() -> None:
    forged: Json = {"workflowId": WORSE, "what": "call", "version": 1, "since": WORSE, "deadline": WORSE, "call": WORSE}
    page = approvals_section([PendingApproval.from_json(forged)], [])
    assert "<script>" not in re.sub(r"`[^`\n]+`", "", page.partition("```json")[0])
    with pytest.raises(TypeError):
        PendingApproval.from_json({**forged, "since": 7, "deadline": ["x"]})


def test_the_latest_decision_stands_first() -> None:
    records = [
        read_decision({"decision": "approve", "by": who}).record(PendingApproval("run", "plan", 1, SINCE), SINCE)
        for who in "ab"
    ]
    lines = [line for line in approvals_section([], records).splitlines() if "approve" in line]
    assert ["`b`" in line for line in lines] == [True, False]


# -- JSON to be copied -----------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_json_in_a_fence_is_what_it_was_and_nothing_in_it_ends_the_fence_or_is_filled_in(value: Json) -> None:
    text = fence([value, "```", "{namespace}"])
    assert texts(text) == [[value, "```", "{namespace}"]]
    assert [line for line in text.splitlines() if "`" in line] == ["```json", "```"]
    assert "{namespace}" not in text
    assert all(c == "\n" or c.isprintable() for c in text)


def test_the_json_to_send_names_what_waits_whatever_its_name() -> None:
    page = approvals_section([PendingApproval(WORSE, "call", 1, SINCE, call=WORSE, instance=WORSE)], [])
    approve, reject = map(read_decision, texts(page))
    assert (approve.decision, reject.decision) == ("approve", "reject")
    assert approve.call == reject.call == approve.workflow_id == WORSE


# -- the page of a plan ------------------------------------------------------------------------


def test_a_row_says_state_call_and_path_and_what_is_long_stands_below_the_table() -> None:
    drive = driven(
        {"_tool": "pay", "_outputPath": "†state.a || †state.b"},
        {"_tool": "look", "x": "†input.card", "_outputPath": "†state.c"},
        {"_tool": "pay", "_outputPath": "†state.d"},
        results={"1:pay": 1, "3:pay": {"$fail": {"type": "Declined", "message": "no | money"}}},
        missing="wait",
    )
    drive.finish("3:pay")
    page = plan_page(drive.walk, "running", ["a <note>"])
    assert page.startswith("**running** — 1 running, 1 awaiting, 1 failed\n\n- `a <note>`\n\n")
    assert (
        table(("", "call", "writes"), [row("▶\u00a0running", "`1:pay`", "`†state.a` &#124;&#124; `†state.b`")]) in page
    )
    assert row("✗\u00a0failed", "`3:pay`", "") in page
    assert "- ✗ `3:pay`: `Declined: no` &#124; `money`" in page
    assert "- ⏸ `2:look` waits for `†input.card`: send the signal `provide`" in page


def test_results_stand_below_the_failures_shortened_and_as_text() -> None:
    calls = [{"_tool": "pay", "_outputPath": f"†state.{name}"} for name in "abc"]
    long: Json = {"`|`": ["x" * 50] * 100_000}
    drive = driven(*calls, results={"1:pay": 7, "2:pay": long, "3:pay": {"$fail": {"type": "No", "message": "no"}}})
    for name in ("3:pay", "2:pay", "1:pay"):
        drive.finish(name)
    lines = [line for line in plan_page(drive.walk, "failed", []).splitlines() if line.startswith("- ")]
    assert lines[:2] == ["- ✗ `3:pay`: `No: no`", "- ✓ `1:pay`: `†state.a` = `7`"]
    assert lines[2].startswith('- ✓ `2:pay`: `†state.b` = `{"`&#96;&#124;&#96;`": ["xxx')
    assert len(lines[2]) < 2 * MAX_TEXT


def test_who_decides_about_a_call_is_told_what_it_would_be_called_with() -> None:
    data = {"type": "input", "input": {"sum": 50, "text": "x" * 5_000}}
    drive = driven(
        {"_tool": "pay", "amount": "†input.sum", "note": "†input.text", "_outputPath": "†state.a"},
        context=[data], approve={"calls": True},
    )  # fmt: skip
    page = plan_page(drive.walk, "awaiting", [])
    assert "`1:pay` would be called with" in page
    (parameters,) = texts(page)
    assert (parameters["_tool"], parameters["amount"], parameters["note"]) == (
        "pay",
        50,
        "… (5,002 characters of JSON)",
    )
    assert "_id" not in parameters
    drive.perform(drive.walk.decide(0, "approve", "", SINCE))
    assert texts(plan_page(drive.walk, "running", [])) == []


def test_a_call_with_many_parameters_still_shows_what_waits_and_how_to_decide() -> None:
    for count, words in ((4, "characters of JSON"), (500, "with 501 parameters: ask the query `pending`")):
        values = {f"p{i}": "x" * 900 for i in range(count)}
        approval = {"workflowId": "run", "what": "call", "version": 1, "since": SINCE, "call": "1:pay"}
        approval["parameters"] = {"_tool": "pay", **values}
        page = approvals_section([PendingApproval.from_json(approval)], [])
        assert words in page
        assert [text.get("decision") for text in texts(page)][-2:] == ["approve", "reject"]


def test_a_call_that_waits_in_a_child_is_shown_with_what_it_would_be_called_with() -> None:
    report = {"workflowId": "run/Ann", "what": "call", "version": 1, "since": SINCE, "call": "1:pay", "instance": "Ann"}
    page = approvals_section([PendingApproval.from_json({**report, "parameters": {"_tool": "pay", "amount": 50}})], [])
    parameters, approve, reject = texts(page)
    assert parameters == {"_tool": "pay", "amount": 50}
    assert "parameters" not in approve | reject
    assert "`1:pay` would be called with" in page
    assert "would be called with" not in approvals_section([PendingApproval.from_json(report)], [])
    signed = approvals_section([PendingApproval.from_json({**report, "sign": {"challenge": "c"}})], [])
    assert "`acts pending`" in signed
    assert '"decision"' not in signed


def test_a_path_is_shown_where_a_call_wrote_or_may_still_write() -> None:
    drive = driven(
        {"_tool": "pay", "_outputPath": "†state.a || †state.b"},
        {"_tool": "pay", "_outputPath": "†state.c", "_errorPath": "†state.error"},
        {"_tool": "pay", "_outputPath": "†state.d"},
        {"_tool": "look", "x": "†state.d", "_outputPath": "†state.e"},
        {"_tool": "look", "x": "†state.a", "_outputPath": "†state.f"},
        results={
            "1:pay": {"type": "state", "state": {"a": 1}},
            "2:pay": {"$fail": {"type": "Declined", "message": "no"}},
            "3:pay": {"$fail": {"type": "Declined", "message": "no"}},
        },
    )  # fmt: skip
    assert row("▶\u00a0running", "`1:pay`", "`†state.a` &#124;&#124; `†state.b`") in plan_page(
        drive.walk, "running", []
    )
    for call in ("1:pay", "2:pay", "3:pay"):
        drive.finish(call)
    page = plan_page(drive.walk, "running", [])
    for cells in (
        ("✓\u00a0completed", "`1:pay`", "`†state.a`"),
        ("✓\u00a0completed", "`2:pay`", "`†state.error`"),
        ("✗\u00a0failed", "`3:pay`", ""),
        ("–\u00a0skipped", "`4:look`", ""),
        ("▶\u00a0running", "`5:look`", "`†state.f`"),
    ):
        assert row(*cells) in page


def test_the_page_of_an_agent_shows_what_waits_in_the_plan_of_its_tick() -> None:
    loop = Loop(parse_request({"config": {"model": "scripted:x"}, "context": [tool("pay")]}), {}, ())
    wait = PendingApproval("run/plan-1", "call", 1, SINCE, call="1:pay")
    record = read_decision({"decision": "approve", "by": "Ada"}).record(PendingApproval("run", "plan", 1, SINCE), SINCE)
    page = agent_page(loop, "awaiting", ["a note"], [wait], [record])
    assert page.startswith("**awaiting** — tick 0 of at most 50")
    assert "- `a note`" in page
    assert [t["workflowId"] for t in texts(page)] == ["run/plan-1"] * 2
    assert "`Ada`: approve the plan (version 1)" in page
    assert "Waits for a decision" not in agent_page(loop, "running", [])


def test_a_large_plan_shows_its_counts_and_what_failed() -> None:
    calls = [{"_tool": "pay", "_outputPath": f"†state.a{i}"} for i in range(MAX_ROWS + 1)]
    drive = driven(*calls, results={"7:pay": {"$fail": {"type": "Declined", "message": "no"}}})
    drive.finish("7:pay")
    page = plan_page(drive.walk, "running", [])
    assert [line for line in page.splitlines() if line.startswith("| ✗")] == [row("✗\u00a0failed", "`7:pay`", "")]
    assert "- ✗ `7:pay`: `Declined: no`" in page


def test_a_plan_that_waits_is_shown_with_what_it_would_do_and_the_json_that_edits_it() -> None:
    calls = [
        {"_tool": "pay", "amount": "†input.sum", "_scopes": ["†input.card"], "_outputPath": "†state.a"},
        {"_tool": "tell", "text": "†state.a"},
    ]
    data = {"type": "input", "input": {"sum": 1, "card": "x"}}
    page = proposal(driven(*calls, context=[data], approve={"calls": ["pay"]}).prepared)
    assert row("`1:pay` (will ask)", "`†input.sum`\u00a0= `1`, scope\u00a0`†input.card`", "`†state.a`") in page
    assert row("`2:tell` (not waited for)", "`†state.a`", "") in page
    assert texts(page) == [{"decision": "edit", "plan": calls}]
    assert read_decision(texts(page)[0]).calls == tuple(calls)


def test_a_plan_of_instances_shows_their_calls_before_it_runs_and_the_children_that_walk_them_then() -> None:
    own: list[Json] = [{"type": "state", "state": {"x": i}, "_instance": i} for i in ("Ann", "Bob")]
    prepared = driven({"_tool": "pay", "x": "†state.x", "_outputPath": "†state.a"}, context=own).prepared
    walked = split_into_children(prepared)
    assert "| `1:pay`" in proposal(walked)
    page = plan_page(Drive(walked, {}).walk, "running", [])
    assert [row("▶\u00a0running", f"instance `{i}`", "") in page for i in ("Ann", "Bob")] == [True, True]


# -- how long a page may be --------------------------------------------------------------


def test_what_is_left_out_is_counted_and_told_where_to_look() -> None:
    assert fit_lines(["a"] * 3, 3, "ask", limit=2) == ["a", "a", "\n… and 1 more: ask"]
    assert fit_lines(["a"] * 3, 3, "ask") == ["a"] * 3
    assert fit_lines(["a" * MAX_SECTION], 1, "ask") == ["\n… and 1 more: ask"]


def test_the_longest_page_can_still_be_opened() -> None:
    """Each character of its names takes 12 bytes in an address."""
    wide = "😀" * 190
    calls = [
        {"_tool": f"{wide}{i}", "x": "†input", "y": [f"†input.{wide}{i}"] * 9, "_outputPath": f"†state.{wide}{i}"}
        for i in range(MAX_ROWS)
    ]
    data = {"type": "input", "input": {f"{wide}{i}": wide for i in range(MAX_ROWS)}}
    drive = driven(*calls, context=[data], approve={"calls": True})
    notes = ["|" * 300] * 20
    waits = [PendingApproval(wide * 2, "call", 1, SINCE, call=f"{i}:{wide}", instance=wide) for i in range(MAX_ROWS)]
    records = [{"date": SINCE, "decision": "approve", "version": 1, "by": wide, "reason": wide * 10}] * MAX_ROWS
    page = plan_page(drive.walk, "awaiting", notes) + approvals_section(waits, records) + proposal(drive.prepared)
    assert len(page) > 4 * MAX_SECTION
    assert len(quote(page, safe=UNQUOTED)) < MAX_ADDRESS - 4096  # what else stands in a request


def test_the_page_of_a_plan_shows_the_values_that_it_reads_from_the_context() -> None:
    tool_ = {"properties": {"_tool": {"const": "pay"}, "_activity": {"const": "pay"}, "_outputPath": {}, "x": {}}}
    plan = [
        {"_tool": "pay", "x": ["†input.id", "†input.order"], "_outputPath": "†state.a"},
        {"_tool": "pay", "x": ["†state.a", "†state.n"], "_outputPath": "†state.n"},
    ]
    data = {"id": "A|1`", "order": {"text": "x" * 200}}
    context = [{"type": "tool", "tool": tool_}, {"type": "input", "input": data}, {"type": "state", "state": {"n": 7}}]
    text = proposal(validate_request({"context": [*context, {"type": "plan", "plan": plan, "mode": "lazy"}]}))
    first, second = (line for line in text.splitlines() if line.startswith(("| `1:pay`", "| `2:pay`")))
    assert '`†input.id`\u00a0= `"A`' in first  # the signs that would end the cell or the code are references
    assert "`†input.order`\u00a0= `{'text': 'xxxx" in first
    assert len(first) < 300
    assert "`†state.a`, `†state.n`" in second  # what the plan itself writes is not known yet
