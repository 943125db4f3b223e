"""Recorded answers of the planning suite stay valid and right: a change of the language must not take them back."""

from __future__ import annotations

import pytest

from benchmarks.planning.__main__ import ANSWERS, all_tasks, score_recorded

FOLDERS = sorted(folder.name for folder in ANSWERS.iterdir() if folder.is_dir())


@pytest.mark.parametrize("name", FOLDERS)
def test_recorded_answers_are_still_right(name: str) -> None:
    scores = score_recorded(ANSWERS / name)
    wrong = {s.task.id: (*s.first.problems, *s.first.wrong) for s in scores if not s.first.is_right}
    assert wrong == {}
    assert len(scores) == len([*all_tasks()])
