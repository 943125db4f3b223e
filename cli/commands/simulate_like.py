"""``acts simulate --like ID``: a simulation with the durations that calls had in earlier runs."""

from __future__ import annotations

from collections.abc import Sequence

from acts.simulation.time_forecast import span_of
from cli.commands import offline
from cli.console import print_err
from cli.runs import server
from cli.runs.call_durations import read_durations


async def simulate(file: str, inputs: Sequence[str], runs: Sequence[str], *, as_json: bool) -> int:
    """Print what the plan would do, and how long that would take.

    Raises:
        CommandError: there is no such run, or the Request is invalid.
    """
    samples: dict[str, list[float]] = {}
    client = await server.connect()
    for run in runs:
        for tool, seconds in (await read_durations(client, run)).items():
            samples.setdefault(tool, []).extend(seconds)
    durations = {tool: span_of(seconds) for tool, seconds in samples.items()}
    if not durations:
        print_err(f"no call of {', '.join(runs)} has ended as an activity or a delegate: nothing is learned of times")
    elif not as_json:
        for tool, (low, high) in durations.items():
            count = len(samples[tool])
            print_err(f"{tool}: {low:,.3g} to {high:,.3g} s (10 % to 90 % of {count:,})", "dim")
    return offline.simulate(file, inputs, as_json=as_json, durations=durations)
