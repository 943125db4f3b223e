"""A person with a browser and Temporal's Web UI alone: sees what waits, decides, and the run goes on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from acts.views import approval_page, web_page
from tests.browser import webui
from tests.browser.webui import SIGNAL, UPDATE, Page, WebUI
from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, Handle, call, ended, of_type
from tests.workflow.tools import echo

pytestmark = pytest.mark.skipif(bool(webui.missing()), reason=webui.missing())

Json = Any
at_the_browser = asyncio.to_thread  # the loop goes on serving the worker meanwhile

# What the page is made of; whatever else is in it came from outside
OWN_ELEMENTS = {"code", "em", "h3", "li", "p", "pre", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"}


async def lazy(foreign: Foreign, *calls: dict[str, Json], context: list[Json] | None = None) -> Handle:
    """A plan that waits for its approval."""
    request = foreign.request(*calls, context=context or [])
    request["context"][-1]["mode"] = "lazy"
    handle = await foreign.start(request)

    async def waits() -> bool:
        return bool(await handle.query("pending"))

    await assert_eventually(waits, why="a pending decision")
    return handle


# -- deciding ----------------------------------------------------------------------


async def test_a_plan_is_found_understood_and_approved_in_the_browser(person: WebUI, foreign: Foreign) -> None:
    def decides() -> tuple[Page, str, Page]:
        person.opens_from_list(handle.id)
        page = person.details("Waits for a decision")
        asked = page.to_send(decision="approve")
        person.sends(UPDATE, "decide", asked)
        person.says("COMPLETED")
        return page, asked, person.details("Decisions")

    async with foreign.serving(echo):
        handle = await lazy(foreign, call("echo", "†state.a", value=1), call("echo", "†state.b", value="†state.a"))
        page, asked, after = await at_the_browser(decides)
        result = await ended(handle)
    assert page.text.startswith("awaiting — 2 pending")
    assert page.row("1:echo") == ("· pending", "1:echo", "†state.a")
    assert page.row("2:echo") == ("· pending", "2:echo", "†state.b")
    assert f"the plan of {handle.id}" in page.text
    assert "2 calls in 2 waves" in page.text
    assert json.loads(asked) == {"decision": "approve", "workflowId": handle.id, "version": 1}
    assert result["state"] == {"a": 1, "b": 1}
    assert [d["decision"] for d in result["decisions"]] == ["approve"]
    assert after.text.startswith("completed — 2 completed")
    assert "approve the plan (version 1)" in after.items[-1]


async def test_a_signal_approves_one_call_and_the_reason_is_kept(person: WebUI, foreign: Foreign) -> None:
    def decides() -> Page:
        person.opens(handle.id)
        page = person.details("2:pay would be called with")
        assert page.to_send(_tool="pay", value=2)
        asked = json.loads(page.to_send(decision="approve", call="2:pay"))
        person.sends(SIGNAL, "approve", json.dumps({**asked, "by": "Ada", "note": "seen the bill"}))
        return person.details("completed — 2 completed")

    plan = [call("echo", "†state.a", value=1), call("pay", "†state.b", value=2)]
    pay = foreign.tool("pay")
    pay["tool"]["properties"]["_activity"] = {"const": "echo"}
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(*plan, context=[pay], approve={"calls": ["pay"]}))
        page = await at_the_browser(decides)
        result = await ended(handle)
    assert result["state"] == {"a": 1, "b": 2}
    assert (result["decisions"][0]["by"], result["decisions"][0]["reason"]) == ("Ada", "seen the bill")
    assert page.items[-1].endswith("Ada: approve 2:pay (version 1): seen the bill")


async def test_a_plan_is_rejected_with_a_reason(person: WebUI, foreign: Foreign) -> None:
    def decides() -> Page:
        person.opens(handle.id)
        asked = json.loads(person.details("Waits for a decision").to_send(decision="reject"))
        assert asked["reason"] == "…"  # what is to be filled in
        person.sends(UPDATE, "decide", json.dumps({**asked, "reason": "too dear", "by": "Ada"}))
        return person.details("Decisions")

    handle = await lazy(foreign, call("echo", "†state.a", value=1))
    page = await at_the_browser(decides)
    result = await ended(handle)
    assert (result["status"], result["state"]) == ("rejected", {})
    assert result["decisions"][0]["reason"] == "too dear"
    assert page.items[-1].endswith("Ada: reject the plan (version 1): too dear")


async def test_a_plan_is_edited_and_its_new_version_approved(person: WebUI, foreign: Foreign) -> None:
    def decides() -> Page:
        person.opens(handle.id)
        new = [call("echo", "†state.b", value=2), call("echo", "†state.c", value="†state.b")]
        asked = json.loads(person.details("To change it").to_send(decision="edit"))
        person.sends(UPDATE, "decide", json.dumps({**asked, "plan": new, "by": "Ada"}))
        page = person.details("2:echo", "edit the plan")
        person.sends(UPDATE, "decide", page.to_send(decision="approve"))
        person.says("COMPLETED")
        return page

    async with foreign.serving(echo):
        handle = await lazy(foreign, call("echo", "†state.a", value=1))
        page = await at_the_browser(decides)
        result = await ended(handle)
    assert json.loads(page.to_send(decision="approve"))["version"] == 2
    assert page.row("2:echo") == ("· pending", "2:echo", "†state.c")
    assert result["state"] == {"b": 2, "c": 2}
    assert [d["decision"] for d in result["decisions"]] == ["edit", "approve"]


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        ({"decision": "approve", "version": 7}, "version 7 is not what waits: the plan of {id} is at version 1"),
        ({"decision": "approve", "call": "9:echo"}, "nothing that waits is matched by call '9:echo'"),
        ({"decision": "edit", "plan": [{"_tool": "nope"}]}, 'unknown tool "nope"'),
        ({"decision": "reject"}, 'a rejection has a "reason"'),
    ],
    ids=["version", "call", "edit", "reason"],
)
async def test_the_dialog_says_why_a_decision_is_refused_and_the_run_waits_on(
    person: WebUI, foreign: Foreign, decision: Json, words: str
) -> None:
    def decides() -> str:
        person.opens(handle.id)
        said = person.is_refused(UPDATE, "decide", json.dumps(decision))
        person.details("Waits for a decision")
        return said

    handle = await lazy(foreign, call("echo", "†state.a", value=1))
    said = await at_the_browser(decides)
    assert words.format(id=handle.id) in said
    assert "File " not in said  # where in the engine that was found out
    assert await of_type(handle, "WORKFLOW_EXECUTION_UPDATE_ACCEPTED") == []
    await handle.cancel()


# -- what is said where ------------------------------------------------------------


async def test_each_dialog_says_what_its_decisions_take(person: WebUI, foreign: Foreign) -> None:
    def looks() -> tuple[dict[str, str], dict[str, str]]:
        person.opens(handle.id)
        updates = dict(person.begins(UPDATE))
        person.opens(handle.id)
        return updates, dict(person.begins(SIGNAL))

    handle = await lazy(foreign, call("echo", "†state.a", value=1))
    updates, signals = await at_the_browser(looks)
    assert '{"decision": "reject", "reason": "…"}' in updates["decide"]
    assert {"approve", "reject", "edit", "provide", "pause", "resume"} <= signals.keys()
    assert all(said for name, said in (updates | signals).items() if name != "Custom")
    await handle.cancel()


async def test_the_timeline_names_each_call_and_where_it_writes(person: WebUI, foreign: Foreign) -> None:
    def looks() -> tuple[str, ...]:
        person.opens(handle.id)
        return person.timeline("echo • ")

    async with foreign.serving(echo):
        handle = await foreign.start(
            foreign.request(call("echo", "†state.a", value=1), call("echo", "†state.b || †state.c"))
        )
        await ended(handle)
        labels = await at_the_browser(looks)
    assert {"echo • echo → †state.a", "echo • echo → †state.b || †state.c"} <= set(labels)


# -- text from outside -------------------------------------------------------------

# Each would leave a trace: an element that the page does not have, a mark, or an alert, which ends the test
STRIKE = "window.top.struck=1,alert(1)"
MARKUP = [
    f"<img src=x onerror={STRIKE}>",
    f"<script>{STRIKE}</script>",
    f"</td></table><svg onload={STRIKE}>",
    f"[a](javascript:{STRIKE})",
    "![a](/favicon.ico)",
    "**bold** _slanted_ `code` ~~struck~~",
    "| a | b |",
    "</code></pre><h1>big</h1>",
    "```",
    "# head",
]
PATHS = ["<b>x</b>", "<script>window.top.struck=1</script>", "**x**", "`x`", "<img/src=x>"]
# What the Web UI makes of text that is none of Markdown's marks, and how it shows what is escaped in the wrong way
DRESSED = [
    *("<b>", "a & b &lt; c", "http://evil.example/x", "mailto:eve@evil.example", "www.evil.example", "$x$", "1/2"),
    *("a--b", "and so on...", "(c)", 'say "no"', "it's", "a || b", "a `b` c", "```", "\\", "{workflowId}", "&#60;"),
]


async def shown(person: WebUI, foreign: Foreign, texts: list[str], paths: list[str]) -> tuple[Page, Page]:
    """The page of a plan that waits and of one that was decided, with these texts wherever a stranger may put some."""

    def decides() -> tuple[Page, Page]:
        person.opens(handle.id)
        page = person.details("Waits for a decision")
        asked = json.loads(page.to_send(decision="approve"))
        person.sends(UPDATE, "decide", json.dumps({**asked, "by": f"by {texts[0]}", "reason": " ".join(texts[1:])}))
        after = person.details(f"completed — {len(calls)} completed")
        person.timeline(f"echo • {texts[0]} → †state")
        assert person.driver.execute_script("return window.struck") is None
        return page, after

    places = [*paths, *"abcdefghijklmnopqrstuvwxyz"][: len(texts)]
    calls = [call(text, f"†state.{place}", value=1) for text, place in zip(texts, places, strict=True)]
    tools = [foreign.tool(text) for text in texts]
    for tool in tools:
        tool["tool"]["properties"]["_activity"] = {"const": "echo"}
    async with foreign.serving(echo):
        handle = await lazy(foreign, *calls, context=tools)
        found = await at_the_browser(decides)
        await ended(handle)
    return found


async def test_text_from_outside_makes_no_element_and_runs_no_script(person: WebUI, foreign: Foreign) -> None:
    page, after = await shown(person, foreign, MARKUP, PATHS)
    assert set(page.elements) | set(after.elements) <= OWN_ELEMENTS


async def test_text_from_outside_is_shown_as_it_was_written(person: WebUI, foreign: Foreign) -> None:
    page, after = await shown(person, foreign, DRESSED, ["<b>x</b>"])
    assert set(page.elements) | set(after.elements) <= OWN_ELEMENTS
    assert [page.row(f"{i}:{text}")[1] for i, text in enumerate(DRESSED, 1)] == [
        f"{i}:{text}" for i, text in enumerate(DRESSED, 1)
    ]
    assert page.row("†state.<b>x</b>")
    assert after.items[-1].endswith(f"by {DRESSED[0]}: approve the plan (version 1): {' '.join(DRESSED[1:])}")


async def test_the_alarm_rings(person: WebUI, foreign: Foreign) -> None:
    """What the test above looks for is there when nothing is escaped."""
    with pytest.MonkeyPatch.context() as patch:
        for room in (web_page, approval_page):
            patch.setattr(room, "code_span", lambda text, _limit=0: str(text))
        page, _ = await shown(person, foreign, MARKUP, PATHS)
    assert {"img", "script", "h1", "a"} <= set(page.elements)
