"""Definitions from folders: how a name leads to a file, and that nothing outside of the folders is ever opened."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from delegates.definition_files import list_delegates, read_file, split_name
from delegates.load_errors import MAX_BYTES
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


# -- names -------------------------------------------------------------------------


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


def test_a_name_may_have_letters_of_any_script(folder: Path) -> None:
    (folder / "сократить-v1.2.json").write_bytes(BYTES)
    assert read_file([folder], "сократить-v1.2") == (BYTES, "сократить-v1.2.json")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("../secret", 'the step ".."'),
        ("music/../../secret.json", 'the step ".."'),
        ("music/..", 'the step ".."'),
        ("..", 'the step ".."'),
        ("./composer", 'the step "."'),
        ("music/./critic", 'the step "."'),
        ("/etc/passwd", "a / at its beginning"),
        ("//server/share", "a / at its beginning"),
        ("music//critic", "an empty step"),
        ("music/", "an empty step"),
        (".hidden", "a name that begins with a dot"),
        ("music/.hidden", "a name that begins with a dot"),
        ("composer\0.txt", "a null byte"),
        ("..\\secret", "a backslash"),
        ("C:\\secret", "a backslash"),
        ("C:/secret", "a drive letter"),
        ("c:secret", "a drive letter"),
        ("%2e%2e/secret", "a percent sign"),
        ("composer%00", "a percent sign"),
        ("composer\n", "a character that is not"),
        ("com poser", "a character that is not"),
        ("~root/secret", "a character that is not"),
        ("$HOME", "a character that is not"),
        ("compo*", "a character that is not"),
        ("composer:stream", "a character that is not"),
        ("..∕secret", "a name that begins with a dot"),  # U+2215 DIVISION SLASH
        ("a/．．/secret", "a character that is not"),  # U+FF0E FULLWIDTH FULL STOP
        ("\ud800", "a character that is not"),
        ("", "nothing"),
        ("a" * 1001, "1,001 characters; at most 1,000"),
    ],
)
def test_an_invalid_name_is_refused(folder: Path, name: str, fault: str) -> None:
    with raises_load_error("DelegateRefused", fault):
        read_file([folder], name)


def test_the_error_lists_the_forms_of_a_delegate() -> None:
    with raises_load_error("DelegateRefused", "a name (", "a path inside a folder", "an http(s) URL"):
        split_name("../x")


def test_only_json_files_are_read(folder: Path) -> None:
    (folder / "key.pem").write_bytes(BYTES)
    with raises_load_error("DelegateNotFound", "looked for key.pem.json in"):
        read_file([folder], "key.pem")


def test_a_missing_delegate_is_reported_with_those_that_exist(folder: Path) -> None:
    advice = "there is no delegate 'compser': did you mean \"composer\"? there are: composer, music/critic; "
    with raises_load_error("DelegateNotFound", advice + f"looked for compser.json in {folder}"):
        read_file([folder], "compser")


@pytest.mark.parametrize("name", ["composer.json/x", "nothing/there", "n" * 300, "x/" * 200 + "y"])
def test_an_impossible_path_is_not_found(folder: Path, name: str) -> None:
    with raises_load_error("DelegateNotFound", "there is no delegate"):
        read_file([folder], name)


def test_a_missing_folder_has_no_delegates(tmp_path: Path, folder: Path) -> None:
    assert read_file([tmp_path / "missing", folder], "composer")[0] == BYTES
    with raises_load_error("DelegateNotFound", "there are: none"):
        read_file([tmp_path / "missing"], "composer")


def test_the_first_folder_that_has_the_name_wins(tmp_path: Path, folder: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "composer.json").write_bytes(b"{}")
    (other / "singer.json").write_bytes(b"[]")
    assert read_file([folder, other], "composer")[0] == BYTES
    assert read_file([other, folder], "composer")[0] == b"{}"
    assert read_file([folder, other], "singer")[0] == b"[]"
    assert list_delegates([other, folder]) == ["composer", "singer", "music/critic"]


# -- links -------------------------------------------------------------------------


def test_a_link_inside_the_folder_is_followed_as_in_a_configmap(tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    (mounted / "..2026_11_01" / "music").mkdir(parents=True)
    (mounted / "..2026_11_01" / "composer.json").write_bytes(BYTES)
    (mounted / "..data").symlink_to("..2026_11_01")
    (mounted / "composer.json").symlink_to("..data/composer.json")
    assert read_file([mounted], "composer") == (BYTES, "composer.json")


def test_the_folder_itself_may_be_a_link(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "current").symlink_to(folder)
    assert read_file([tmp_path / "current"], "music/critic") == (BYTES, "music/critic.json")


@pytest.mark.parametrize(
    ("link", "to", "name"),
    [
        ("out.json", "../secret.json", "out"),
        ("out.json", "{above}/secret.json", "out"),
        ("out", "../beside", "out/secret"),
        ("music/out", "../../beside", "music/out/secret"),
        ("out.json", "music/../../secret.json", "out"),
        ("up", "..", "up/secret"),
        ("up", "..", "up/beside/secret"),
        ("root", "/", "root{above}/secret"),
        ("out.json", "/dev/null", "out"),
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
    with raises_load_error("DelegateRefused", "cannot be read", os.strerror(errno.ELOOP)):
        read_file([folder], "loop")


def test_a_link_may_lead_back_into_the_folder(folder: Path) -> None:
    (folder / "round.json").symlink_to(f"../{folder.name}/composer.json")
    assert read_file([folder], "round")[0] == BYTES


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
    with record_opened() as opened, raises_load_error(*_REPLACED[step]):
        read_file([folder], name)
    assert opened <= inodes(folder)


_REPLACED = {
    "composer.json": ["DelegateRefused", "is no regular file"],  # noticed before it is opened
    "music": ["DelegateUnavailable", "was replaced while it was being opened"],
}


# -- other kinds of files ----------------------------------------------------------------


def test_a_folder_and_a_pipe_are_refused(folder: Path) -> None:
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "pipe.json")
    (folder / "self.json").symlink_to(".")
    for name, kind in {"folder": "a folder", "pipe": "a pipe", "self": "a folder"}.items():
        with raises_load_error("DelegateRefused", f'"{name}.json" is {kind}', "regular file"):
            read_file([folder], name)


def test_a_socket_is_refused() -> None:
    with tempfile.TemporaryDirectory(prefix="d") as short, socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"{short}/socket.json")  # the path of a socket may have about a hundred bytes
        with raises_load_error("DelegateRefused", "is a socket"):
            read_file([Path(short)], "socket")


def test_a_file_that_is_replaced_by_a_pipe_during_the_read_does_not_block(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regular = (folder / "composer.json").stat()
    (folder / "composer.json").unlink()
    os.mkfifo(folder / "composer.json")
    monkeypatch.setattr(os, "stat", lambda *_, **__: regular)
    with raises_load_error("DelegateRefused", "is a pipe"):
        read_file([folder], "composer")


@pytest.mark.parametrize(
    ("number", "type_"),
    [(errno.EACCES, "DelegateRefused"), (errno.EPERM, "DelegateRefused"), (errno.EIO, "DelegateUnavailable")],
)
def test_a_forbidden_file_is_refused_and_a_failing_disk_is_retryable(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, type_: str
) -> None:
    def broken(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "read", broken)
    with raises_load_error(type_, "cannot be read", os.strerror(number)):
        read_file([folder], "composer")


# -- size ---------------------------------------------------------------------------


def test_a_file_of_one_mebibyte_is_read_and_one_byte_more_is_too_large(folder: Path) -> None:
    (folder / "full.json").write_bytes(b" " * MAX_BYTES)
    (folder / "over.json").write_bytes(b" " * (MAX_BYTES + 1))
    assert len(read_file([folder], "full")[0]) == 1_048_576
    with raises_load_error("DelegateTooLarge", "1,048,577 bytes", "at most 1,048,576"):
        read_file([folder], "over")


@pytest.mark.parametrize("more", [b" ", b" " * (MAX_BYTES + 1)])
def test_a_file_that_is_written_during_the_read_is_retryable(
    folder: Path, monkeypatch: pytest.MonkeyPatch, more: bytes
) -> None:
    real = os.read

    def read_and_write(descriptor: int, size: int) -> bytes:
        data = real(descriptor, size)
        if len(data) == len(BYTES):
            with (folder / "composer.json").open("ab") as file:
                file.write(more)
        return data

    monkeypatch.setattr(os, "read", read_and_write)
    with raises_load_error("DelegateUnavailable", "changed while it was being read"):
        read_file([folder], "composer")


# -- any name ------------------------------------------------------------------------


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


def test_the_check_notices_a_file_outside_of_the_folder(maze: Path) -> None:
    with record_opened() as opened:
        os.close(os.open(maze / "up" / "secret.json", os.O_RDONLY))
    assert not opened <= inodes(maze)
