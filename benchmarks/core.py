"""The pure core: validating plans, walking them, and writing and reading the context log. No server.

The cost must be linear: ten times the calls take ten times as long. Figures are CPU seconds of
this process, the minimum of the rounds; caches are cleared before each.

    python -m benchmarks core
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from acts.language import references, schemas
from acts.language.errors import CallError
from acts.language.references import Path
from acts.machines.commands import Finish, StartCall
from acts.machines.walk import Walk
from acts.plan.context_log import END, Log
from acts.plan.validate import ValidatedPlan, validate_request
from benchmarks import shapes
from benchmarks.activities import TOOLS
from benchmarks.tables import Cell, Table, print_progress, ratio, run_program

SIZES: Final = (1_000, 10_000, 15_000)
ROUNDS: Final = 3
# A slower case is not linear, and its next size would take minutes
MAX_SECONDS: Final = 10.0
NOW: Final = "2026-01-01T00:00:00.000Z"
COLUMNS: Final = ["", *[f"{n // 1000}k, s" for n in SIZES], "10k, µs per call", "10k / 1k"]
RESULT: Final = {"depth": 1, "text": "0123456789abcdef"}

Json = dict[str, Any]


def run(rounds: int | None = None) -> Iterator[Table]:
    """Three tables: validate, walk, log."""
    rounds = rounds or ROUNDS
    note = "From parsed JSON to a plan that can be walked. Target: 10,000 calls in less than 2 s, and linear."
    yield _table("validate and build (acts.plan.validate.validate_request)", rounds, VALIDATIONS, note)
    note = "From the first command to the end of the plan; parameters are resolved and checked, and so are results."
    yield _table("walk (acts.machines.walk.Walk), every call completing at once", rounds, WALKS, note)
    yield _table(
        "log (acts.plan.context_log.Log): n writes, then n reads", rounds, LOGS, "Per call: one write and one read."
    )


def _table(title: str, rounds: int, cases: dict[str, Callable[[int], float]], note: str) -> Table:
    table = Table(title, COLUMNS, note=note)
    for name, measure in cases.items():
        print_progress(f"core: {title.split(' (', maxsplit=1)[0]}, {name}")
        seconds: dict[int, float | None] = {}
        for size in SIZES:
            too_slow = any(value is None or value > MAX_SECONDS for value in seconds.values())
            seconds[size] = None if too_slow else _best(measure, size, rounds)
        small, large, _ = SIZES
        per_call = ratio(seconds[large], large / 1e6)
        row: list[Cell] = [name, *seconds.values(), per_call, ratio(seconds[large], seconds[small])]
        table.rows.append(row)
        table.raw.append({"case": name, "seconds": seconds})
    return table


def _best(measure: Callable[[int], float], size: int, rounds: int) -> float:
    best = measure(size)
    for _ in range(rounds - 1):
        if best <= MAX_SECONDS:
            best = min(best, measure(size))
    return best


# -- plans -----------------------------------------------------------------------


def _writers_and_readers(calls: int, own: Json, inputs: str) -> Json:
    """Half of the calls write, then the other half reads everything."""
    half = calls // 2
    plan = [{"_tool": "step", "inputs": [], **own, "_outputPath": own["_outputPath"].format(i)} for i in range(half)]
    plan += [{"_tool": "step", "inputs": inputs, "_outputPath": f"†read.c{i}"} for i in range(calls - half)]
    return _request(plan)


def _request(plan: list[Json]) -> Json:
    tool = json.loads(json.dumps(TOOLS["step"]))
    tool["properties"]["_outputMethod"] = {"enum": ["set", "push"]}
    return {"context": [{"type": "tool", "tool": {"step": tool}}, {"type": "plan", "plan": plan}]}


def _half_write_half_read(calls: int) -> Json:
    return _writers_and_readers(calls, {"_outputPath": "†state.c{}"}, "†state")


def _half_push_half_read(calls: int) -> Json:
    return _writers_and_readers(calls, {"_outputPath": "†state.list", "_outputMethod": "push"}, "†state.list")


def _half_push_read_one(calls: int) -> Json:
    """Half of the calls push to one list, then each of the others reads one element."""
    request = _half_push_half_read(calls)
    for i, call in enumerate(request["context"][-1]["plan"][calls // 2 :]):
        call["inputs"] = [f"†state.list[{i % (calls // 2)}]"]
    return request


def _each_reads_everything(calls: int) -> Json:
    """Every call reads the whole state and writes a part of it."""
    plan = [{"_tool": "step", "inputs": "†state", "_outputPath": f"†state.c{i}"} for i in range(calls)]
    request = _request(plan)
    request["context"].insert(0, {"type": "state", "state": {"c": RESULT}})
    return request


def _chain_backwards(calls: int) -> Json:
    """A chain listed in the wrong order: every read is satisfied by a later call."""
    request = _request(shapes.chain(calls).plan())
    request["context"][-1]["plan"].reverse()
    return request


def _chain_of_outcomes(calls: int) -> Json:
    """Every call has two outcomes; the next call reads the one that was written."""
    plan: list[Json] = [{"_tool": "step", "inputs": [], "_outputPath": "†state.c0 || †state.e0"}]
    for i in range(1, calls):
        read = f"†state.c{i - 1} || †state.e{i - 1}"
        plan.append({"_tool": "step", "inputs": [read], "_outputPath": f"†state.c{i} || †state.e{i}"})
    return _request(plan)


def _chain_in_instance(calls: int) -> Json:
    """A chain whose calls all belong to one instance."""
    request = _request(shapes.chain(calls).plan())
    request["context"].insert(0, {"type": "input", "input": {"name": "one"}, "_instance": "one"})
    for call in request["context"][-1]["plan"]:
        call["_instance"] = "one"
    return request


def _template(calls: int) -> Json:
    """A plan of five calls for ``calls / 5`` instances."""
    request = _request(shapes.chain(5).plan())
    instances = [{"type": "input", "input": {"name": f"n{i}"}, "_instance": f"n{i}"} for i in range(calls // 5)]
    request["context"][:0] = instances
    return request


def _answered_latent(calls: int) -> Json:
    """An eager plan of latent calls with their results, each of which reads all before it."""
    tool = {
        "type": "object",
        "properties": {"_outputPath": {"type": "string"}, "_output": {"type": "object"}, "inputs": {}},
    }
    plan = [
        {"_tool": "think", "inputs": "†state", "_outputPath": f"†state.c{i}", "_output": RESULT} for i in range(calls)
    ]
    state = {"type": "state", "state": {"c": RESULT}}
    return {"context": [state, {"type": "tool", "tool": {"think": tool}}, {"type": "plan", "plan": plan}]}


def _from_shape(make: Callable[[int], shapes.Shape]) -> Callable[[int], Json]:
    return lambda calls: _request(make(calls).plan())


PLANS: Final[dict[str, Callable[[int], Json]]] = {
    "chain": _from_shape(shapes.chain),
    "fan-out": _from_shape(lambda n: shapes.fan_out(n - 1)),
    "layered": _from_shape(lambda n: shapes.layered(n, layers=10)),
    "tangled": _from_shape(shapes.tangled),
    "chain, listed backwards": _chain_backwards,
    "chain of two outcomes": _chain_of_outcomes,
    "half write, half read †state": _half_write_half_read,
    "each reads †state, writes a part": _each_reads_everything,
    "half push to a list, half read it": _half_push_half_read,
    "half push to a list, half read one element": _half_push_read_one,
    "answered latent calls, each reads †state": _answered_latent,
    "chain in one instance": _chain_in_instance,
    "5 calls, a fifth as many instances": _template,
}
# Where every call gets all earlier results, n² values are passed: not walked here.
# The run of an instance walks a template.
WALKED: Final = {k: v for k, v in PLANS.items() if v not in (_each_reads_everything, _answered_latent, _template)}


def _clear_caches() -> None:
    """Clear the caches, as in a fresh process: nothing parsed, no schema compiled."""
    references.parse_cached.cache_clear()
    schemas.clear_caches()
    gc.collect()


def _measure_validation(make: Callable[[int], Json]) -> Callable[[int], float]:
    def measure(size: int) -> float:
        request = json.loads(json.dumps(make(size)))
        _clear_caches()
        start = time.process_time()
        plan = validate_request(request)
        seconds = time.process_time() - start
        assert len(plan.nodes) == (5 if make is _template else size)  # noqa: S101 - a figure of another plan has no meaning
        return seconds

    return measure


def _measure_walk(make: Callable[[int], Json], *, failing: bool = False) -> Callable[[int], float]:
    def measure(size: int) -> float:
        plan = validate_request(make(size))
        gc.collect()
        start = time.process_time()
        status = walk_at_once(plan, size // 2 if failing else 0)
        seconds = time.process_time() - start
        assert status == ("failed" if failing else "completed"), status  # noqa: S101 - as above
        return seconds

    return measure


VALIDATIONS: Final = {name: _measure_validation(make) for name, make in PLANS.items()}
WALKS: Final = {
    **{name: _measure_walk(make) for name, make in WALKED.items()},
    "the first half fails, the others read †state": _measure_walk(_half_write_half_read, failing=True),
}


def walk_at_once(prepared: ValidatedPlan, failing: int = 0) -> str:
    """Walk a plan whose calls complete as soon as they start (the first ``failing`` fail); returns its status."""
    walk = Walk(prepared, lambda node: node.id)
    commands = deque(walk.begin(NOW))
    while commands:
        command = commands.popleft()
        if isinstance(command, Finish):
            return command.status
        if isinstance(command, StartCall) and walk.by_key[command.node.key].rank < failing:
            commands.extend(walk.failed(command.node.key, CallError("Broken", "a failure"), NOW))
        elif isinstance(command, StartCall):
            commands.extend(walk.completed(command.node.key, RESULT, NOW))
    return "stuck"


# -- the log ---------------------------------------------------------------------


def _measure_log(
    write: Callable[[int], tuple[Path, str]], read: Callable[[int, int], tuple[Path, int]], *,
    backwards: bool = False, instance: str | None = None,
) -> Callable[[int], float]:  # fmt: skip
    """Writes ``write(i)`` as rank ``i``, then reads ``read(i, n)``."""

    def measure(size: int) -> float:
        log = Log([])
        layer = log.view_of(instance)
        writes = [(rank, *write(rank)) for rank in range(size)]
        reads = [read(rank, size) for rank in range(size)]
        if backwards:
            writes.reverse()
        gc.collect()
        start = time.process_time()
        for rank, path, method in writes:
            assert layer.find_conflict(path, method, rank, rank) is None  # noqa: S101 - the walk checks it too
            layer.write(path, method, rank, rank)
        for path, as_of in reads:
            log.read(path, as_of, instance, settled=True)
        return time.process_time() - start

    return measure


def _part(i: int) -> Path:
    return Path("state", ("parts", f"c{i}"))


def _scattered(i: int, n: int) -> int:
    """The rank of read ``i``: every rank once, in random order."""
    return _order(n)[i]


_ORDERS: dict[int, list[int]] = {}


def _order(n: int) -> list[int]:
    if n not in _ORDERS:
        _ORDERS[n] = random.Random(1).sample(range(n), n)  # noqa: S311 - the same in every run
    return _ORDERS[n]


_LIST: Final = Path("state", ("list",))
_DEEP: Final = tuple("abcdefgh")

LOGS: Final[dict[str, Callable[[int], float]]] = {
    "own paths, read one by one": _measure_log(lambda i: (_part(i), "set"), lambda i, n: (_part(i), n)),
    "own paths, arriving backwards": _measure_log(
        lambda i: (_part(i), "set"), lambda i, n: (_part(i), n), backwards=True
    ),
    "own paths, the whole read at the end": _measure_log(lambda i: (_part(i), "set"), lambda _, n: (Path("state"), n)),
    "one path, read as of each write": _measure_log(lambda _: (_LIST, "set"), lambda i, _: (_LIST, i + 1)),
    "one path, read as of scattered writes": _measure_log(
        lambda _: (_LIST, "set"), lambda i, n: (_LIST, _scattered(i, n))
    ),
    "push to a list, the list read at the end": _measure_log(lambda _: (_LIST, "push"), lambda _, n: (_LIST, n)),
    "push to a list, arriving backwards": _measure_log(
        lambda _: (_LIST, "push"), lambda _, n: (_LIST, n), backwards=True
    ),
    "push to a list, one element read": _measure_log(
        lambda _: (_LIST, "push"), lambda i, n: (Path("state", ("list", str(i))), n)
    ),
    "own paths in an instance": _measure_log(lambda i: (_part(i), "set"), lambda i, n: (_part(i), n), instance="one"),
    "own paths in an instance, the whole read at the end": _measure_log(
        lambda i: (_part(i), "set"), lambda _, n: (Path("state"), n), instance="one"
    ),
    "eight names deep": _measure_log(
        lambda i: (Path("state", (*_DEEP, f"c{i}")), "set"), lambda i, n: (Path("state", (*_DEEP, f"c{i}")), n)
    ),
    "reads of a path without writes": _measure_log(
        lambda i: (_part(i), "set"), lambda i, _: (Path("state", ("other", f"c{i}")), END)
    ),
}


if __name__ == "__main__":
    run_program("core", run)
