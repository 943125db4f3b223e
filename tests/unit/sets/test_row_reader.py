"""The rows of a set: pages of any size give all of them once, and a bad row is one row."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.activities import set_work
from acts.activities.set_work import SetActivities
from acts.sets import set_files
from acts.sets import survey as survey_module
from acts.sets.set_files import SetError, SetSources, open_set
from acts.sets.survey import MAX_ROW_BYTES, Row, RowIds, Survey, read_page, row_id, survey
from acts.tree.past_run import PastRow
from acts.tree.set_records import SetPage, numbers_between, unpack_bits

Json = Any


def examine(data: bytes, name: str = "a.jsonl", id_field: str | None = None) -> Survey:
    return survey(io.BytesIO(data), name, id_field, RowIds())


def pages_of(found: Survey) -> list[SetPage]:
    out, offset, line, row = list[SetPage](), found.dialect.start, found.dialect.lines + 1, 1
    for size, rows, lines, hash_ in found.pages:
        out.append(SetPage(offset=offset, line=line, row=row, rows=rows, lines=lines, hash=hash_))
        offset, line, row = offset + size, line + lines, row + rows
    return out


def rows_of(data: bytes, name: str = "a.jsonl") -> list[Row]:
    """All rows, page by page, as Batches read them."""
    found = examine(data, name)
    out: list[Row] = []
    for page in pages_of(found):
        stream = io.BytesIO(data)
        stream.seek(page.offset)
        out += read_page(stream, found.dialect, page, name)
    assert len(out) == found.total
    return out


VALUES = st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=20), st.none()), max_size=4)
JUNK = st.sampled_from([b"", b"   ", b"{", b"[1]", b'"text"', b"{\xff\xfe}", b'{"a": NaN}'])


@given(
    st.lists(st.one_of(VALUES, JUNK), min_size=1, max_size=60), st.integers(1, 7), st.integers(1, 300), st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_pages_of_any_size_give_every_row_once(items: list[Any], rows: int, size: int, has_end: bool) -> None:  # noqa: FBT001
    lines = [item if isinstance(item, bytes) else json.dumps(item).encode() for item in items]
    data = b"\n".join(lines) + (b"\n" if has_end else b"")
    expected = [item for item in items if not isinstance(item, bytes) or item.strip()]
    if not expected:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey_module, "PAGE_ROWS", rows)
        patch.setattr(survey_module, "_STEP_ROWS", rows)
        patch.setattr(survey_module, "PAGE_BYTES", size)
        found = rows_of(data)
    assert [row.data for row in found] == [None if isinstance(i, bytes) else i for i in expected]
    assert [row.line for row in found] == [n for n, line in enumerate(lines, 1) if line.strip()]


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=12)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=40), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_a_csv_file_that_a_program_wrote_is_read_as_it_was_written(cells: list[list[str]], rows: int) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([["one", "two"], *cells])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survey_module, "PAGE_ROWS", rows)
        patch.setattr(survey_module, "_STEP_ROWS", rows)
        found = rows_of(text.getvalue().encode(), "a.csv")
    assert [list((row.data or {}).values()) for row in found] == cells


@pytest.mark.parametrize(
    ("name", "data", "messages"),
    [
        ("a.jsonl", b'{"a": 1}\nnot json\n{"a": 2}', {2: "not JSON"}),
        ("a.jsonl", b'\xef\xbb\xbf{"a": 1}\n', {}),
        ("a.jsonl", b'{"a": "' + b"x" * 3_000_000 + b'"}\n{"a": 2}\n', {1: "3,000,010 bytes"}),
        ("a.csv", b'\xef\xbb\xbfa;b\n1;2\n3\n"4;\n5;6\n', {3: "1 fields; the header has 2", 4: "not CSV"}),
        ("a.csv", b"a,b\n1,\xff\n3,4\n", {2: "not UTF-8"}),
        ("a.csv", b"a\n" + b"\x01" * 200_000 + b"\n3\n", {2: "1,200,008 bytes as JSON; at most"}),
        ("a.jsonl", b'{"a": [' + b"1e15," * 100_000 + b'1]}\n{"a": 2}\n', {1: "bytes as JSON; at most"}),
        ("a.csv", b'a,b\n"1\n2",3\n4,5\n', {}),
        (
            "a.csv",
            b'a,b\n"' + (b"x" * 9_999 + b"\n") * (MAX_ROW_BYTES // 10_000 + 1) + b"4,5\n",
            {2: "quote is not closed"},
        ),
    ],
)
def test_a_bad_row_is_named_by_its_line_and_the_next_row_is_read(
    name: str, data: bytes, messages: dict[int, str]
) -> None:  # fmt: skip
    found = [row for row in rows_of(data, name) if row.fault][:5]
    for row in found[: len(messages)]:
        assert messages[row.line] in row.fault
    assert len(found) >= len(messages)
    assert rows_of(data, name)[-1].data is not None


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", b"", "has no rows"),
        ("a.jsonl", b"\n\n", "has no rows"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b"a,b\n", "has no rows below its header"),
        ("a.csv", b"a,a\n1,2\n", "the column 'a' twice"),
        ("a.csv", b"a,,b\n1,2,3\n", "no name for column 2"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_a_file_that_is_no_set_is_refused_as_a_whole(name: str, data: bytes, message: str) -> None:
    with pytest.raises(SetError, match=message):
        examine(data, name)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200))
@settings(max_examples=50, deadline=None)
def test_every_row_whose_id_an_earlier_row_has_is_known(ids: list[int]) -> None:
    data = b"".join(b'{"id": %d}\n' % id_ for id_ in ids)
    expected = [n for n, id_ in enumerate(ids, 1) if id_ in ids[: n - 1]]
    assert list(numbers_between(unpack_bits(examine(data, id_field="id").repeated), 1, len(ids))) == expected


def test_a_page_that_has_changed_is_refused_and_rows_that_were_appended_are_not_seen() -> None:
    data = b"".join(b'{"id": %d}\n' % n for n in range(100))
    found = examine(data)
    page = pages_of(found)[1]

    def read(content: bytes) -> list[Row]:
        stream = io.BytesIO(content)
        stream.seek(page.offset)
        return read_page(stream, found.dialect, page, "a.jsonl")

    assert len(read(data + b'{"id": 100}\n')) == page.rows
    with pytest.raises(SetError, match=f"its lines {page.line} to {page.line + page.lines - 1} are not what they were"):
        read(data.replace(b"30", b"31"))
    with pytest.raises(SetError, match="has changed"):
        read(data[: page.offset + 5])


@pytest.mark.parametrize(
    ("data", "field", "expected"),
    [
        ({"id": "x"}, "id", "x"), ({"id": 7}, "id", "7"), ({}, None, "5"), ({"a": 1}, "id", None),
        ({"id": True}, "id", None), ({"id": 1.5}, "id", None), ({"id": " "}, "id", None),
        ({"id": "x" * 301}, "id", None),
    ],
)  # fmt: skip
def test_an_id_is_a_text_or_a_whole_number(data: dict[str, Json], field: str | None, expected: str | None) -> None:
    id_, reason = row_id(data, field, 5)
    assert id_ == expected
    assert bool(reason) == (expected is None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of sets, and a place for copies."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "secret.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "data" / "a.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "data" / "b.csv.gz").write_bytes(gzip.compress(b"id\n1\n2\n"))
    (tmp_path / "data" / "broken.jsonl.gz").write_bytes(gzip.compress(b'{"id": 1}\n' * 100)[:-9])
    (tmp_path / "data" / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (tmp_path / "data" / "inside.jsonl").symlink_to("a.jsonl")
    (tmp_path / "data" / "folder.jsonl").mkdir()
    return tmp_path / "data"


def read(folder: Path, name: str) -> bytes:
    with open_set(name, SetSources(data=(folder,))) as opened:
        return opened.stream.read()


def test_sets_are_read_from_their_folder_compressed_ones_too(folder: Path) -> None:
    assert read(folder, "a.jsonl") == read(folder, str(folder / "a.jsonl")) == read(folder, "inside.jsonl")
    assert read(folder, "b.csv.gz") == b"id\n1\n2\n"


@pytest.mark.parametrize(
    ("name", "type_", "message"),
    [
        ("../secret.jsonl", "SetRefused", 'the step ".."'),
        ("link.jsonl", "SetRefused", "outside the folders of ACTS_DATA"),
        ("/etc/hosts.csv", "SetRefused", "outside the folders of ACTS_DATA"),
        ("folder.jsonl", "SetRefused", "is no regular file"),
        ("a.txt", "SetRefused", "neither JSON Lines nor CSV"),
        ("b.jsonl", "SetNotFound", "there are: .*a.jsonl"),
        ("broken.jsonl.gz", "InvalidSet", "no complete gzip file"),
    ],
)
def test_what_is_no_set_of_the_folder_is_refused(folder: Path, name: str, type_: str, message: str) -> None:
    with pytest.raises(SetError, match=message) as error:
        read(folder, name)
    assert error.value.type == type_


def test_a_copy_is_no_larger_than_its_source_accounts_for_and_leaves_room_on_the_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "bomb.jsonl.gz").write_bytes(gzip.compress(b"\n" * 3_000_000))
    with monkeypatch.context() as patch:
        patch.setattr(set_files, "_MIN_RATIO_BYTES", 1_000_000)
        with pytest.raises(SetError, match="more than 200 times its size") as error:
            read(folder, "bomb.jsonl.gz")
    assert error.value.type == "SetTooLarge"
    full = os.statvfs_result((*os.statvfs(folder)[:4], 0, *os.statvfs(folder)[5:]))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstatvfs", lambda _: full)
        with pytest.raises(SetError, match="too little free space") as error:
            read(folder, "b.csv.gz")
    assert error.value.type == "SetUnavailable"
    assert not list(folder.parent.glob("acts-sets-*/*"))


@pytest.mark.parametrize("fault", ["link", "mode"])
def test_copies_are_kept_in_a_folder_of_ours_alone(folder: Path, fault: str) -> None:
    copies = folder.parent / f"acts-sets-{os.getuid()}"
    if fault == "link":
        (folder.parent / "theirs").mkdir(mode=0o700)
        copies.symlink_to("theirs")
    else:
        copies.mkdir()
        copies.chmod(0o770)
    with pytest.raises(SetError, match="remove it, and it is made anew") as error:
        read(folder, "b.csv.gz")
    assert error.value.type == "SetUnavailable"
    assert not list(copies.iterdir())


async def no_rows(workflow_id: str, run_id: str) -> AsyncIterator[tuple[PastRow, ...]]:
    raise AssertionError((workflow_id, run_id))
    yield ()


def test_a_file_that_is_written_to_while_its_rows_are_counted_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": 1}\n')
    work = SetActivities(SetSources(data=(tmp_path,)), no_rows)

    def counting(*args: Any) -> Any:
        with file.open("a") as stream:
            stream.write('{"id": 2}\n')
        return survey(*args)

    with monkeypatch.context() as patch:
        patch.setattr(set_work, "survey", counting)
        with pytest.raises(SetError, match=r"a\.jsonl was written to while its rows were counted") as error:
            work.count_rows("a.jsonl", "id", RowIds())
    assert error.value.type == "SetUnavailable"
    assert work.count_rows("a.jsonl", "id", RowIds())["total"] == 2
