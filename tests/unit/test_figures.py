"""The figures of docs/sizing.md are in the files that benchmarks wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.tables import Table

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\|[^|]*\|(.*)\| \[\w+\]\(\.\./benchmarks/figures/(\w+)\.json\) \|$",
    (ROOT / "docs" / "sizing.md").read_text("utf-8"),
    flags=re.MULTILINE,
)


@pytest.mark.parametrize(("figures", "name"), ROWS)
def test_each_figure_of_a_row_is_in_its_file(figures: str, name: str) -> None:
    tables = json.loads((ROOT / "benchmarks" / "figures" / f"{name}.json").read_text("utf-8"))["tables"]
    written = " ".join(Table(**table).text() for part in tables.values() for table in part)
    numbers = r"\d[\d,]*(?:\.\d+)?"
    assert set(re.findall(numbers, figures)) <= set(re.findall(numbers, written))


def test_there_are_figures() -> None:
    assert len(ROWS) >= 8
