"""What logs, metrics and traces cost: a fan-out of 500, with each of them and without.

In each round every variant runs once, directly before or after a run without. Traces go to a collector in this
process, which reads and drops them.

    python -m benchmarks observation
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from benchmarks import live, shapes
from benchmarks.live import Bench, Cost, Process
from benchmarks.tables import Table, median, percentile_25, print_progress, ratio, run_program

ROUNDS: Final = 7
SHAPE: Final = shapes.fan_out(500)
NOTE: Final = (
    "Multiples of a worker with neither (above 1: slower): medians and 25th percentiles of the rounds' ratios."
)


class _Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


@contextmanager
def _collector() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run(rounds: int | None = None) -> Iterator[Table]:
    """One table."""
    measured = live.on_server(lambda bench: _measure(bench, rounds or ROUNDS))
    columns = ["", "wall, ms", "wall", "wall, p25", "worker CPU", "worker CPU, p25"]
    table = Table(SHAPE.name, columns, note=NOTE)
    for name, pairs in measured.items():
        wall = median([cost.wall for cost, _ in pairs])
        walls = [ratio(cost.wall, base.wall) for cost, base in pairs]
        cpu = [ratio(cost.worker_cpu, base.worker_cpu) for cost, base in pairs]
        table.rows.append([
            name, None if wall is None else wall * 1000, median(walls), percentile_25(walls), median(cpu),
            percentile_25(cpu),
        ])  # fmt: skip
        table.raw.append({"case": name, "rounds": [[asdict(cost), asdict(base)] for cost, base in pairs]})
    yield table


async def _measure(bench: Bench, rounds: int) -> dict[str, list[tuple[Cost, Cost]]]:
    with ExitStack() as stack:

        def start(**environment: str) -> Process:
            return stack.enter_context(live.worker(bench.server.address, **environment))

        collector = stack.enter_context(_collector())
        plain = start()
        variants = {
            "neither, twice": plain,
            "metrics": start(ACTS_METRICS=f"127.0.0.1:{_free_port()}"),
            "traces": start(OTEL_EXPORTER_OTLP_ENDPOINT=collector),
            "metrics and traces": start(
                ACTS_METRICS=f"127.0.0.1:{_free_port()}", OTEL_EXPORTER_OTLP_ENDPOINT=collector
            ),
        }
        out: dict[str, list[tuple[Cost, Cost]]] = {name: [] for name in variants}
        for round_ in range(-1, rounds):  # the first one warms up and does not count
            print_progress(f"observation: round {round_ + 1} of {rounds}")
            for name, process in variants.items():
                order = (process, plain) if round_ % 2 else (plain, process)
                first, second = [await bench.run_engine(worker, SHAPE) for worker in order]
                if round_ >= 0:
                    out[name].append((first, second) if round_ % 2 else (second, first))
    return out


if __name__ == "__main__":
    run_program("observation", run)
