"""The activity ``acts.delegate``: its request, its result, and its failures as a workflow sees them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from acts.activities.engine_activities import HEARTBEAT_SECONDS
from acts.activities.load_delegate import Loader
from acts.delegates.sources import DelegateSources
from acts.workflows import engine_calls
from tests.delegates.support import BYTES, DEFINITION, raises_load_error

HASH = sha256(BYTES).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "composer.json").write_bytes(BYTES)
    return tmp_path


async def test_the_result_has_the_definition_its_hash_and_its_path_in_the_folder(folder: Path) -> None:
    result = await Loader(DelegateSources((folder,))).load({"delegate": "composer"})
    assert result == {"definition": DEFINITION, "sha256": HASH, "source": "composer.json"}


@pytest.mark.parametrize("expected", [HASH, HASH.upper(), None])
async def test_a_definition_with_the_expected_hash_is_loaded(folder: Path, expected: str | None) -> None:
    result = await Loader(DelegateSources((folder,))).load({"delegate": "composer", "sha256": expected})
    assert result["sha256"] == HASH


async def test_a_definition_with_another_hash_is_refused(folder: Path) -> None:
    (folder / "composer.json").write_bytes(b"no JSON either")
    with raises_load_error(
        "DelegateChanged", '"composer.json" has changed', f"sha256 '{HASH}' was expected, and it is "
    ):
        await Loader(DelegateSources((folder,))).load({"delegate": "composer", "sha256": HASH})


async def test_a_definition_whose_result_is_too_large_is_refused(folder: Path) -> None:
    numbers = b",".join([b"1e15"] * 200_000)
    (folder / "grows.json").write_bytes(b'{"context":[{"type":"data","data":[' + numbers + b"]}]}")
    own = Loader(DelegateSources((folder,)))
    with raises_load_error("DelegateTooLarge", "bytes to record; at most 2,031,616"):
        await ActivityEnvironment().run(own.activity(), {"delegate": "grows"})


async def test_a_load_sends_a_heartbeat_at_its_start(folder: Path) -> None:
    """A dead worker is noticed after the heartbeat timeout, not after the timeout of the load."""
    beats: list[tuple[Any, ...]] = []
    environment = ActivityEnvironment()
    environment.on_heartbeat = lambda *details: beats.append(details)
    await environment.run(Loader(DelegateSources((folder,))).activity(), {"delegate": "composer"})
    assert beats == [()]
    assert HEARTBEAT_SECONDS * 5 == engine_calls.HEARTBEAT_SECONDS
