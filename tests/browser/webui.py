"""What a person does in Temporal's Web UI: opens a run, reads a page, fills in a dialog.

Laws of this file:
- it knows the browser and the Web UI, by what a person sees or the UI's own ``data-testid``s; nothing of the engine;
- it never sleeps: it waits for a condition of the page;
- Selenium, Chromium and its driver may be missing: ``missing`` says so, and nothing here is imported before that.

The calls block, so a test makes them in a thread (``asyncio.to_thread``): its loop has the worker to serve.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

CHROMIUMS: Final = ("chromium", "chromium-browser", "google-chrome")
DRIVER: Final = "chromedriver"
WIDTH: Final = 1280
HEIGHT: Final = 800
WAIT_SECONDS: Final = 30.0  # a page needs about one; two busy cores may take many times that
POLL_SECONDS: Final = 0.1  # beside the half second that a page takes to draw itself
UPDATE: Final = "update"
SIGNAL: Final = "signal"
TAB: Final = "\ue004"  # keys as WebDriver names them
CONTROL: Final = "\ue009"

_READ_PAGE: Final = r"""
const main = document.querySelector('main'), all = s => [...main.querySelectorAll(s)]
const text = e => e.textContent.replaceAll('\u00a0', ' ').trim()
return {
  text: main.innerText.trim(),
  elements: [...new Set(all('*').map(e => e.localName))].sort(),
  code: all('pre').map(e => e.textContent),
  items: all('li').map(text),
  rows: all('tr').map(r => [...r.cells].map(text)),
}
"""

_READ_TIMELINE: Final = """
[...document.querySelectorAll('main h2')].at(-1)?.scrollIntoView()
return [...document.querySelectorAll('main span')].filter(s => !s.children.length).map(s => s.textContent.trim())
"""


def missing() -> str:
    """What there is not, and how to get it; empty when there is all."""
    if importlib.util.find_spec("selenium") is None:
        return "the package selenium is not installed: pip install selenium"
    if _chromium() is None:
        return f"no browser on PATH ({', '.join(CHROMIUMS)}): apt-get install chromium"
    if shutil.which(DRIVER) is None:
        return f"no {DRIVER} on PATH: apt-get install chromium-driver"
    return ""


def _chromium() -> str | None:
    return next(filter(None, map(shutil.which, CHROMIUMS)), None)


@contextmanager
def browser() -> Iterator[Any]:
    """A Chromium without a window, its page 1280 by 800, for as long as the block runs."""
    from selenium import webdriver  # type: ignore[import-not-found, unused-ignore] # optional: see missing()

    options = webdriver.ChromeOptions()
    options.binary_location = _chromium() or ""
    for argument in (
        "--headless=new",
        f"--window-size={WIDTH},{HEIGHT}",
        "--disable-dev-shm-usage",  # a container's /dev/shm of 64 MB is too small for it
        "--disable-background-networking",  # it reports to nobody, and asks nobody for news
        "--disable-component-update",
        "--no-first-run",
        "--hide-scrollbars",
        "--lang=en-US",
        *(("--no-sandbox",) if os.geteuid() == 0 else ()),  # it refuses to be root with one
    ):
        options.add_argument(argument)
    service = webdriver.ChromeService(executable_path=shutil.which(DRIVER))  # named, so that none is downloaded
    driver = webdriver.Chrome(options=options, service=service)
    try:
        size(driver, HEIGHT)
        driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
        yield driver
    finally:
        driver.quit()


def size(driver: Any, height: int, width: int = WIDTH) -> None:
    """Make the page as high and wide as this; the window's size would count its frame as well."""
    asked = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", asked)


@dataclass(frozen=True)
class Page:
    """The current details of a run, as the browser has rendered them."""

    text: str
    elements: tuple[str, ...]
    code: tuple[str, ...]
    items: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_send(self, **wanted: Any) -> str:
        """The one JSON text of the page that has these keys and values, exactly as it stands there."""
        lines = [text for block in self.code for text in _texts(block)]
        (found,) = [line for line in lines if wanted.items() <= json.loads(line).items()]
        return found

    def row(self, cell: str) -> tuple[str, ...]:
        """The first row of a table that has this cell."""
        return next(row for row in self.rows if cell in row)


