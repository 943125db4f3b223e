"""The folder of values: complete files or none, whoever writes at the same time and whenever one is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from connection.content_store import (
    ContentMissing,
    StorageError,
    StorageUnavailable,
    StoredContent,
    path_segment,
    sha256,
)
from connection.folder_store import MARKER, FolderStore

ROOT = Path(__file__).parents[2]
NAMESPACE = "default"
AGES = (0, 3600, 90_000)  # seconds


def store_in(folder: Path) -> FolderStore:
    store = FolderStore(folder)
    store.prepare(creates=True)
    return store


def put(store: FolderStore, data: bytes, namespace: str = NAMESPACE) -> dict[str, str]:
    return store.put(namespace, sha256(data), data)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def test_a_value_is_stored_once_whoever_writes_it(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    claims = [put(store, b"one"), put(store_in(tmp_path), b"one"), put(store, b"two")]
    assert claims[0] == claims[1] == {"namespace": NAMESPACE, "sha256": sha256(b"one")}
    assert len(list(store.list_contents(NAMESPACE))) == 2
    assert [store.get(claim) for claim in claims] == [b"one", b"one", b"two"]


@given(namespace=st.text(max_size=300))
@settings(max_examples=300, deadline=None)
def test_a_namespace_is_one_segment_of_a_path_and_different_ones_stay_different(namespace: str) -> None:
    segment = path_segment(namespace)
    assert segment not in ("", ".", "..")
    assert "/" not in segment
    assert len(segment.encode()) <= 255
    assert len(namespace.encode()) * 3 > 200 or unquote(segment.removesuffix("%")) == namespace


def test_a_namespace_does_not_leave_the_folder(tmp_path: Path) -> None:
    store = store_in(tmp_path / "storage")
    claims = [put(store, b"one", namespace) for namespace in ("..", "../..", "/etc", "a/b", "\0", "", "%2E", "é")]
    assert [p.name for p in tmp_path.iterdir()] == ["storage"]
    assert [store.get(claim) for claim in claims] == [b"one"] * 8
    assert len(files(tmp_path / "storage" / "values")) == 8


@pytest.mark.parametrize(
    "claim",
    [
        {},
        {"namespace": "default", "sha256": "../../../../etc/passwd"},
        {"namespace": "default", "sha256": "A" * 64},
        {"namespace": "default", "sha256": "a" * 64 + "\n"},
        {"sha256": "a" * 64},
        {"bucket": "b", "key": "k", "hash_algorithm": "sha256", "hash_value": "a" * 64},
    ],
)
def test_a_claim_of_another_form_is_an_error(tmp_path: Path, claim: dict[str, str]) -> None:
    with pytest.raises(ContentMissing, match="a reference to file:"):
        store_in(tmp_path).get(claim)


def test_missing_content_is_told_from_a_folder_that_is_away(tmp_path: Path) -> None:
    store = store_in(tmp_path / "storage")
    claim = {"namespace": NAMESPACE, "sha256": sha256(b"never stored")}
    with pytest.raises(ContentMissing, match="is not in file:"):
        store.get(claim)
    (tmp_path / "storage").rename(tmp_path / "away")
    with pytest.raises(StorageUnavailable, match=MARKER):
        store.get(claim)
    (tmp_path / "storage").mkdir()  # a mount point without its mount
    with pytest.raises(StorageUnavailable, match=MARKER):
        put(store, b"late")
    assert files(tmp_path / "storage") == []


def test_a_client_marks_an_empty_folder_and_creates_none(tmp_path: Path) -> None:
    FolderStore(tmp_path / "none").prepare(creates=False)
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    store = FolderStore(tmp_path / "empty")
    store.prepare(creates=False)
    assert store.get(put(store, b"one")) == b"one"


def test_a_folder_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be used: "):
        store_in(tmp_path / "file" / "storage")


def test_a_file_that_the_file_system_has_cut_is_written_again(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    claim = put(store, b"one")
    (path,) = files(tmp_path / "values")
    path.write_bytes(b"o")
    put(store, b"one")
    assert store.get(claim) == b"one"


def test_writers_at_the_same_time_and_a_clean_up_lose_nothing(tmp_path: Path) -> None:
    """Old files are put again and deleted by many threads at once: what was put after all is there at the end."""
    store = store_in(tmp_path)
    data = [f"value {i}".encode() for i in range(20)]
    claims = [put(store, d) for d in data]
    for _ in range(10):
        for path in files(tmp_path / "values"):
            os.utime(path, (0, 0))
        old = [StoredContent(str(p), p.name, 1, ago(1)) for p in files(tmp_path / "values")]
        with ThreadPoolExecutor(8) as threads:
            deletions = [threads.submit(store.delete, content, ago(3600)) for content in old]
            puts = [threads.submit(put, store, d) for d in data]
            for future in (*deletions, *puts):
                future.result()
        assert [store.get(claim) for claim in claims] == data
    assert files(tmp_path / "new") == files(tmp_path / "old") == []


def test_a_writer_that_is_killed_anywhere_leaves_whole_values_or_none(tmp_path: Path) -> None:
    """For each call of the operating system that a writer makes: one is killed before that call."""
    data = b"a value" * 1_000
    command = [sys.executable, "-m", "tests.storage.write_and_die", str(tmp_path), data.decode()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    killed_before = done.stdout.split()
    assert {"open", "fsync", "rename", "mkdir"} <= set(killed_before)
    for number in range(1, len(killed_before) + 1):
        folder = tmp_path / str(number)
        for path in files(folder / "values"):
            assert sha256(path.read_bytes()) == path.name
        store = store_in(folder)  # the next writer finds no obstacle, and a clean-up what was left
        assert store.get(put(store, data)) == data
        store.delete_leftovers(ago(-1))
        assert files(folder / "new") == []


def test_what_a_killed_clean_up_has_half_deleted_is_read_and_put_back(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    claim = put(store, b"one", "name.space")
    (path,) = files(tmp_path / "values")
    path.rename(tmp_path / "old" / f"{path.parents[2].name}.{path.name}")
    assert store.get(claim) == b"one"
    (content,) = store.list_contents("name.space")
    assert content.location == str(path)


class FolderMachine(RuleBasedStateMachine):
    """Puts, clean-ups and the passing of time, against a dictionary of what may be deleted and what must be there."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = store_in(Path(self.folder.name))
        self.used: dict[bytes, float] = {}  # content and the seconds since it was put

    @rule(data=st.sampled_from([b"", b"a", b"b", b"c" * 9_999]))
    def put_value(self, data: bytes) -> None:
        put(self.store, data)
        self.used[data] = 0

    @rule(seconds=st.sampled_from(AGES))
    def pass_time(self, seconds: int) -> None:
        for path in files(Path(self.folder.name) / "values"):
            stat = path.stat()
            os.utime(path, (stat.st_mtime - seconds, stat.st_mtime - seconds))
        self.used = {data: age + seconds for data, age in self.used.items()}

    @rule(grace=st.sampled_from(AGES[1:]))
    def clean_up(self, grace: int) -> None:
        for content in list(self.store.list_contents(NAMESPACE)):
            self.store.delete(content, ago(grace))
        self.used = {data: age for data, age in self.used.items() if age < grace}

    @invariant()
    def what_was_used_lately_is_there_and_nothing_else(self) -> None:
        found = {content.digest for content in self.store.list_contents(NAMESPACE)}
        assert found == {sha256(data) for data in self.used}
        for data in self.used:
            assert self.store.get({"namespace": NAMESPACE, "sha256": sha256(data)}) == data

    def teardown(self) -> None:
        self.folder.cleanup()


FolderMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
TestFolder = FolderMachine.TestCase
