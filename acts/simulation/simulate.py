"""A plan walked without running anything: waves, outcomes, misfits, a forecast.

Laws
----
* What happens is decided by dry walks (``trials``), what fits by schemas (``producers``);
  here both are told. Nothing is guessed: an error is a proof, a warning a possibility.
* The work is bounded. Where combinations of outcomes were left out (``truncated``), the
  forecast holds for them too.
* Only what a run does by itself is counted: what delegates do inside is theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.errors import MAX_PROBLEMS_REPORTED, Problem
from acts.language.references import conjunction
from acts.language.sampling import sample
from acts.language.values import UNKNOWN, Json
from acts.plan.lint import lint
from acts.plan.planned_call import approval_needed
from acts.plan.validate import ValidatedPlan, is_template, validate_request
from acts.simulation.critical_path import Depths
from acts.simulation.estimate import Price, estimated
from acts.simulation.outcome_exploration import OutcomeRun, choices, explore_outcomes
from acts.simulation.type_flow import TypeProblem, find_type_problems

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from acts.plan.planned_call import PlannedCall


def simulate(
    raw: Json, registry: Mapping[str, Json] | None = None, served: Iterable[str] = (), price: Price | None = None
) -> dict[str, Any]:
    """What a Request's plan would do, as JSON; see ``simulate_prepared``.

    Raises:
        InvalidRequest: the Request does not validate.
    """
    return simulate_prepared(validate_request(raw, registry, served), price)


def simulate_prepared(prepared: ValidatedPlan, price: Price | None = None, handed: int | None = None) -> dict[str, Any]:
    """What a plan would do::

        {waves: [[call id]], criticalPath: [call id],
         calls: [{id, tool, how, activity?, taskQueue?, delegate?, given?, reads, writes,
                  scopes, instance?, approval, background}],
         outcomes: {combinations: [{choices: {call id: path}, run: [call id], skipped: [call id],
                                    failed?: [call id], waiting?: [call id]}], truncated},
         samples: {tool: example of its _output, null where it says nothing},
         outside: [call id],
         requests: {min, max}, delegates: {min, max}, cost: {min, max} | null, tokens: {min, max},
         events: {min, max}, bytes: {min, max}, unforeseen: [figure],
         problems: [{code, message, pointer, severity?, call?, hint?, …}],
         instances?, runs?, each?: {events: {min, max}, bytes: {min, max}}}

    ``outside`` are the Calls that may change something in the world: those with an Activity, fire-and-forget ones
    and what delegates do; a latent Call only reads. ``tokens`` and ``bytes`` (of history) are estimates; how they
    are made is said in ``weights``. ``waiting`` are Calls that need what only ``provide`` can bring. ``price``
    tells the estimated US dollars of one request to a model, or None. ``handed`` are the bytes that an agent hands to
    the run that walks its plan; None is a run by itself. A template is walked for its first
    instance: ``requests``, ``delegates``, ``cost`` and ``tokens`` are those of all ``instances`` together.
    ``events`` and ``bytes`` are those of the run's own history; ``runs`` is how many children walk instances,
    and ``each`` the history of one of them, where each walks a whole template. ``unforeseen`` are the figures
    to which more is added than is known here.
    """
    shape = Depths(prepared.graph)
    found = find_type_problems(prepared)
    trials, truncated = explore_outcomes(prepared, {m.rank for m in found if m.certain})
    ids = [n.id for n in prepared.nodes]
    asked = [_asks(prepared, rank) for rank in range(len(ids))]
    template = is_template(prepared.request, prepared.nodes)
    used = {n.tool.name: n.tool for n in prepared.nodes}
    return {
        "waves": [[ids[rank] for rank in wave] for wave in shape.waves()],
        "criticalPath": [ids[rank] for rank in shape.critical()],
        "calls": [_call(prepared, rank, asked[rank], template) for rank in _as_listed(prepared)],
        "outside": [ids[rank] for rank in _as_listed(prepared) if rank not in prepared.given and _acts(prepared, rank)],
        "outcomes": {"combinations": [t.to_json(ids) for t in trials], "truncated": truncated},
        "samples": {name: _plain(sample(tool.output)) for name, tool in used.items() if tool.output is not None},
        **estimated(prepared, shape, trials, price, asked=asked, truncated=truncated, handed=handed),
        "problems": _problems(prepared, found, trials, truncated=truncated),
        **({"instances": len(prepared.request.instances())} if template else {}),
    }


# -- calls and the forecast ----------------------------------------------------


def _as_listed(prepared: ValidatedPlan) -> list[int]:
    return sorted(range(len(prepared.nodes)), key=lambda rank: prepared.nodes[rank].index)


def _asks(prepared: ValidatedPlan, rank: int) -> bool:
    """True when a human confirms the Call."""
    node, approve = prepared.nodes[rank], prepared.request.config.approve
    if rank in prepared.given or (node.kind == "latent" and not node.outcomes):
        return False
    return approval_needed(node, approve) is not None


def _acts(prepared: ValidatedPlan, rank: int) -> bool:
    """True when a Call may change something outside of the run."""
    return prepared.nodes[rank].kind != "latent"


def _call(prepared: ValidatedPlan, rank: int, asks: bool, template: bool) -> dict[str, Any]:  # noqa: FBT001
    node = prepared.nodes[rank]
    out: dict[str, Any] = {"id": node.id, "tool": node.tool.name, "how": node.kind}
    if node.kind == "activity":
        out["activity"] = node.tool.activity
        if node.tool.options.taskQueue is not None:
            out["taskQueue"] = node.tool.options.taskQueue
    if node.kind == "delegate":
        out["delegate"] = node.delegate
    if rank in prepared.given:
        out["given"] = True
    out["reads"] = list(dict.fromkeys(str(p) for read in node.reads for p in read.paths))
    out["writes"] = [str(p) for p in node.writes]
    out["scopes"] = [str(p) for p in node.scopes]
    if node.instance is not None and not template:
        out["instance"] = node.instance
    return {**out, "approval": asks, "background": node.detached}


# -- problems ------------------------------------------------------------------


def _problems(
    prepared: ValidatedPlan, found: Sequence[TypeProblem], trials: Sequence[OutcomeRun], *, truncated: bool
) -> list[dict[str, Any]]:
    """All findings, errors first, at most MAX_PROBLEMS_REPORTED of them."""
    warned = [
        *prepared.warnings,
        *lint(prepared.graph, prepared.start),
        *(p for node in prepared.nodes for p in _untold(node)),
    ]
    known = {p.call for p in warned if p.code in ("unreachable", "thought")}
    listed = [p.to_json() for p in warned] + [m.to_json() for m in found]
    listed += [p.to_json() for p in _never(prepared, trials, known, truncated=truncated)]
    listed.sort(key=lambda p: p.get("severity") == "warning")
    more = len(listed) - MAX_PROBLEMS_REPORTED
    if more > 0:
        note = Problem("moreProblems", f"… and {more} more problems", severity="warning")
        listed[MAX_PROBLEMS_REPORTED:] = [note.to_json()]
    return listed


def _untold(node: PlannedCall) -> Iterable[Problem]:
    """Outcomes that no result can choose."""
    taken = choices(node)
    for i, outcome in enumerate(node.outcomes):
        if i not in taken:
            text = f"no result can choose {conjunction(outcome)}: it overlaps another alternative"
            hint = "give each alternative a path that no other one holds or lies below"
            yield Problem("unreachableOutcome", text, f"{node.pointer}/_outputPath", node.id, hint, "warning")


def _never(
    prepared: ValidatedPlan, trials: Sequence[OutcomeRun], known: Container[str | None], *, truncated: bool
) -> Iterable[Problem]:
    """Calls that fail, and Calls that never get to run and are not ``known`` for it."""
    ran, other = ({r for t in trials for r in t.states.get(s, ())} for s in ("run", "failed"))
    other |= {r for t in trials for r in t.states.get("waiting", ())}
    errors: dict[int, str] = {}
    for trial in trials:
        errors = {**trial.errors, **errors}
    for rank, node in enumerate(prepared.nodes):
        if rank in errors:
            always = rank not in ran and not truncated
            text = errors[rank] if always else f"for some outcomes: {errors[rank]}"
            yield Problem("willFail", text, node.pointer, node.id, severity="error" if always else "warning")
        elif not truncated and rank not in ran and rank not in other and node.id not in known:
            text = "this call is skipped whatever the outcomes are"
            yield Problem("unreachable", text, node.pointer, node.id, severity="warning")


def _plain(value: Json) -> Json:
    """A sample as JSON: null for what is not known."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return None if value is UNKNOWN else value
