"""``acts retry``, ``cancel`` and ``approve`` for many runs, found by their tags; with a real server and worker."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.cli.conftest import ENGLISH, Acts, new_name, wait_for_end, wait_for_listing
from tests.cli.test_repair import TOOL, ask

pytestmark = pytest.mark.usefixtures("wide_terminal")


@pytest.fixture
def tag() -> str:
    return f"customer={uuid.uuid4().hex[:8]}"


async def start_three(acts: Acts, client: Client, folder: Path, tag: str, plan: object, listed: str) -> list[str]:
    tools = {"askWeather": TOOL, "english": ENGLISH}
    context = [{"type": "tool", "tool": tools}, {"type": "plan", "plan": plan}]
    request = {"config": {"approve": {"calls": ["english"]}}, "context": context}
    (folder / "plan.json").write_text(json.dumps(request), "utf-8")
    names = [new_name() for _ in range(3)]
    for name in names:
        assert acts("run", "plan.json", "--id", name, "--tag", tag, "--detach").exit_code == 0
        await wait_for_listing(client, name, f"ActsTags = '{tag}' AND {listed}")
    return names


async def test_what_failed_is_retried_once_however_often_one_asks(
    acts: Acts, client: Client, tag: str, tmp_path: Path
) -> None:
    names = await start_three(acts, client, tmp_path, tag, [ask("Atlantis")], "ActsPhase = 'failed'")
    assert {row["id"] for row in json.loads(acts("list", "--tag", tag, "--json").stdout)} == set(names)
    (total,) = json.loads(acts("list", "--sums", "tag", "--tag", tag, "--json").stdout)
    assert total == {"tag": tag, "runs": 3, "failed": 3, "cost": 0.0}
    assert all(name in acts("list", "--sort", "cost", "--tag", tag).stdout for name in names)
    offered = acts("retry", "--tag", tag, "--tool", "english", "--dry-run")
    assert "0 runs to retry" in offered.stderr, "each has that tool, and another failed"
    dry = acts("retry", "--tag", tag, "--tool", "askWeather", "--dry-run")
    assert dry.stderr.count("  1:askWeather: [") == 3, dry.stderr
    assert (dry.exit_code, "3 runs to retry; nothing is done" in dry.stderr) == (0, True), dry.stderr
    one = acts("retry", names[0], "--dry-run")
    assert (one.exit_code, "nothing was done" in one.stderr) == (2, True), "it would have been retried"
    wrong = acts("retry", "--tag", tag, "--yes", "2")
    assert (wrong.exit_code, "there are 3 runs, not 2" in wrong.stderr) == (2, True), wrong.stderr
    done = acts("retry", "--tag", tag, "--yes", "3", "--max-rate", "100")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (0, "retried: 3 of 3")
    retries = done.stdout.split()
    for retry in retries:
        await wait_for_listing(client, retry, "ActsPhase = 'failed'")
    shown = [json.loads(acts("show", name, "--json").stdout)["retriedAs"] for name in names]
    assert sorted(shown) == sorted(retries)
    assert f"retried as {shown[0]}" in acts("show", names[0]).stdout
    rows = {row["id"]: row for row in json.loads(acts("list", "--tag", tag, "--json").stdout)}
    assert [rows[name]["retriedAs"] for name in names] == shown
    only_first = acts("retry", "--query", f"WorkflowId = '{names[0]}'", "--yes", "1")
    assert (only_first.stdout, only_first.stderr.splitlines()[-1]) == ("", "had been retried before: 1 of 1")


async def test_what_waits_is_approved_as_it_was_shown_and_the_rest_is_cancelled(
    acts: Acts, client: Client, tag: str, tmp_path: Path
) -> None:
    call = {"_tool": "english", "language": "en", "_outputPath": "†state.first"}
    names = await start_three(acts, client, tmp_path, tag, [call], "ActsWaiting = 1")
    assert acts("approve").exit_code == acts("approve", names[0], "--tag", tag).exit_code == 2
    shown = acts("approve", "--tag", tag, "--dry-run")
    assert all(f"acts approve {name} --call 1:english --version 1 --subject" in shown.stdout for name in names)
    unanswered = acts("approve", "--tag", tag)
    assert (unanswered.exit_code, "the number was not typed" in unanswered.stderr) == (2, True)
    done = acts("approve", "--tag", tag, "--query", f"WorkflowId != '{names[0]}'", "--yes", "2")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (0, "approved: 2 of 2"), done.stderr
    for name in names[1:]:
        await wait_for_listing(client, name, "ActsPhase = 'completed'")
    assert (await client.get_workflow_handle(names[1]).result())["decisions"][0]["decision"] == "approve"
    ended = acts("cancel", "--phase", "awaiting", "--tag", tag, "--yes", "1")
    assert (ended.exit_code, ended.stderr.splitlines()[-1]) == (0, "being cancelled: 1 of 1"), ended.stderr
    await wait_for_end(client, names[0])
