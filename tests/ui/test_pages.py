"""The inbox over HTTP, without any script: what is shown, what is sent, and what is refused."""

from __future__ import annotations

import json
import re
from itertools import product
from urllib.parse import quote, unquote

import httpx2
import pytest
from temporalio.client import WorkflowFailureError

from acts.cli.dev.temporal_server import DevServer
from acts.client.client_errors import ClientError
from acts.ui.access import HEADERS, Access
from tests.support import assert_eventually
from tests.ui.conftest import HOST, Site, asking_tool, hidden, lookup, refund, serving, start_refund, wait_for
from tests.workflow.agents import Agents
from tests.workflow.foreign import Foreign, call, ended, pending

MEAN = '</textarea><script>alert(1)</script>" onload=x {{7*7}} \u202egnp.exe \u2066\u200b'


async def test_a_card_says_what_would_happen_and_where_each_value_is_from_and_two_requests_approve_it(
    site: Site, foreign: Foreign
) -> None:
    async with foreign.serving(lookup, refund):
        handle = await start_refund(foreign)
        which, card = await site.card_of(handle)
        listed = await site.get("/", q=handle.id)
        assert "orderId A-7" in listed
        assert "cents 4200" in listed
        for text in ("Pays a customer back.", "destructive", "Order", "A-7", "from the input", "4200",
                     "result of 1:lookup",
            "written in the request", "from a tool, a model or another person", "done by", "its result is kept as",
            "JSON: exactly what is decided",
            "Ada wants her money back."):  # fmt: skip
            assert text in card, text
        answer = await site.post("/decide", **hidden(card), decision="approve", reason="as agreed")
        assert "Approved by ada" in answer.text
        result = await ended(handle)
    [decision] = result["decisions"]
    assert (decision["decision"], decision["by"], decision["reason"]) == ("approve", "ada", "as agreed")
    assert decision["subject"] == json.loads(hidden(card)["seen"])["subject"]
    assert "as agreed" in await site.get("/card", **which)
    assert "completed" in await site.get("/run", id=handle.id)


async def test_a_change_is_checked_shown_and_sent_and_then_waits_and_what_was_shown_before_decides_nothing(
    site: Site, foreign: Foreign
) -> None:
    async with foreign.serving(lookup, refund):
        handle = await start_refund(foreign)
        which, card = await site.card_of(handle)
        form = await site.get("/change", **which)
        assert 'value="4200"' in form
        assert "†state.order.cents" in form
        same = {"f.orderId": "A-7", "f.cents": "4200", "f.why": "late"}
        other = await site.post("/change", **hidden(form), **same, step="preview")
        kept = json.loads(hidden(other.text)["new"])
        assert (kept["orderId"], kept["cents"], kept["why"]) == ("†input.orderId", "†state.order.cents", "late")
        wrong = await site.post("/change", **hidden(form), **{"f.cents": "-5"}, step="check")
        assert "cents" in wrong.json()["problems"][0]
        preview = (await site.post("/change", **hidden(form), **{"f.cents": "1000"}, step="preview", note="half")).text
        assert "4200 (†state.order.cents)" in preview
        assert (await site.post("/change", **hidden(preview), step="send")).status_code == 200
        stale = await site.post("/decide", **hidden(card), decision="approve")
        assert stale.status_code == 409
        assert "changed since you were shown it" in stale.text
        _, now = await site.card_of(handle)
        assert "1000" in now
        assert "written by ada" in now
        assert ">from outside<" not in now
        assert "written in the request" in now
        assert "until ada changed it" in now
        await site.post("/decide", **hidden(now), decision="approve")
        assert (await ended(handle))["state"]["paid"] == {"paid": 1000}


async def test_a_plan_shows_what_its_references_have_as_far_as_that_is_known(site: Site, foreign: Foreign) -> None:
    async with foreign.serving(lookup, refund):
        handle = await start_refund(foreign, approve={"plan": True})
        which, card = await site.card_of(handle)
        for text in ("A-7", "from the input", '<span class="value">†state.order.cents</span>'):
            assert text in card
        assert '<span class="value">†input.orderId</span>' not in card
        assert 'value="A-7"' in await site.get("/change", **which, call="2:refund")
        await handle.cancel()


