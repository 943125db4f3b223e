"""The figures of the docs are in the files that benchmarks wrote."""

import json
import re
from pathlib import Path

from benchmarks.tables import Table

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "benchmarks" / "figures"


def test_each_figure_is_in_its_file() -> None:
    link, number = r"\[\w+\]\(\.\./(benchmarks/figures/\w+\.json)\)", r"\d+(?:,\d+)*(?:\.\d+)?"
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md"))
    rows = re.findall(rf"^\|[^|]*\|(.*)\| {link} \|$", pages, flags=re.MULTILINE)
    assert {file for _, file in rows} == {f"benchmarks/figures/{file.name}" for file in FIGURES.iterdir()}
    for figures, file in rows:
        tables = json.loads((ROOT / file).read_text("utf-8"))["tables"].values()
        written = " ".join(Table(**table).text() for program in tables for table in program)
        assert set(re.findall(number, figures)) <= set(re.findall(number, written)), file
