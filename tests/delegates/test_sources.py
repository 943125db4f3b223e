"""The settings: which folders and hosts a worker may load definitions from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from delegates.sources import SHIPPED, DelegateSources, DelegateSourcesError, from_environment
from worker_settings import Settings, SettingsError

ROOT = Path(__file__).parents[2]


def sources(monkeypatch: pytest.MonkeyPatch, **settings: str) -> DelegateSources:
    for name in ("ACTS_DELEGATES", "ACTS_DELEGATE_HOSTS", "ACTS_DELEGATE_PRIVATE_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(f"ACTS_DELEGATE{name}", value)
    return from_environment()


def test_the_default_is_the_shipped_folder_and_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    default = sources(monkeypatch)
    assert default == DelegateSources()
    assert default.all_folders == (SHIPPED,)
    assert SHIPPED == ROOT / "delegates"


def test_the_shipped_folder_is_searched_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    actual = sources(monkeypatch, S=f"{tmp_path}{os.pathsep}{os.pathsep}{other}")
    assert actual.all_folders == (tmp_path, other, SHIPPED)


def test_hosts_are_normalized(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "Good.Test, good.test:80 ,МОСКВА.рф:8443,,[2606:4700:0:0::1]:443,10.0.0.1"
    actual = sources(monkeypatch, _HOSTS=listed, _PRIVATE_HOSTS="intern:8080,[::1]:80")
    assert actual.hosts == {
        ("good.test", None), ("good.test", 80), ("xn--80adxhks.xn--p1ai", 8443), ("2606:4700::1", 443),
        ("10.0.0.1", None),
    }  # fmt: skip
    assert actual.private_hosts == {("intern", 8080), ("::1", 80)}
    assert sorted(actual.format_hosts())[-3:] == ["good.test:80", "intern:8080", "xn--80adxhks.xn--p1ai:8443"]


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
def test_a_host_without_a_port_stands_for_the_port_of_the_scheme(
    scheme: str,
    host: str,
    port: int,
    allowed: bool,  # noqa: FBT001 - a column of the table
) -> None:
    listed = DelegateSources((), frozenset({("a", None), ("b", 8443)}), frozenset({("c", 9000)}))
    assert listed.allows(scheme, host, port) is allowed
    assert listed.allows_private(host, port) is (host == "c" and allowed)


@pytest.mark.parametrize(
    "host",
    ["*", "*.test", "https://good.test", "good.test/", "good.test/path", "good test", "user@good.test", "good.test?x",
     "good.test#x", "good\\test", "good%2etest", "good.test:", ":80", "good.test:x", "::1", "[::1", "[good.test]",
     "256.1.1.1", "ａ.test"],
)  # fmt: skip
def test_an_invalid_host_is_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DelegateSourcesError, match=r'ACTS_DELEGATE_HOSTS has .*; it is a list of "host" or "host:port"'
    ):
        sources(monkeypatch, _HOSTS=f"fine.test,{host}")


@pytest.mark.parametrize("port", ["0", "65536", "-1"])
def test_an_invalid_port_is_refused(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DelegateSourcesError, match="a port is a number from 1 to 65535"):
        sources(monkeypatch, _HOSTS=f"good.test:{port}")


def test_a_private_host_needs_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        DelegateSourcesError, match="ACTS_DELEGATE_PRIVATE_HOSTS has 'intern'; it is a list of \"host:port\""
    ):
        sources(monkeypatch, _PRIVATE_HOSTS="intern")


def test_a_missing_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DelegateSourcesError, match=r"ACTS_DELEGATES names .*/nowhere, which is not a folder"):
        sources(monkeypatch, S=str(tmp_path / "nowhere"))


def test_the_worker_reads_the_sources_and_reports_an_invalid_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = sources(monkeypatch, S=str(tmp_path), _HOSTS="good.test")
    assert Settings.from_environment().delegates == expected
    monkeypatch.setenv("ACTS_DELEGATE_HOSTS", "*")
    with pytest.raises(SettingsError, match="ACTS_DELEGATE_HOSTS"):
        Settings.from_environment()


def test_a_worker_without_hosts_does_not_import_the_http_client() -> None:
    program = (
        "import sys, activities.load_delegate, delegates.sources as p; "
        "p.from_environment(); print('httpx2' in sys.modules)"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ACTS_DELEGATE")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