async def test_a_person_answers_in_a_form_that_is_checked(site: Site, foreign: Foreign) -> None:
    async with foreign.serving(lookup):
        asking = call("ask", "†state.said", q="now?", of={"no": "I-17", "to": ["ada"]})
        handle = await foreign.start(foreign.request(asking, context=[asking_tool()]))
        which, card = await site.card_of(handle)
        assert "for finance" in card
        assert '<dt>no</dt><dd><span class="value">I-17</span>' in card
        assert "a person of finance" in card
        assert "now?" in card
        assert 'value="approve"' not in card
        wrong = await site.post("/answer", **hidden(card), **{"f.cents": "many", "f.ok": "true", "f.fee": "45,50"})
        assert wrong.status_code == 409
        for text in ('value="many"', "is no whole number", 'data-of="fee">fee: write 45.50: '):
            assert text in wrong.text
        missing = await site.post("/answer", **hidden(card), **{"f.ok": "true"})
        assert "required" in missing.text
        await site.post("/answer", **hidden(card), **{"f.ok": "true", "f.cents": "5"})
        assert (await ended(handle))["state"]["said"] == {"ok": True, "cents": 5}
    assert "Answered by ada" in await site.get("/card", **which)
    picture = await site.http.get("/run.svg", params={"id": handle.id})
    assert (picture.headers["content-type"], "sandbox" in picture.headers["content-security-policy"]) == (
        "image/svg+xml", True,
    )  # fmt: skip


async def test_hostile_text_is_text_and_what_nobody_would_see_is_shown(site: Site, foreign: Foreign) -> None:
    async with foreign.serving(lookup, refund):
        handle = await start_refund(foreign, why=MEAN, id=f"mean/{foreign.queue}/<b>\u00e9")
        which, card = await site.card_of(handle)
        pages = [card, await site.get("/"), await site.get("/run", id=handle.id), await site.get("/change", **which)]
        for page in pages:
            assert not {"\u202e", "\u2066", "\u200b"} & set(page)
            assert "<script>alert" not in page
            assert '" onload=x' not in page
        assert "\\u202egnp.exe" in card
        assert hidden(card)["seen"].isascii()
        await site.post("/decide", **hidden(card), decision="approve")
        assert (await ended(handle))["status"] == "completed"


async def test_a_value_that_is_long_is_folded_and_there_whole(site: Site, foreign: Foreign) -> None:
    async with foreign.serving(lookup, refund):
        handle = await start_refund(foreign, why=(long := "x" * 30_000))
        _, card = await site.card_of(handle)
        assert "30,000 characters, folded" in card
        assert long in card
        await handle.cancel()


async def test_like_calls_that_several_approve_say_who_may_and_how_many_are_missing(
    site: Site, foreign: Foreign
) -> None:
    async with foreign.serving(lookup, refund):
        rules = {"rules": [{"calls": ["refund"], "who": ["finance"], "of": 3}]}
        handles = [await start_refund(foreign, approve=rules) for _ in range(2)]
        for handle in handles:
            await site.wait_of(handle)
        inbox = await site.get("/", q=foreign.queue[:60])
        page = await site.get("/bulk", like=inbox.split("/bulk?like=")[1].split('"')[0])
        for text in (inbox, page):
            assert text.count("for finance; 0 of 3 have approved") == 2
        seen = [hidden(part)["seen"] for part in page.replace('type="checkbox"', 'type="hidden"').split("<tr>")[2:]]
        fields = {"csrf": hidden(page)["csrf"], "seen": seen}
        assert (await site.post("/bulk", **fields, count="3")).status_code == 409
        sent = await site.post("/bulk", **fields, count="2")
        assert ("0 of 2 approved" in sent.text, sent.text.count("2 more must approve")) == (True, 2)
        for handle in handles:
            await handle.cancel()


