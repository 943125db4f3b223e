"""Programs that print figures.

    python -m benchmarks [name …] [--rounds N] [--json FILE]

Without names, all of them. Each can be run alone too: ``python -m benchmarks.walk``.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

from benchmarks import tables

PROGRAMS: Final = {
    "core": "validating, building and walking plans; the log; no server",
    "walk": "the engine beside hand-written workflows of the same shape",
    "makespan": "calls that take their time: beside the critical path",
    "replay": "replaying what walk records",
    "resume": "kill -9 of the worker in mid-plan",
    "agent": "an agent of 100 ticks over a context of 200,000 tokens, tick by tick",
    "instances": "a thousand instances of a small plan, beside hand-written child workflows",
    "tree": "200 delegates, three deep, whose budget ends them half-way",
    "waiting": "a thousand runs that wait for a human: memory and CPU at rest",
    "settings": "one setting of server or worker at a time, against what we ship",
}


def main() -> None:
    """Run what was named."""
    lines = "\n".join(f"  {name:<10}{text}" for name, text in PROGRAMS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"programs:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="name", help=f"which ({', '.join(PROGRAMS)}); none: all")
    tables.options(parser)
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program {unknown[0]!r}; there are: {', '.join(PROGRAMS)}")
    chosen = given.names or list(PROGRAMS)
    tables.show({name: import_module(f"benchmarks.{name}").run for name in chosen}, given.rounds, given.json)


if __name__ == "__main__":
    main()
