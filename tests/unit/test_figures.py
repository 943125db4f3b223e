"""The figures of docs/sizing.md are in the files that benchmarks wrote."""

import json
import re
from pathlib import Path

from benchmarks.tables import Table

ROOT = Path(__file__).parents[2]


def test_each_figure_is_in_its_file() -> None:
    link, number = r"\[\w+\]\(\.\./(benchmarks/figures/\w+\.json)\)", r"\d[\d,]*(?:\.\d+)?"
    page = (ROOT / "docs" / "sizing.md").read_text("utf-8")
    rows = re.findall(rf"^\|[^|]*\|(.*)\| {link} \|$", page, flags=re.MULTILINE)
    assert len(rows) >= 8
    for figures, file in rows:
        tables = json.loads((ROOT / file).read_text("utf-8"))["tables"].values()
        written = " ".join(Table(**table).text() for program in tables for table in program)
        assert set(re.findall(number, figures)) <= set(re.findall(number, written)), file


def test_each_mutant_is_killed_or_explained_and_counted() -> None:
    rows = json.loads((ROOT / "benchmarks" / "figures" / "mutants.json").read_text("utf-8"))["rows"]
    assert all(row.get("killed_by") or row["survives"] for row in rows)
    text = f"of {len(rows)}, tests kill {sum('killed_by' in row for row in rows)};"
    assert text in (ROOT / "CONTRIBUTING.md").read_text("utf-8")