async def test_what_a_person_types_is_data_to_the_letter(site: Site, foreign: Foreign) -> None:
    text = "\u2020state.x, \u2020\u2020y \u2020{input.a} \u2020input.a"
    async with foreign.serving(lookup):
        calls = call("lookup", "†state.a", note="†input.a"), call("ask", "†state.b", q="†state.a.note")
        context = [asking_tool(), {"type": "input", "a": "b"}]
        handle = await foreign.start(foreign.request(*calls, context=context, approve={"calls": ["lookup"]}))
        which, _ = await site.card_of(handle)
        form = hidden(await site.get("/change", **which))
        preview = await site.post("/change", **form, **{"f.note": text}, step="preview")
        await site.post("/change", **hidden(preview.text), step="send")
        _, card = await site.card_of(handle)
        assert text in card
        await site.post("/decide", **hidden(card), decision="approve")
        await wait_for(handle)
        _, card = await site.card_of(handle)
        await site.post("/answer", **hidden(card), **{"f.ok": "true", "f.cents": "5", "f.note": text})
        state = (await ended(handle))["state"]
    assert (state["a"]["note"], state["b"]["note"]) == (text, text)


async def test_an_agent_is_asked_back_and_reads_the_question(site: Site, foreign: Foreign, agents: Agents) -> None:
    async with foreign.serving(lookup, refund):
        handle = await agents.start(
            {"calls": [call("lookup", "†state.a", note="why?")]},
            ({"tick": 2, "says": ["Question before a decision: which order?"]}, {"output": "the reader said so"}),
            context=[foreign.tool("lookup"), {"type": "plan", "plan": [], "mode": "lazy"}],
        )
        await pending(handle)
        _, card = await site.card_of(handle)
        assert "Ask back" in card
        assert "written by the planner" in card
        await site.post("/decide", **hidden(card), decision="ask", reason="which order?")
        assert (await ended(handle))["output"] == "the reader said so"
        page = await site.get("/run", id=handle.id)
        assert ("Questions asked back" in page, "<b>asked back about</b> the plan" in page) == (True, True)
        assert "<h2>Errors</h2>" not in page


async def test_an_agent_links_to_the_run_of_its_plan_and_that_back(
    site: Site, foreign: Foreign, agents: Agents
) -> None:
    async with foreign.serving(lookup):
        tick = {"calls": [call("lookup", "†state.a", note="why?")]}
        handle = await agents.start(tick, {"output": "done"}, context=[foreign.tool("lookup")])
        await ended(handle)

    async def below() -> list[str]:
        return re.findall(f'id=({quote(handle.id, "")}[^"]+)">', await site.get("/run", id=handle.id))

    [child] = await assert_eventually(below, why="the server lists it")
    assert f">{handle.id}</a>" in await site.get("/run", id=unquote(child))


async def test_a_run_is_paused_resumed_and_cancelled_by_its_name_only(site: Site, foreign: Foreign) -> None:
    async with foreign.serving(lookup, refund):
        handle = await start_refund(foreign)
        fields = hidden(await site.get("/run", id=handle.id))
        for action, phase in (("pause", "paused"), ("resume", "awaiting")):
            await site.post("/run", **fields, action=action)

            async def has_phase(phase: str = phase) -> bool:
                return (await handle.query("status"))["phase"] == phase

            await assert_eventually(has_phase)
        assert "is not that of the run" in (await site.post("/run", **fields, action="cancel", name="it")).text
        await site.post("/run", **fields, action="cancel", name=handle.id)
        with pytest.raises(WorkflowFailureError):
            await ended(handle)
        again = await site.post("/run", **fields, action="retry")
        assert f"{handle.id}-retry-" in again.text
        assert (await site.post("/run", **fields, action="retry")).url == again.url  # one retry, however often
        await foreign.client.get_workflow_handle(str(again.url.params["id"])).terminate("the test is over")


async def test_a_run_forks_from_one_of_its_calls_once_for_each_form(site: Site, foreign: Foreign) -> None:
    async with foreign.serving(lookup, refund):
        first = await start_refund(foreign)
        _, card = await site.card_of(first)
        await site.post("/decide", **hidden(card), decision="approve")
        await ended(first)
        assert "/fork?" in await site.get("/run", id=first.id)
        form = await site.get("/fork", id=first.id, call="2:refund")
        wrong = await site.post("/fork", **hidden(form), **{"f.cents": "many"})
        assert (wrong.status_code, "is no whole number" in wrong.text) == (409, True)
        page = await site.post("/fork", **hidden(form), **{"f.cents": "7", "f.why": "less"})
        assert (await site.post("/fork", **hidden(form), **{"f.cents": "7", "f.why": "less"})).url == page.url
        handle = foreign.client.get_workflow_handle(str(page.url.params["id"]))
        _, card = await site.card_of(handle)
        await site.post("/decide", **hidden(card), decision="approve")
        result = await ended(handle)
        assert (result["state"]["paid"], result["resumedFrom"]["workflowId"]) == ({"paid": 7}, first.id)
        no_call = await site.http.get("/fork", params={"id": first.id, "call": "9:refund"})
        assert "no call" in no_call.text


