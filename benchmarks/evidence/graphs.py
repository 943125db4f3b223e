"""Graphs of tasks that took a known time, walked as plans: the makespan is the critical path, or the engine waits needlessly.

Each task becomes a Call that reads what its parents write; nothing else orders the Calls. The pure machine walks the
plan, and a Call ends when the time of its task is over. The wave bound is the time of an engine that starts a level of
the graph when the one before has ended.

* ``wfinstances PATH``: a checkout of github.com/wfcommons/WfInstances: recorded executions of scientific workflows. The
  figures are of commit f085867f, without its 15 files above 4 MiB.
* ``asynchow PATH``: a checkout of github.com/fangru-lin/graph-llm-asynchow-plan, commit 66f9bcff: everyday plans, with the
  shortest time by the data set. Its files are pickles, which may run code as they are read: this reads values alone.
"""

from __future__ import annotations

import gc
import heapq
import json
import pickle
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Final, NamedTuple

from acts.machines.commands import Finish, StartCall
from acts.machines.walk import Walk
from acts.plan.validate import validate_request
from benchmarks.tables import Table, median, print_progress

NOW: Final = "2026-01-01T00:00:00Z"
TASK: Final = {
    "properties": {"_activity": {"const": "task"}, "_outputPath": {"type": "string"}, "inputs": {"type": "array"}}
}
COLUMNS: Final = ["", "workflows", "tasks", "edges, at most", "makespan is critical path", "wave bound", "µs per task and edge"]  # fmt: skip
NOTE: Final = (
    "Tasks: of the smallest and the largest. Wave bound: the largest, as a multiple of the critical path. µs: CPU to validate "
    "and to walk, the median. A plan that is not valid ends the program."
)


class Graph(NamedTuple):
    """Tasks by number, in the order of the file: parents first or not."""

    parents: Sequence[Sequence[int]]
    seconds: Sequence[float]

    def bounds(self) -> tuple[float, float]:
        """The critical path and the wave bound, in seconds."""
        ends: dict[int, tuple[float, int]] = {}
        waves: dict[int, float] = defaultdict(float)
        for task in TopologicalSorter(dict(enumerate(self.parents))).static_order():
            start, depth = (max((ends[p][part] for p in self.parents[task]), default=0) for part in (0, 1))
            ends[task] = start + self.seconds[task], int(depth) + 1
            waves[int(depth)] = max(waves[int(depth)], self.seconds[task])
        return max(end for end, _ in ends.values()), sum(waves.values())

    def makespan(self) -> float:
        """The simulated seconds until the plan has completed."""
        plan = [
            {"_tool": "task", "inputs": [f"†state.t{p}" for p in parents], "_outputPath": f"†state.t{task}"}
            for task, parents in enumerate(self.parents)
        ]
        request = {"context": [{"type": "tool", "tool": {"task": TASK}}, {"type": "plan", "plan": plan}]}
        walk = Walk(validate_request(request), lambda node: node.id, may_start=lambda _: True)
        now, running, commands = 0.0, list[tuple[float, int, str]](), walk.begin(NOW)
        while not any(isinstance(command, Finish) for command in commands):
            for node in (command.node for command in commands if isinstance(command, StartCall)):
                heapq.heappush(running, (now + self.seconds[node.index], node.index, node.key))
            now, task, key = heapq.heappop(running)
            commands = walk.completed(key, task, NOW)
        return now


def _measure(file: Path) -> dict[str, float]:
    workflow = json.loads(file.read_text("utf-8"))["workflow"]
    tasks = workflow["specification"]["tasks"]
    numbers = {task["id"]: number for number, task in enumerate(tasks)}
    seconds = {task["id"]: task["runtimeInSeconds"] for task in workflow["execution"]["tasks"]}
    parents = [list(dict.fromkeys(numbers[parent] for parent in task["parents"])) for task in tasks]
    graph = Graph(parents, [seconds[task["id"]] for task in tasks])
    critical, waves = graph.bounds()
    gc.collect()
    start = time.process_time()
    makespan, cpu, edges = graph.makespan(), time.process_time() - start, sum(map(len, parents))
    size = {"tasks": len(tasks), "edges": edges}
    return {**size, "equal": makespan == critical, "waves": waves / critical, "cpu": cpu / sum(size.values()) * 1e6}


def run_wfinstances(paths: Sequence[Path]) -> Iterator[Table]:
    """One table: a row for each application, for all, and for the smallest and the largest tenth."""
    groups: dict[str, list[dict[str, float]]] = defaultdict(list)
    for file in sorted(paths[0].rglob("*.json")):
        print_progress(f"wfinstances: {file.stem}")
        groups[file.parent.name].append(_measure(file))
    everything = sorted(
        (row for group in groups.values() for row in group), key=lambda row: row["tasks"] + row["edges"]
    )
    tenth = len(everything) // 10
    groups |= {"all": everything, "smallest tenth": everything[:tenth], "largest tenth": everything[-tenth:]}
    table = Table("recorded workflows, walked with the times of their tasks", COLUMNS, note=NOTE)
    for name, group in groups.items():
        tasks = sorted(int(row["tasks"]) for row in group)
        most, equal = int(max(row["edges"] for row in group)), int(sum(row["equal"] for row in group))
        waves, cpu = max(row["waves"] for row in group), median([row["cpu"] for row in group])
        table.rows.append([name, len(group), f"{tasks[0]:,} to {tasks[-1]:,}", most, equal, waves, cpu])
    yield table


class _Values(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) != ("datetime", "timedelta"):
            raise pickle.UnpicklingError(f"{module}.{name} is no value")
        return timedelta


def run_asynchow(paths: Sequence[Path]) -> Iterator[Table]:
    """One table: a row for each file of the data set, with the upper bounds of its times."""
    table = Table("everyday plans", ["", "plans", "steps, at most", "makespan is the shortest time"])
    for name in ("sequential", "parallel", "mixed"):
        file = {"sequential": "seq", "parallel": "para", "mixed": "async"}[name]
        with (paths[0] / "data" / f"{file}_benchmark.pkl").open("rb") as stream:
            data = _Values(stream).load()
        equal = most = 0
        for edges, times, shortest in zip(data["edge_list"], data["timedelta_dic"], data["task_time"], strict=True):
            numbers = {step: number for number, step in enumerate(times)}
            parents = [
                [numbers[a] for a, b in dict.fromkeys(map(tuple, edges)) if b == step and a != "START"]
                for step in times
            ]
            graph = Graph(parents, [times[step][-1].total_seconds() for step in times])
            equal, most = equal + (graph.makespan() == shortest[-1].total_seconds()), max(most, len(parents))
        table.rows.append([name, len(data["titles"]), most, equal])
    yield table
