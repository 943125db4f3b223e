"""Measure acts beside its alternatives, keep the figures in ``results/``, and write ``docs/comparison.md`` from them.

    python -m benchmarks.compare [--rounds N] [--only NAME …] [--page]

Each alternative is installed into an environment of its own, ``.compare/NAME``, at the versions that its
``requirements.txt`` pins. ``--page`` measures nothing and only writes the page; without all alternatives nothing is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib.metadata import version
from typing import Any

from benchmarks.compare import page
from benchmarks.compare.measure import ALTERNATIVES, APPS, RUNS, Alternative, bench
from benchmarks.tables import describe_machine, print_progress

ROUNDS = 2


def install(alternative: Alternative) -> dict[str, str]:
    """Its environment, made anew where the pins have changed; returns the versions."""
    if alternative.name == "acts":
        return {name: version(name) for name in ("acts-engine", "temporalio", "openai", "pydantic")}
    pins = (APPS / alternative.name / "requirements.txt").read_text("utf-8")
    stamp = alternative.venv / "installed.txt"
    if not stamp.exists() or stamp.read_text("utf-8") != pins:
        print_progress(f"installing {alternative.name}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", alternative.venv], check=True)  # noqa: S603
        pip = [alternative.venv / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "-r", APPS / alternative.name / "requirements.txt"], check=True)  # noqa: S603
        stamp.write_text(pins, "utf-8")
    return dict(line.split("==") for line in pins.split())


def main() -> None:
    """Round after round, every second one backwards; what is measured anew replaces what is stored, at once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--only", nargs="+", choices=[a.name for a in ALTERNATIVES], help="keep the figures of the others"
    )
    parser.add_argument("--page", action="store_true", help="write the page from what is stored")
    chosen = parser.parse_args()
    if not chosen.page:
        alternatives = [a for a in ALTERNATIVES if not chosen.only or a.name in chosen.only]
        versions = {a.name: install(a) for a in alternatives}
        stored = json.loads(page.RESULTS.read_text("utf-8")) if chosen.only else {"versions": {}, "rows": []}
        kept = [row for row in stored["rows"] if row["alternative"] not in versions]
        results = {"machine": describe_machine(), "versions": {**stored["versions"], **versions}, "rows": kept}
        for round_ in range(chosen.rounds):
            for alternative in alternatives[:: -1 if round_ % 2 else 1]:
                load = round(os.getloadavg()[0], 1)
                with bench(alternative, round_) as measured:
                    measured.measure_all(RUNS)
                kept += [{**row, "load": load} for row in measured.rows]
                page.RESULTS.write_text(dump(results), "utf-8")
    page.PAGE.write_text(page.write(json.loads(page.RESULTS.read_text("utf-8"))), "utf-8")


def dump(results: dict[str, Any]) -> str:
    """JSON with a line for each measurement."""
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in results["rows"])
    head = json.dumps({name: part for name, part in results.items() if name != "rows"}, ensure_ascii=False, indent=1)
    return head.removesuffix("\n}") + f',\n "rows": [\n{rows}\n]\n}}\n'


if __name__ == "__main__":
    main()
