"""The same Request gives the same plan, the same commands and the same texts under every hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Prints a digest of the outcomes of the rows and of some invalid Requests
PROGRAM = """
import hashlib, json
from acts.plan.validate import validate
from tests.cases import ROWS, call, own, tool
from tests.property.drive import Drive

outcomes = []
for row in ROWS:
    drive = Drive(row["request"], row["results"])
    drive.finish_all()
    outcomes += [validate(row["request"]), drive.observe(), drive.started, drive.questions, drive.final_statuses]
names = "abcdefgh"
loop = [call(a, f"†state.{a}", x=f"†state.{b} || †state.{b}{b}") for a, b in zip(names, names[1:] + names[0])]
broken = [call(a, f"†{a}..x", _foo=1, x="†state.none", _instance="Z") for a in names]
for plan in (loop, broken):
    tools = {"type": "tool", "tool": {a: tool(a) for a in names}}
    context = [tools, own("B"), own("A"), {"type": "plan", "plan": plan}]
    outcomes += [validate({"context": context}), validate({"context": context, "config": {"maxTick": 1}})]
print(hashlib.sha256(json.dumps(outcomes, default=str).encode()).hexdigest(), len(outcomes))
"""


def digest(seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_depends_on_the_order_of_a_set() -> None:
    assert len({digest(seed) for seed in ("1", "4711")}) == 1
