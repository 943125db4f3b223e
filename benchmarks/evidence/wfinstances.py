"""Recorded executions of scientific workflows, walked as plans with the times that their tasks took.

Each task becomes a Call that reads what its parents write; nothing else orders the Calls. The pure machine walks the
plan, and a Call ends when its recorded time is over. So the makespan is what the graph allows, or the engine waits
needlessly. The wave bound is the time of an engine that starts a level of the graph when the one before has ended.

    python -m benchmarks.evidence wfinstances PATH

PATH: a checkout of github.com/wfcommons/WfInstances; the figures are of commit f085867f, without the 15 files above 4 MiB.
"""

from __future__ import annotations

import gc
import heapq
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from acts.machines.commands import Command, Finish, StartCall
from acts.machines.walk import Walk
from acts.plan.validate import validate_request
from benchmarks.tables import Table, median, print_progress

NOW: Final = "2026-01-01T00:00:00Z"
TASK: Final = {"type": "object", "properties": {"_activity": {"const": "task"}, "_outputPath": {"type": "string"}, "inputs": {"type": "array"}}}
COLUMNS: Final = ["", "workflows", "tasks", "edges, at most", "valid", "makespan = critical path", "wave bound", "µs per task and edge"]
NOTE: Final = (
    "Tasks: of the smallest and of the largest. Wave bound: the median, as a multiple of the critical path. µs: CPU to "
    "validate and walk, the median; of the smallest and of the largest tenth in the last two rows."
)


@dataclass(frozen=True)
class Graph:
    """Tasks by number: ``parents`` and ``seconds``."""

    name: str
    parents: Sequence[Sequence[int]]
    seconds: Sequence[float]

    @property
    def size(self) -> int:
        """Tasks and edges."""
        return len(self.parents) + sum(map(len, self.parents))

    def request(self) -> dict[str, Any]:
        """The plan, in the order in which the tasks are listed, parents first or not."""
        plan = [
            {"_tool": "task", "inputs": [f"†state.t{p}" for p in parents], "_outputPath": f"†state.t{n}"}
            for n, parents in enumerate(self.parents)
        ]
        return {"context": [{"type": "tool", "tool": {"task": TASK}}, {"type": "plan", "plan": plan}]}

    def bounds(self) -> tuple[float, float]:
        """The critical path, and the wave bound, in seconds."""
        ends: dict[int, tuple[float, int]] = {}
        waves: dict[int, float] = defaultdict(float)
        todo = list(range(len(self.parents)))
        while todo:
            missing = [p for p in self.parents[todo[-1]] if p not in ends]
            if missing:
                todo += missing
                continue
            n = todo.pop()
            start = max((ends[p][0] for p in self.parents[n]), default=0.0)
            depth = 1 + max((ends[p][1] for p in self.parents[n]), default=0)
            ends[n] = start + self.seconds[n], depth
            waves[depth] = max(waves[depth], self.seconds[n])
        return max(end for end, _ in ends.values()), sum(waves.values())


def makespan(graph: Graph) -> tuple[float, float]:
    """The simulated seconds until the plan has completed, and the CPU seconds to validate and walk it."""
    request = json.loads(json.dumps(graph.request()))
    gc.collect()
    start = time.process_time()
    walk = Walk(validate_request(request), lambda node: node.id, may_start=lambda _: True)
    now, running = 0.0, list[tuple[float, int, str]]()
    commands: list[Command] = walk.begin(NOW)
    while not any(isinstance(command, Finish) for command in commands):
        for command in commands:
            if isinstance(command, StartCall):
                index = command.node.index
                heapq.heappush(running, (now + graph.seconds[index], index, command.node.key))
        now, index, key = heapq.heappop(running)
        commands = walk.completed(key, index, NOW)
    (finish,) = [command for command in commands if isinstance(command, Finish)]
    if finish.status != "completed":
        raise RuntimeError(f"{graph.name}: {finish.status}")
    return now, time.process_time() - start


def read_graph(file: Path) -> Graph | None:
    """The graph of a file; None: it has no recorded execution."""
    workflow = json.loads(file.read_text("utf-8")).get("workflow") or {}
    tasks, ran = workflow.get("specification", {}).get("tasks"), workflow.get("execution", {}).get("tasks")
    if not tasks or not ran:
        return None
    numbers = {task["id"]: n for n, task in enumerate(tasks)}
    seconds: Mapping[str, float] = {task["id"]: task["runtimeInSeconds"] for task in ran}
    parents = [list(dict.fromkeys(numbers[p] for p in task["parents"])) for task in tasks]
    return Graph(file.stem, parents, [seconds[task["id"]] for task in tasks])


def run(paths: Sequence[Path], _rounds: int | None = None) -> Iterator[Table]:
    """One table: a row for each application, then all."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in sorted(paths[0].rglob("*.json")):
        graph = read_graph(file)
        if graph is not None:
            rows[file.parent.name if file.parent.parent.name != paths[0].name else file.parent.name].append(_measure(graph))
            print_progress(f"wfinstances: {graph.name}, {len(graph.parents)} tasks")
    table = Table("recorded workflows, walked with the times of their tasks", COLUMNS, note=NOTE)
    everything = sorted((row for group in rows.values() for row in group), key=lambda row: row["size"])
    tenth = max(1, len(everything) // 10)
    groups = {**rows, "all": everything, "the smallest tenth": everything[:tenth], "the largest tenth": everything[-tenth:]}
    for name, group in groups.items():
        sizes = sorted(row["tasks"] for row in group)
        table.rows.append(
            [
                name, len(group), f"{sizes[0]:,}–{sizes[-1]:,}", max(row["size"] - row["tasks"] for row in group),
                len(group), sum(row["makespan"] == row["critical"] for row in group),
                median([row["waves"] / row["critical"] for row in group]), median([row["cpu"] / row["size"] * 1e6 for row in group]),
            ]
        )  # fmt: skip
    yield table


def _measure(graph: Graph) -> dict[str, Any]:
    critical, waves = graph.bounds()
    seconds, cpu = makespan(graph)
    return {"tasks": len(graph.parents), "size": graph.size, "critical": critical, "waves": waves, "makespan": seconds, "cpu": cpu}
