"""``docs/comparison.md`` from the stored figures and from the lines of the programs in ``apps/``. It measures nothing."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from pathlib import Path
from typing import Any, Final

from benchmarks.compare.measure import ALTERNATIVES, APPS, DONE
from benchmarks.tables import Cell, Table, format_cell

Json = Any

FOLDER: Final = Path(__file__).parent
RESULTS: Final = FOLDER / "results" / "results.json"
PAGE: Final = FOLDER.parents[1] / "docs" / "comparison.md"
TITLES: Final = {alternative.name: alternative.title for alternative in ALTERNATIVES}
TASKS: Final = ("refund", "approval", "fan_out", "agent")
SHARED: Final = {name: [APPS / "on_temporal.py"] for name in ("temporal", "pydantic_ai", "openai_agents")}
HOW: Final = {
    "acts": "`approve: {calls: [pay]}` in the plan; inbox, command line or client",
    "temporal": "a signal and a query of your own",
    "pydantic_ai": "a signal and a query of your own; tools of an agent have `requires_approval`",
    "openai_agents": "a signal and a query of your own",
    "langgraph": "`interrupt`, then `Command(resume=…)`",
    "dbos": "`set_event` and `recv`, then `send`",
    "prefect": "`suspend_flow_run` in a deployment, then its UI or `resume_flow_run`",
}


def count_lines(name: str) -> Counter[str]:
    """Lines of an alternative that are neither blank nor a comment: per task, ``wiring``, and ``all``.

    A comment ``# task: refund, agent`` says what the lines below are for; a line for two tasks counts in both. A YAML
    file is for the task of its name.
    """
    counted = Counter[str]()
    for file in [*(APPS / name).glob("*.py"), *(APPS / name).glob("*.yaml"), *SHARED.get(name, ())]:
        tasks = ["wiring"] if file.suffix == ".py" else [file.stem]
        for line in file.read_text("utf-8").splitlines():
            if marker := re.fullmatch(r"\s*# task: (.+)", line):
                tasks = marker[1].split(", ")
            elif line.strip() and not line.strip().startswith("#"):
                counted.update([*tasks, "all"])
    return counted


class Figures:
    """Medians of the rounds."""

    def __init__(self, rows: list[Json]) -> None:
        self._rows = rows

    def all(self, name: str, task: str, key: str) -> list[Any]:
        """The values of every round; those of ``seconds`` are of every run."""
        found = [row[key] for row in self._rows if row["alternative"] == name and row["task"] == task]
        return [value for part in found for value in part] if found and isinstance(found[0], list) else found

    def median(self, name: str, task: str, key: str) -> float:
        """Of the rounds."""
        return float(statistics.median(self.all(name, task, key)))

    def calls(self, name: str, task: str, table: str, kind: str) -> int:
        """The median number of calls of a kind that the ledger has."""
        return round(statistics.median(found.get(kind, 0) for found in self.all(name, task, table)))

    def worst(self, name: str, task: str, effects: dict[str, int]) -> str:
        """``lost/doubled`` of all rounds together."""
        made = [
            found.get(kind, 0) - wanted for found in self.all(name, task, "effects") for kind, wanted in effects.items()
        ]
        return f"{-sum(min(n, 0) for n in made)}/{sum(max(n, 0) for n in made)}"


def write(results: Json) -> str:
    """The page, as Markdown."""
    figures = Figures(results["rows"])
    lines = {name: count_lines(name) for name in TITLES}
    tables = [
        ("Lines of user code", _lines(lines)),
        ("Time and CPU", _costs(figures)),
        ("Bytes, requests, tokens", _sizes(figures)),
        ("After kill -9", _crashes(figures)),
        ("Approval", _approvals(figures, lines)),
        ("Versions", _versions(results["versions"])),
    ]
    machine = results["machine"]
    values: dict[str, str] = {
        "machine": f"{machine['date']}; {machine['cores']} cores ({machine['processor']}, {machine['system']}), Python {machine['python']}",
        "rounds": str(1 + max(row["round"] for row in results["rows"])),
        **{title: "\n".join(table.text().splitlines()[2:]).strip() for title, table in tables},
        **_sentences(figures, lines),
    }
    template = (FOLDER / "page.md").read_text("utf-8")
    return re.sub(r"\{\{(.+?)\}\}", lambda found: values[found[1]], template)


def _sentences(figures: Figures, lines: dict[str, Counter[str]]) -> dict[str, str]:
    """Figures inside the text: ``seconds refund acts``, ``lines all dbos``, …"""
    found = {}
    for name in TITLES:
        for task in (*TASKS, "wiring", "all"):
            found[f"lines {task} {name}"] = str(lines[name][task])
        for task in ("refund", "fan_out", "agent", "approval", "refund_crash"):
            found[f"seconds {task} {name}"] = format_cell(figures.median(name, task, "seconds"))
        for task in ("refund", "agent"):
            found[f"input {task} {name}"] = format_cell(round(figures.median(name, task, "input")))
        found[f"repeated {name}"] = str(_repeated(figures, name))
    return found


def _table(columns: list[str], rows: dict[str, list[Cell]]) -> Table:
    return Table("", ["", *columns], [[TITLES[name], *cells] for name, cells in rows.items()])


def _lines(lines: dict[str, Counter[str]]) -> Table:
    columns = ["refund", "approval", "fan-out", "agent", "wiring", "all"]
    return _table(columns, {name: [lines[name][task] for task in (*TASKS, "wiring", "all")] for name in TITLES})


def _costs(figures: Figures) -> Table:
    columns, rows = list[str](), {name: list[Cell]() for name in TITLES}
    for task, title in (("refund", "refund"), ("fan_out", "fan-out"), ("agent", "agent")):
        for key, unit in (("seconds", "s"), ("cpu", "CPU"), ("server_cpu", "server")):
            columns.append(f"{title}, {unit}" if key == "seconds" else f"… {unit}")
            for name, row in rows.items():
                row.append(figures.median(name, task, key))
    for name, row in rows.items():
        row.append(figures.median(name, "refund", "load"))
    return _table([*columns, "load"], rows)


def _sizes(figures: Figures) -> Table:
    columns = ["fan-out, kB", "agent, kB", "refund, requests", "… tokens", "agent, requests", "… tokens"]
    rows: dict[str, list[Cell]] = {}
    for name in TITLES:
        rows[name] = [round(figures.median(name, task, "stored") / 1000) for task in ("fan_out", "agent")]
        for task in ("refund", "agent"):
            tokens = figures.median(name, task, "input") + figures.median(name, task, "output")
            rows[name] += [round(figures.median(name, task, "requests")), round(tokens)]
    return _table(columns, rows)


def _repeated(figures: Figures, name: str) -> int:
    return figures.calls(name, "fan_out_crash", "attempts", "work") - DONE["fan_out"]["work"]


def _crashes(figures: Figures) -> Table:
    columns = ["goes on by itself", "payment: after, s", "payments tried", "lost/doubled", "fan-out: after, s", "calls made twice", "lost/doubled"]  # fmt: skip
    rows: dict[str, list[Cell]] = {}
    for name in TITLES:
        alone = all(figures.all(name, "refund_crash", "goes_on"))
        rows[name] = [
            "yes" if alone else "no, started again",
            figures.median(name, "refund_crash", "seconds"),
            figures.calls(name, "refund_crash", "attempts", "pay"),
            figures.worst(name, "refund_crash", DONE["refund"]),
            figures.median(name, "fan_out_crash", "seconds"),
            _repeated(figures, name),
            figures.worst(name, "fan_out_crash", DONE["fan_out"]),
        ]
    return _table(columns, rows)


def _approvals(figures: Figures, lines: dict[str, Counter[str]]) -> Table:
    columns = ["how", "lines", "survives kill -9", "from the decision to the mail, s"]
    rows: dict[str, list[Cell]] = {}
    for name in TITLES:
        survives = "yes" if all(figures.all(name, "approval", "survives")) else "no"
        rows[name] = [HOW[name], lines[name]["approval"], survives, figures.median(name, "approval", "seconds")]
    return _table(columns, rows)


def _versions(versions: Json) -> Table:
    shown = {name: ", ".join(f"{package} {number}" for package, number in versions[name].items()) for name in TITLES}
    return _table(["versions"], {name: [text] for name, text in shown.items()})
