"""The two settings of worker versioning: both or neither, and each a name that the server takes."""

from __future__ import annotations

import pytest
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion

from worker_runtime.deployment import deployment_config, read_version
from worker_settings import Settings, SettingsError


def test_without_the_settings_a_worker_is_unversioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACTS_DEPLOYMENT", raising=False)
    monkeypatch.setenv("ACTS_BUILD_ID", "")
    assert read_version() is None
    assert Settings.from_environment().deployment is None
    assert deployment_config(None) is None


def test_with_both_every_run_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_DEPLOYMENT", "acts")
    monkeypatch.setenv("ACTS_BUILD_ID", "1.4.2+a1b2c3")
    version = Settings.from_environment().deployment
    assert version == WorkerDeploymentVersion("acts", "1.4.2+a1b2c3")
    config = deployment_config(version)
    assert config is not None
    assert config.use_worker_versioning
    assert config.default_versioning_behavior is VersioningBehavior.PINNED


@pytest.mark.parametrize(
    ("name", "build", "words"),
    [
        ("acts", "", "ACTS_DEPLOYMENT is set and ACTS_BUILD_ID is not"),
        ("", "1", "ACTS_BUILD_ID is set and ACTS_DEPLOYMENT is not"),
        ("acts.prod", "1", "ACTS_DEPLOYMENT is 'acts.prod'"),
        ("acts:prod", "1", "ACTS_DEPLOYMENT is 'acts:prod'"),
        ("a" * 201, "1", "up to 200"),
        ("acts", "a b", "ACTS_BUILD_ID is 'a b'"),
        ("acts", "x" * 64, "up to 63"),
    ],
)
def test_what_is_no_version_is_refused_by_name(
    name: str, build: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTS_DEPLOYMENT", name)
    monkeypatch.setenv("ACTS_BUILD_ID", build)
    with pytest.raises(SettingsError, match=words.replace("(", r"\(")):
        Settings.from_environment()
