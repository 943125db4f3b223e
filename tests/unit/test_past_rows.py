"""Which rows of a set a run runs that resumes another one: by the lines of the earlier results files."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.tree.past_run import PastRow
from acts.tree.row_numbers import count_between, numbers_between, pack_numbers, unpack_numbers
from sets import survey as survey_module
from sets.past_results import Ending, PastFile, PastSpool, parse_line
from sets.results_file import append, create, find_results
from sets.row_ids import PastRows, RowSelection
from sets.set_errors import SetError
from sets.survey import survey

Json = Any


def line(id_: str, status: str = "completed", code: str | None = None) -> dict[str, Json]:
    errors = [] if code is None else [{"call": None, "code": code, "message": "no"}]
    return {"id": id_, "status": status, "state": {}, "errors": errors}


def bad_row(number: int, code: str = "badRow") -> dict[str, Json]:
    return line(f"line {number}", "failed", code)


def write(folder: Path, name: str, *lines: dict[str, Json]) -> PastFile:
    """The results file of a run that has ended, without its journal."""
    (folder / name).write_text("".join(json.dumps(item) + "\n" for item in lines), "utf-8")
    return PastFile(find_results([folder], name), name)


def spool(*lines: dict[str, Json]) -> PastSpool:
    """What the history of a run without a results file says."""
    found = PastSpool(io.BytesIO())
    found.write(PastRow(id=item["id"], status=item["status"], isLine=bool(item["errors"])) for item in lines)
    return found


def select(
    data: bytes, *files: PastFile | PastSpool, only_failed: bool = False, id_field: str | None = "id"
) -> dict[str, Json]:
    past = PastRows(files, RowSelection("order-7", only_failed=only_failed))
    return survey(io.BytesIO(data), "a.jsonl", len(data), id_field, lambda: None, past).to_json()


def running(found: dict[str, Json]) -> list[int]:
    """The numbers of the rows that run."""
    skipped = numbers_between(unpack_numbers(found["skipped"]), 1, found["total"])
    assert len(skipped) == found["takenOver"] + found["leftOut"]
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
    st.integers(1, 5),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_the_latest_line_of_a_row_decides_whether_it_runs(
    tmp_path_factory: pytest.TempPathFactory,
    ids: list[str | None],
    runs: list[list[Json]],
    only_failed: bool,  # noqa: FBT001
    parts: int,
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
    files = [spool(*run) if n % 2 else write(folder, f"{n}.jsonl", *run) for n, run in enumerate(runs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey_module, "_PART_BYTES", max(1, len(data) // parts))
        if only_failed and not expected:
            with pytest.raises(SetError, match=r'only "failed": no row of a\.jsonl has failed in'):
                select(data, *files, only_failed=True)
        else:
            assert running(select(data, *files, only_failed=only_failed)) == expected


def test_rows_without_an_id_are_known_by_their_numbers(tmp_path: Path) -> None:
    file = write(tmp_path, "out.jsonl", line("1"), line("2", "failed"), bad_row(4))
    data = b"{}\n{}\n{}\n{}\n"
    assert running(select(data, file, id_field=None)) == [2, 3, 4]
    assert running(select(data, file, id_field=None, only_failed=True)) == [2, 4]


def test_a_row_may_have_an_id_like_that_of_a_bad_row() -> None:
    failed = {**line("line 3", "failed"), "errors": [{"call": "1:pay", "code": "badRow", "message": "no"}]}
    own, bad = parse_line(json.dumps(failed).encode()), parse_line(json.dumps(bad_row(3)).encode())
    assert own is not None
    assert bad is not None
    assert (own.id, own.row_line, own.ending) == ("line 3", None, Ending.FAILED)
    assert (bad.id, bad.row_line, bad.ending) == (None, 3, Ending.FAILED)


def test_of_a_file_with_a_journal_counts_what_it_confirms(tmp_path: Path) -> None:
    own = find_results([tmp_path], "out.jsonl")
    create(own, "run-1")
    append(own, "run-1", [(1, json.dumps(line("a")).encode())])
    with (tmp_path / "out.jsonl").open("ab") as stream:
        stream.write(json.dumps(line("b")).encode() + b"\n{")  # killed before the record of an append
    assert [item.id for item in PastFile(own, "run-1").lines()] == ["a"]
    with pytest.raises(SetError, match="has become that of another run"):
        list(PastFile(own, "run-2").lines())
    (tmp_path / ".out.jsonl.acts").unlink()
    assert [item.id for item in PastFile(own, "run-1").lines()] == ["a", "b"]


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
    file = PastFile(find_results([tmp_path], "out.jsonl"), "run-1")
    with pytest.raises(SetError, match=message) as refused:
        select(rows("a"), file)
    assert refused.value.type == "ResumeRefused"


def test_a_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    own = find_results([tmp_path], "out.jsonl")
    create(own, "run-1")
    append(own, "run-1", [(1, json.dumps(line("a")).encode())])
    (tmp_path / "out.jsonl").write_bytes(b"")
    with pytest.raises(SetError, match=r"has 0 bytes, of [0-9]+ that the earlier run wrote"):
        list(PastFile(own, "run-1").lines())


def test_5000_rows_and_their_lines_take_two_megabytes(tmp_path: Path) -> None:
    ids = [f"order-{n}" for n in range(5_000)]
    file = write(
        tmp_path, "out.jsonl", *(line(id_, "failed" if n % 100 == 7 else "completed") for n, id_ in enumerate(ids))
    )
    data = rows(*ids)
    tracemalloc.start()
    found = select(data, file, only_failed=True)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert running(found) == [n for n in range(1, 5_001) if n % 100 == 8]
    assert found["takenOver"] == 4_950
    assert len(found["skipped"]) < 1_000
    assert most < 2_000_000, most  # so 100,000 rows: 40 MB at most


@given(st.sets(st.integers(1, 600)), st.integers(1, 600), st.integers(0, 300))
def test_numbers_of_a_part_are_counted_as_they_are_listed(numbers: set[int], first: int, more: int) -> None:
    bits = unpack_numbers(pack_numbers(numbers, 600))
    assert count_between(bits, first, first + more) == len(numbers_between(bits, first, first + more))
