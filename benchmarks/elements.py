"""A call for each of 1,000 elements (``_each``), and one that reads their results, beside a hand-written fan-out.

The hand-written workflow is passed the same list, and schedules all activities in one workflow task. The engine runs
with the default ``maxParallel``, and with one as wide as the list. Each round runs each once, in alternating order.

    python -m benchmarks elements
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from acts.language.wire import PLAN
from benchmarks import live, shapes
from benchmarks.live import Bench, Cost
from benchmarks.tables import Table, print_progress, run_program
from benchmarks.walk import Pair, table

ROUNDS: Final = 3
COUNT: Final = 1000
WARM_UP_COUNT: Final = 50
# ``maxParallel`` by the name of a row
SETTINGS: Final[dict[str, dict[str, Any]]] = {"each": {}, "each, all at once": {"maxParallel": COUNT}}
NOTE: Final = "Engine / hand-written: medians and 25th percentiles of the rounds' ratios. Target: wall at most 1.2."


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table of ratios."""
    pairs = live.on_server(lambda bench: measure(bench, rounds or ROUNDS))
    yield table(f"a call for each of {COUNT:,} elements, and a hand-written fan-out", pairs, NOTE)


async def measure(bench: Bench, rounds: int, count: int = COUNT) -> dict[str, list[Pair]]:
    """The cost of each round on either side, by settings of the engine."""
    out: dict[str, list[Pair]] = {name: [] for name in SETTINGS}
    address = bench.server.address
    with live.worker(address) as engine, live.worker(address, live.HANDWRITTEN) as handwritten:
        for round_ in range(-1, rounds):  # the first one warms up, with a short list, and does not count
            print_progress(f"elements: round {round_ + 1} of {rounds}")
            items = [{"depth": depth} for depth in range(count if round_ >= 0 else WARM_UP_COUNT)]
            costs: dict[str, Cost] = {}
            sides = [*SETTINGS, "handwritten"]
            for side in sides if round_ % 2 else reversed(sides):
                costs[side] = await (
                    _run_handwritten(bench, handwritten, items)
                    if side == "handwritten"
                    else _run_engine(bench, engine, items, SETTINGS[side])
                )
            for name in SETTINGS if round_ >= 0 else ():
                out[name].append({"engine": costs[name], "handwritten": costs["handwritten"]})
    return out


async def _run_engine(bench: Bench, process: live.Process, items: list[Any], config: dict[str, Any]) -> Cost:
    plan = [
        {"_tool": shapes.STEP, "_each": "†state.items", "inputs": ["†item"], "_outputPath": "†state.parts"},
        {"_tool": shapes.STEP, "inputs": "†state.parts", "_outputPath": "†state.last"},
    ]
    context = [
        {"type": "tool", "tool": shapes.STEP}, {"type": "state", "state": {"items": items}},
        {"type": "plan", "plan": plan},
    ]  # fmt: skip
    cost, result = await bench.run(PLAN, process, {"config": config, "context": context})
    if result["status"] != "completed":
        raise RuntimeError(f"elements: {result}")
    _require_depth(items, result["state"]["last"]["depth"])
    return cost


async def _run_handwritten(bench: Bench, process: live.Process, items: list[Any]) -> Cost:
    cost, result = await bench.run("Elements", process, {"items": items})
    _require_depth(items, result["depth"])
    return cost


def _require_depth(items: list[Any], depth: int) -> None:
    """Each element adds one to the depth of its item, and the last call one to the deepest."""
    expected = max(item["depth"] for item in items) + 2
    if depth != expected:
        raise RuntimeError(f"the depth is {depth}, not {expected}: a call read the wrong data")


if __name__ == "__main__":
    run_program("elements", run)
