"""The fuzzer: hostile and heavy inputs against everything that reads what comes from outside.

    python -m tests.fuzz --seconds 60 --seed 1        # as many cases as fit
    python -m tests.fuzz --cases 10000 --seed 1
    python -m tests.fuzz --case 123456                # one case again, with a profile

Each case runs in a process of its own, with a limit of CPU and of memory. A step is what one workflow task or one
activity would do. It must end within 2.5 s of CPU (on the machine of the reference figure; slower ones get more), its
process must stay below 500 MB, and it may raise the project's own errors only.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pickle
import pstats
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acts.language import references, schemas
from acts.worker.serve import freeze_imports
from tests.fuzz import tasks
from tests.fuzz.hostile_json import Source

MAX_STEP_SECONDS = 2.5
MAX_BYTES = 500 * 1000 * 1000
# CPU seconds and address space after which a case is killed
KILL_SECONDS = 40
KILL_BYTES = 3 * 1000 * 1000 * 1000
# Seconds of the loop in ``measure_machine`` on the machine for which MAX_STEP_SECONDS holds
REFERENCE_SECONDS = 0.10
LOOPS = 5  # their mean: a neighbour slows a long step as it slows this
RETRIES = 4
SHOWN = 15
# Of the cases, those that may use all bytes of a payload; the others are of all orders of magnitude
FULL_SHARE = 0.4


@dataclass
class Report:
    """What one case came to."""

    case: int
    name: str = ""
    size: int = 0
    steps: list[tuple[str, float]] = field(default_factory=list)
    peak_bytes: int = 0
    fault: str | None = None
    end: str = "done"
    greed: float = 0.0

    @property
    def slowest(self) -> tuple[str, float]:
        return max(self.steps, key=lambda step: step[1], default=("", 0.0))


def make_case(number: int) -> tuple[str, Source, Iterator[tasks.Step]]:
    """The case of a number: its kind, its source of choices, and its steps."""
    choice = random.Random(number)
    kind = choice.choice(tasks.CASES)
    size = tasks.MAX_BYTES if choice.random() < FULL_SHARE else int(200 * (tasks.MAX_BYTES / 200) ** choice.random())
    source = Source(number, size)
    return kind.__name__, source, kind(source)


def run_case(number: int, report: Report, profile: cProfile.Profile | None = None) -> None:
    report.name, source, steps = make_case(number)
    report.size = source.left
    report.greed = source.greed
    while True:
        try:
            label, step = next(steps)
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - making an input is no part of what is tested
            report.end = f"no further input: {type(error).__name__}"
            return
        schemas.clear_caches()
        references.parse_cached.cache_clear()  # the input may have been made with what is now timed
        forget_peak()
        start = time.process_time()
        try:
            if profile is not None:
                profile.enable()
            step()
        except Exception as error:  # noqa: BLE001 - any error is looked at
            report.end = f"{label}: {type(error).__name__}"
            if not tasks.is_expected(error):
                report.fault = f"{label}: {traceback.format_exc()[-2500:]}"
                return
            if label in ("first task", "schema", "definition", "text"):
                return
        finally:
            if profile is not None:
                profile.disable()
            report.steps.append((label, time.process_time() - start))
            report.peak_bytes = max(report.peak_bytes, read_peak())


def forget_peak() -> None:
    """Begin to measure the peak of this process's memory anew: what making an input took does not count."""
    with suppress(OSError), Path("/proc/self/clear_refs").open("w", encoding="ascii") as file:
        file.write("5")


