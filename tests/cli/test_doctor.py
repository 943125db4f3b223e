"""``acts doctor`` against a real server and worker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Acts

Json = Any


def findings(stdout: str) -> dict[str, Json]:
    return {f["check"]: f for f in json.loads(stdout)["findings"]}


@pytest.mark.usefixtures("no_other_runs")
def test_all_is_well_where_a_worker_serves_the_queue(acts: Acts) -> None:
    done = acts("doctor", "--json")
    found = findings(done.stdout)
    assert (done.exit_code, json.loads(done.stdout)["ok"]) == (0, True), done.stdout
    assert "Temporal 1." in found["server"]["text"]
    assert {name: found[name]["level"] for name in ("namespace", "search attributes", "workers", "runs")} == (
        dict.fromkeys(("namespace", "search attributes", "workers", "runs"), "ok")
    )
    assert "1 worker on" in found["workers"]["text"]
    assert found["models"]["text"] == "no model has a key here"


def test_a_queue_without_workers_fails_and_says_what_to_do(acts: Acts) -> None:
    done = acts("doctor", "--queue", "nobody-serves-this")
    assert done.exit_code == 1
    assert "✗ workers" in done.stdout
    assert "no worker polls the task queue 'nobody-serves-this'" in done.stdout
    assert "→ start a worker" in done.stdout


def test_no_server_is_exit_code_3_and_the_rest_is_checked(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    done = acts("doctor", "--json")
    found = findings(done.stdout)
    assert done.exit_code == 3
    assert found["server"]["level"] == "fail"
    assert found["models"]["level"] == "ok"
