"""The settings: which folders and hosts a worker may load definitions from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from delegates.sources import SHIPPED, DelegateSources, DelegateSourcesError, from_environment
from worker import Settings, SettingsError

ROOT = Path(__file__).parents[2]


def places(monkeypatch: pytest.MonkeyPatch, **settings: str) -> DelegateSources:
    for name in ("ACTS_DELEGATES", "ACTS_DELEGATE_HOSTS", "ACTS_DELEGATE_PRIVATE_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(f"ACTS_DELEGATE{name}", value)
    return from_environment()


def test_without_settings_there_is_what_ships_and_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    found = places(monkeypatch)
    assert found == DelegateSources()
    assert found.all_folders == (SHIPPED,)
    assert SHIPPED == ROOT / "delegates"


def test_what_ships_is_looked_into_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    found = places(monkeypatch, S=f"{tmp_path}{os.pathsep}{os.pathsep}{other}")
    assert found.all_folders == (tmp_path, other, SHIPPED)


def test_hosts_are_kept_in_the_form_in_which_they_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "Good.Test, good.test:80 ,МОСКВА.рф:8443,,[2606:4700:0:0::1]:443,10.0.0.1"
    found = places(monkeypatch, _HOSTS=listed, _PRIVATE_HOSTS="intern:8080,[::1]:80")
    assert found.hosts == {
        ("good.test", None), ("good.test", 80), ("xn--80adxhks.xn--p1ai", 8443), ("2606:4700::1", 443),
        ("10.0.0.1", None),
    }  # fmt: skip
    assert found.private_hosts == {("intern", 8080), ("::1", 80)}
    assert sorted(found.listed_hosts())[-3:] == ["good.test:80", "intern:8080", "xn--80adxhks.xn--p1ai:8443"]


@pytest.mark.parametrize(
    ("scheme", "host", "port", "allowed"),
    [
        ("https", "a", 443, True),
        ("http", "a", 80, True),
        ("https", "a", 80, False),
        ("https", "a", 8443, False),
        ("https", "b", 8443, True),
        ("http", "b", 8443, True),
        ("https", "b", 443, False),
        ("http", "c", 9000, True),
        ("http", "c", 80, False),
        ("https", "d", 443, False),
    ],
)
def test_a_host_without_a_port_means_the_port_of_the_scheme(
    scheme: str,
    host: str,
    port: int,
    allowed: bool,  # noqa: FBT001 - a column of the table
) -> None:
    found = DelegateSources((), frozenset({("a", None), ("b", 8443)}), frozenset({("c", 9000)}))
    assert found.allows(scheme, host, port) is allowed
    assert found.allows_private(host, port) is (host == "c" and allowed)


@pytest.mark.parametrize(
    "host",
    ["*", "*.test", "https://good.test", "good.test/", "good.test/path", "good test", "user@good.test", "good.test?x",
     "good.test#x", "good\\test", "good%2etest", "good.test:", ":80", "good.test:x", "::1", "[::1", "[good.test]",
     "256.1.1.1", "ａ.test"],
)  # fmt: skip
def test_what_is_no_host_is_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DelegateSourcesError, match=r'ACTS_DELEGATE_HOSTS has .*; it is a list of "host" or "host:port"'
    ):
        places(monkeypatch, _HOSTS=f"fine.test,{host}")


@pytest.mark.parametrize("port", ["0", "65536", "-1"])
def test_a_port_is_one_of_tcp(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DelegateSourcesError, match="a port is a number from 1 to 65535"):
        places(monkeypatch, _HOSTS=f"good.test:{port}")


def test_a_private_host_is_listed_with_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DelegateSourcesError, match="ACTS_DELEGATE_PRIVATE_HOSTS has 'intern'; it is a list of \"host:port\""
    ):
        places(monkeypatch, _PRIVATE_HOSTS="intern")


def test_a_folder_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DelegateSourcesError, match=r"ACTS_DELEGATES names .*/nowhere, which is not a folder"):
        places(monkeypatch, S=str(tmp_path / "nowhere"))


def test_the_worker_reads_them_and_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = places(monkeypatch, S=str(tmp_path), _HOSTS="good.test")
    assert Settings.from_environment().delegates == wanted
    monkeypatch.setenv("ACTS_DELEGATE_HOSTS", "*")
    with pytest.raises(SettingsError, match="ACTS_DELEGATE_HOSTS"):
        Settings.from_environment()


def test_a_worker_without_hosts_does_not_load_what_speaks_http() -> None:
    program = (
        "import sys, activities.load_delegate, delegates.sources as p; "
        "p.from_environment(); print('httpx2' in sys.modules)"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ACTS_DELEGATE")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
