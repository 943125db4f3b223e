"""The dry run of a plan: waves, outcomes, type problems, a forecast. Runs nothing.

* ``outcomes`` decides what happens, ``type_flow`` what fits; this file reports both. Nothing is guessed: an error is
  a proof, a warning a possibility.
* The work is bounded. The forecast also holds for the combinations of outcomes that were left out (``truncated``).
* The forecast covers the run and the children that walk its instances, not what delegates do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.admission import DRY_RUN, Meter
from acts.language.errors import MAX_PROBLEMS_REPORTED, InvalidRequest, Problem, TooComplex
from acts.language.references import conjunction
from acts.language.tools import hint_words
from acts.language.values import UNKNOWN, Json, pointer
from acts.language.wire import TOO_COMPLEX
from acts.plan.calls import MAX_ELEMENTS, approval_needed
from acts.plan.validate import ValidatedPlan, is_template, lint, validate_request
from acts.simulation.forecast import Price, estimate_plan, find_critical_path, find_waves
from acts.simulation.outcomes import OutcomeRun, PossibleOutcomes, count_steps, explore_outcomes
from acts.simulation.sampling import sample
from acts.simulation.type_flow import TypeProblem, find_type_problems

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from acts.plan.calls import PlannedCall


def simulate(
    raw: Json, registry: Mapping[str, Json] | None = None, served: Iterable[str] = (), price: Price | None = None
) -> dict[str, Any]:
    """What a Request's plan would do, as JSON; see ``simulate_prepared``.

    Raises:
        InvalidRequest: the Request does not validate, or its plan is too large for a dry run (``tooComplex``).
    """
    prepared = validate_request(raw, registry, served)
    try:
        return simulate_prepared(prepared, price)
    except TooComplex as error:
        plan = prepared.request.plan
        place = pointer("context", plan.index, "plan") if plan is not None else ""
        hint = "use fewer calls and shorter paths; the plan can be run all the same"
        raise InvalidRequest([Problem(TOO_COMPLEX, str(error), place, hint=hint)]) from error


def simulate_prepared(
    prepared: ValidatedPlan, price: Price | None = None, *, child: bool = False, max_steps: int | None = None
) -> dict[str, Any]:
    """What a plan would do::

        {waves: [[call id]], criticalPath: [call id],
         calls: [{id, tool, how, activity?, taskQueue?, delegate?, given?, reads, writes,
                  scopes, when?, elements?: {min, max}, instance?, hints?, approval, background}],
         outcomes: {combinations: [{choices: {call id: path}, conditions?: {call id: boolean}, run: [call id],
                                    skipped: [call id], failed?: [call id], waiting?: [call id]}], truncated},
         samples: {tool: example of its _output, null where it says nothing},
         outside: [call id],
         requests: {min, max}, delegates: {min, max}, cost: {min, max} | null,
         actions: {min, max}, runs?, seconds?: {min, max}, withoutDuration?: [tool], unforeseen: [figure],
         problems: [{code, message, pointer, severity?, call?, hint?, …}],
         instances?, set?}

    ``outside`` are the Calls that may change something outside of the run: those with an Activity and
    delegates; a latent Call only reads. ``elements`` is how often a Call with ``_each`` is made, ``conditions`` what a
    combination takes those to be that cannot be known. ``waiting`` are Calls that need what only ``provide`` can bring.
    ``actions`` are Temporal's billable actions without retries (see ``forecast``). ``price`` returns the estimated US
    dollars of one request to a model, or None. ``child`` says that an agent starts the run as one of its own,
    ``max_steps`` how much work the combinations of outcomes may take (see ``explore_outcomes``). A template is walked
    for its first instance; its figures are those of all ``instances``, or of one row of a ``set``. ``runs`` is the
    number of child workflows that walk instances, ``unforeseen`` the figures to which other runs add what cannot be
    foreseen. ``seconds`` is there where a Tool declares a duration; the critical path is then the slowest, else the
    one with most Calls.

    Raises:
        TooComplex: one walk of the plan takes more steps than its limit.
    """
    Meter(DRY_RUN).spend(count_steps(prepared))
    type_problems = find_type_problems(prepared)
    outcomes, doomed = PossibleOutcomes(), {p.rank for p in type_problems if p.certain}
    runs, truncated = explore_outcomes(prepared, outcomes, doomed, max_steps)
    ids = [n.id for n in prepared.nodes]
    approvals = [_waits_for_approval(prepared, rank) for rank in range(len(ids))]
    template, own = is_template(prepared.request, prepared.nodes), prepared.request.set
    lengths = _list_lengths(prepared, runs)
    listed = sorted(range(len(ids)), key=lambda rank: prepared.nodes[rank].index)
    outside = [r for r in listed if r not in prepared.literal_outputs and prepared.nodes[r].kind != "latent"]
    figures = estimate_plan(prepared, runs, price, lengths, approvals=approvals, truncated=truncated, child=child)
    return {
        "waves": [[ids[rank] for rank in wave] for wave in find_waves(prepared.graph)],
        "criticalPath": [ids[rank] for rank in figures.pop("slowest", None) or find_critical_path(prepared.graph)],
        "calls": [_call_item(prepared, rank, lengths, approval=approvals[rank], template=template) for rank in listed],
        "outside": [ids[rank] for rank in outside],
        "outcomes": {"combinations": [run.to_json(ids) for run in runs], "truncated": truncated},
        "samples": {
            name: _sample_json(sample(tool.output))
            for name, tool in {n.tool.name: n.tool for n in prepared.nodes}.items()
            if tool.output is not None
        },
        **figures,
        "problems": _problem_items(prepared, outcomes, type_problems, runs, truncated=truncated),
        **({"set": {"source": own.source}} if own is not None else {}),
        **({"instances": len(prepared.request.instances())} if template and own is None else {}),
    }


# -- calls ---------------------------------------------------------------------


def _waits_for_approval(prepared: ValidatedPlan, rank: int) -> bool:
    """True when a human confirms the Call."""
    node, approve = prepared.nodes[rank], prepared.request.config.approve
    if rank in prepared.literal_outputs or (node.kind == "latent" and not node.outcomes):
        return False
    return approval_needed(node, approve) is not None


def _call_item(
    prepared: ValidatedPlan, rank: int, lengths: Mapping[int, tuple[int, int]], *, approval: bool, template: bool
) -> dict[str, Any]:
    node = prepared.nodes[rank]
    out: dict[str, Any] = {"id": node.id, "tool": node.tool.name, "how": node.kind}
    if node.kind == "activity":
        out["activity"] = node.tool.activity
        if node.tool.options.taskQueue is not None:
            out["taskQueue"] = node.tool.options.taskQueue
    if node.kind == "delegate":
        out["delegate"] = node.delegate
    if rank in prepared.literal_outputs:
        out["given"] = True
    if hints := hint_words(node.tool.schema):
        out["hints"] = hints
    out["reads"] = list(dict.fromkeys(str(p) for read in node.reads for p in read.paths))
    out["writes"] = [str(p) for p in node.writes]
    out["scopes"] = [str(p) for p in node.scopes]
    if node.condition is not None:
        out["when"] = node.condition.text
    if node.is_each:
        out["elements"] = dict(zip(("min", "max"), lengths[rank], strict=True))
    if node.instance is not None and not template:
        out["instance"] = node.instance
    return {**out, "approval": approval, "background": node.is_detached}


# -- problems ------------------------------------------------------------------


def _problem_items(
    prepared: ValidatedPlan, outcomes: PossibleOutcomes, type_problems: Sequence[TypeProblem],
    runs: Sequence[OutcomeRun], *, truncated: bool,
) -> list[dict[str, Any]]:  # fmt: skip
    """All problems, errors first, at most MAX_PROBLEMS_REPORTED of them."""
    warnings = [*prepared.warnings, *lint(prepared.graph)]
    warnings += [p for node in prepared.nodes for p in _unreachable_outcomes(node, outcomes)]
    idle = {p.call for p in warnings if p.code in ("unreachable", "thought")}
    items = [p.to_json() for p in warnings] + [p.to_json() for p in type_problems]
    items += [p.to_json() for p in _idle_calls(prepared, runs, idle, truncated=truncated)]
    items.sort(key=lambda p: p.get("severity") == "warning")
    more = len(items) - MAX_PROBLEMS_REPORTED
    if more > 0:
        note = Problem("moreProblems", f"… and {more} more problems", severity="warning")
        items[MAX_PROBLEMS_REPORTED:] = [note.to_json()]
    return items


def _unreachable_outcomes(node: PlannedCall, outcomes: PossibleOutcomes) -> Iterable[Problem]:
    """Outcomes that no result can choose."""
    for index in outcomes.find_impossible(node):
        text = f"no result can choose {conjunction(node.outcomes[index])}: it overlaps another alternative"
        hint = "give each alternative a path that no other one holds or lies below"
        if node.is_each:
            text = f"no result can choose {conjunction(node.outcomes[index])}: that of a call with _each is one list"
            hint = "it goes to the first alternative, a failure to the one that is named for it"
        yield Problem("unreachableOutcome", text, f"{node.pointer}/_outputPath", node.id, hint, "warning")


def _idle_calls(
    prepared: ValidatedPlan, runs: Sequence[OutcomeRun], reported: Container[str | None], *, truncated: bool
) -> Iterable[Problem]:
    """Calls that fail, and Calls that never run and are not ``reported`` for it yet."""
    completed, other = ({r for run in runs for r in run.states.get(state, ())} for state in ("run", "failed"))
    other |= {r for run in runs for r in run.states.get("waiting", ())}
    errors: dict[int, str] = {}
    for run in runs:
        errors = {**run.errors, **errors}
    for rank, node in enumerate(prepared.nodes):
        if rank in errors:
            always = rank not in completed and not truncated
            text = errors[rank] if always else f"for some outcomes: {errors[rank]}"
            yield Problem("willFail", text, node.pointer, node.id, severity="error" if always else "warning")
        elif not truncated and rank not in completed and rank not in other and node.id not in reported:
            text = "this call is skipped whatever the outcomes are"
            yield Problem("unreachable", text, node.pointer, node.id, severity="warning")


def _sample_json(value: Json) -> Json:
    """A sample as JSON: null for what is not known."""
    if isinstance(value, dict):
        return {k: _sample_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_sample_json(v) for v in value]
    return None if value is UNKNOWN else value


def _list_lengths(prepared: ValidatedPlan, runs: Sequence[OutcomeRun]) -> dict[int, tuple[int, int]]:
    """The least and the greatest length of the list of each Call with ``_each``, by rank: what all dry runs know."""
    out = {}
    for rank in (rank for rank, node in enumerate(prepared.nodes) if node.is_each):
        lengths = [run.elements.get(rank) for run in runs if rank in run.started or rank in run.elements]
        certain = [length for length in lengths if length is not None]
        is_known = certain and len(certain) == len(lengths)
        out[rank] = (min(certain), max(certain)) if is_known else (0, MAX_ELEMENTS)
    return out
