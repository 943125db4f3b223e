"""SECURITY.md names a test for each line; each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
TABLE = PAGE.split("## Who can do what to whom")[1].split("\n## ")[0]


def test_each_line_names_a_test_that_is_there() -> None:
    lines = [line for line in TABLE.splitlines() if line.startswith("| ") and not line.startswith("| threat")]
    assert len(lines) > 15
    sources = {path: path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    functions, names = "\n".join(sources.values()), {path.name for path in sources}
    for line in lines:
        named = line.split("|")[3]
        files = re.findall(r"test_\w+\.py", named)
        tests = re.findall(r"`(test_\w+)`", named)
        assert files or tests, line
        assert set(files) <= names, line
        assert all(f"def {test}(" in functions for test in tests), line
    assert all((ROOT / path).exists() for path in re.findall(r"`(tests/[\w/]+\.py)`", TABLE))
