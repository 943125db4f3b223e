"""The inbox in a real browser: two clicks, keys, a phone, the dark, no script, text that means harm.

Whatever a page logs as an error, a dialog, and whatever the policy against foreign content refuses fails a test. The
pictures of the docs are written again with

    TEST_REWRITE_GOLDEN=1 .venv/bin/python -m pytest tests/ui/test_browser.py -k "phone_shows or keeps_the_key"
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
import uvicorn
from playwright.async_api import Browser, Locator, Page, async_playwright, expect
from temporalio.client import Client

from acts.cli.commands.operations import create_key
from acts.cli.dev.temporal_server import DevServer
from acts.payloads.converter import client_converter
from acts.ui.app import link
from acts.ui.ui_server import listen
from examples.page.serve import make_app as make_page
from tests.ui.conftest import HOST, Site, asking_tool, hidden, lookup, refund, refund_tool, serving, start_refund
from tests.workflow.conftest import engine_on
from tests.workflow.foreign import Foreign, Handle, call, ended, pending

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is on this machine")

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
PATIENCE_MS = 60_000  # as long as a busy machine needs
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True, "is_mobile": True}
MEAN = """</textarea><script>alert(1)</script><img src=x onerror=alert(2)>'" autofocus onfocus=alert(3) x=\u202e"""
WIDER = "document.documentElement.scrollWidth - window.innerWidth"


@dataclass
class Desk:
    """Browsers of somebody who is signed in, and what went wrong in them."""

    site: Site
    browser: Browser
    foreign: Foreign
    troubles: list[str] = field(default_factory=list)

    async def open(self, address: str = "/", **options: Any) -> Page:
        context = await self.browser.new_context(base_url=self.site.origin, **options)
        context.set_default_timeout(PATIENCE_MS)
        context.on("weberror", lambda error: self.troubles.append(str(error.error)))
        context.on("console", lambda line: self.troubles.append(line.text) if line.type == "error" else None)
        context.on("dialog", lambda dialog: self.troubles.append(f"a dialog: {dialog.message}"))
        [cookie] = self.site.http.cookies.jar
        await context.add_cookies([{"name": cookie.name, "value": str(cookie.value), "url": self.site.origin}])
        page = await context.new_page()
        await page.goto(address)
        return page

    async def card(self, approve: Mapping[str, Any] = MappingProxyType({}), **options: Any) -> tuple[Page, Handle]:
        handle = await start_refund(self.foreign, approve=approve)
        wait = await self.site.wait_of(handle)
        return await self.open(link("/card", run=handle.id, wait=wait["wait"]), **options), handle

    async def refunds(self, *reasons: str) -> tuple[str, list[Handle]]:
        """The address at which the inbox lists them, and their runs."""
        handles = [await start_refund(self.foreign, why=why) for why in reasons]
        for handle in handles:
            await self.site.wait_of(handle)
        return link("/", q=self.foreign.queue[:60]), handles

    def forget_refusals(self) -> None:
        """The browser logs an answer of 400 or 409, which a test asks for, as an error."""
        self.troubles = [text for text in self.troubles if " 40" not in text]


async def press(page: Page, name: str, reason: str = "") -> None:
    if reason:
        await page.locator("#reason").fill(reason)
    await page.get_by_role("button", name=name).click()


async def picture(shown: Page | Locator, name: str) -> None:
    if os.environ.get("TEST_REWRITE_GOLDEN"):
        await shown.screenshot(path=IMAGES / f"ui-{name}.png", scale="css")


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        await browser.close()


@pytest.fixture
async def desk(site: Site, browser: Browser, foreign: Foreign) -> AsyncIterator[Desk]:
    expect.set_options(timeout=PATIENCE_MS)
    desk = Desk(site, browser, foreign)
    async with foreign.serving(lookup, refund):
        yield desk
    for context in browser.contexts:
        await context.close()
    assert desk.troubles == []


