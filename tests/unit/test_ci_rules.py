"""What CI refuses beside a failure: too many second chances, and suites that did not run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.conftest import MOST_RERUNS, find_ci_problems


def report(name: str, reason: str = "") -> Any:
    return SimpleNamespace(nodeid=name, longrepr=("file", 1, f"Skipped: {reason}"))


def test_reruns_up_to_the_limit_and_optional_suites_pass() -> None:
    reruns = [report(f"test_{n}") for n in range(MOST_RERUNS)]
    assert find_ci_problems({"rerun": reruns, "skipped": [report("test_a", "Node.js is not installed")]}) == []


def test_the_alarm_rings() -> None:
    reruns = [report(f"test_{n}") for n in range(MOST_RERUNS + 1)]
    problems = find_ci_problems({"rerun": reruns, "skipped": [report("test_a", "boto3 is missing")]})
    assert problems == [
        "3 reruns, at most 2: test_0, test_1, test_2",
        "test_a should run here: Skipped: boto3 is missing",
    ]
