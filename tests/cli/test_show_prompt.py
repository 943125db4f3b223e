"""``acts prompt``: what a planner is shown, of a file and of a run."""

from __future__ import annotations

import json

import pytest

from cli.text.preflight import EXAMPLES
from tests.cli.conftest import Acts, new_name

REPLAN = str(EXAMPLES / "replan" / "plan.yaml")

pytestmark = pytest.mark.usefixtures("wide_terminal")


def test_the_prompt_of_a_file_is_that_of_its_first_tick_with_its_tokens_by_part(acts: Acts) -> None:
    done = acts("prompt", REPLAN)
    assert done.exit_code == 0, done.stderr
    for text in ("=== system: rules", "=== system: tools", "=== user", "=== schema of the answer", "all of tick 1"):
        assert text in done.stdout
    shown = json.loads(acts("prompt", REPLAN, "--json").stdout)
    assert shown["tick"] == 1
    assert sum(shown["tokens"].values()) > shown["tokens"]["rules"] > 1_000
    assert [turn["role"] for turn in shown["turns"]] == ["user"]


def test_a_file_has_one_tick(acts: Acts) -> None:
    done = acts("prompt", REPLAN, "--tick", "2")
    assert done.exit_code == 2
    assert "one tick" in done.stderr


def test_the_prompts_of_a_run_are_those_of_its_ticks(acts: Acts) -> None:
    name = new_name()
    assert acts("run", REPLAN, "--id", name).exit_code == 0
    second = json.loads(acts("prompt", name, "--json").stdout)
    assert (second["tick"], [turn["role"] for turn in second["turns"]]) == (2, ["user", "assistant", "user"])
    assert "card_declined" in json.dumps(second["turns"][2])
    first = json.loads(acts("prompt", name, "--tick", "1", "--json").stdout)
    assert first["turns"] == second["turns"][:1]
    assert first["system"] == second["system"]
    done = acts("prompt", name, "--tick", "3")
    assert done.exit_code == 2
    assert "has come to tick 2, not 3" in done.stderr
