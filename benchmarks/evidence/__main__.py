"""Evidence from public data sets: real graphs, real sequences of calls, real injections, as plans of the engine.

    python -m benchmarks.evidence NAME PATH … [--json FILE]

Nothing of a data set is in this project. PATH is a copy that you fetch; each program says which one its figures are of.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

from benchmarks.tables import run_and_print

PROGRAMS: Final = {
    "agentdojo": "injections that a planner obeys, and what gets through which wall",
    "nestful": "nested sequences of calls: valid plans, and their answers",
    "wfinstances": "scientific workflows: makespan, critical path, cost per task",
    "asynchow": "everyday plans: the shortest time",
}


def main() -> None:
    """Run one program over its data."""
    lines = "\n".join(f"  {name:<12}{text}" for name, text in PROGRAMS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence",
        description=f"programs:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=PROGRAMS, metavar="NAME")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="what the program reads")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="also write the figures to this file")
    chosen = parser.parse_args()
    program = import_module(f"benchmarks.evidence.{chosen.name}")
    run_and_print({chosen.name: partial(program.run, chosen.paths)}, None, chosen.json)


if __name__ == "__main__":
    main()
