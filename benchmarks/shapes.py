"""The measured graphs: as plain data, as a plan, and with their expected result.

Every call is a ``bench.step``: it returns its depth in the graph and a short text, about 40 bytes
of JSON. The depth at the end shows that each call read the right data, so that no fast wrong
result is measured.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

STEP = "step"
"""The Tool that the worker registers (``benchmarks.activities``)."""


@dataclass(frozen=True)
class Shape:
    """Call ``i`` reads the results of ``reads[i]``; ``seconds[i]`` is how long it takes.

    With ``joined``, the last call reads all the others as one object instead of one by one.
    """

    name: str
    reads: tuple[tuple[int, ...], ...]
    seconds: tuple[float, ...] = ()
    joined: bool = False

    @property
    def calls(self) -> int:
        return len(self.reads)

    def depths(self) -> list[int]:
        """The number of calls on the longest path to each call, itself included."""
        out: list[int] = []
        for reads in self.reads:
            out.append(1 + max((out[r] for r in reads), default=0))
        return out

    def critical_path(self) -> float:
        """Seconds of the slowest path through the graph: no order of starts can end sooner."""
        ends: list[float] = []
        for reads, own in zip(self.reads, self.seconds, strict=True):
            ends.append(own + max((ends[r] for r in reads), default=0.0))
        return max(ends)

    def wave_bound(self) -> float:
        """Seconds of a walk that waits for the slowest call of a wave before it starts the next one."""
        slowest: dict[int, float] = {}
        for depth, own in zip(self.depths(), self.seconds, strict=True):
            slowest[depth] = max(slowest.get(depth, 0.0), own)
        return sum(slowest.values())

    def plan(self, tool: str = STEP) -> list[dict[str, Any]]:
        """The calls, as a planner writes them."""
        return [self._call(i, reads, tool) for i, reads in enumerate(self.reads)]

    def _call(self, index: int, reads: tuple[int, ...], tool: str) -> dict[str, Any]:
        last = self.joined and index == self.calls - 1
        call: dict[str, Any] = {
            "_tool": tool,
            "inputs": "†state.parts" if last else [f"†state.parts.c{r}" for r in reads],
            "_outputPath": "†state.last" if last else f"†state.parts.c{index}",
        }
        return {**call, "seconds": self.seconds[index]} if self.seconds else call

    def request(self, tool: str = STEP, **config: Any) -> dict[str, Any]:
        """A Request with the plan; the worker registers the Tool."""
        context = [{"type": "tool", "tool": tool}, {"type": "plan", "plan": self.plan(tool)}]
        return {"config": config, "context": context}


def chain(calls: int) -> Shape:
    """Each call reads the previous one."""
    return Shape(f"chain-{calls}", ((), *[(i,) for i in range(calls - 1)]))


def fan_out(calls: int) -> Shape:
    """Parallel calls, and one that reads them all."""
    return Shape(f"fan-out-{calls}", (*[()] * calls, tuple(range(calls))), joined=True)


def layered(calls: int, layers: int = 5, seed: int = 1) -> Shape:
    """Layers of equal size; each call reads one to three calls of the previous layer."""
    chance = random.Random(seed)  # noqa: S311 - the same graph in every run, no secret
    edges = [round(calls * i / layers) for i in range(layers + 1)]
    reads: list[tuple[int, ...]] = [()] * edges[1]
    for (low, high), (_, end) in pairwise(pairwise(edges)):
        before = range(low, high)
        reads += [
            tuple(sorted(chance.sample(before, min(len(before), chance.randint(1, 3))))) for _ in range(high, end)
        ]
    return Shape(f"layered-{calls}", tuple(reads))


def tangled(calls: int, near: int = 40, seed: int = 1) -> Shape:
    """No layers: each call reads up to three of the ``near`` calls before it."""
    chance = random.Random(seed)  # noqa: S311 - as above
    reads = [
        tuple(sorted(chance.sample(range(max(0, i - near), i), min(i, chance.randint(0, 3))))) for i in range(calls)
    ]
    return Shape(f"tangled-{calls}", tuple(reads))


def with_latencies(shape: Shape, mean: float = 0.1, sigma: float = 1.0, seed: int = 1) -> Shape:
    """The same with a lognormal latency per call: most are short, a few are long, as with real services."""
    chance = random.Random(seed)  # noqa: S311 - as above
    seconds = tuple(chance.lognormvariate(_mu(mean, sigma), sigma) for _ in shape.reads)
    return Shape(shape.name, shape.reads, seconds, shape.joined)


def _mu(mean: float, sigma: float) -> float:
    import math

    return math.log(mean) - sigma * sigma / 2