async def test_programs_read_events_and_decide(site: Site, foreign: Foreign) -> None:
    async with foreign.serving(lookup, refund):
        handle = await start_refund(foreign)
        bearer = {"Authorization": "Bearer for programs"}
        async with httpx2.AsyncClient(base_url=site.origin, headers=bearer, timeout=60) as program:
            wait = await Site(site.access, site.origin, program).wait_of(handle)
            seen = {key: wait[key] for key in ("run", "wait", "version", "subject")}
            stale = await program.post("/api/decide", json={**seen, "subject": "0" * 64, "decision": "approve"})
            assert (stale.status_code, stale.json()["ok"]) == (409, False)
            posing = {
                "by": "grace",
                "signature": {"time": "now", "value": ""},
            }  # where nothing is signed, this is no proof
            decided = await program.post("/api/decide", json={**seen, **posing, "decision": "approve"})
            assert decided.json() == {"ok": True}
            assert (await ended(handle))["decisions"][0]["by"] == "ada"
            address = f"/api/runs/{handle.id.replace('/', '%2F')}/events"
            events = (await program.get(address)).text
            assert "RUN_STARTED" in events
            assert "RUN_FINISHED" in events
            offset = [line[4:] for line in events.splitlines() if line.startswith("id: ")][-2]
            rest = (await program.get(address, headers={"Last-Event-ID": offset})).text
            assert 0 < len(rest) < len(events)
            assert "RUN_FINISHED" in rest


@pytest.mark.long
async def test_what_is_malformed_is_refused_and_is_no_error_of_the_server(site: Site, foreign: Foreign) -> None:
    strange = ("", "\x00", "'\"\\", "x" * 3000, "a/b?c#d&e=f", "\u2066")
    for path in ("/run", "/card", "/change", "/fork", "/run.svg", "/bulk", "/runs", "/"):
        for text in strange:
            query = dict.fromkeys(("id", "run", "wait", "call", "like", "q", "phase", "instance"), text)
            assert (await site.http.get(path, params=query)).status_code < 500, (path, text)
    async with foreign.serving(lookup, refund):
        handle = await start_refund(foreign)
        _, card = await site.card_of(handle)
        form, good = hidden(card), json.loads(hidden(card)["seen"])
        values = (None, True, "\ud800", [], -1, "\x00")
        shown = [json.dumps({**good, "decision": "approve", key: value}) for key in good for value in values]
        shown += ["[" * 100_000, "{", "\ufeff{}"]
        reasons = [{**good, "decision": "reject", "reason": value} for value in ({"a": 1}, "\ud800", "x" * 3000)]
        headers = {"Origin": site.origin, "X-CSRF-Token": form["csrf"]}
        answers = [await site.http.post("/api/decide", content=body, headers=headers) for body in shown]
        answers += [await site.http.post("/api/decide", content=json.dumps(body), headers=headers) for body in reasons]
        for path, body in product(("/decide", "/bulk", "/change", "/answer"), shown):
            fields = {**form, "seen": body, "decision": "approve", "step": "send", "call": "2:refund", "new": "{}"}
            answers.append(await site.post(path, **fields))
        assert {answer.status_code for answer in answers} <= {400, 404, 409}
        assert len(await pending(handle)) == 1
        await handle.cancel()


@pytest.mark.long
async def test_without_a_worker_a_run_shows_what_the_server_knows(site: Site, foreign: Foreign) -> None:
    handle = await foreign.client.start_workflow("Plan", {}, id=foreign.queue, task_queue="nobody")
    page = await site.get("/run", id=handle.id)
    assert "no worker serves" in page
    assert "running" in page
    await handle.terminate("the test is over")


