"""The activities of a set, beside what they read and write: what is recorded of a set, and a file in motion."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acts.activities import set_work
from acts.activities.set_work import SetActivities
from acts.sets.set_files import SetError, SetSources
from acts.sets.survey import RowIds, survey
from acts.tree.past_run import PastRow

Json = Any


async def no_rows(workflow_id: str, run_id: str) -> AsyncIterator[tuple[PastRow, ...]]:
    """No earlier run is asked for its rows."""
    raise AssertionError((workflow_id, run_id))
    yield ()


def test_a_file_that_is_written_to_while_its_rows_are_counted_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": 1}\n')
    work = SetActivities(SetSources(data=(tmp_path,)), lambda _url, _file: None, no_rows)

    def counting(*args: Any) -> Any:
        with file.open("a") as stream:
            stream.write('{"id": 2}\n')
        return survey(*args)

    with monkeypatch.context() as patch:
        patch.setattr(set_work, "survey", counting)
        with pytest.raises(SetError, match=r"a\.jsonl was written to while its rows were counted") as error:
            work.count_rows("a.jsonl", "id", RowIds())
    assert error.value.type == "SetUnavailable"
    assert json.loads(work.count_rows("a.jsonl", "id", RowIds()).payload.data)["total"] == 2
