"""What `acts show` prints of a result that was cut."""

from __future__ import annotations

from typing import Any

import pytest

from acts.views.result_cuts import cut_result
from cli.render.cut_lines import MAX_LINES, cut_lines

CALLS = [{"id": "1:a", "tool": "a", "state": "completed"}]


def result(**parts: Any) -> dict[str, Any]:
    return {"status": "completed", "state": {}, "calls": CALLS, "context": [], "errors": [], **parts}


@pytest.mark.parametrize("whole", [result(), None, "x", {"omitted": None}, {"omitted": "x"}])
def test_a_whole_result_needs_no_words(whole: Any) -> None:
    assert list(cut_lines("r", whole)) == []


def test_each_part_has_its_size_and_the_command_that_prints_it() -> None:
    head, line = cut_lines("my run", cut_result(result(state={"it's": "x" * 9_000}), limit=4_000))
    assert head.startswith("left out of the result")
    assert "state (9," in head
    assert "/state/it's (9," in line
    assert "temporal workflow query --workflow-id 'my run' --type context --input " in line


def test_of_many_parts_the_largest_are_shown() -> None:
    state = {f"x{n}": "x" * (9_000 + n) for n in range(9)}
    lines = list(cut_lines("r", cut_result(result(state=state), limit=4_000)))
    assert len(lines) == 1 + MAX_LINES + 1
    assert "/state/x8" in lines[1]
    assert "4 more" in lines[-1]


def test_a_result_of_an_older_engine_has_sizes_only() -> None:
    (line,) = cut_lines("r", {"omitted": {"bytes": {"context": 9}, "how": "ask"}})
    assert line.endswith("context (9 bytes)")
