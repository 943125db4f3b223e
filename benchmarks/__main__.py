"""Programs that print performance figures.

    python -m benchmarks [name …] [--rounds N] [--json FILE]

Without names, all of them. Each also runs by itself: ``python -m benchmarks.walk``.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

from benchmarks import tables

PROGRAMS: Final = {
    "core": "validating, building and walking plans; the log; no server",
    "walk": "the engine compared with hand-written workflows of the same shape",
    "wide": "fan-outs of 1 to 2,000 calls at once: the cost per call",
    "elements": "a call for each of 1,000 elements, compared with a hand-written fan-out",
    "makespan": "calls with latencies: compared with the critical path",
    "replay": "replaying histories of the engine and of hand-written workflows",
    "resume": "kill -9 of the worker in mid-plan",
    "agent": "an agent of 100 ticks with a context of 45,000 tokens, tick by tick",
    "instances": "a thousand instances of a small plan, compared with hand-written child workflows",
    "beside": "a small plan beside a set that takes whatever a worker has",
    "tree": "200 delegates, three deep, with a budget for half of them",
    "cache": "the share of input that prompt caches would serve, by the rules of the providers; no server",
    "streaming": "an answer of 30 calls in 20 s: when the first call starts, and when the last ends",
    "watching": "1,000 calls that a hundred readers watch, compared with a run that nobody watches",
    "viewers": "approvals in the inbox while two hundred pages are open, compared with none",
    "waiting": "a thousand runs that wait for approval: memory and CPU at rest",
    "observation": "metrics and traces, compared with a worker without them",
    "storage": "calls that carry 5 MB of state, and 2,000 calls that start with 1 MB, with external storage",
    "settings": "single settings of server and worker, compared with the shipped ones",
}


def main() -> None:
    """Run the named programs."""
    lines = "\n".join(f"  {name:<10}{text}" for name, text in PROGRAMS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"programs:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="name", help=f"a program ({', '.join(PROGRAMS)}); default: all")
    tables.add_options(parser)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program {unknown[0]!r}; known: {', '.join(PROGRAMS)}")
    names = arguments.names or list(PROGRAMS)
    programs = {name: import_module(f"benchmarks.{name}").run for name in names}
    tables.run_and_print(programs, arguments.rounds, arguments.json)


if __name__ == "__main__":
    main()
