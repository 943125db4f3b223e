"""The activities of a set, beside what they read and write: what is recorded of a set, and a file in motion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from activities import set_work
from activities.set_work import SetActivities
from acts.language.wire import MAX_PAYLOAD_BYTES
from acts.tree.past_run import PastRow
from sets.set_errors import SetError
from sets.set_sources import SetSources
from sets.survey import survey

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
            work.survey({"source": "a.jsonl", "id": "id"})
    assert error.value.type == "SetUnavailable"
    assert work.survey({"source": "a.jsonl", "id": "id"})["total"] == 2


def test_what_is_too_large_to_be_recorded_ends_the_run_with_a_word_of_what_to_do() -> None:
    with pytest.raises(SetError, match=r"of 'a\.jsonl' has 2,\d+,\d+ bytes; split it into several files") as error:
        set_work.encode_work(lambda _: {"pages": "x" * MAX_PAYLOAD_BYTES}, {"source": "a.jsonl"})
    assert error.value.type == "SetTooLarge"
