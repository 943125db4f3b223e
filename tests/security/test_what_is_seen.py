"""What a person decides about is seen whole and as it is, and what is copied is what was seen."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acts.cli import console
from acts.cli.commands.mcp import _answer_in_text
from acts.cli.render.tables import approval_lines, decision_command, subject_lines
from acts.cli.text.preflight import run_preflight
from acts.cli.text.source import compare_plans, format_plan, parse
from acts.language.errors import heading, visible
from acts.language.values import is_equal
from acts.language.wire import APPROVE, EDIT, REJECT
from acts.tree.decisions import PendingApproval
from acts.tree.wire_format import digest
from acts.views.text import change_lines, code_span, fence
from tests.unit.views.test_web_page import JSON, SINCE

Json = Any
# Bidirectional controls, joiners, fillers, variation selectors, C0, C1, DEL, tags, blanks, halves of characters
HIDDEN = (
    "\u202e\u2066\u200b\u200d\ufeff\u00ad\u034f\u061c\u115f\u1160\u3164\uffa0\ufe0f\U000e0100\u180b\u17b4\x00\x1b\x07"
)
HIDDEN += "\r\x7f\x85\x9b\u2028\u2029\U000e0041\u2800\u00a0\u3000\U000f0000\ud800\U0001d159"
TEXT = st.text(st.sampled_from(HIDDEN) | st.characters())
DOORS: dict[str, Callable[[str], str]] = {
    "a line": console.clean, "lines": lambda text: "".join(console.clean_lines(text)), "a command": console.shell,
    "a code span": code_span, "a fence": fence, "a heading": lambda text: heading(text, 10_000),
    "an editor": lambda text: format_plan([text])[0],
    "a difference": lambda text: "".join(compare_plans([], [text], ("a", "b"))),
    "a change": lambda text: console.clean("".join(change_lines([{"part": "a", "from": text, "to": 1}]))),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
@given(TEXT)
@example(HIDDEN)
def test_what_nobody_would_see_leaves_no_door(door: str, text: str) -> None:
    shown = DOORS[door](text).replace("\n", "")
    assert shown.isprintable()
    assert not set(shown) & set(HIDDEN)


@given(JSON)
@example([HIDDEN])
def test_json_with_escapes_is_the_same_json(value: Json) -> None:
    shown = visible(json.dumps(value, ensure_ascii=False, indent=2), "\n")
    assert json.loads(shown) == value
    assert not set(shown) & set(HIDDEN)
    assert is_equal(parse(*format_plan([value])), [value])


def test_json_of_commands_is_printed_with_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    async def tool() -> Json:
        return {HIDDEN: 1}

    console.print_json({HIDDEN: 1})
    for printed in (capsys.readouterr().out, asyncio.run(_answer_in_text(tool)())):
        assert json.loads(printed) == {HIDDEN: 1}
        assert not set(printed) & set(HIDDEN)


@given(st.text("[]()<>`*_!:/.@ahtpw mlo:\n|{}") | TEXT)
@example("[Approve now](http://evil.example)")
@example("see http://evil.example")
def test_text_of_users_in_a_summary_is_no_link_and_fits(text: str) -> None:
    line = heading(text, 100)
    assert len(line.encode()) <= 100
    bare = re.sub("`[^`]*`", "", line)
    assert not re.search(r"`|<|://|www\.|\]\(|@", bare)


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z"))).filter(lambda t: t and visible(t) == t)


@given(NAMES, NAMES, NAMES, st.sampled_from([APPROVE, REJECT, EDIT]))
@example("$(reboot)", "; rm -rf ~", "'", APPROVE)
def test_a_command_to_be_copied_says_what_was_shown_and_a_shell_reads_it_as_words(
    run: str, call: str, instance: str, word: str
) -> None:
    wait = PendingApproval(
        workflow_id=f"{run}/a", what="call", call=call, instance=instance, version=3, subject="a" * 64, since=SINCE
    )
    words = shlex.split(decision_command(word, run, wait))
    assert words[:3] == ["acts", word, run]
    named = dict(zip(words[3::2], words[4::2], strict=True))
    assert named == {
        "--call": call, "--workflow-id": f"{run}/a", "--instance": instance, "--version": "3", "--subject": "a" * 16,
        **({"--reason": "…"} if word == REJECT else {}),
    }  # fmt: skip


@given(st.dictionaries(st.text(), JSON), st.sampled_from([{}, {"forged": 1}]), st.integers(1, 40), st.integers(20, 200))
def test_what_is_decided_is_printed_whole_or_no_command_decides(
    content: Json, more: Json, rows: int, width: int
) -> None:
    wait = PendingApproval.model_validate(
        {"workflowId": "r", "what": "plan", "version": 1, "since": SINCE, "subject": digest(content),
         "content": {**content, **more}}
    )  # fmt: skip
    lines, is_whole = subject_lines(wait, rows, width)
    parts = [json.dumps(value, ensure_ascii=False) for value in content.values() if not isinstance(value, (dict, list))]
    assert len(lines) <= rows + 1
    assert is_whole <= (not more and all(console.clean(part) in " ".join(lines) for part in parts))
    has_command = any("acts approve r" in line for line in approval_lines("r", [wait]))
    assert has_command == subject_lines(wait, 200, 10_000)[1]


@given(JSON, JSON)
def test_what_has_changed_is_old_and_new_who_and_when(old: Json, new: Json) -> None:
    change = {"call": 2, "from": {"a": old, "same": 1}, "to": {"a": new, "same": 1}, "by": "Ada", "date": SINCE}
    lines = list(change_lines([change]))
    pair = " → ".join(json.dumps(value, ensure_ascii=False) for value in (old, new))
    assert lines == ([] if is_equal(old, new) else [f"call 2 a: {pair}, by Ada, {SINCE}"])


@given(st.lists(NAMES, max_size=3), st.sampled_from([False, True]))
def test_names_to_ask_about_that_nothing_has_are_errors_before_anything_is_sent(names: list[str], agent: Any) -> None:
    tool = {"type": "object", "properties": {"_activity": {"const": "pay"}, "_outputPath": {"const": "†state.a"}}}
    context = [{"type": "tool", "tool": {"refund": tool}}, {"type": "plan", "plan": [{"_tool": "refund"}]}]
    config = {"approve": {"calls": [*names, "refund", "pay"]}, "model": "scripted:x"}
    problems = run_preflight({"config": config, "context": context}, agent=agent).errors
    unknown = [f"/config/approve/calls/{i}" for i, name in enumerate(names) if name not in ("refund", "pay")]
    assert [p.pointer for p in problems if p.code == "unknownTool"] == unknown
