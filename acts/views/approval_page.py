"""What a person is shown of a plan before it runs: each Call, and what is to be expected. Markdown.

It is the simulation in words. Of a plan too large to be walked in every combination within
the moment that a page may take, the Calls are listed and the rest is left to ``acts simulate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.simulation.simulate import simulate_prepared
from acts.views.markdown import MAX_SECTION, code_span, fence, fit_lines, row, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from acts.plan.validate import ValidatedPlan

# 64 combinations of so many Calls take about a second, and a workflow task has ten
MAX_CALLS: Final = 150
# … and a context of so many messages, of a batch mostly, about as long
MAX_MESSAGES: Final = 5_000
# Paths of one cell; a Call may read hundreds
MAX_PATHS: Final = 8
# Characters of what is said about a problem
MAX_MESSAGE: Final = 300


def simulated(prepared: ValidatedPlan, handed: int | None = None) -> dict[str, Any] | None:
    """What the page shows, or None of a plan too large for it; ``handed`` as in ``simulate_prepared``."""
    prepared = prepared.whole or prepared  # the Calls, and not the children that walk them
    if len(prepared.nodes) > MAX_CALLS or len(prepared.request.context) > MAX_MESSAGES:
        return None
    return simulate_prepared(prepared, handed=handed)


def page(prepared: ValidatedPlan, found: Mapping[str, Any] | None = None) -> str:
    """The plan as a table, with its forecast, and the JSON that edits it; ``found`` is what ``simulated`` gave."""
    prepared = prepared.whole or prepared
    found = found or simulated(prepared)
    if found is None:
        return f"\n\n### The plan\n\n{len(prepared.nodes)} calls: `acts simulate` shows what they would do"
    calls, problems = found["calls"], found["problems"]
    parts = [
        "### The plan",
        _forecast(found),
        table(("call", "reads", "writes"), fit_lines(map(_row, calls), len(calls), "ask the query `plan`")),
        "\n".join(fit_lines(map(_problem, problems), len(problems), "see `acts simulate`")),
        _edit(prepared),
    ]
    return "\n\n".join(("", *(part for part in parts if part)))


def _forecast(found: Mapping[str, Any]) -> str:
    calls, waves = len(found["calls"]), len(found["waves"])
    combinations = len(found["outcomes"]["combinations"])
    more = " or more" if found["outcomes"]["truncated"] else ""
    requests, cost = _range(found["requests"]), found["cost"]
    more_events = "events" in found["unforeseen"]
    events = f"{found['events']['min']:,} or more" if more_events else f"about {_range(found['events'])}"
    out = [f"{calls} calls in {waves} waves, {combinations}{more} combinations of outcomes"]
    more = ", and what delegates ask for" if found["delegates"]["max"] else ""
    out.append(f"requests to a model: {requests}{more}; events in the history: {events}")
    if "runs" in found:
        each = f", each with about {_range(found['each']['events'])} events" if "each" in found else ""
        out.append(f"instances: in {found['runs']:,} child workflows{each}")
    if cost and cost["max"]:
        out.append(f"cost: about {_range(cost)} US dollars")
    return " — ".join(out)


def _range(found: Mapping[str, Any]) -> str:
    low, high = found["min"], found["max"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _row(call: Mapping[str, Any]) -> str:
    name = code_span(call["id"]) + (f" [{code_span(call['instance'])}]" if "instance" in call else "")
    reads = (*map(code_span, call["reads"]), *(f"scope\u00a0{code_span(scope)}" for scope in call["scopes"]))
    return row(" ".join((name, *_remarks(call))), _some(reads), _some([code_span(path) for path in call["writes"]]))


def _some(texts: Sequence[str]) -> str:
    more = f", … ({len(texts)} in all)" if len(texts) > MAX_PATHS else ""
    return ", ".join(texts[:MAX_PATHS]) + more


def _remarks(call: Mapping[str, Any]) -> Iterator[str]:
    """What is out of the ordinary about a Call; ``1:pay`` says already that the Activity ``pay`` runs."""
    runs = call.get("activity") or call.get("delegate")
    if call.get("given"):
        yield "(answered already)"
    elif call["how"] == "latent":
        yield "(asks a model)"
    elif runs not in (None, call["tool"]):
        yield f"(runs {code_span(runs)})"
    if call["background"]:
        yield "(not waited for)"
    if call["approval"]:
        yield "(will ask)"


def _problem(problem: Mapping[str, Any]) -> str:
    call = f"{code_span(problem['call'])}: " if "call" in problem else ""
    return f"- {call}{code_span(problem['message'], MAX_MESSAGE)}"


def _edit(prepared: ValidatedPlan) -> str:
    """The plan as it was written, ready to be changed and sent."""
    plan = prepared.request.plan
    text = fence({"decision": "edit", "plan": list(plan.calls) if plan is not None else []})
    if len(text) > MAX_SECTION:
        return "The calls as they were written: ask the query `plan`"
    return f"To change it, send this with your changes; the new version then waits for a decision:\n\n{text}"
