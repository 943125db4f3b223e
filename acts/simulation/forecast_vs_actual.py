"""The forecast of a run beside its actual figures: ``{figure: {expected: {min, max} | null, actual}}``."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import APPROVE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIGURES: Final = ("calls", "requests", "tokens", "cost", "actions", "seconds")
_STARTED: Final = ("completed", "detached", "failed", "running")


def expected_ranges(simulation: Mapping[str, Any]) -> dict[str, Any]:
    """The forecast in what ``simulate`` returns: a range ``{min, max}`` for each of ``FIGURES``, or None.

    None is a figure that cannot be foreseen, like what delegates spend.
    """
    started = []
    for combination in simulation["outcomes"]["combinations"]:
        certain = len(combination["run"]) + len(combination.get("failed", ()))
        started += [certain, certain + len(combination.get("waiting", ()))]  # all that waits may run
    calls = {"min": min(started, default=0), "max": max(started, default=0)}
    if simulation["outcomes"]["truncated"]:
        calls = {"min": 0, "max": len(simulation["calls"])}
    times = simulation.get("instances", 1)
    figures = {**simulation, "calls": {k: n * times for k, n in calls.items()}}
    return {name: None if name in simulation["unforeseen"] else figures.get(name) for name in FIGURES}


def compare(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, Any]:
    """Both side by side, None for what is not known. ``expected`` are ranges, ``actual`` figures by the same names.

    The time is left out where no duration is known: it is for most plans.
    """
    names = [name for name in FIGURES if name != "seconds" or expected.get(name) is not None]
    return {name: {"expected": expected.get(name), "actual": actual.get(name)} for name in names}


def compare_known(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, Any]:
    """``compare`` without the figures of which one side is not known, as results have it."""
    table = compare(expected, actual)
    return {name: row for name, row in table.items() if None not in row.values()}


def actual_figures(
    result: Mapping[str, Any], actions: int | None = None, seconds: float | None = None
) -> dict[str, Any]:
    """The figures of a run, from the result of its plan, the count of its billable actions, and its wall time."""
    usage = result.get("usage") or {}
    return {
        "calls": _started_calls(result),
        "requests": usage.get("requests"),
        "tokens": usage.get("inputTokens", 0) + usage.get("outputTokens", 0),
        "cost": usage.get("cost"),
        "actions": actions,
        **({} if seconds is None else {"seconds": seconds}),
    }


def seconds_since_approval(decisions: Sequence[Mapping[str, Any]], now: str) -> float | None:
    """From the approval of a plan until ``now``, an ISO date; None without one. What waited then is in it."""
    dates = [d["date"] for d in decisions if d.get("what") == "plan" and d.get("decision") == APPROVE]
    if not dates or not now:
        return None
    return round((datetime.fromisoformat(now) - datetime.fromisoformat(dates[-1])).total_seconds(), 3)


def _started_calls(result: Mapping[str, Any]) -> int | None:
    """How many Calls were started, in instances too; None when the result was too large to list them."""
    parts = [result, *(result.get("instances") or {}).values()]
    listed = [part.get("calls") if isinstance(part, dict) else None for part in parts]
    if "omitted" in result or not all(isinstance(calls, list) for calls in listed):
        return None
    return sum(call.get("state") in _STARTED for calls in listed for call in calls or ())


def sum_tables(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of two plans of one agent, added up where both have a figure."""
    out = {}
    for name in (n for n in FIGURES if n in one and n in other):
        a, b = one[name], other[name]
        expected = {k: round(a["expected"][k] + b["expected"][k], 6) for k in ("min", "max")}
        out[name] = {"expected": expected, "actual": round(a["actual"] + b["actual"], 9)}
    return out
