"""Evidence from public data sets: real graphs, sequences of calls and injections, as plans of the engine.

    python -m benchmarks.evidence NAME PATH … [--json FILE]

Nothing of a data set is in this project: PATH is a copy that you fetch, and each program says which one its figures are of.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from benchmarks.evidence import agentdojo, graphs, nestful
from benchmarks.tables import run_and_print

PROGRAMS: Final = {
    "agentdojo": agentdojo.run,
    "nestful": nestful.run,
    "wfinstances": graphs.run_wfinstances,
    "asynchow": graphs.run_asynchow,
}


def main() -> None:
    """Run one program over its data."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence")
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="the data; its program says which")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="also write the figures to this file")
    chosen = parser.parse_args()
    run_and_print({chosen.name: lambda _rounds: PROGRAMS[chosen.name](chosen.paths)}, None, chosen.json)


if __name__ == "__main__":
    main()
