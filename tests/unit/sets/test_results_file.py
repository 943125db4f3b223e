"""The results file: a line for each row, exactly once, wherever a writer dies and however often it comes again."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.sets import results_file
from acts.sets.results_file import ResultsFile, append, create, find_results
from acts.sets.set_files import SetError


class Death(BaseException):
    """The process ends here."""


def lines(*rows: int, text: str = "") -> list[tuple[int, bytes]]:
    return [(row, json.dumps({"id": str(row), "text": text}).encode()) for row in rows]


def die_at(patch: pytest.MonkeyPatch, count: int) -> None:
    """The process dies at the ``count``-th point of an append: before or after a write, or before it is on the disk."""
    write, seen = os.pwrite, iter(range(count))

    def reach(*_: Any) -> None:
        if next(seen, None) is None:
            raise Death

    def pwrite(*args: Any) -> int:
        reach()
        written = write(*args)
        reach()
        return written

    patch.setattr(os, "pwrite", pwrite)
    patch.setattr(os, "fsync", reach)


def ids(file: ResultsFile) -> list[str]:
    text = Path(file.root, *file.steps).read_text("utf-8")
    assert not text or text.endswith("\n")
    return [json.loads(line)["id"] for line in text.splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> ResultsFile:
    """The file of a run that has just been created."""
    found = find_results([tmp_path], "out.jsonl")
    create(found, "run-1")
    return found


# Each step appends some rows and dies at a point, or (None) does not
STEPS = st.lists(
    st.tuples(st.lists(st.integers(1, 40), min_size=1, max_size=8, unique=True), st.none() | st.integers(0, 5)),
    min_size=1, max_size=12,
)  # fmt: skip


@given(STEPS, st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_every_row_has_one_line_whatever_dies_and_is_repeated(steps: list[Any], chunk: int) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(results_file, "_CHUNK", chunk)  # a write of several parts, each of which may be the last
        patch.setattr(os, "fsync", lambda _: None)
        found = find_results([Path(name)], "out.jsonl")
        create(found, "run-1")
        expected: dict[str, None] = {}
        for rows, point in steps:
            if point is not None:
                with suppress(Death), patch.context() as dying:  # it may not reach so many points
                    die_at(dying, point)
                    append(found, "run-1", lines(*rows))
            append(found, "run-1", lines(*rows))
            expected.update(dict.fromkeys(map(str, rows)))
        assert sorted(ids(found)) == sorted(expected)


def test_a_full_disk_changes_nothing_and_the_next_attempt_goes_on(
    file: ResultsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(file, "run-1", lines(1))
    write, written = os.pwrite, 0

    def full(descriptor: int, data: Any, offset: int) -> int:
        nonlocal written
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, bytes(data)[:7], offset)
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(SetError, match="cannot be written: No space left on device") as error:
            append(file, "run-1", lines(2))
    assert error.value.type == "ResultsUnavailable"
    assert ids(file) == ["1"]
    append(file, "run-1", lines(2))
    assert ids(file) == ["1", "2"]


def test_a_file_that_exists_is_refused_unless_it_is_that_of_the_run(tmp_path: Path, file: ResultsFile) -> None:
    append(file, "run-1", lines(1))
    create(file, "run-1")  # an attempt that is repeated
    assert ids(file) == ["1"]
    with pytest.raises(SetError, match=r"exists already \(of another run\)"):
        create(file, "run-2")
    other = tmp_path / "other.jsonl"
    other.write_text("precious\n")
    with pytest.raises(SetError, match=r"'other\.jsonl' exists already, and"):
        create(find_results([tmp_path], "other.jsonl"), "run-1")
    assert other.read_text() == "precious\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == [".out.jsonl.acts", "other.jsonl", "out.jsonl"]


def test_a_file_that_was_removed_is_free_for_another_run_and_not_for_the_one_that_it_was_of(
    tmp_path: Path, file: ResultsFile
) -> None:
    append(file, "run-1", lines(1))
    (tmp_path / "out.jsonl").unlink()
    with pytest.raises(SetError) as gone:
        append(file, "run-1", lines(2))
    assert gone.value.type == "ResultsUnavailable"
    create(file, "run-2")
    append(file, "run-2", lines(1))
    assert ids(file) == ["1"]
    with pytest.raises(SetError, match="has become that of another run") as refused:
        append(file, "run-1", lines(2))
    assert refused.value.type == "ResultsRefused"


def test_a_file_that_somebody_has_cut_is_waited_for(tmp_path: Path, file: ResultsFile) -> None:
    append(file, "run-1", lines(1, 2))
    whole = (tmp_path / "out.jsonl").read_bytes()
    (tmp_path / "out.jsonl").write_bytes(whole[:5])
    with pytest.raises(SetError, match=r"5 bytes, of .* that were written") as error:
        append(file, "run-1", lines(3))
    assert error.value.type == "ResultsUnavailable"
    (tmp_path / "out.jsonl").write_bytes(whole)
    append(file, "run-1", lines(3))
    assert ids(file) == ["1", "2", "3"]


STEPS_OF_NAMES = st.sampled_from(
    [
        "a",
        "sub",
        ".git",
        "..",
        ".",
        "",
        "link",
        "up",
        "Makefile",
        "x.py",
        "out.jsonl",
        ".jsonl",
        ".x.ndjson",
        "b.ndjson",
    ]
)


@given(st.lists(STEPS_OF_NAMES, min_size=1, max_size=4).map("/".join), st.booleans(), st.booleans())
@settings(deadline=None)
def test_results_are_new_files_with_names_of_results_in_their_folder(name: str, absolute: bool, there: bool) -> None:  # noqa: FBT001
    """Whatever a Request names: nothing that is there changes, no link is followed, no other program reads the name."""
    with tempfile.TemporaryDirectory() as root:
        folder, outside = Path(root, "results"), Path(root, "outside")
        for made in (folder / "sub", folder / ".git", outside):
            made.mkdir(parents=True)
        (folder / "link").symlink_to("sub")
        (folder / "up").symlink_to(outside)
        name = f"{folder}/{name}" if absolute else name
        if there and Path(folder, name).parent.is_dir():
            with suppress(OSError):
                Path(folder, name).write_text("precious")
        before = {path: path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}
        with suppress(SetError):
            found = find_results([folder], name)
            create(found, "run-1")
            append(found, "run-1", lines(1))
        assert all(path.read_bytes() == data for path, data in before.items())
        new = {path.relative_to(folder) for path in Path(root).rglob("*") if path.is_file() and path not in before}
        results = {path for path in new if path.suffix in (".jsonl", ".ndjson")}
        assert new == results | {path.with_name(f".{path.name}.acts") for path in results}
        assert not any(step.startswith(".") for path in results for step in path.parts)


@pytest.mark.parametrize("name", ["../out.jsonl", "/etc/out.jsonl", ".out.jsonl", "a\\b", "", "GNUmakefile"])
def test_results_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetError) as error:
        find_results([tmp_path], name)
    assert error.value.type == "ResultsRefused"


def test_a_link_in_place_of_the_file_or_its_journal_is_not_followed(tmp_path: Path, file: ResultsFile) -> None:
    (tmp_path / ".out.jsonl.acts").rename(tmp_path / "elsewhere")
    (tmp_path / ".out.jsonl.acts").symlink_to(tmp_path / "elsewhere")
    for work in (lambda: append(file, "run-1", lines(1)), lambda: create(file, "run-1")):
        with pytest.raises(SetError, match="is no regular file now"):
            work()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "out.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(SetError, match="outside the folders of ACTS_RESULTS"):
        find_results([tmp_path / "results"], "out.jsonl")


WRITER = """
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from acts.sets.results_file import append, find_results
file = find_results([Path(sys.argv[1])], "out.jsonl")
print("ready", flush=True)
sys.stdin.readline()
for n in range(50):
    for again in range(2):
        append(file, "run-1", [(100 * n + row, b'{"id": "%d"}' % (100 * n + row)) for row in range(1, 60)])
"""


def test_processes_that_write_the_same_rows_at_once_write_each_once(tmp_path: Path, file: ResultsFile) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    for writer in writers:
        writer.communicate("go\n")
        assert writer.returncode == 0
    assert sorted(map(int, ids(file))) == [100 * n + row for n in range(50) for row in range(1, 60)]
