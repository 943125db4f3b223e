"""The figures of the docs are in the files that benchmarks wrote."""

import json
import re
from pathlib import Path

from benchmarks.tables import Table

ROOT = Path(__file__).parents[3]
FIGURES = ROOT / "benchmarks" / "figures"
MUTANTS = "mutants.json"  # has no tables: CONTRIBUTING.md counts its rows


def test_each_figure_is_in_its_file() -> None:
    link, number = r"\[\w+\]\(\.\./(benchmarks/figures/\w+\.json)\)", r"\d+(?:,\d+)*(?:\.\d+)?"
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md"))
    rows = re.findall(rf"^\|[^|]*\|(.*)\| {link} \|$", pages, flags=re.MULTILINE)
    files = {f"benchmarks/figures/{file.name}" for file in FIGURES.iterdir() if file.name != MUTANTS}
    assert {file for _, file in rows} == files
    for figures, file in rows:
        tables = json.loads((ROOT / file).read_text("utf-8"))["tables"].values()
        written = " ".join(Table(**table).text() for program in tables for table in program)
        assert set(re.findall(number, figures)) <= set(re.findall(number, written)), file


def test_each_mutant_is_killed_or_explained_and_counted() -> None:
    rows = json.loads((FIGURES / MUTANTS).read_text("utf-8"))["rows"]
    assert all(row.get("killed_by") or row["survives"] for row in rows)
    text = f"of {len(rows)}, tests kill {sum('killed_by' in row for row in rows)};"
    assert text in (ROOT / "CONTRIBUTING.md").read_text("utf-8")
