"""What becomes of a Call whose dependencies have settled, what it starts with, and what its result must fit.

Laws of this file: its functions look at a walk and answer; none of them changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acts.language.errors import CallError, TooComplex
from acts.language.schemas import Checker, Defect
from acts.language.scopes import scoped_context
from acts.language.values import Json, pointer
from acts.language.wire import SCHEMA_MISMATCH, TOO_COMPLEX, UNRESOLVED
from acts.plan.planned_call import PlannedCall, approval_needed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acts.language.references import ReferenceUse
    from acts.machines.walk import Walk
    from acts.plan.result_placement import Writes

# Defects of one value that an error names; more of them say nothing new
MAX_DEFECTS_SHOWN: Final = 5


class Assessment(NamedTuple):
    """What becomes of a Call whose dependencies have settled: an event of ``TRANSITIONS``, and what goes with it.

    ``call`` is the Call with its references resolved, ``missing`` the references that yield nothing,
    ``subject`` what a human confirms: ``call`` or ``scopes``.
    """

    event: str
    call: dict[str, Any] | None = None
    missing: tuple[str, ...] = ()
    error: CallError | None = None
    subject: str = ""


def assess_call(walk: Walk, rank: int) -> Assessment:
    """Resolve and check the parameters of a Call, every dependency of which has settled."""
    node, state = walk.nodes[rank], walk.calls[rank]
    if rank in walk.prepared.literal_outputs and (not state.edited or state.approved):
        return Assessment("literal_used")
    if node.kind == "latent" and not node.outcomes:
        return Assessment("skipped")
    parameters, missing = node.resolve_parameters(walk.context.reader(rank))
    if missing:
        return _assess_missing(walk, rank, missing)
    try:
        defects = _defects(node.tool.parameters, parameters, walk)
    except TooComplex as error:
        text = f'parameters of "{node.tool.name}": {error}'
        return Assessment("start_failed", error=CallError(TOO_COMPLEX, text))
    if defects:
        text = "; ".join(f"{pointer(*at) or 'the parameters'}: {why}" for at, why in defects)
        return Assessment("start_failed", error=CallError(SCHEMA_MISMATCH, f'parameters of "{node.tool.name}": {text}'))
    rest = {k: v for k, v in node.call.items() if k not in parameters and k != "_output"}
    call = {**rest, **parameters, "_id": walk.identify(node)}
    subject = None if state.approved else _subject_of_approval(walk, rank)
    if subject is not None:
        return Assessment("approval_needed", call, subject=subject)
    return Assessment("became_ready", call)


def _assess_missing(walk: Walk, rank: int, missing: Sequence[ReferenceUse]) -> Assessment:
    if walk.progress.dependency_did_not_write(rank, [path for use in missing for path in use.paths]):
        return Assessment("skipped")
    texts = tuple(dict.fromkeys(use.text for use in missing))
    if walk.prepared.request.config.missing == "wait":
        return Assessment("input_missing", missing=texts)
    return Assessment("start_failed", error=CallError(UNRESOLVED, f"there is no value at {', '.join(texts)}"))


def _subject_of_approval(walk: Walk, rank: int) -> str | None:
    """What of a Call a human confirms, or None; an edited Call is always confirmed."""
    node = walk.nodes[rank]
    if walk.dry:
        return None
    # The Calls of a batch child are confirmed in the run that walks them
    subject = None if node.members else approval_needed(node, walk.prepared.request.config.approve)
    return "call" if subject is None and walk.calls[rank].edited else subject


def scoped_messages(walk: Walk, rank: int) -> list[dict[str, Any]]:
    """The part of the context that a Call may see, one message per kind; ``[]`` without scopes."""
    node = walk.nodes[rank]
    if not node.scopes:
        return []
    view = walk.log.view_of(node.instance)
    return scoped_context(node.scopes, walk.context.reader(rank), lambda path: view.type_at(path, rank) == "list")


def check_writes(walk: Walk, node: PlannedCall, writes: Writes) -> None:
    """Check what a result writes against the Tool's ``_output`` and the schemas of the context.

    Raises:
        CallError: ``SchemaMismatch``, with the defects of the first value that has any, or ``tooComplex``.
    """
    checked: list[Json] = []
    for path, value in writes:
        output = node.tool.output_check
        if output is not None and not any(value is other for other in checked):
            checked.append(value)
            subject = f'the result of "{node.tool.name}"'
            _require(output, value, subject, f"{subject} breaks its _output", walk)
        if walk.schemas and node.method == "set":
            check = walk.schemas.check_at(path)
            if check is not None:
                text = f"the schema of {path.kind} does not allow this at {path}"
                _require(check, value, f"the value for {path}", text, walk)


def _require(check: Checker, value: Json, subject: str, violation: str, walk: Walk) -> None:
    try:
        defects = _defects(check, value, walk)
    except TooComplex as error:
        raise CallError(TOO_COMPLEX, f"{subject}: {error}") from error
    if defects:
        text = "; ".join(f"{pointer(*at) + ': ' if at else ''}{why}" for at, why in defects)
        raise CallError(SCHEMA_MISMATCH, f"{violation}: {text}")


def _defects(check: Checker, value: Json, walk: Walk) -> list[Defect]:
    """The first defects of a value; in a dry run what is unknown has none."""
    find = check.partial_defects if walk.dry else check.defects
    return find(value, memo=walk.prepared.check_memo)[:MAX_DEFECTS_SHOWN]