def read_peak() -> int:
    """The most bytes that this process has had since ``forget_peak``; since its start where the system has no such."""
    with suppress(OSError), Path("/proc/self/status").open(encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run_isolated(number: int) -> Report:
    """Run a case in a child process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_the_child(number, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    report: Report = pickle.loads(data) if data else Report(number)  # noqa: S301 - our own child wrote it
    if not data:
        ended = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
        report.name, _, _ = make_case(number)
        report.fault = f"the process died: {ended}"
    return report


def _be_the_child(number: int, writing: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (KILL_SECONDS, KILL_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (KILL_BYTES, KILL_BYTES))
    report = Report(number)
    code = 0
    try:
        run_case(number, report)
    except BaseException:  # noqa: BLE001 - MemoryError, and what a library in Rust may raise
        report.fault = traceback.format_exc()[-2500:]
        code = 1
    with os.fdopen(writing, "wb") as pipe:
        pickle.dump(report, pipe)
    os._exit(code)


def measure_machine() -> float:
    """How many times slower than the machine of the reference figure this one is now; at least 1."""
    start = time.process_time()
    for _ in range(LOOPS):
        table: dict[str, int] = {}
        for i in range(300_000):
            table[str(i % 1000)] = table.get(str(i), 0) + 1
    return max(1.0, (time.process_time() - start) / LOOPS / REFERENCE_SECONDS)


def judge(report: Report, seconds: float) -> str | None:
    """What a case broke, or None."""
    if report.fault is not None:
        return report.fault
    label, slowest = report.slowest
    if slowest > seconds:
        return f"{label} took {slowest:.2f} s of CPU; at most {seconds:.2f} are allowed"
    if report.peak_bytes > MAX_BYTES:
        return f"its process had {report.peak_bytes / 1e6:.0f} MB; at most {MAX_BYTES / 1e6:.0f} are allowed"
    return None


def run_many(first: int, cases: int, seconds: float) -> int:
    """Run cases until there are enough, or the time is over; returns how many broke a rule."""
    freeze_imports()
    slowness = measure_machine()
    limit = MAX_STEP_SECONDS * slowness
    print(f"seed {first}; steps of at most {limit:.2f} s (this machine: {slowness:.2f} times the reference)")
    reports: list[Report] = []
    broken = 0
    deadline = time.monotonic() + seconds
    for number in range(first, first + cases):
        if time.monotonic() > deadline:
            break
        report = run_isolated(number)
        reports.append(report)
        why = judge(report, limit)
        for _ in range(RETRIES):  # the machine may have been busy
            if why is None or report.fault is not None:
                break
            report = run_isolated(number)
            why = judge(report, limit * max(1.0, measure_machine() / slowness))
        if why is not None:
            broken += 1
            print(f"BROKEN case {number} ({report.name}): {why}", flush=True)
    _print_slowest(reports)
    print(f"{len(reports)} cases, {broken} broken")
    return broken


def _print_slowest(reports: list[Report]) -> None:
    ends = Counter(f"{report.name}: {report.end}" for report in reports)
    print("ends: " + "; ".join(f"{count} {end}" for end, count in ends.most_common(SHOWN)))
    for report in sorted(reports, key=lambda r: -r.slowest[1])[:SHOWN]:
        label, seconds = report.slowest
        print(
            f"  {seconds:6.2f} s  {report.peak_bytes / 1e6:4.0f} MB  {label}: case {report.case} ({report.name}; {report.end})"
        )


def run_one(number: int) -> int:
    """One case in this process, with a profile; for whoever looks for the cause."""
    report, profile = Report(number), cProfile.Profile()
    run_case(number, report)
    run_case(number, Report(number), profile)
    print(f"case {number} ({report.name}): {report.end}")
    for label, seconds in report.steps:
        print(f"  {seconds:6.3f} s  {label}")
    print(f"  {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f} MB")
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    if report.fault:
        print(report.fault)
    return int(report.fault is not None)


def main() -> int:
    """The command; its exit code says whether a case broke a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--cases", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--case", type=int, default=None)
    options: Any = parser.parse_args()
    if options.case is not None:
        return run_one(options.case)
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
    return int(run_many(first, options.cases, options.seconds) > 0)


if __name__ == "__main__":
    sys.exit(main())
