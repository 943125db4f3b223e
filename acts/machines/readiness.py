"""What becomes of a Call whose dependencies have settled, what it starts with, and what its result must fit.

Laws of this file: its functions look at a walk and answer; none of them changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acts.language.errors import CallError, TooComplex, truncate
from acts.language.reference_uses import ELEMENT_KINDS
from acts.language.references import holds
from acts.language.schemas import Checker, Defect
from acts.language.scopes import scoped_context
from acts.language.strict_json import write_json
from acts.language.tools import META
from acts.language.values import UNKNOWN, Json, Place, pointer
from acts.language.wire import SCHEMA_MISMATCH, TOO_COMPLEX, UNRESOLVED
from acts.plan.element_reading import read_elements
from acts.plan.planned_call import PlannedCall, approval_needed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from acts.language.reference_uses import ReferenceUse
    from acts.language.references import Path
    from acts.machines.walk import Walk
    from acts.machines.walk_context import WalkContext
    from acts.plan.element_reading import ElementReading
    from acts.plan.result_placement import Writes

# Defects of one value that an error names; more of them say nothing new
MAX_DEFECTS_SHOWN: Final = 5
# Characters of a condition, or of paths, in the reason why a Call was skipped
MAX_REASON: Final = 200


class Assessment(NamedTuple):
    """What becomes of a Call whose dependencies have settled: an event of ``TRANSITIONS``, and what goes with it.

    ``call`` is the Call with its references resolved, ``missing`` the references that yield nothing,
    ``subject`` what a human confirms: ``call`` or ``scopes``. ``reason`` says why a Call is skipped,
    ``reading`` what the elements of a Call with ``_each`` are made of.
    """

    event: str
    call: dict[str, Any] | None = None
    missing: tuple[str, ...] = ()
    error: CallError | None = None
    subject: str = ""
    reason: str | None = None
    reading: ElementReading | None = None


def assess_call(walk: Walk, rank: int) -> Assessment:
    """Resolve and check a Call, every dependency of which has settled: its condition, then its parameters."""
    try:
        return _assess(walk, rank)
    except TooComplex as error:
        return Assessment("start_failed", error=CallError(TOO_COMPLEX, str(error)))


def _assess(walk: Walk, rank: int) -> Assessment:
    node, state = walk.nodes[rank], walk.calls[rank]
    read = walk.context.reader(rank)
    if node.condition is not None and not _condition_holds(walk, rank, node.condition, read):
        return Assessment("skipped", reason=f"_when does not hold: {truncate(node.condition.text, MAX_REASON)}")
    if rank in walk.prepared.literal_outputs and (not state.edited or state.approved):
        return Assessment("literal_used")
    if node.kind == "latent" and not node.outcomes:
        return Assessment("skipped", reason="a latent call without _outputPath is never run")
    if node.is_each:
        return _assess_elements(walk, rank, read)
    call, missing = node.resolve(read, walk.work)
    if missing:
        return _assess_missing(walk, rank, missing)
    try:
        require_parameters(walk, node, call)
    except CallError as error:
        return Assessment("start_failed", error=error)
    return _assess_approval(walk, rank, {**call, "_id": walk.identify(node)})


def _condition_holds(walk: Walk, rank: int, condition: ReferenceUse, read: Callable[[Path], Json]) -> bool:
    """Whether a Call is to run; what a dry run cannot know, it assumes."""
    result = holds(condition.tree, read, walk.work)
    return walk.assume(rank) if result is UNKNOWN else bool(result)


def _assess_elements(walk: Walk, rank: int, read: Callable[[Path], Json]) -> Assessment:
    """Read the list of a Call with ``_each``. Each element is checked when it starts."""
    node = walk.nodes[rank]
    try:
        reading, missing = read_elements(node, read, scoped_messages(walk.context, rank), walk.work)
    except CallError as error:
        return Assessment("start_failed", error=error)
    if missing:
        return _assess_missing(walk, rank, missing)
    missing = reading.find_partly_missing()
    if missing and (walk.is_waiting_for_input or _is_withheld(walk, rank, missing)):
        return _assess_missing(walk, rank, missing)
    if not reading.items:
        return Assessment("nothing_to_start", reading=reading)
    call = {**reading.call, "_each": reading.items, "_id": walk.identify(node)}
    return _assess_approval(walk, rank, call, reading)


def _assess_approval(walk: Walk, rank: int, call: dict[str, Any], reading: ElementReading | None = None) -> Assessment:
    subject = None if walk.calls[rank].approved else _subject_of_approval(walk, rank)
    if subject is not None:
        return Assessment("approval_needed", call, subject=subject, reading=reading)
    return Assessment("became_ready", call, reading=reading)


def _assess_missing(walk: Walk, rank: int, missing: Sequence[ReferenceUse]) -> Assessment:
    is_each, context = walk.nodes[rank].is_each, walk.context.reader(rank)

    def read(path: Path) -> Json:
        return UNKNOWN if is_each and path.kind in ELEMENT_KINDS else context(path)

    texts = tuple(dict.fromkeys(text for use in missing for text in use.absent_texts(read)))
    if _is_withheld(walk, rank, missing):
        return Assessment("skipped", reason=f"there is no value at {truncate(', '.join(texts), MAX_REASON)}")
    if walk.is_waiting_for_input:
        return Assessment("input_missing", missing=texts)
    return Assessment("start_failed", error=CallError(UNRESOLVED, f"there is no value at {', '.join(texts)}"))


def _is_withheld(walk: Walk, rank: int, missing: Iterable[ReferenceUse]) -> bool:
    """True when a dependency was skipped, failed, or took another outcome than the one that writes what is missing."""
    return walk.progress.dependency_did_not_write(rank, [path for use in missing for path in use.paths])


def _subject_of_approval(walk: Walk, rank: int) -> str | None:
    """What of a Call a human confirms, or None; an edited Call is always confirmed."""
    node = walk.nodes[rank]
    if walk.dry:
        return None
    # The Calls of a batch child are confirmed in the run that walks them
    subject = None if node.members else approval_needed(node, walk.prepared.request.config.approve)
    return "call" if subject is None and walk.calls[rank].edited else subject


def scoped_messages(context: WalkContext, rank: int) -> list[dict[str, Any]]:
    """The part of the context that a Call may see, one message per kind; ``[]`` without scopes."""
    node = context.node(rank)
    if not node.scopes:
        return []
    view = context.log.view_of(node.instance)
    return scoped_context(node.scopes, context.reader(rank), lambda path: view.type_at(path, rank) == "list")


def require_parameters(walk: Walk, node: PlannedCall, call: Mapping[str, Json]) -> None:
    """Check the parameters of a resolved Call against its Tool.

    Raises:
        CallError: ``SchemaMismatch``, or ``tooComplex``.
    """
    parameters = {k: v for k, v in call.items() if k not in META}
    try:
        defects = _defects(node.tool.parameters, parameters, walk, _identify_parameter(walk, node, call))
    except TooComplex as error:
        raise CallError(TOO_COMPLEX, f'parameters of "{node.tool.name}": {error}') from error
    if defects:
        text = "; ".join(f"{pointer(*at) or 'the parameters'}: {why}" for at, why in defects)
        raise CallError(SCHEMA_MISMATCH, f'parameters of "{node.tool.name}": {text}')


def _identify_parameter(walk: Walk, node: PlannedCall, call: Mapping[str, Json]) -> Callable[[str, Json], Hashable]:
    """What a large parameter is the same by, in all Calls: by itself where it is one value that is read.

    A list or an object that holds such a value is a new one in each Call: what was planned says what it is, with the
    identities of what is read. A new combination is counted, since it is checked from end to end.
    """

    def identify(key: str, part: Json) -> Hashable:
        uses = [use for use in node.parameter_uses if use.at[0] == key]
        if not uses or uses[0].at == (key,):
            return id(part)
        values = [_part_at(call, use.at) for use in uses]
        identity = write_json(node.call[key]), tuple(map(id, values))
        if not walk.dry:
            walk.work.add_check(identity, values)
        return identity

    return identify


def _part_at(value: Any, place: Place) -> Json:
    for token in place:
        value = value[token]
    return value


def check_writes(walk: Walk, node: PlannedCall, writes: Writes) -> None:
    """Check what a result writes against the Tool's ``_output`` and the schemas of the context.

    Raises:
        CallError: ``SchemaMismatch``, with the defects of the first value that has any, or ``tooComplex``.
    """
    checked: list[Json] = []
    for path, value in writes:
        if not node.is_each and not any(value is other for other in checked):  # elements are checked one by one
            checked.append(value)
            require_result(walk, node, value)
        if walk.schemas and node.method == "set":
            check = walk.schemas.check_at(path)
            if check is not None:
                text = f"the schema of {path.kind} does not allow this at {path}"
                _require(check, value, f"the value for {path}", text, walk)


def require_result(walk: Walk, node: PlannedCall, value: Json) -> None:
    """Check a result against the Tool's ``_output``. Raises as ``check_writes``."""
    if node.tool.output_check is not None:
        subject = f'the result of "{node.tool.name}"'
        _require(node.tool.output_check, value, subject, f"{subject} breaks its _output", walk)


def _require(check: Checker, value: Json, subject: str, violation: str, walk: Walk) -> None:
    try:
        defects = _defects(check, value, walk)
    except TooComplex as error:
        raise CallError(TOO_COMPLEX, f"{subject}: {error}") from error
    if defects:
        text = "; ".join(f"{pointer(*at) + ': ' if at else ''}{why}" for at, why in defects)
        raise CallError(SCHEMA_MISMATCH, f"{violation}: {text}")


def _defects(
    check: Checker, value: Json, walk: Walk, identify: Callable[[str, Json], Hashable] | None = None
) -> list[Defect]:
    """The first defects of a value; in a dry run what is unknown has none."""
    find = check.partial_defects if walk.dry else check.defects
    memo, checking = walk.prepared.check_memo, walk.work.checking
    return find(value, memo=memo, checking=checking, identify=identify)[:MAX_DEFECTS_SHOWN]
