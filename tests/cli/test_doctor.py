"""``acts doctor`` against a real server and worker."""

from __future__ import annotations

import json
import re
import time
from types import SimpleNamespace
from typing import Any

import pytest

from cli.doctor import server_checks
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
    assert {name: found[name]["level"] for name in ("clock", "namespace", "search attributes", "workers", "runs")} == (
        dict.fromkeys(("clock", "namespace", "search attributes", "workers", "runs"), "ok")
    )
    assert "1 worker on" in found["workers"]["text"]


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


def test_a_clock_that_differs_is_reported(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    late = SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() - 3_600)
    monkeypatch.setattr(server_checks, "time", late)
    found = findings(acts("doctor", "--json").stdout)
    assert found["clock"]["level"] == "warn"
    assert re.match(r"this machine is 3[56]\d\d\.\d s behind the server", found["clock"]["text"])


def test_a_model_is_asked_only_by_name(acts: Acts) -> None:
    done = acts("doctor", "--ask", "scripted:nothing", "--ask", "nobody:x", "--json")
    asked = [f for f in json.loads(done.stdout)["findings"] if f["check"] == "models" and f["level"] == "fail"]
    assert [f["text"].split(":")[0] for f in asked] == ["scripted", "nobody"]
    assert done.exit_code == 1
