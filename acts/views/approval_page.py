"""The part of a run's page that shows a plan before somebody approves it: its Calls and its forecast. Markdown.

It renders the report of the simulation. A plan too large to simulate within the time of a page is only
counted; ``acts simulate`` has more patience.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import brief
from acts.language.values import ABSENT, Json
from acts.plan.context_log import START
from acts.plan.validate import is_template
from acts.simulation.outcome_exploration import count_steps
from acts.simulation.simulate import simulate_prepared
from acts.views.markdown import MAX_SECTION, code_span, fence, fit_lines, row, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from acts.plan.validate import ValidatedPlan

# A person reads no more than so many Calls, and a run with more is seldom approved on a page
MAX_CALLS: Final = 150
# Looks at Calls, paths and names in all combinations together, 5 to 8 µs each: half a second of a workflow task
MAX_STEPS: Final = 60_000
# … and a context of so many messages, mostly that of a batch, takes about as long
MAX_MESSAGES: Final = 5_000
# Paths of one cell; a Call may read hundreds
MAX_PATHS: Final = 8
# Characters of a value that a Call reads
MAX_VALUE: Final = 60
# Characters of the text of a problem
MAX_MESSAGE: Final = 300


def simulate_for_page(prepared: ValidatedPlan, *, child: bool = False) -> dict[str, Any] | None:
    """The simulation of a plan, or None when it is too large. ``child`` as in ``simulate_prepared``."""
    prepared = prepared.unsplit or prepared  # the Calls, not the children that walk them
    if len(prepared.nodes) > MAX_CALLS or len(prepared.request.context) > MAX_MESSAGES:
        return None
    if count_steps(prepared) > MAX_STEPS:
        return None
    return simulate_prepared(prepared, child=child, max_steps=MAX_STEPS)


def page(prepared: ValidatedPlan, simulation: Mapping[str, Any] | None = None) -> str:
    """The plan as a table, its forecast, and the JSON that edits it. ``simulation`` is of ``simulate_for_page``."""
    prepared = prepared.unsplit or prepared
    simulation = simulation or simulate_for_page(prepared)
    if simulation is None:
        return f"\n\n### The plan\n\n{len(prepared.nodes)} calls: `acts simulate` shows what they would do"
    calls, problems = simulation["calls"], simulation["problems"]
    values = _ValuesBefore(prepared)
    rows = (_call_row(call, values) for call in calls)
    parts = [
        "### The plan",
        _forecast_line(simulation),
        table(("call", "reads", "writes"), fit_lines(rows, len(calls), "ask the query `plan`")),
        "\n".join(fit_lines(map(_problem_line, problems), len(problems), "see `acts simulate`")),
        _edit_section(prepared),
    ]
    return "\n\n".join(("", *(part for part in parts if part)))


def _forecast_line(simulation: Mapping[str, Any]) -> str:
    calls, waves = len(simulation["calls"]), len(simulation["waves"])
    combinations, unforeseen = len(simulation["outcomes"]["combinations"]), simulation["unforeseen"]
    more = " or more" if simulation["outcomes"]["truncated"] else ""
    out = [f"{calls} calls in {waves} waves, {combinations}{more} combinations of outcomes"]
    delegates = ", and those of delegates" if simulation["delegates"]["max"] else ""
    actions = simulation["actions"]
    billed = f"{actions['min']:,} or more" if "actions" in unforeseen else _range(actions)
    out.append(f"requests to a model: {_range(simulation['requests'])}{delegates}; Temporal actions: {billed}")
    if "runs" in simulation:
        out.append(f"instances: in {simulation['runs']:,} child workflows")
    cost = simulation["cost"]
    if cost and cost["max"]:
        out.append(f"cost: about {_range(cost)} US dollars")
    if "seconds" in simulation:
        least = f"at least {simulation['seconds']['min']:,}" if "seconds" in unforeseen else ""
        out.append(f"time without waits: {least or _range(simulation['seconds'])} s")
    return " — ".join(out)


def _range(figure: Mapping[str, Any]) -> str:
    low, high = figure["min"], figure["max"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


class _ValuesBefore:
    """The values that a plan reads and that are in the context before it begins: nothing in the plan writes them.

    Those of instances differ, and are left out.
    """

    def __init__(self, prepared: ValidatedPlan) -> None:
        self._log = prepared.initial_log
        self._written = {path for node in prepared.nodes for path in node.writes}
        template = is_template(prepared.request, prepared.nodes)
        nodes = () if template else (node for node in prepared.nodes if node.instance is None)
        self._paths = {str(path): path for node in nodes for read in node.reads for path in read.paths}

    def text(self, read: str) -> str:
        """``= "A-1"`` after the path that a Call reads, or nothing."""
        path = self._paths.get(read)
        if path is None or any(path.overlaps(other) for other in self._written):
            return ""
        value = self._log.read(path, START)
        return "" if value is ABSENT else f"\u00a0= {code_span(_short_json(value), MAX_VALUE)}"


def _short_json(value: Json) -> str:
    """A value as JSON, of a long one its beginning."""
    if isinstance(value, str):
        return json.dumps(value[:MAX_VALUE], ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, (dict, list)) else brief(value, MAX_VALUE)


def _call_row(call: Mapping[str, Any], values: _ValuesBefore) -> str:
    name = code_span(call["id"]) + (f" [{code_span(call['instance'])}]" if "instance" in call else "")
    first = [f"{code_span(read)}{values.text(read)}" for read in call["reads"][:MAX_PATHS]]
    reads = (
        *first, *map(code_span, call["reads"][MAX_PATHS:]),
        *(f"scope\u00a0{code_span(scope)}" for scope in call["scopes"]),
    )  # fmt: skip
    writes = [code_span(path) for path in call["writes"]]
    return row(" ".join((name, *_remarks(call))), _first_paths(reads), _first_paths(writes))


def _first_paths(texts: Sequence[str]) -> str:
    more = f", … ({len(texts)} in all)" if len(texts) > MAX_PATHS else ""
    return ", ".join(texts[:MAX_PATHS]) + more


def _remarks(call: Mapping[str, Any]) -> Iterator[str]:
    """How a Call runs, unless its id says it: ``1:pay`` runs the Activity ``pay``."""
    runs = call.get("activity") or call.get("delegate")
    if call.get("given"):
        yield "(answered already)"
    elif call["how"] == "latent":
        yield "(asks a model)"
    elif runs not in (None, call["tool"]):
        yield f"(runs {code_span(runs)})"
    if "hints" in call:
        yield f"({', '.join(call['hints'])})"
    if "elements" in call:
        yield f"(for each of {_range(call['elements'])} elements)"
    if "when" in call:
        yield f"(when {code_span(call['when'])})"
    if call["background"]:
        yield "(not waited for)"
    if call["approval"]:
        yield "(will ask)"


def _problem_line(problem: Mapping[str, Any]) -> str:
    call = f"{code_span(problem['call'])}: " if "call" in problem else ""
    return f"- {call}{code_span(problem['message'], MAX_MESSAGE)}"


def _edit_section(prepared: ValidatedPlan) -> str:
    """The plan as it was written, ready to be changed and sent."""
    plan = prepared.request.plan
    text = fence({"decision": "edit", "plan": list(plan.calls) if plan is not None else []})
    if len(text) > MAX_SECTION:
        return "The calls as they were written: ask the query `plan`"
    return f"To change it, send this with your changes; the new version then waits for a decision:\n\n{text}"