async def test_two_clicks_lead_from_the_printed_link_to_an_approval(server: DevServer, desk: Desk) -> None:
    _, [handle] = await desk.refunds("broken")
    async with serving(server, {}) as (access, _):
        page = await desk.open(access.link(HOST))
        await page.locator("li", has_text=handle.id).locator("a.what").click()
        began = time.perf_counter()
        await press(page, "Approve")
        await page.get_by_role("heading", name="Approved by ada").wait_for()
        logging.getLogger(__name__).info("said so after %d ms", (time.perf_counter() - began) * 1000)
        await expect(page.get_by_text("approve 2:refund by ada")).to_be_visible()
        assert (await ended(handle))["state"]["paid"] == {"paid": 4200}
        await page.context.close()


async def test_a_rejection_is_sent_with_its_reason_alone(desk: Desk) -> None:
    page, handle = await desk.card()
    await press(page, "Reject")
    await expect(page.locator("#reason")).to_be_focused()
    await expect(page.locator("section", has_text="What was asked for")).to_contain_text("A-7")
    assert await pending(handle)
    await press(page, "Reject", "paid twice")
    await expect(page.get_by_text("by ada").last).to_contain_text("paid twice")
    assert (await ended(handle))["status"] == "rejected"


@pytest.mark.long
async def test_a_change_is_checked_as_one_types_compared_and_sent(desk: Desk) -> None:
    page, handle = await desk.card()
    await page.get_by_role("link", name="Change", exact=True).click()
    cents, problem = page.get_by_label("cents"), page.locator(".field", has_text="cents").locator(".problem")
    await expect(cents).to_have_value("4200")
    await cents.fill("-5")
    await expect(problem).to_contain_text("cents")
    await cents.fill("1000")
    await expect(problem).to_be_empty()
    await press(page, "Show the difference")
    await expect(page.locator("table.diff del")).to_have_text("4200 (†state.order.cents)")
    await press(page, "Send")
    await expect(page.locator(".changed")).to_contain_text("ada")
    await press(page, "Approve")
    assert (await ended(handle))["state"]["paid"] == {"paid": 1000}


@pytest.mark.long
async def test_what_was_decided_elsewhere_is_said_at_once_and_decides_nothing(desk: Desk) -> None:
    page, handle = await desk.card()
    other = await page.context.new_page()
    await other.goto(page.url)
    await page.locator("#reason").fill("half a sentence")
    await press(other, "Reject", "by another")
    await expect(page.locator("#stale")).to_be_visible()
    await expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    await expect(page.locator("#reason")).to_have_value("half a sentence")
    await page.evaluate("const b = document.querySelector('#approve'); b.disabled = false; b.click()")
    await expect(page.get_by_role("alert").first).to_contain_text("nothing was sent")
    desk.forget_refusals()
    assert [d["reason"] for d in (await ended(handle))["decisions"]] == ["by another"]


async def test_like_calls_are_approved_with_their_number_typed(desk: Desk) -> None:
    address, handles = await desk.refunds("one", "two", "three")
    page = await desk.open(address)
    await page.get_by_role("link", name="Look at all 3 calls of refund").click()
    await page.get_by_label(handles[0].id).uncheck()
    await page.get_by_label("Type how many").fill("2")
    await press(page, "Approve the ticked ones")
    await expect(page.get_by_role("heading", name="2 of 2 approved")).to_be_visible()
    assert {(await ended(handle))["status"] for handle in handles[1:]} == {"completed"}
    assert await pending(handles[0])
    await handles[0].cancel()


