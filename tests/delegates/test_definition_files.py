"""Definitions from folders: how a name leads to a file, and that nothing outside of the folders is ever opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from acts.delegates.definitions import MAX_BYTES, list_delegates, read_file
from tests.delegates.support import BYTES, raises_load_error

SECRET = b'{"context": [{"type": "text", "text": "secret"}]}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two definitions; the files that must stay out of reach lie beside it."""
    return fill(tmp_path)


def fill(parent: Path) -> Path:
    folder = parent / "folder"
    (folder / "music").mkdir(parents=True)
    (folder / "composer.json").write_bytes(BYTES)
    (folder / "music" / "critic.json").write_bytes(BYTES)
    (parent / "secret.json").write_bytes(SECRET)
    (parent / "beside").mkdir()
    (parent / "beside" / "secret.json").write_bytes(SECRET)
    return folder


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("composer", "composer.json"),
        ("composer.json", "composer.json"),
        ("music/critic.json", "music/critic.json"),
        ("music/critic", "music/critic.json"),
    ],
)
def test_a_name_or_a_path_leads_to_its_file(folder: Path, name: str, source: str) -> None:
    assert read_file([folder], name) == (BYTES, source)


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "music/",
        "music/.hidden",
        "composer\0.txt",
        "..\\secret",
        "C:/secret",
        "%2e%2e/secret",
        "composer\n",
        "..∕secret",
        "a/．．/secret",
        "\ud800",
        "",
    ],
)
def test_an_invalid_name_is_refused(folder: Path, name: str) -> None:
    with raises_load_error("DelegateRefused", "is no name or path"):
        read_file([folder], name)


def test_only_json_files_are_read(folder: Path) -> None:
    (folder / "key.pem").write_bytes(BYTES)
    with raises_load_error("DelegateNotFound", "looked for key.pem.json in"):
        read_file([folder], "key.pem")


def test_a_missing_delegate_is_reported_with_those_that_exist(folder: Path) -> None:
    advice = "there is no delegate 'compser': did you mean \"composer\"? there are: composer, music/critic; "
    with raises_load_error("DelegateNotFound", advice + f"looked for compser.json in {folder}"):
        read_file([folder], "compser")


def test_the_first_folder_that_has_the_name_wins(tmp_path: Path, folder: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "composer.json").write_bytes(b"{}")
    (other / "singer.json").write_bytes(b"[]")
    assert read_file([folder, other], "composer")[0] == BYTES
    assert read_file([other, folder], "composer")[0] == b"{}"
    assert read_file([folder, other], "singer")[0] == b"[]"
    assert list_delegates([other, folder]) == ["composer", "singer", "music/critic"]


def test_a_link_inside_the_folder_is_followed_as_in_a_configmap(tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    (mounted / "..2026_11_01" / "music").mkdir(parents=True)
    (mounted / "..2026_11_01" / "composer.json").write_bytes(BYTES)
    (mounted / "..data").symlink_to("..2026_11_01")
    (mounted / "composer.json").symlink_to("..data/composer.json")
    assert read_file([mounted], "composer") == (BYTES, "composer.json")


@pytest.mark.parametrize(
    ("link", "to", "name"),
    [
        ("out.json", "../secret.json", "out"),
        ("out.json", "{above}/secret.json", "out"),
        ("out", "../beside", "out/secret"),
        ("music/out", "../../beside", "music/out/secret"),
        ("up", "..", "up/secret"),
        ("root", "/", "root{above}/secret"),
    ],
)
def test_a_link_that_leaves_the_folder_is_refused(folder: Path, link: str, to: str, name: str) -> None:
    (folder / link).symlink_to(to.format(above=folder.parent))
    with raises_load_error("DelegateRefused", "link that leaves the folder"):
        read_file([folder], name.format(above=folder.parent))


def test_a_dangling_link_is_not_found_and_a_loop_is_refused(folder: Path) -> None:
    (folder / "dangling.json").symlink_to("nowhere.json")
    (folder / "loop.json").symlink_to("loop.json")
    with raises_load_error("DelegateNotFound"):
        read_file([folder], "dangling")
    with raises_load_error("DelegateRefused", "is no regular file"):
        read_file([folder], "loop")


@pytest.mark.parametrize("step", ["composer.json", "music"])
def test_a_step_that_is_replaced_by_a_link_during_the_read_is_refused(
    folder: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = folder.parent / "moved"
    (folder / step).rename(moved)
    (folder / step).symlink_to(moved)
    # What realpath returned a moment before
    monkeypatch.setattr(os.path, "realpath", lambda path, **_: os.path.abspath(path))  # noqa: PTH100
    name = "composer" if step == "composer.json" else "music/critic"
    with record_opened() as opened, pytest.raises(ApplicationError, match=r"Delegate|delegate"):
        read_file([folder], name)
    assert opened <= inodes(folder)


def test_a_file_of_one_mebibyte_is_read_and_one_byte_more_is_too_large(folder: Path) -> None:
    (folder / "full.json").write_bytes(b" " * MAX_BYTES)
    (folder / "over.json").write_bytes(b" " * (MAX_BYTES + 1))
    assert len(read_file([folder], "full")[0]) == 1_048_576
    with raises_load_error("DelegateTooLarge", "more than 1,048,576 bytes"):
        read_file([folder], "over")


@contextmanager
def record_opened() -> Iterator[set[int]]:
    """The inodes of everything that is opened in the block."""
    inodes_opened: set[int] = set()
    real = os.open

    def recording(*args: object, **named: object) -> int:
        descriptor = real(*args, **named)  # type: ignore[arg-type]
        inodes_opened.add(os.fstat(descriptor).st_ino)
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", recording)
        yield inodes_opened


def inodes(folder: Path) -> set[int]:
    return {folder.stat().st_ino, *(path.lstat().st_ino for path in folder.rglob("*"))}


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every kind of link that leads out of it."""
    folder = fill(tmp_path_factory.mktemp("maze"))
    for link, to in {
        "up": "..", "root": "/", "out.json": "../secret.json", "beside": "../beside", "in": "music",
        "round": f"../{folder.name}", "music/back": "..", "music/out.json": "../../beside/secret.json",
    }.items():  # fmt: skip
        (folder / link).symlink_to(to)
    return folder


STEP = st.sampled_from(
    [
        *("..", ".", "", "music", "up", "root", "in", "round", "back", "beside", "folder", "secret", "secret.json"),
        *("composer", "composer.json", "critic", "critic.json", "out", "out.json", "etc", "passwd", "tmp"),
        *("%2e%2e", "..%2f", "..\\", "C:", "~", "\0", ".. ", "..;", "\u2025", "\uff0e\uff0e", "\u2215"),
    ]
)
NAME = st.lists(STEP | st.text(max_size=5), max_size=7).map("/".join) | st.text(max_size=30)


@given(NAME)
def test_no_name_opens_anything_outside_of_the_folder(maze: Path, name: str) -> None:
    with record_opened() as opened:
        try:
            data, source = read_file([maze], name)
        except ApplicationError as error:
            type_: str | None = error.type
        else:
            type_ = None
            assert data == BYTES
            assert not source.startswith("/")
            assert opened
    assert type_ in (None, "DelegateNotFound", "DelegateRefused")
    assert opened <= inodes(maze)
