"""AsyncHow's everyday plans, walked with the times of their steps: the makespan is the shortest time, by its own answer.

    python -m benchmarks.evidence asynchow PATH

PATH: a checkout of github.com/fangru-lin/graph-llm-asynchow-plan; the figures are of commit 66f9bcff. Its files are
pickles, which may run code when they are read: this reads plain values and ``timedelta`` alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.evidence.wfinstances import Graph, makespan
from benchmarks.tables import Table


class _Values(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) != ("datetime", "timedelta"):
            raise pickle.UnpicklingError(f"{module}.{name} is no value")
        return timedelta


def graph_of(name: str, edges: Sequence[tuple[str, str]], times: Mapping[str, Sequence[timedelta]]) -> Graph:
    """The steps by number, with the upper bounds of their times."""
    numbers = {step: n for n, step in enumerate(times)}
    parents: list[list[int]] = [[] for _ in numbers]
    for before, after in dict.fromkeys(map(tuple, edges)):
        if before != "START" and after != "END":
            parents[numbers[after]].append(numbers[before])
    return Graph(name, parents, [times[step][-1].total_seconds() for step in numbers])


def run(paths: Sequence[Path], _rounds: int | None = None) -> Iterator[Table]:
    """One table: a row for each file of the data set."""
    table = Table("everyday plans", ["", "plans", "steps, at most", "makespan = the shortest time by the data set"])
    for kind in ("seq", "para", "async"):
        with (paths[0] / "data" / f"{kind}_benchmark.pkl").open("rb") as file:
            data = _Values(file).load()
        rows = list(zip(data["titles"], data["edge_list"], data["timedelta_dic"], data["task_time"], strict=True))
        graphs = [graph_of(title, edges, times) for title, edges, times, _ in rows]
        equal = sum(makespan(graph)[0] == row[3][-1].total_seconds() for graph, row in zip(graphs, rows, strict=True))
        table.rows.append([{"seq": "sequential", "para": "parallel", "async": "mixed"}[kind], len(rows), max(len(g.parents) for g in graphs), equal])
    yield table
