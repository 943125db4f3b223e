"""Which rows of a set a run runs that resumes another one: by the lines of the earlier results files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.sets.results_file import ResultsFile, append, create, find_results, read_past
from acts.sets.set_files import SetError
from acts.sets.survey import RowIds, survey
from acts.tree.past_run import PastRow
from acts.tree.set_records import numbers_between, unpack_bits

Json = Any


def line(id_: str, status: str = "completed", code: str | None = None) -> dict[str, Json]:
    errors = [] if code is None else [{"call": None, "code": code, "message": "no"}]
    return {"id": id_, "status": status, "state": {}, "errors": errors}


def bad_row(number: int, code: str = "badRow") -> dict[str, Json]:
    return line(f"line {number}", "failed", code)


Source = tuple[ResultsFile, str] | list[PastRow]


def write(folder: Path, name: str, *lines: dict[str, Json]) -> Source:
    """The results file of a run that has ended, without its journal."""
    (folder / name).write_text("".join(json.dumps(item) + "\n" for item in lines), "utf-8")
    return find_results([folder], name), name


def history(*lines: dict[str, Json]) -> Source:
    """What the history of a run without a results file says."""
    return [PastRow(id=item["id"], status=item["status"], isLine=bool(item["errors"])) for item in lines]


def select(data: bytes, *sources: Source, only_failed: bool = False, id_field: str | None = "id") -> dict[str, Json]:
    past = RowIds("order-7", "failed" if only_failed else None)
    for source in sources:
        past.add_past(source if isinstance(source, list) else read_past(*source))
    return survey(io.BytesIO(data), "a.jsonl", id_field, past).to_json()


def running(found: dict[str, Json]) -> list[int]:
    """The numbers of the rows that run."""
    skipped = numbers_between(unpack_bits(found.get("skipped", "")), 1, found["total"])
    assert len(skipped) == found.get("takenOver", 0) + found.get("leftOut", 0)
    return [number for number in range(1, found["total"] + 1) if number not in skipped]


def rows(*ids: str | None) -> bytes:
    """A row for each id; None: one that cannot be used."""
    return b"".join(b"{\n" if id_ is None else json.dumps({"id": id_}).encode() + b"\n" for id_ in ids)


IDS = st.sampled_from(["a", "b", "c", "d", "e", "line 2", "ä\u2028", None])
STATUSES = st.sampled_from(["completed", "failed", "cancelled", "rejected"])
LINES = st.one_of(
    st.builds(line, IDS.filter(lambda id_: id_ is not None), STATUSES),  # type: ignore[arg-type]
    st.builds(bad_row, st.integers(1, 9), st.sampled_from(["badRow", "duplicateId"])),
)


@given(
    st.lists(IDS, min_size=1, max_size=9), st.lists(st.lists(LINES, max_size=6), max_size=3), st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_the_latest_line_of_a_row_decides_whether_it_runs(
    tmp_path_factory: pytest.TempPathFactory,
    ids: list[str | None],
    runs: list[list[Json]],
    only_failed: bool,  # noqa: FBT001
) -> None:
    by_id, bad, expected, first = dict[str, str](), set[str](), list[int](), set[str | None]()
    for item in (item for run in runs for item in run):
        if item["errors"]:
            bad.add(item["id"])
        else:
            by_id[item["id"]] = item["status"]
    for number, id_ in enumerate(ids, 1):
        status = None if id_ is None or id_ in first else by_id.get(id_)
        status = "failed" if status is None and f"line {number}" in bad else status
        first.add(id_)
        if status == "failed" or (not only_failed and status != "completed"):
            expected.append(number)
    data, folder = rows(*ids), tmp_path_factory.mktemp("past")
    # Every other run had no results file
    files = [history(*run) if n % 2 else write(folder, f"{n}.jsonl", *run) for n, run in enumerate(runs)]
    if only_failed and not expected:
        with pytest.raises(SetError, match=r'only "failed": no row of a\.jsonl has failed in'):
            select(data, *files, only_failed=True)
    else:
        assert running(select(data, *files, only_failed=only_failed)) == expected


def test_of_a_file_with_a_journal_counts_what_it_confirms(tmp_path: Path) -> None:
    own = find_results([tmp_path], "out.jsonl")
    create(own, "run-1")
    append(own, "run-1", [(1, json.dumps(line("a")).encode())])
    with (tmp_path / "out.jsonl").open("ab") as stream:
        stream.write(json.dumps(line("b")).encode() + b"\n{")  # killed before the record of an append
    assert [item.id for item in read_past(own, "run-1")] == ["a"]
    with pytest.raises(SetError, match="has become that of another run"):
        list(read_past(own, "run-2"))
    (tmp_path / ".out.jsonl.acts").unlink()
    assert [item.id for item in read_past(own, "run-1")] == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "'out.jsonl' of the earlier run is not there any more.*put it back, or start the plan without"),
        (b'{"id": "a", "status": "completed"}\n{"id": 7}\n', "is not what the earlier run wrote: line 2"),
        (b"[]\n", "is not what the earlier run wrote: line 1"),
    ],
)
def test_a_file_that_is_gone_or_changed_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "out.jsonl").write_bytes(content)
    file = (find_results([tmp_path], "out.jsonl"), "run-1")
    with pytest.raises(SetError, match=message) as refused:
        select(rows("a"), file)
    assert refused.value.type == "ResumeRefused"