def _texts(block: str) -> Iterator[str]:
    """The JSON texts of a block, whether each takes a line or several."""
    at = 0
    while block[at:].strip():
        at += len(block[at:]) - len(block[at:].lstrip())
        _, end = json.JSONDecoder().raw_decode(block, at)
        yield block[at:end]
        at = end


def _strokes(keys: str) -> Iterator[tuple[str, str]]:
    held = False
    for key in keys:
        if key == CONTROL:
            held = not held
            yield ("keyDown" if held else "keyUp"), key
        else:
            yield "keyDown", key
            yield "keyUp", key


class WebUI:
    """A person at a browser; ``url`` is that of the Web UI."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        self._runs = f"{url}/namespaces/default/workflows"

    # -- looking ---------------------------------------------------------------

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """What the condition gives as soon as that is true; elements that vanish under one's eyes are looked for anew.

        Raises:
            TimeoutException: it did not become true; the message says what was waited for.
        """
        from selenium.common import exceptions  # type: ignore[import-not-found, unused-ignore] # as in browser()
        from selenium.webdriver.support.wait import (  # type: ignore[import-not-found, unused-ignore] # as above
            WebDriverWait,
        )

        gone = (
            exceptions.ElementClickInterceptedException,
            exceptions.ElementNotInteractableException,
            exceptions.NoSuchElementException,
            exceptions.NoSuchFrameException,
            exceptions.StaleElementReferenceException,
        )
        wait = WebDriverWait(self.driver, WAIT_SECONDS, POLL_SECONDS, ignored_exceptions=gone)
        return wait.until(lambda _: condition(), f"the Web UI did not show: {what}")

    def _seen(self, css: str, words: str = "") -> Any:
        """The first element that a person sees and that has these words; the UI keeps many hidden ones."""
        found = self.driver.find_elements("css selector", css)
        return next((e for e in found if e.is_displayed() and words in e.text), None)

    def _click(self, css: str, words: str = "") -> None:
        def clicked() -> bool:
            found = self._seen(css, words)
            if found is None or not found.is_enabled():
                return False
            found.click()
            return True

        self.until(clicked, f"{css} {words}")

    def _press(self, keys: str) -> None:
        """Keys, one after another; a second ``CONTROL`` lets go of it."""
        keyboard = [{"type": kind, "value": k} for kind, k in _strokes(keys)]
        self.driver.execute("actions", {"actions": [{"type": "key", "id": "keyboard", "actions": keyboard}]})

    # -- a run -----------------------------------------------------------------

    def opens_from_list(self, workflow_id: str) -> None:
        """Open a run as one finds it: in the list of runs."""
        self.driver.get(self._runs)
        self._click("a", workflow_id)
        self._is_open(workflow_id)

    def opens(self, workflow_id: str) -> None:
        """Open the latest run of a workflow by its address."""
        self.driver.get(f"{self._runs}/{quote(workflow_id, safe='')}")
        self._is_open(workflow_id)

    def _is_open(self, workflow_id: str) -> None:
        heading = "[data-testid=workflow-id-heading]"
        self.until(lambda: self._seen(heading, workflow_id) and self._seen("[data-testid=timeline-tab]"), workflow_id)

    def tab(self, name: str) -> None:
        """Go to a tab: ``timeline``, ``history``, ``relationships``, ``user-metadata``, …"""
        self._click(f"[data-testid={name}-tab]")

    def says(self, words: str) -> None:
        """Wait until the page (not the current details) says this."""
        self.until(lambda: words in self.driver.find_element("tag name", "main").text, words)

    def timeline(self, words: str) -> tuple[str, ...]:
        """The labels of the timeline, once one has these words; it is drawn as far as it is on the screen."""
        self.tab("timeline")

        def drawn() -> tuple[str, ...]:
            labels = tuple(self.driver.execute_script(_READ_TIMELINE))
            return labels if any(words in label for label in labels) else ()

        return tuple(self.until(drawn, f"a timeline with {words}"))

    def details(self, *words: str) -> Page:
        """The current details, once they hold all these words; R asks for them anew, as the page says."""
        self.tab("user-metadata")

        def read() -> Page | None:
            page = self._page()
            if all(w in page.text for w in words):
                return page
            self._press("r")
            return None

        found = self.until(read, f"current details with {', '.join(words)}")
        assert isinstance(found, Page)
        return found

    def _page(self) -> Page:
        self.driver.switch_to.frame(self.driver.find_element("id", "user-metadata-current-details"))
        try:
            found = self.driver.execute_script(_READ_PAGE)
        finally:
            self.driver.switch_to.default_content()
        rows = tuple(tuple(row) for row in found["rows"])
        return Page(found["text"], tuple(found["elements"]), tuple(found["code"]), tuple(found["items"]), rows)

    # -- dialogs ---------------------------------------------------------------

    def begins(self, kind: str) -> Mapping[str, str]:
        """Open the dialog of an update or a signal, and its list: what can be sent, and what is said of each."""
        self._click("button", "More Actions")
        self._click(f"[data-testid={kind}-button]")
        self._click(f"dialog[open] [data-testid={kind}-select-button]")
        options = self.until(self._options, f"the {kind}s that the run takes")
        return {name: said for name, _, said in (option.partition("\n") for option in options)}

    def _options(self) -> list[str]:
        """What the list offers, all of it on the screen; the run's own names come a moment after the UI's "Custom"."""
        found = [o.text for o in self._dialog().find_elements("css selector", "[role=option]")]
        return found if len(found) > 1 and all(found) else []

    def _dialog(self) -> Any:
        return self.driver.find_element("css selector", "dialog[open]")

    def fills_in(self, name: str, text: str) -> None:
        """Choose a name from the list that is open, and paste the text."""
        self.until(lambda: self._chooses(name), f"{name} in the list")
        self._click("dialog[open] .cm-content")
        self._press(CONTROL + "a" + CONTROL)  # the dialog still holds what was sent last
        self.driver.execute_cdp_cmd("Input.insertText", {"text": text})
        # Leaving the editor lays out the JSON, and the dialog with it: what one clicks on has then moved from under the
        # mouse, and the click is lost (or closes the dialog). The Tab key leaves it without a click.
        self._press(TAB)

    def _chooses(self, name: str) -> bool:
        for option in self._dialog().find_elements("css selector", "[role=option]"):
            if option.text.partition("\n")[0] == name:
                option.click()
                return True
        return False

    def submits(self) -> None:
        """Press the button of the dialog."""
        self._click("dialog[open] [data-testid=confirm-modal-button]")

    def sends(self, kind: str, name: str, text: str) -> None:
        """Send an update or a signal, and wait until it was taken: the dialog closes."""
        self.begins(kind)
        self.fills_in(name, text)
        self.submits()
        self.until(lambda: not self.driver.find_elements("css selector", "dialog[open]"), f"that {name} was taken")

    def is_refused(self, kind: str, name: str, text: str) -> str:
        """Send something, and wait until the dialog says why not; then cancel. What it says."""
        self.begins(kind)
        self.fills_in(name, text)
        before = self._dialog().text
        self.submits()
        said = self.until(lambda: self._said(before), f"why {name} was not taken")
        self._click("dialog[open] button", "Cancel")
        return str(said)

    def _said(self, before: str) -> str:
        """The lines of the dialog that were not there before; none while it is being sent."""
        now = self._dialog().text.splitlines()
        return "" if "In Progress" in now else "\n".join(line for line in now if line not in before.splitlines())

    # -- pictures --------------------------------------------------------------

    def photographs(self, clip: Mapping[str, float], to: Path, scale: float = 1) -> None:
        """A PNG of a part of the page, ``{x, y, width, height}`` from its upper left corner."""
        asked = {"format": "png", "captureBeyondViewport": True, "clip": {**clip, "scale": scale}}
        found = self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)
        to.write_bytes(base64.b64decode(found["data"]))
