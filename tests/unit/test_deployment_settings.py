"""The two settings of worker versioning: both or neither, and each a name that the server takes."""

from __future__ import annotations

import pytest
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion

from acts.worker.settings import Settings, SettingsError


def test_without_the_settings_a_worker_is_unversioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACTS_DEPLOYMENT", raising=False)
    monkeypatch.setenv("ACTS_BUILD_ID", "")
    settings = Settings.from_environment()
    assert settings.deployment_config is None


def test_with_both_every_run_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_DEPLOYMENT", "acts")
    monkeypatch.setenv("ACTS_BUILD_ID", "1.4.2+a1b2c3")
    settings = Settings.from_environment()
    config = settings.deployment_config
    assert config is not None
    assert config.version == WorkerDeploymentVersion("acts", "1.4.2+a1b2c3")
    assert config.use_worker_versioning
    assert config.default_versioning_behavior is VersioningBehavior.PINNED


@pytest.mark.parametrize(
    ("name", "build", "words"),
    [
        ("acts", "", "needs both ACTS_DEPLOYMENT and ACTS_BUILD_ID"),
        ("", "1", "needs both ACTS_DEPLOYMENT and ACTS_BUILD_ID"),
        ("acts.prod", "1", "ACTS_DEPLOYMENT is 'acts.prod'"),
        ("acts:prod", "1", "ACTS_DEPLOYMENT is 'acts:prod'"),
        ("a" * 201, "1", "ACTS_DEPLOYMENT is"),
        ("acts", "a b", "ACTS_BUILD_ID is 'a b'"),
        ("acts", "x" * 64, "ACTS_BUILD_ID is"),
    ],
)
def test_what_is_no_version_is_refused_by_name(
    name: str, build: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTS_DEPLOYMENT", name)
    monkeypatch.setenv("ACTS_BUILD_ID", build)
    with pytest.raises(SettingsError, match=words.replace("(", r"\(")):
        Settings.from_environment()
