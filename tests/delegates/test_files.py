"""Definitions from folders: what a name means, and that nothing beside the folders is ever opened."""

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

from delegates.definition_files import names, read_file, steps
from delegates.load_errors import MAX_BYTES
from tests.delegates.support import BYTES, refused

SECRET = b'{"context": [{"type": "text", "text": "secret"}]}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two definitions; what it must not lead to is beside it."""
    return furnish(tmp_path)


def furnish(at: Path) -> Path:
    found = at / "folder"
    (found / "music").mkdir(parents=True)
    (found / "composer.json").write_bytes(BYTES)
    (found / "music" / "critic.json").write_bytes(BYTES)
    (at / "secret.json").write_bytes(SECRET)
    (at / "beside").mkdir()
    (at / "beside" / "secret.json").write_bytes(SECRET)
    return found


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
def test_a_name_or_a_path_finds_its_file(folder: Path, name: str, source: str) -> None:
    assert read_file([folder], name) == (BYTES, source)


def test_letters_of_any_script_may_stand_in_a_name(folder: Path) -> None:
    (folder / "сократить-v1.2.json").write_bytes(BYTES)
    assert read_file([folder], "сократить-v1.2") == (BYTES, "сократить-v1.2.json")


@pytest.mark.parametrize(
    ("name", "found"),
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
def test_a_name_that_says_anything_else_is_refused(folder: Path, name: str, found: str) -> None:
    with refused("DelegateRefused", found):
        read_file([folder], name)


def test_the_error_says_what_a_delegate_may_be() -> None:
    with refused("DelegateRefused", "a name (", "a path inside a folder", "an http(s) URL"):
        steps("../x")


def test_only_json_files_can_be_meant(folder: Path) -> None:
    (folder / "key.pem").write_bytes(BYTES)
    with refused("DelegateNotFound", "looked for key.pem.json in"):
        read_file([folder], "key.pem")


def test_what_is_not_there_is_told_with_what_is(folder: Path) -> None:
    advice = "there is no delegate 'compser': did you mean \"composer\"? there are: composer, music/critic; "
    with refused("DelegateNotFound", advice + f"looked for compser.json in {folder}"):
        read_file([folder], "compser")


@pytest.mark.parametrize("name", ["composer.json/x", "nothing/there", "n" * 300, "x/" * 200 + "y"])
def test_a_path_that_cannot_be_is_not_found(folder: Path, name: str) -> None:
    with refused("DelegateNotFound", "there is no delegate"):
        read_file([folder], name)


def test_a_folder_that_is_gone_has_nothing(tmp_path: Path, folder: Path) -> None:
    assert read_file([tmp_path / "gone", folder], "composer")[0] == BYTES
    with refused("DelegateNotFound", "there are: none"):
        read_file([tmp_path / "gone"], "composer")


def test_the_first_folder_that_has_the_name_wins(tmp_path: Path, folder: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "composer.json").write_bytes(b"{}")
    (other / "singer.json").write_bytes(b"[]")
    assert read_file([folder, other], "composer")[0] == BYTES
    assert read_file([other, folder], "composer")[0] == b"{}"
    assert read_file([folder, other], "singer")[0] == b"[]"
    assert names([other, folder]) == ["composer", "singer", "music/critic"]


# -- links -------------------------------------------------------------------------


def test_a_link_inside_the_folder_is_followed_as_a_configmap_needs_it(tmp_path: Path) -> None:
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
    with refused("DelegateRefused", "link that leaves the folder"):
        read_file([folder], name.format(above=folder.parent))


def test_a_link_to_nothing_is_not_found_and_one_to_itself_is_refused(folder: Path) -> None:
    (folder / "dangling.json").symlink_to("nowhere.json")
    (folder / "loop.json").symlink_to("loop.json")
    with refused("DelegateNotFound"):
        read_file([folder], "dangling")
    with refused("DelegateRefused", "cannot be read", os.strerror(errno.ELOOP)):
        read_file([folder], "loop")


def test_a_link_back_into_the_folder_may_lead_through_its_own_name(folder: Path) -> None:
    (folder / "round.json").symlink_to(f"../{folder.name}/composer.json")
    assert read_file([folder], "round")[0] == BYTES


@pytest.mark.parametrize("at", ["composer.json", "music"])
def test_a_link_that_takes_the_place_of_a_step_in_between_gains_nothing(
    folder: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = folder.parent / "moved"
    (folder / at).rename(moved)
    (folder / at).symlink_to(moved)
    # What realpath would have said the moment before
    monkeypatch.setattr(os.path, "realpath", lambda path, **_: os.path.abspath(path))  # noqa: PTH100
    name = "composer" if at == "composer.json" else "music/critic"
    with opened() as seen, refused(*_SWAPPED[at]):
        read_file([folder], name)
    assert seen <= inodes(folder)


_SWAPPED = {
    "composer.json": ["DelegateRefused", "is no regular file"],  # seen before it was opened
    "music": ["DelegateUnavailable", "was replaced while it was opened"],
}


# -- what is no file ----------------------------------------------------------------


def test_a_folder_a_pipe_and_a_socket_are_no_definition(folder: Path) -> None:
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "pipe.json")
    (folder / "self.json").symlink_to(".")
    for name, kind in {"folder": "a folder", "pipe": "a pipe", "self": "a folder"}.items():
        with refused("DelegateRefused", f'"{name}.json" is {kind}', "regular file"):
            read_file([folder], name)


def test_a_socket_is_no_definition() -> None:
    with tempfile.TemporaryDirectory(prefix="d") as short, socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"{short}/socket.json")  # such a path may have about a hundred bytes
        with refused("DelegateRefused", "is a socket"):
            read_file([Path(short)], "socket")


