"""What waits is seen: the plan with what is known of its Calls, for whom a run waits; and one cause for many skips."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from acts.cli.text.preflight import EXAMPLES
from tests.cli.conftest import ENGLISH, Acts, clean_environment, new_name, squeeze, wait_for_listing

DECLINED = [
    {"_tool": "processPayment", "amount": "†input.amount", "_outputPath": "†state.receipt"},
    {"_tool": "confirmOrder", "receipt": "†state.receipt", "_outputPath": "†state.confirmation"},
    {"_tool": "english", "language": "†state.confirmation.text", "_outputPath": "†state.again"},
]


def write_plan(folder: Path, tools: list[Any], *plan: Any, **config: Any) -> str:
    context = [*({"type": "tool", "tool": tool} for tool in tools),
               {"type": "input", "input": {"card": "card-of-tony", "amount": 50.0}},
               {"type": "plan", "plan": list(plan)}]  # fmt: skip
    (folder / "plan.json").write_text(json.dumps({"config": config, "context": context}), "utf-8")
    return "plan.json"


@contextmanager
def start(*arguments: str, cwd: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """``acts run ARGUMENTS``, both of its outputs in one pipe; it ends with a test that fails."""
    with subprocess.Popen(
        [sys.executable, "-m", "acts.cli", "run", *arguments],
        cwd=cwd, env=clean_environment(**environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        except BaseException:
            process.kill()
            raise


async def test_a_run_says_for_whom_it_waits_and_the_plan_is_shown_with_what_is_known_of_its_calls(
    acts: Acts, worker: dict[str, str], tmp_path: Path
) -> None:
    tool = {"english": {**ENGLISH, "x-hints": {"destructive": True}}}
    file = write_plan(
        tmp_path, [tool], {"_tool": "english", "language": "en", "_outputPath": "†state.a"}, approve={"plan": True}
    )
    name = new_name()
    with start(file, "--id", name, cwd=tmp_path, **worker) as process:
        assert process.stdout is not None
        told = next(line for line in process.stdout if "waits for a person" in line)
        assert f"the plan of {name} (version 1) waits for a person: acts pending {name}" in told
        for command in ("pending", "show"):
            shown = squeeze(acts(command, name).stdout)
            assert "plan, 1 call: 0 model requests" in shown
            assert '1:english {"activity": "compareLanguage"} (destructive)' in shown
            assert '{"language": "en", "_outputPath": "†state.a"}' in shown
        assert acts("approve", name).exit_code == 0
        rest = process.stdout.read()
    assert (process.returncode, rest.count("waits for a person"), "completed" in rest) == (0, 0, True)


@pytest.mark.parametrize("watch", [[], ["--watch"]])
def test_what_failed_is_said_once_and_is_the_one_cause_of_what_was_skipped(
    watch: list[str], worker: dict[str, str], tmp_path: Path
) -> None:
    file = write_plan(tmp_path, ["processPayment", "confirmOrder", {"english": ENGLISH}], *DECLINED)
    with start(file, *watch, cwd=tmp_path, **worker) as process:
        told = " ".join(process.communicate()[0].split())
    assert process.returncode == 1
    assert told.count("Your card was declined.") == 1
    assert "2:confirmOrder, 3:english skipped 1:processPayment failed" in told
    assert "there is no value" not in told


async def test_a_run_that_took_an_error_path_is_marked_in_the_list(acts: Acts, client: Client) -> None:
    name = new_name()
    assert acts("run", str(EXAMPLES / "payment" / "plan.yaml"), "--id", name).exit_code == 0
    await wait_for_listing(client, name, "ActsPhase = 'completed'")
    (row,) = [row for row in json.loads(acts("list", "--json").stdout) if row["id"] == name]
    assert row["errors"] == 1
    assert any(name in line and "completed, 1 error" in line for line in acts("list").stdout.splitlines())


async def test_a_bug_that_took_an_error_path_is_named_by_every_view_of_the_run(
    acts: Acts, client: Client, worker: dict[str, str], tmp_path: Path
) -> None:
    once = {"_options": {"const": {"retry": {"maxAttempts": 1}}}, "_outputPath": {}}
    tool = {"english": {"type": "object", "properties": {**ENGLISH["properties"], **once}}}
    file = write_plan(tmp_path, [tool], {"_tool": "english", "_outputPath": "†state.a || †state.error"})
    name = new_name()
    with start(file, "--id", name, cwd=tmp_path, **worker) as process:
        told = " ".join(process.communicate()[0].split())
    assert process.returncode == 0
    bug = "KeyError in english (served.py:12)"
    assert f"1:english went down an error path: {bug}, not one of its tool's declared failures" in told
    assert bug in squeeze(acts("show", name).stderr)
    (end,) = map(json.loads, acts("events", name, "--json", "--type", "runEnded").stdout.splitlines())
    assert end["undeclared"] == {"1:english": bug}
    await wait_for_listing(client, name, "ActsPhase = 'completed'")
    assert any(name in line and "1 error (1 undeclared)" in line for line in acts("list").stdout.splitlines())
