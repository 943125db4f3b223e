"""What a person is shown of a plan before it runs: each Call, and what is to be expected. Markdown.

It is the simulation in words. Of a plan too large to be walked in every combination within
the moment that a page may take, the Calls are listed and the rest is left to ``acts simulate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.report import MAX_ROWS, plain
from acts.simulate import simulate_prepared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from acts.validate import Prepared

# 64 combinations of so many Calls take about a second, and a workflow task has ten
MAX_CALLS: Final = 150


def page(prepared: Prepared) -> str:
    """The plan as a table, with its forecast."""
    if len(prepared.nodes) > MAX_CALLS:
        return f"\n\n### The plan\n\n{len(prepared.nodes)} calls: `acts simulate` shows what they would do"
    found = simulate_prepared(prepared)
    head = ["| call | runs | reads | writes | asks |", "|-|-|-|-|-|"]
    lines = ["", "", "### The plan", "", _forecast(found), "", *head]
    lines += [_row(call) for call in found["calls"][:MAX_ROWS]]
    problems = found["problems"][:MAX_ROWS]
    if problems:
        lines += ["", *(f"- {plain(str(p.get('call', '')))} {plain(p['message'], 300)}" for p in problems)]
    return "\n".join(lines)


def _forecast(found: Mapping[str, Any]) -> str:
    calls, waves = len(found["calls"]), len(found["waves"])
    combinations = len(found["outcomes"]["combinations"])
    more = " or more" if found["outcomes"]["truncated"] else ""
    requests, events, cost = _range(found["requests"]), _range(found["events"]), found["cost"]
    out = [f"{calls} calls in {waves} waves, {combinations}{more} combinations of outcomes"]
    out.append(f"requests to a model: {requests}; events in the history: about {events}")
    if cost and cost["max"]:
        out.append(f"cost: about {_range(cost)} US dollars")
    return " — ".join(out)


def _range(found: Mapping[str, Any]) -> str:
    low, high = found["min"], found["max"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _row(call: Mapping[str, Any]) -> str:
    how = call.get("activity") or call.get("delegate") or call["how"]
    if call.get("given"):
        how = "answered already"
    if call["background"]:
        how = f"{how} (not waited for)"
    reads = ", ".join((*call["reads"], *(f"scope {s}" for s in call["scopes"])))
    asks = "yes" if call["approval"] else ""
    cells = (call["id"], how, reads, ", ".join(call["writes"]), asks)
    return "| " + " | ".join(plain(str(c)) for c in cells) + " |"