def test_a_pipe_that_takes_the_place_of_the_file_in_between_does_not_hold_the_worker(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regular = (folder / "composer.json").stat()
    (folder / "composer.json").unlink()
    os.mkfifo(folder / "composer.json")
    monkeypatch.setattr(os, "stat", lambda *_, **__: regular)
    with refused("DelegateRefused", "is a pipe"):
        read_file([folder], "composer")


@pytest.mark.parametrize(
    ("number", "type_"),
    [(errno.EACCES, "DelegateRefused"), (errno.EPERM, "DelegateRefused"), (errno.EIO, "DelegateUnavailable")],
)
def test_a_file_that_may_not_be_read_is_refused_and_a_disk_that_fails_is_asked_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, type_: str
) -> None:
    def broken(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "read", broken)
    with refused(type_, "cannot be read", os.strerror(number)):
        read_file([folder], "composer")


# -- size ---------------------------------------------------------------------------


def test_a_file_of_one_mebibyte_is_read_and_one_byte_more_is_too_large(folder: Path) -> None:
    (folder / "full.json").write_bytes(b" " * MAX_BYTES)
    (folder / "over.json").write_bytes(b" " * (MAX_BYTES + 1))
    assert len(read_file([folder], "full")[0]) == 1_048_576
    with refused("DelegateTooLarge", "1,048,577 bytes", "at most 1,048,576"):
        read_file([folder], "over")


@pytest.mark.parametrize("more", [b" ", b" " * (MAX_BYTES + 1)])
def test_a_file_that_is_written_while_it_is_read_is_read_another_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch, more: bytes
) -> None:
    real = os.read

    def read_and_write(descriptor: int, size: int) -> bytes:
        found = real(descriptor, size)
        if len(found) == len(BYTES):
            with (folder / "composer.json").open("ab") as file:
                file.write(more)
        return found

    monkeypatch.setattr(os, "read", read_and_write)
    with refused("DelegateUnavailable", "changed while it was read"):
        read_file([folder], "composer")


# -- any name ------------------------------------------------------------------------


@contextmanager
def opened() -> Iterator[set[int]]:
    """The inodes of all that is opened meanwhile."""
    seen: set[int] = set()
    real = os.open

    def recording(*args: object, **named: object) -> int:
        descriptor = real(*args, **named)  # type: ignore[arg-type]
        seen.add(os.fstat(descriptor).st_ino)
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", recording)
        yield seen


def inodes(folder: Path) -> set[int]:
    return {folder.stat().st_ino, *(path.lstat().st_ino for path in folder.rglob("*"))}


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every way out of it that a link can be."""
    folder = furnish(tmp_path_factory.mktemp("maze"))
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
def test_no_name_opens_anything_beside_the_folder(maze: Path, name: str) -> None:
    with opened() as seen:
        try:
            data, source = read_file([maze], name)
        except ApplicationError as error:
            why: str | None = error.type
        else:
            why = None
            assert data == BYTES
            assert not source.startswith("/")
            assert seen
    assert why in (None, "DelegateNotFound", "DelegateRefused")
    assert seen <= inodes(maze)


def test_the_alarm_rings(maze: Path) -> None:
    with opened() as seen:
        os.close(os.open(maze / "up" / "secret.json", os.O_RDONLY))
    assert not seen <= inodes(maze)
