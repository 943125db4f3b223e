"""What a run was expected to come to, beside what it came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

FIGURES: Final = ("calls", "requests", "tokens", "cost", "events", "bytes")
# … and about as many bytes are their ranges
RANGES_BYTES: Final = 250
# The states of Calls that count as made
_MADE: Final = ("completed", "detached", "failed", "running")


def expected_ranges(simulation: Mapping[str, Any]) -> dict[str, Any]:
    """What ``simulate`` expects of a run: ``{calls, requests, tokens, cost, events, bytes: {min, max} | None}``.

    None is what it does not foresee, as what delegates spend.
    """
    started = []
    for found in simulation["outcomes"]["combinations"]:
        sure = len(found["run"]) + len(found.get("failed", ()))
        started += [sure, sure + len(found.get("waiting", ()))]  # of what waits, all may come to run
    calls = {"min": min(started, default=0), "max": max(started, default=0)}
    if simulation["outcomes"]["truncated"]:
        calls = {"min": 0, "max": len(simulation["calls"])}
    times = simulation.get("instances", 1)
    expected = {**simulation, "calls": {k: n * times for k, n in calls.items()}}
    return {name: None if name in simulation["unforeseen"] else expected.get(name) for name in FIGURES}


def compare(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, Any]:
    """Side by side: ``{calls, requests, …: {expected: {min, max} | None, actual}}``.

    ``expected`` are ``ranges``; ``actual`` are a run's figures by the same names. What is not known is None.
    """
    return {name: {"expected": expected.get(name), "actual": actual.get(name)} for name in FIGURES}


def actual_figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a run came to, as far as the result of a plan tells it."""
    usage = result.get("usage") or {}
    return {
        "calls": _made(result),
        "requests": usage.get("requests"),
        "tokens": usage.get("inputTokens", 0) + usage.get("outputTokens", 0),
        "cost": usage.get("cost"),
    }


def _made(result: Mapping[str, Any]) -> int | None:
    """How many Calls were made, those of instances among them; None where the result had no room for them."""
    parts = [result, *(result.get("instances") or {}).values()]
    listed = [part.get("calls") if isinstance(part, dict) else None for part in parts]
    if "omitted" in result or not all(isinstance(calls, list) for calls in listed):
        return None
    return sum(call.get("state") in _MADE for calls in listed for call in calls or ())


def compare_known(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in a result: each figure that the forecast names, beside what came of it."""
    table = compare(expected, actual)
    return {name: row for name, row in table.items() if None not in row.values()}


def sum_tables(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two plans of one agent together: the figures that are known of both."""
    out = {}
    for name in (n for n in FIGURES if n in one and n in other):
        a, b = one[name], other[name]
        span = {k: round(a["expected"][k] + b["expected"][k], 6) for k in ("min", "max")}
        out[name] = {"expected": span, "actual": round(a["actual"] + b["actual"], 9)}
    return out


def relative_error(row: Mapping[str, Any]) -> float | None:
    """How far an actual figure lies outside of what was expected, as a part of it: 0.25 above, -0.25 below."""
    expected, actual = row["expected"], row["actual"]
    if expected is None or actual is None or expected["min"] <= actual <= expected["max"]:
        return None if expected is None or actual is None else 0.0
    bound = expected["max"] if actual > expected["max"] else expected["min"]
    return (actual - bound) / actual if actual else float("-inf")