@pytest.mark.long
async def test_keys_lead_to_a_decision_and_the_inbox_follows_what_happens(desk: Desk) -> None:
    address, handles = await desk.refunds("one", "two")
    inbox, page = await desk.open(address), await desk.open(address)
    rows, here = inbox.locator("[data-row]"), inbox.locator("[data-row].here a.what")
    for key in "jjk":
        await inbox.keyboard.press(key)
    await expect(rows.first).to_have_class("here")
    await inbox.keyboard.press("j")
    kept = str(await here.get_attribute("href"))
    for key in "ja":
        await page.keyboard.press(key)
    await page.locator("#approve").wait_for()
    await page.wait_for_load_state()
    await expect(page.locator("#approve")).not_to_be_focused()
    await page.keyboard.press("a")
    await expect(page.locator("#approve")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Approved by ada")).to_be_visible()
    await expect(rows).to_have_count(1)
    await expect(here).to_have_attribute("href", kept)
    _, [third] = await desk.refunds("three")
    await expect(rows).to_have_count(2)
    await expect(here).to_have_attribute("href", kept)
    await inbox.keyboard.press("r")
    await inbox.locator("#reason:focus").wait_for()
    await inbox.keyboard.type("jark")
    await expect(inbox.locator("#reason")).to_have_value("jark")
    assert kept in inbox.url
    for handle in (*handles, third):
        await handle.cancel()


@pytest.mark.long
async def test_text_that_means_harm_is_text_on_every_page(desk: Desk, foreign: Foreign) -> None:
    mean = refund_tool(foreign)
    mean["tool"]["description"] = MEAN
    mean["tool"]["properties"]["why"] |= {"title": MEAN, "description": MEAN, "enum": [MEAN, "b"]}
    context = [mean, {"type": "text", "text": MEAN}, {"type": "state", "state": {MEAN: MEAN}}]
    refunds = [call("refund", orderId=MEAN, cents=1, why=MEAN)]
    request = foreign.request(*refunds, context=context, approve={"calls": ["refund"]})
    names = [f"{foreign.queue[:60]}/{MEAN[:70]}{n}" for n in range(2)]
    handles = [await foreign.start(request, id=name, static_summary=MEAN[:150]) for name in names]
    tokens = [(await desk.site.wait_of(handle))["wait"] for handle in handles]
    page = await desk.open(inbox := link("/", q=foreign.queue[:60]), **PHONE)
    bulk = str(await page.locator("a[href^='/bulk']").get_attribute("href"))
    run, which = link("/run", id=names[0]), {"run": names[0], "wait": tokens[0]}
    card, change = link("/card", **which), link("/change", **which)
    for address in (inbox, link("/", q=f'">{MEAN}'), bulk, "/runs", run, change):
        await page.goto(address)
        await assert_is_inert(page)
    await page.locator("#note").fill(MEAN)
    await page.get_by_label("cents").fill(MEAN)
    await expect(page.locator(".problem", has_text="cents")).to_be_visible()
    await assert_is_inert(page)
    await page.goto(card)
    await assert_is_inert(page)
    await press(page, "Reject", MEAN)
    await expect(page.get_by_text("by ada").last).to_contain_text("<script>alert(1)</script>")
    await assert_is_inert(page)
    await handles[1].cancel()


async def assert_is_inert(page: Page) -> None:
    foreign = "img:not([src^='/run.svg']), [onfocus], [onerror], script:not([src='/static/ui.js'])"
    assert await page.locator(foreign).count() == 0
    assert "\u202e" not in await page.locator("body").inner_text()
    assert await page.evaluate(WIDER) <= 0, page.url


@pytest.mark.long
async def test_a_phone_shows_a_card_and_the_dark_is_dark(desk: Desk) -> None:
    desk.foreign = replace(desk.foreign, queue="refunds")
    async with desk.foreign.serving(lookup, refund):
        inbox, handles = await desk.refunds("arrived broken", "never arrived", "paid twice")
        page, handle = await desk.card(color_scheme="dark", **PHONE)
        for name, low, high in (("backgroundColor", 0, 60), ("color", 200, 255)):
            color = await page.locator("body").evaluate(f"body => getComputedStyle(body).{name}")
            assert all(low <= int(part) <= high for part in re.findall(r"\d+", color)), (name, color)
        await picture(page, "phone")
        light = await desk.open(page.url, viewport={"width": 900, "height": 760}, color_scheme="light")
        await picture(light, "card")
        for name, address in (("inbox", inbox), ("run", link("/run", id=handle.id))):
            await light.goto(address)
            await picture(light, name)
        for one in (*handles, handle):
            await one.cancel()


async def test_who_approves_a_plan_has_passed_all_its_calls_also_by_keys(desk: Desk) -> None:
    calls = [call("lookup", f"†state.order{n}", note=f"order {n}") for n in range(7)]
    handle = await desk.foreign.start(desk.foreign.request(*calls, approve={"plan": True}))
    wait = await desk.site.wait_of(handle)
    page = await desk.open(link("/card", run=handle.id, wait=wait["wait"]), **PHONE)
    approve, last = page.get_by_role("button", name="Approve all 7 calls"), page.locator("section.call").last
    await expect(approve).not_to_be_in_viewport()
    await page.keyboard.press("a")
    await expect(approve).to_be_focused()
    await expect(last).to_be_in_viewport()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Approved by ada")).to_be_visible()
    assert len((await ended(handle))["state"]) == 7


@pytest.mark.parametrize("word", ["Approve", "Reject"])
async def test_without_a_script_one_decides_as_well(desk: Desk, word: str) -> None:
    page, handle = await desk.card(java_script_enabled=False)
    await press(page, "Reject")
    await expect(page.get_by_role("alert").first).to_contain_text("needs a reason")
    desk.forget_refusals()
    await press(page, word, "as agreed")
    await expect(page.get_by_role("heading", name=f"{word.rstrip('e')}ed by ada")).to_be_visible()
    decided = [(item["decision"], item["reason"]) for item in (await ended(handle))["decisions"]]
    assert decided == [(word.lower(), "as agreed")]


async def test_somebody_who_is_signed_out_is_told_and_decides_nothing(desk: Desk) -> None:
    page, handle = await desk.card()
    await page.context.clear_cookies()
    await press(page, "Approve")
    await expect(page.get_by_text("open the address that `acts ui` has printed")).to_be_visible()
    assert await pending(handle)
    page = await desk.open()
    await page.route("**/events", lambda route: route.fulfill(status=401))
    await page.reload()
    await expect(page.get_by_role("alert")).to_contain_text("no longer follows what happens")
    desk.forget_refusals()
    await handle.cancel()


async def test_somebody_answers_on_a_phone_without_a_script(desk: Desk) -> None:
    handle = await desk.foreign.start(
        desk.foreign.request(call("ask", "†state.said", q="now?"), context=[asking_tool()])
    )
    wait = await desk.site.wait_of(handle)
    page = await desk.open(link("/card", run=handle.id, wait=wait["wait"]), java_script_enabled=False, **PHONE)
    await expect(page.locator(".decide")).to_have_css("position", "static")  # it covers nothing of what is asked
    await page.get_by_label("cents").fill("many")
    await press(page, "Answer")
    await expect(page.locator(".problem", has_text="is no whole number")).to_be_visible()
    desk.forget_refusals()
    await page.get_by_label("ok").select_option("true")
    await page.get_by_label("cents").fill("5")
    await press(page, "Answer")
    assert (await ended(handle))["state"]["said"] == {"ok": True, "cents": 5}


@pytest.mark.long
async def test_of_a_team_two_approve_and_nobody_twice(desk: Desk, server: DevServer) -> None:
    secret = {"X-Acts-Proxy": "secret"}
    settings = {
        "ACTS_UI_USER_HEADER": "X-User",
        "ACTS_UI_PROXY_TOKEN": "secret",
        "ACTS_UI_ORIGIN": f"http://{HOST}:PORT",
    }
    page, handle = await desk.card({"rules": [{"calls": ["refund"], "of": 2}]})
    async with serving(server, settings) as (_, origin):
        card = page.url.replace(desk.site.origin, origin)
        ada, grace = [await desk.open(card, extra_http_headers={**secret, "X-User": name}) for name in ("ada", "grace")]
        await press(ada, "Approve")
        await expect(ada.get_by_text("1 of 2 have approved: ada")).to_be_visible()
        await press(ada, "Approve")
        await expect(ada.get_by_role("alert").first).to_contain_text("ada")
        await press(grace, "Approve")
        await expect(grace.get_by_role("heading", name="Approved by grace")).to_be_visible()
        await ada.context.close()
        await grace.context.close()
    desk.forget_refusals()
    assert [d["by"] for d in (await ended(handle))["decisions"]] == ["ada", "grace"]


async def test_what_is_encrypted_is_shown_to_those_who_have_the_keys(
    desk: Desk, server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys"
    file.write_text(f"k1 {base64.b64encode(bytes(range(32))).decode()}\n", "utf-8")
    monkeypatch.setenv("ACTS_CODEC_KEYS", str(file))
    client = await Client.connect(server.address, namespace=server.namespace, data_converter=client_converter())
    async with engine_on(server, f"keys-{desk.foreign.queue}") as engine, serving(server, {}) as (access, origin):
        own = replace(desk.foreign, client=client, engine=engine, queue=f"own-{desk.foreign.queue}")
        async with own.serving(lookup, refund):
            handle = await start_refund(own, why="broken on arrival")
            assert "broken on arrival" not in str(await handle.fetch_history())
            page = await desk.open(access.link(HOST))
            await page.locator("li", has_text=handle.id).locator("a.what").click()
            await expect(page.get_by_text("broken on arrival").first).to_be_visible()
            without = await desk.site.http.get(page.url.replace(origin, desk.site.origin))
            assert (without.status_code, "ACTS_CODEC_KEYS is not set" in without.text) == (400, True)
            assert "waiting for a decision" in await desk.site.get("/")
            await press(page, "Approve")
            await expect(page.get_by_role("heading", name="Approved by ada")).to_be_visible()
            assert (await ended(handle))["state"]["paid"] == {"paid": 4200}
        await page.context.close()


async def test_a_page_of_ones_own_follows_a_run_and_decides(desk: Desk) -> None:
    handle = await start_refund(desk.foreign)
    with listen(HOST, 0) as listening:
        host = f"{HOST}:{listening.getsockname()[1]}"
        app = make_page(desk.site.origin, "for programs", host)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        serving_page = asyncio.create_task(server.serve(sockets=[listening]))
        page = await desk.open(f"http://{host}/?run={quote(handle.id, '')}")
        await expect(page.locator("li")).to_have_text(["1:lookup: completed"])
        await expect(page.locator("pre")).to_contain_text("4200")
        async with httpx2.AsyncClient() as other:
            for headers in ({"Origin": "http://evil.example"}, {"Origin": f"http://{host}", "Host": "evil.example"}):
                assert (await other.post(f"http://{host}/api/decide", content="{}", headers=headers)).status_code == 403
        await press(page, "approve")
        await expect(page.locator("h1")).to_have_text(f"{handle.id}: completed")
        await expect(page.locator("li")).to_have_text(["1:lookup: completed", "2:refund: completed"])
        await expect(page.locator("article")).to_have_count(0)
        assert (await ended(handle))["state"]["paid"] == {"paid": 4200}
        await page.context.close()
        server.should_exit = True
        await serving_page


@pytest.fixture
async def keys(desk: Desk, server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """The folder with the keys of Ada, who approves, and of Eve, who does not; runs have a file of approvers."""
    ada, _ = (create_key(tmp_path / name) for name in ("ada.pem", "eve.pem"))
    approvers = {"ada": {"keys": base64.b64encode(ada).decode(), "groups": ["finance"]}}
    (tmp_path / "approvers.json").write_text(json.dumps(approvers))
    monkeypatch.setenv("ACTS_APPROVERS", str(tmp_path / "approvers.json"))
    async with engine_on(server, f"approvers-{desk.foreign.queue}") as engine:
        desk.foreign = replace(desk.foreign, engine=engine)
        yield tmp_path


async def test_an_approver_signs_in_the_browser_which_keeps_the_key_from_everybody(desk: Desk, keys: Path) -> None:
    page, handle = await desk.card()
    said, key, signer = (page.locator(f"#{name}") for name in ("said", "key", "signer"))
    await press(page, "Approve")
    await expect(said).to_have_text("Choose your key first")
    await key.set_input_files(keys / "approvers.json")
    await expect(said).to_contain_text("no private key of Ed25519")
    await key.set_input_files(keys / "eve.pem")
    await expect(signer).to_have_value("eve")
    await signer.fill("ada")
    await press(page, "Approve")
    await expect(said).to_contain_text('no key of "ada" has signed')
    await press(page, "Forget the key")
    await key.set_input_files(keys / "ada.pem")
    await expect(signer).to_have_value("ada")
    await picture(page.locator(".decide"), "signing")
    await press(page, "Reject", "\u201ezu viel\u201c,\nsagt Zo\u00eb")
    await expect(page.get_by_role("heading", name="Rejected by ada")).to_be_visible()
    [decision] = (await ended(handle))["decisions"]
    assert (decision["by"], decision["reason"]) == ("ada", "\u201ezu viel\u201c,\nsagt Zo\u00eb")
    assert decision["signed"]["key"]
    extracted = await page.evaluate("""() => new Promise((resolve) => {
      indexedDB.open("acts").onsuccess = ({ target }) => {
        target.result.transaction("keys").objectStore("keys").get("approver").onsuccess = async (read) =>
          resolve(await crypto.subtle.exportKey("pkcs8", read.target.result.key).catch((error) => error.name));
      };
    })""")
    assert extracted == "InvalidAccessError"
    desk.forget_refusals()


async def test_a_kept_key_signs_a_change_an_approval_and_an_answer(desk: Desk, keys: Path) -> None:
    page, handle = await desk.card()
    await page.locator("#key").set_input_files(keys / "ada.pem")
    await page.get_by_role("link", name="Change", exact=True).click()
    await page.get_by_label("cents").fill("1000")
    await press(page, "Show the difference")
    await press(page, "Send")
    await expect(page.locator(".changed")).to_contain_text("ada")
    await press(page, "Approve")
    result = await ended(handle)
    assert result["state"]["paid"] == {"paid": 1000}
    assert [bool(d["signed"]) for d in result["decisions"]] == [True, True]
    request = desk.foreign.request(call("ask", "†state.said", question="now?"), context=[asking_tool()])
    handle = await desk.foreign.start(request)
    await page.goto(link("/card", run=handle.id, wait=(await desk.site.wait_of(handle))["wait"]))
    await page.get_by_label("ok").select_option("true")
    await page.get_by_label("cents").fill("many")
    await press(page, "Answer")
    await expect(page.locator("#said")).to_contain_text("cents")
    await page.get_by_label("cents").fill("5")
    await press(page, "Answer")
    result = await ended(handle)
    assert result["state"]["said"] == {"ok": True, "cents": 5}
    assert result["decisions"][0]["signed"]["key"]


async def test_a_kept_key_signs_each_of_like_calls(desk: Desk, keys: Path) -> None:
    address, handles = await desk.refunds("one", "two")
    page = await desk.open(address)
    await page.get_by_role("link", name="Look at all 2 calls of refund").click()
    await page.locator("#key").set_input_files(keys / "ada.pem")
    for number, says in (("3", "2 are ticked"), ("2", "2 of 2 approved")):
        await page.get_by_label("Type how many").fill(number)
        await press(page, "Approve the ticked ones")
        await expect(page.locator("#said")).to_contain_text(says)
    for handle in handles:
        [decision] = (await ended(handle))["decisions"]
        assert (decision["by"], bool(decision["signed"])) == ("ada", True)


async def test_a_browser_without_ed25519_says_so_and_names_the_command(desk: Desk, keys: Path) -> None:
    page, handle = await desk.card()
    await page.add_init_script("SubtleCrypto.prototype.generateKey = () => Promise.reject(new Error('no such name'))")
    await page.reload()
    await expect(page.locator("#said")).to_contain_text("no Ed25519")
    await expect(page.get_by_role("button", name="Approve")).to_be_hidden()
    await page.get_by_text("or in a terminal").click()
    await expect(page.get_by_text(f"acts approve {handle.id}")).to_be_visible()
    unsigned = await desk.site.post("/decide", **hidden(await page.content()), decision="approve")
    assert "a decision is signed" in unsigned.text
    await handle.cancel()


# What somebody types who looks for something, and where it is said
SEARCHES = {
    "how do I undo": "repair.html#undoing", "signed decisions": "security.html#signed-decisions",
    "schedule a plan every night": "deploy.html#schedules", "ask a person a question": "people.html#ask-a-question",
    "kubernetes": "deploy.html#kubernetes", "plan by name": "plans.html", "timeout of a tool": "tools.html",
    "where did a value come from": "security.html#where-a-value-came-from", "limit the cost of an agent": "agents.html",
}  # fmt: skip


@pytest.mark.long
async def test_a_search_of_the_docs_finds_first_what_is_about_its_words(browser: Browser, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    await asyncio.to_thread(subprocess.run, build, cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
    page = await browser.new_page()
    for words, place in SEARCHES.items():
        await page.goto(f"{(tmp_path / 'index.html').as_uri()}?q={quote(words)}")
        first = page.locator(".md-search-result__item").first  # a page, with its sections that fit
        await expect(first.locator(f"a[href*='{place}']").first, words).to_be_attached(timeout=PATIENCE_MS)
    await page.close()
