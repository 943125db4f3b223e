"""The folder of values: complete files or none, whoever writes at the same time and whenever one is killed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts.client.client_errors import ClientError, explained
from acts.payloads import stores
from acts.payloads.stores import (
    MARKER,
    ContentMissing,
    FolderStore,
    StorageError,
    StorageUnavailable,
    path_segment,
    sha256,
)

ROOT = Path(__file__).parents[2]
NAMESPACE = "default"


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
    assert claims[0] == claims[1]
    assert claims[0]["key"].endswith(f"/{sha256(b'one')}")
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


@pytest.mark.parametrize(
    "claim",
    [
        {},
        {"key": "../../../../etc/passwd"},
        {"key": f"../2026-11-23/aa/{'a' * 64}"},
        {"key": f"default/2026-11-23/aa/{'a' * 64}\n"},
        {"key": f"default/2026-13-33/aa/{'a' * 64}"},
        {"bucket": "b", "key": "k", "hash_algorithm": "sha256", "hash_value": "a" * 64},
    ],
)
def test_a_claim_of_another_form_is_an_error(tmp_path: Path, claim: dict[str, str]) -> None:
    with pytest.raises(ContentMissing, match="a reference to file:"):
        store_in(tmp_path).get(claim)


def test_missing_content_is_told_from_a_folder_that_is_away(tmp_path: Path) -> None:
    store = store_in(tmp_path / "storage")
    claim = put(store, b"deleted")
    store.delete(next(store.list_contents(NAMESPACE)))
    with pytest.raises(ContentMissing, match="is not in file:"):
        store.get(claim)
    (tmp_path / "storage").rename(tmp_path / "away")
    with pytest.raises(StorageUnavailable, match=MARKER):
        store.get(claim)
    (tmp_path / "storage").mkdir()  # a mount point without its mount
    with pytest.raises(StorageUnavailable, match=MARKER):
        put(store, b"late")
    assert files(tmp_path / "storage") == []


def test_a_process_keeps_to_the_folder_that_it_saw_first(tmp_path: Path) -> None:
    """A worker that began before the mount left a marker and a value below the mount point."""
    folder, mounted = tmp_path / "storage", tmp_path / "mounted"
    put(store_in(folder), b"value")
    folder.rename(tmp_path / "below")
    with ThreadPoolExecutor(8) as threads:  # workers that start at the same time agree
        first, *others = threads.map(store_in, [folder] * 8)
    claim = put(first, b"other")
    assert [other.get(claim) for other in others if put(other, b"other") == claim] == [b"other"] * 7
    folder.rename(mounted)
    (tmp_path / "below").rename(folder)
    for use in (lambda: put(first, b"value"), lambda: put(first, b"late"), lambda: first.get(claim)):
        with pytest.raises(StorageUnavailable, match=r"is another folder than before.*restart"):
            use()
    folder.rename(tmp_path / "below")
    mounted.rename(folder)
    assert first.get(put(first, b"late")) == b"late"


def test_a_client_creates_nothing_also_in_an_empty_folder(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        FolderStore(folder).prepare(creates=False)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = store_in(tmp_path)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ClientError, match="the disk is full: make room") as error, explained():
        put(store, b"one")
    assert "ACTS_STORAGE" not in str(error.value)


def test_a_folder_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for parent in ("file", "tpyo"):
        with pytest.raises(StorageError, match=f"cannot be used: .*create .*/{parent}, or mount it, or correct"):
            store_in(tmp_path / parent / "storage")


def test_a_file_that_the_file_system_has_cut_is_written_again(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    claim = put(store, b"one")
    (path,) = files(tmp_path / "values")
    path.write_bytes(b"o")
    put(store, b"one")
    assert store.get(claim) == b"one"


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    data = [f"value {i}".encode() for i in range(20)]
    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(lambda d: put(store, d), data * 4))
    assert [store.get(claim) for claim in claims] == data * 4
    assert len(files(tmp_path / "values")) == 20
    assert files(tmp_path / "new") == []


def test_a_clean_up_never_deletes_what_a_writer_of_this_week_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value of an earlier week is stored anew by whoever needs it now: old files get no new references."""
    store = store_in(tmp_path)
    old, later = put(store, b"value"), datetime.now(UTC) + timedelta(weeks=1)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return later.astimezone(tz)

    monkeypatch.setattr(stores, "datetime", Later)
    new = put(store, b"value")
    assert store.get(old) == store.get(new) == b"value"
    first, second = sorted(store.list_contents(NAMESPACE), key=lambda content: content.last_use)
    assert first.last_use <= later < second.last_use
    store.delete(first)
    store.delete(first)
    with pytest.raises(ContentMissing):
        store.get(old)
    assert store.get(new) == b"value"


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
