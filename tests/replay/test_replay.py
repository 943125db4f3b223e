"""Recorded histories replay on today's code, whatever order Python's sets and hashes have; a changed one does not."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import socket
import sys
from pathlib import Path

import pytest

from tests.replay.record import FOLDER, SCENARIOS, missing

ROOT = Path(__file__).parents[2]
FILES = sorted(FOLDER.glob("*.json"))
REPLAY_SECONDS = 60  # it needs three; a laptop under full load may take many times that


async def replayed(seed: int, *files: Path) -> dict[str, str | None]:
    """What a process with this hash seed says of the histories."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.replay.replay", *map(str, files), cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(seed)}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, complaint = await asyncio.wait_for(process.communicate(), REPLAY_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, complaint.decode()
    found = json.loads(out.splitlines()[-1])  # what comes before is the log of the SDK
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
async def test_every_history_replays_under_any_hash_seed(seed: int) -> None:
    assert await replayed(seed, *FILES) == dict.fromkeys([f.name for f in FILES])


def changed(name: str, folder: Path, words: dict[str, str]) -> Path:
    """A copy of a history in which each of these words stands for another."""
    history = (FOLDER / name).read_text("utf-8")
    assert all(word in history for word in words)
    file = folder / name
    file.write_text(re.sub("|".join(map(re.escape, words)), lambda found: words[found[0]], history), "utf-8")
    return file


async def refused(file: Path) -> str:
    (error,) = (await replayed(0, file)).values()
    assert error is not None
    assert "Nondeterminism" in error
    return error


@pytest.mark.parametrize(
    ("name", "one", "other"), [("join.json", "1:wait0", "2:wait1"), ("fan-out.json", "3:echo", "7:echo")]
)
async def test_a_history_in_which_two_calls_changed_places_does_not_replay(
    tmp_path: Path, name: str, one: str, other: str
) -> None:
    one, other = f'"activityId": "{one}"', f'"activityId": "{other}"'
    await refused(changed(name, tmp_path, {one: other, other: one}))


async def test_a_history_in_which_another_branch_was_taken_does_not_replay(tmp_path: Path) -> None:
    def payload(branch: str) -> str:
        """As the SDK writes JSON, and a history its bytes."""
        value = json.dumps({"type": "state", "state": {branch: 200}}, sort_keys=True, separators=(",", ":"))
        return base64.b64encode(value.encode()).decode()

    await refused(changed("choice.json", tmp_path, {payload("heavy"): payload("light")}))


async def test_a_history_whose_plan_was_longer_does_not_replay(tmp_path: Path) -> None:
    """The run went on with its last call; a plan that ends before it cannot have."""
    history = json.loads((FOLDER / "linear.json").read_text("utf-8"))
    started = history["events"][0]["workflowExecutionStartedEventAttributes"]["input"]["payloads"][0]
    request = json.loads(base64.b64decode(started["data"]))
    del request["context"][-1]["plan"][-1]
    started["data"] = base64.b64encode(json.dumps(request).encode()).decode()
    file = tmp_path / "linear.json"
    file.write_text(json.dumps(history), "utf-8")
    await refused(file)


def test_every_scenario_has_been_recorded() -> None:
    assert missing() == []
    assert len(FILES) > len(SCENARIOS)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_a_history_is_small_and_tells_nothing_of_the_machine_it_was_recorded_on(file: Path) -> None:
    text = file.read_text("utf-8")
    assert len(text) < 300_000
    assert [w for w in ("stackTrace", "site-packages", str(ROOT), str(Path.home())) if w in text] == []
    names = re.findall(r'"(?:identity|name)": "([^"]*)"', text)
    assert [n for n in names if "@" in n or socket.gethostname() in n] == []


def test_a_long_run_is_recorded_across_its_continuations() -> None:
    first, *_, last = [json.loads(f.read_text("utf-8")) for f in FILES if f.stem.startswith("continued")]
    assert first["events"][-1]["eventType"] == "EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW"
    assert last["events"][-1]["eventType"] == "EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED"
