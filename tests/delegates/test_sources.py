"""The settings: which folders and hosts a worker may load definitions from."""

from __future__ import annotations

from pathlib import Path

import pytest

from acts.delegates.sources import SHIPPED, DelegateSources
from acts.language.errors import SettingsError
from acts.worker.settings import Settings

ROOT = Path(__file__).parents[2]


def sources(monkeypatch: pytest.MonkeyPatch, **settings: str) -> DelegateSources:
    for name in ("ACTS_DELEGATES", "ACTS_DELEGATE_HOSTS", "ACTS_DELEGATE_PRIVATE_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(f"ACTS_DELEGATE{name}", value)
    return Settings().delegate_sources


def test_the_default_is_the_shipped_folder_and_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    default = sources(monkeypatch)
    assert default == DelegateSources()
    assert SHIPPED == ROOT / "acts" / "delegates"


def test_hosts_are_normalized(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "Good.Test, good.test:80 ,МОСКВА.рф:8443,,[2606:4700:0:0::1]:443,10.0.0.1"
    actual = sources(monkeypatch, _HOSTS=listed, _PRIVATE_HOSTS="intern:8080,[::1]:80")
    assert actual.hosts == {
        ("good.test", None), ("good.test", 80), ("xn--80adxhks.xn--p1ai", 8443), ("2606:4700::1", 443),
        ("10.0.0.1", None),
    }  # fmt: skip
    assert actual.private_hosts == {("intern", 8080), ("::1", 80)}


@pytest.mark.parametrize(
    ("scheme", "host", "port", "allowed"),
    [
        ("https", "a", 443, True),
        ("https", "a", 80, False),
        ("https", "a", 8443, False),
        ("https", "b", 8443, True),
        ("https", "b", 443, False),
        ("http", "c", 9000, True),
    ],
)
def test_a_host_without_a_port_stands_for_the_port_of_the_scheme(
    scheme: str, host: str, port: int, allowed: bool  # noqa: FBT001 - a column of the table
) -> None:  # fmt: skip
    listed = DelegateSources((), frozenset({("a", None), ("b", 8443)}), frozenset({("c", 9000)}))
    assert listed.allows(scheme, host, port) is allowed


@pytest.mark.parametrize(
    "host",
    ["*", "*.test", "https://good.test", "good.test/", "good.test/path", "good test", "user@good.test", "good.test?x",
     "good.test#x", "good\\test", "good%2etest", "good.test:", ":80", "good.test:x", "::1", "[::1", "[good.test]",
     "256.1.1.1", "ａ.test"],
)  # fmt: skip
def test_an_invalid_host_is_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r'ACTS_DELEGATE_HOSTS has .*; it is a list of "host" or "host:port"'):
        sources(monkeypatch, _HOSTS=f"fine.test,{host}")


def test_a_missing_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match=r"ACTS_DELEGATES names .*/nowhere, which is not a folder"):
        sources(monkeypatch, S=str(tmp_path / "nowhere"))