async def test_alone_a_link_works_once_and_a_form_counts_from_this_page_alone(site: Site, foreign: Foreign) -> None:
    async with httpx2.AsyncClient(base_url=site.origin) as stranger:
        assert (await stranger.get("/")).status_code == 401
        assert (await stranger.get(site.access.link(HOST))).status_code == 401
        assert (await stranger.get("/", headers={"Host": "evil.example"})).status_code == 403
        assert "refresh" in (await stranger.get("/", headers={"Sec-Fetch-Site": "cross-site"})).text
        assert (await stranger.get("/static/ui.css")).status_code == 200
        assert (await stranger.get("/static/../app.py")).status_code in (401, 404)
    [cookie] = site.http.cookies.jar
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite").lower() == "strict"
    assert (await site.http.get("/", headers={"Host": f"evil.example:{site.origin[-5:]}"})).status_code == 403
    answer = await site.http.get("/")
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    for origin in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        refused = await site.http.post("/decide", data={"decision": "approve"}, headers=origin)
        assert (refused.status_code, "another page" in refused.text) == (403, True)
    for fields in ({}, {"csrf": "x"}):
        refused = await site.post("/decide", **fields, decision="approve", seen="{}")
        assert (refused.status_code, "another session" in refused.text) == (403, True)
    async with foreign.serving(lookup, refund):
        handle = await start_refund(foreign)
        which, card = await site.card_of(handle)
        query = {**which, **hidden(card), "decision": "approve"}
        for path in ("/decide", "/bulk", "/change", "/card", "/run", "/api/decide"):
            await site.http.get(path, params=query)
        assert await pending(handle)
        await handle.cancel()


async def test_in_a_team_a_name_counts_with_the_token_of_the_proxy_alone(server: DevServer, foreign: Foreign) -> None:
    settings = {
        "ACTS_UI_USER_HEADER": "X-User", "ACTS_UI_GROUPS_HEADER": "X-Groups", "ACTS_UI_PROXY_TOKEN": "secret",
        "ACTS_UI_ORIGIN": "https://acts.example",
    }  # fmt: skip
    proxy = {
        "X-User": "Grace <b>",
        "X-Groups": "finance, it",
        "X-Acts-Proxy": "secret",
        "Origin": "https://acts.example",
    }
    async with serving(server, settings) as (_, origin), httpx2.AsyncClient(
        base_url=origin, timeout=60, follow_redirects=True, headers=proxy
    ) as http, foreign.serving(lookup, refund):  # fmt: skip
        assert "Grace &lt;b&gt;" in (await http.get("/")).text
        for missing in ("X-Acts-Proxy", "X-User"):
            assert (await http.get("/", headers={missing: ""})).status_code == 401
        twice = [("X-User", "Eve"), ("X-User", "Grace <b>"), ("X-Acts-Proxy", "secret")]
        async with httpx2.AsyncClient(base_url=origin, headers=twice) as sneaky:
            assert (await sneaky.get("/")).status_code == 401, "of two names, one is a browser's"
        handle = await start_refund(foreign, approve={"rules": [{"calls": ["refund"], "who": "finance"}]})
        card = await Site(None, "https://acts.example", http).card_of(handle)  # type: ignore[arg-type]
        other = await http.post("/decide", data={**hidden(card[1]), "decision": "approve"}, headers={"X-User": "Eve"})
        assert other.status_code == 403
        decision = {**hidden(card[1]), "decision": "approve"}
        other = await http.post("/decide", data=decision, headers={"X-Groups": "finances, it"})
        assert (other.status_code, "it is for finance" in other.text) == (409, True)
        await http.post("/decide", data=decision)
        assert (await ended(handle))["decisions"][0]["by"] == "Grace <b>"


@pytest.mark.parametrize(
    ("host", "settings"),
    [("0.0.0.0", {}), (HOST, {"ACTS_UI_USER_HEADER": "X-User"})],  # noqa: S104
    ids=["host", "header"],
)
def test_settings_that_would_let_in_anybody_are_errors(host: str, settings: dict[str, str]) -> None:
    with pytest.raises(ClientError):
        Access(host, 1, settings)
