"""The page of a run: text from outside reads as it was written, JSON can be copied, and no page is too long."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.text import Text

from acts.cli.render.tables import approval_lines, report_parts
from acts.language.errors import CallError, DecisionRefused, visible
from acts.machines.events import Begin, CallEnded, ChildEnded, DecisionReceived
from acts.machines.plan_run import PlanRun
from acts.tree.decisions import PendingApproval, read_decision
from acts.tree.wire_format import digest
from acts.views.run_views import MAX_PICTURED, MAX_SUBJECT, PlanView, approvals_section, describe_proposal
from acts.views.text import MAX_ROWS, MAX_SECTION, code_span, fence, row
from tests.cases import call, state
from tests.property.drive import NOW
from tests.unit.machines.test_elements import plan_run
from tests.unit.views.test_pictures import SVG, read

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
    return [json.loads(part.partition("\n```")[0]) for part in page.split("```json\n")[1:]]


@given(st.text())
@example("{{workflowId}} a | b `` {namespace}")
def test_text_from_outside_is_seen_as_it_was_written_on_one_line(text: str) -> None:
    span = code_span(text, 10_000)
    assert "|" not in span
    assert not re.search(r"\{(namespace|workflowId|runId)\}", span)
    assert read_span(span) == visible(" ".join(filter(None, re.split("[ \t\r\n]+", text))))


def test_the_alarm_rings() -> None:
    """What the tests above go by is an error when nothing is done to a text."""
    for text in ("<b>", "a|b", "*a*", "a"):
        with pytest.raises(AssertionError, match="may be markup"):
            read_span(text)


def approval(run: str, call: str, instance: str) -> PendingApproval:
    return PendingApproval(workflow_id=run, what="call", version=1, since=SINCE, call=call, instance=instance)


def test_who_and_why_are_shown_as_text() -> None:
    decision = read_decision({"decision": "reject", "reason": WORSE, "by": WORSE})
    record = decision.record(approval(WORSE, WORSE, WORSE), SINCE)
    (line,) = [text for text in approvals_section([], [record]).splitlines() if "reject" in text]
    who = call = instance = code_span(WORSE)
    why = code_span(WORSE, 300)
    assert line == f"- 2026-01-01 00:00:00 UTC {who}: reject {call} [{instance}] (version 1): {why}"


def test_a_run_below_may_report_anything_and_it_is_text() -> None:
    forged: Json = {"workflowId": WORSE, "what": "call", "version": 1, "since": WORSE, "deadline": WORSE, "call": WORSE}
    page = approvals_section([PendingApproval.model_validate(forged)], [])
    assert "<script>" not in re.sub(r"`[^`\n]+`", "", page.partition("```json")[0])
    with pytest.raises(ValueError, match="since"):
        PendingApproval.model_validate({**forged, "since": 7, "deadline": ["x"]})


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


def waiting_run(*calls: Json, **config: Json) -> PlanRun:
    run = plan_run(*calls, context=state(sum=50, card="x", text="x" * 5_000), **config)
    run.handle(Begin(), NOW)
    run.flush(NOW)
    return run


def test_who_decides_about_a_call_is_told_what_it_would_be_called_with() -> None:
    pay = call("pay", "†state.a", amount="†state.sum", note="†state.text")
    run = waiting_run(pay, approve={"calls": True})
    page = PlanView(run).page()
    assert page.index("### Waits for a decision") < page.index("<details><summary>Calls")
    content, approve, reject, edit = texts(page)
    assert content["with"] == {"_tool": "pay", "amount": 50, "note": "x" * 5_000, "_outputPath": "†state.a"}
    assert (approve["decision"], reject["decision"]) == ("approve", "reject")
    assert approve["subject"] == reject["subject"] == edit["subject"] == digest(content)
    assert (edit["with"], edit["version"]) == (pay, 1)
    for template in (approve, reject, edit):
        with pytest.raises(DecisionRefused, match='still "…"'):
            read_decision(template)
        read_decision({**template, "by": "Ada", "reason": "seen"})
    run.handle(DecisionReceived(approve, None), NOW)
    assert texts(PlanView(run).page()) == texts(page), "nobody has filled it in"
    run.handle(DecisionReceived({**approve, "by": "Ada"}, None), NOW)
    assert texts(PlanView(run).page()) == []


@given(JSON, st.none() | st.sampled_from(["cut", "forged", "signed"]))
def test_nobody_decides_on_a_page_about_what_is_not_on_it_whole(value: Json, lack: str | None) -> None:
    content = {"with": {"a": value}, "more": "x" * MAX_SUBJECT if lack == "cut" else ""}
    own = {"workflowId": "run/Ann", "what": "call", "version": 1, "since": SINCE, "call": "1:pay", "instance": "Ann"}
    subject = digest({**content, "more": 1} if lack == "forged" else content)
    sign = {"sign": {"challenge": "c"}} if lack == "signed" else {}
    page = approvals_section(
        [PendingApproval.model_validate({**own, "subject": subject, "content": content, **sign})], []
    )
    shown = texts(page)
    assert [item["subject"] for item in shown if "decision" in item] == ([subject] * 2 if lack is None else [])
    assert [item for item in shown if "with" in item] == ([content] if lack in (None, "signed") else [])
    assert ("`acts show`" in page, "`acts pending`" in page) == (lack in ("cut", "forged"), lack == "signed")


def test_a_plan_that_waits_is_shown_with_what_it_would_do_and_the_json_that_edits_it() -> None:
    calls = [call("pay", "†state.a", amount="†state.sum", _scopes=["†state.card"]), call("tell", text="†state.a")]
    page = describe_proposal(waiting_run(*calls, approve={"calls": ["pay"]}).whole_plan)[0]
    assert "2 calls in 2 waves, 1 combinations of outcomes" in page
    assert (
        row("`1:pay`", "`activity row.pay, after approval`", "`†state.sum`, `†state.card (scope)`", "`†state.a`")
        in page
    )
    assert row("`2:tell`", "`activity row.tell, in the background`", "`†state.a`", "") in page
    assert texts(page) == [{"decision": "edit", "by": "…", "plan": calls}]
    assert read_decision({**texts(page)[0], "by": "Ada"}).calls == calls


def test_whoever_looks_at_a_plan_sees_which_calls_a_model_answers() -> None:
    calls = [call("think", "†state.a"), call("pay", "†state.b")]
    run = waiting_run(*calls, model="scripted:x", approve={"plan": True})
    view, (wait,) = PlanView(run), run.approvals.waits.own
    assert [item.get("answeredBy") for item in view.status()["calls"]] == ["model", None]
    assert "- · `1:think`: `answered by a model`" in view.page()
    assert row("`1:think`", "`answered by a model`", "", "`†state.a`") in describe_proposal(run.whole_plan)[0]
    shown = wait.model_copy(update={"content": run.subject_of(wait)})
    assert any(line.strip() == "answered by a model: 1:think" for line in approval_lines("r", [shown]))

    run = waiting_run(*calls, model="scripted:x", approve={"calls": True})
    assert [wait.about.get("hints") for wait in run.approvals.waits.own] == [["answered by a model"], None]


def test_the_longest_page_can_still_be_opened() -> None:
    """Each character of its names takes 12 bytes in an address."""
    wide = "😀" * 190
    calls = [call(f"{wide}{i}", f"†state.{wide}{i}", x="†state", y=[f"†state.{wide}{i}"] * 9) for i in range(MAX_ROWS)]
    run = plan_run(*calls, context=state(**{f"{wide}{i}": wide for i in range(MAX_ROWS)}), approve={"calls": True})
    run.handle(Begin(), NOW)
    run.notes.extend(["|" * 300] * 20)
    waits = [approval(wide * 2, f"{i}:{wide}", wide) for i in range(MAX_ROWS)]
    records = [{"date": SINCE, "decision": "approve", "version": 1, "by": wide, "reason": wide * 10}] * MAX_ROWS
    page = PlanView(run).page() + approvals_section(waits, records) + describe_proposal(run.whole_plan)[0]
    assert len(page) > 4 * MAX_SECTION
    assert len(quote(page, safe=UNQUOTED)) < MAX_ADDRESS - 4096  # what else stands in a request


def batch_run(count: int) -> PlanRun:
    data = [{**state(n=n), "_instance": f"c{n}"} for n in range(count)]
    run = plan_run(call("pay", "†state.a", n="†state.n"), context=data)
    run.handle(Begin(), NOW)
    run.flush(NOW)
    return run


def test_the_page_of_a_batch_says_first_why_instances_failed_and_how_many() -> None:
    run = batch_run(12)
    for at, node in enumerate(run.walk.nodes[2:10]):
        errors = [{"call": "1:pay", "code": "declined", "message": f"card {at} has expired"}]
        report = {node.id: {"status": "failed", "calls": [], "errors": errors}}
        run.handle(ChildEnded(node.key, {"status": "failed", "instances": report}), NOW)
    run.handle(CallEnded(run.walk.nodes[10].key, error=CallError("timeout", "its run took too long")), NOW)
    view = PlanView(run)
    page = view.page()
    often, once = "✗ `8 × 1:pay [declined] card 0 has expired: c2, c3, ", "✗ `1 × [timeout] its run took too long: c10`"
    assert page.index(often) < page.index(once) < page.index("|")
    assert "9 failed, 3 running" in page
    first, *_ = [line for line in page.splitlines() if line.startswith("| ✗")]
    assert page.index(first) < page.index("| ▶")
    shown = [part.plain for part in report_parts("r", view.status()) if isinstance(part, Text)]
    assert any("8 × 1:pay [declined]" in line for line in shown)


def test_a_small_plan_is_drawn_on_its_page_and_a_long_page_has_no_picture() -> None:
    calls = [call("pay", "†state.a", amount="†state.sum"), call("tell", text="†state.a")]
    page = PlanView(waiting_run(*calls, approve={"calls": True})).page()
    svg = page[page.index("<svg") : page.index("</svg>") + len("</svg>")]
    assert {g.attrib["data-state"] for g in read(svg).iter(f"{SVG}g")} == {"awaiting", "pending"}
    many = [call("pay", f"†state.a{i}", n=i) for i in range(MAX_PICTURED + 1)]
    assert "<svg" not in PlanView(waiting_run(*many)).page()
