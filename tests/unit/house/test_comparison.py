"""docs/comparison.md says what was measured: it is what the generator makes of the stored figures and the programs."""

from __future__ import annotations

import json
import re

from benchmarks.compare import page
from benchmarks.compare.measure import ALTERNATIVES, APPS

MAX_WORDS = 800
RESULTS = json.loads(page.RESULTS.read_text("utf-8"))
PAGE = page.PAGE.read_text("utf-8")


def test_the_page_is_what_the_stored_figures_say() -> None:
    assert page.write(RESULTS) == PAGE, "run `python -m benchmarks.compare --page`"


def test_the_page_is_short() -> None:
    text = re.sub(r"(?m)^\|.*$|<!--(?s:.*?)-->", "", PAGE)
    assert len(text.split()) <= MAX_WORDS


def test_every_alternative_was_measured_at_the_versions_that_it_pins() -> None:
    for alternative in ALTERNATIVES[1:]:
        pins = (APPS / alternative.name / "requirements.txt").read_text("utf-8").split()
        assert [f"{package}=={number}" for package, number in RESULTS["versions"][alternative.name].items()] == pins
    assert {row["alternative"] for row in RESULTS["rows"]} == {alternative.name for alternative in ALTERNATIVES}
