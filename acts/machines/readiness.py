"""What becomes of a Call whose dependencies have settled, what it starts with, and what its result must fit.

Laws of this file: it looks at the Calls of a walk and their context, and changes neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acts.language.errors import CallError, EngineError, TooComplex, truncate
from acts.language.references import ELEMENT_KINDS, holds
from acts.language.schemas import Checker, Defect
from acts.language.tools import META
from acts.language.values import UNKNOWN, Json, pointer
from acts.language.wire import SCHEMA_MISMATCH, TOO_COMPLEX, UNRESOLVED
from acts.plan.calls import PlannedCall, approval_needed, read_elements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from acts.language.admission import Work
    from acts.language.references import Path, ReferenceUse
    from acts.machines.call_state import CallState
    from acts.machines.walk_context import WalkContext
    from acts.machines.writer_progress import WriterProgress
    from acts.plan.calls import ElementReading
    from acts.plan.validate import ValidatedPlan

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
    subject: str | None = None
    reason: str | None = None
    reading: ElementReading | None = None


class Readiness:
    """The checks of one walk.

    ``assume`` makes it a dry run: it says whether the condition of a Call (by rank) holds where that is not known.
    """

    def __init__(
        self, prepared: ValidatedPlan, context: WalkContext, progress: WriterProgress, work: Work,
        assume: Callable[[int], bool] | None,
    ) -> None:  # fmt: skip
        self._prepared, self._context, self._progress, self._work = prepared, context, progress, work
        self._assume = assume
        self._config = prepared.request.config

    def assess(self, call: CallState) -> Assessment:
        """Resolve and check a Call, every dependency of which has settled: its condition, then its parameters."""
        try:
            return self._assess(call)
        except TooComplex as error:
            return Assessment("start_failed", error=CallError(TOO_COMPLEX, str(error)))
        except CallError as error:
            return Assessment("start_failed", error=error)

    def _assess(self, call: CallState) -> Assessment:
        node, rank, read = call.node, call.rank, self._context.reader(call.rank)
        if node.condition is not None and not self._condition_holds(call, read):
            return Assessment("skipped", reason=f"_when does not hold: {truncate(node.condition.text, MAX_REASON)}")
        if rank in self._prepared.literal_outputs and (not call.edited or call.approved):
            return Assessment("literal_used")
        if node.kind == "latent" and not node.outcomes:
            return Assessment("skipped", reason="a latent call without _outputPath is never run")
        reading = None
        if node.is_each:  # each element is checked when it starts
            reading, missing = read_elements(node, read, self._context.scoped_messages(rank), self._work)
            own = {**reading.call, "_each": reading.items}
            partly_missing = [] if missing else reading.find_partly_missing()
            if partly_missing and (self._config.missing == "wait" or self._is_withheld(rank, partly_missing)):
                missing = partly_missing
        else:
            own, missing = node.resolve(read, self._work)
        if missing:
            return self._assess_missing(node, rank, missing)
        if reading is None:
            self.require_parameters(node, own)
        elif not reading.items:
            return Assessment("nothing_to_start", reading=reading)
        subject = None if call.approved else self._subject_of_approval(call)
        event = "became_ready" if subject is None else "approval_needed"
        return Assessment(event, dict(own), subject=subject, reading=reading)

    def _condition_holds(self, call: CallState, read: Callable[[Path], Json]) -> bool:
        """Whether a Call is to run; what a dry run cannot know, it assumes."""
        condition = call.node.condition
        result = True if condition is None else holds(condition.tree, read, self._work)
        if result is not UNKNOWN:
            return bool(result)
        if self._assume is None:
            raise EngineError(f"the condition of call {call.node.id} is not known, in a walk that is no dry run")
        return self._assume(call.rank)

    def _assess_missing(self, node: PlannedCall, rank: int, missing: Sequence[ReferenceUse]) -> Assessment:
        context = self._context.reader(rank)

        def read(path: Path) -> Json:
            return UNKNOWN if node.is_each and path.kind in ELEMENT_KINDS else context(path)

        texts = tuple(dict.fromkeys(text for use in missing for text in use.absent_texts(read)))
        if self._is_withheld(rank, missing):
            return Assessment("skipped", reason=f"there is no value at {truncate(', '.join(texts), MAX_REASON)}")
        if self._config.missing == "wait":
            return Assessment("input_missing", missing=texts)
        raise CallError(UNRESOLVED, f"there is no value at {', '.join(texts)}")

    def _is_withheld(self, rank: int, missing: Iterable[ReferenceUse]) -> bool:
        """True when a dependency was skipped, failed, or took another outcome than the one with what is missing."""
        return self._progress.dependency_did_not_write(rank, [path for use in missing for path in use.paths])

    def _subject_of_approval(self, call: CallState) -> str | None:
        """What of a Call a human confirms, or None; an edited Call is always confirmed."""
        if self._assume is not None:
            return None
        # The Calls of a batch child are confirmed in the run that walks them
        subject = None if call.node.members else approval_needed(call.node, self._config.approve)
        return "call" if subject is None and call.edited else subject

    def require_parameters(self, node: PlannedCall, call: Mapping[str, Json]) -> None:
        """Check the parameters of a resolved Call against its Tool.

        Raises:
            CallError: ``SchemaMismatch``, or ``tooComplex``.
        """
        parameters = {k: v for k, v in call.items() if k not in META}
        subject = f'parameters of "{node.tool.name}"'
        self._require(node.tool.parameters, parameters, subject, subject, root="the parameters")

    def check_writes(self, node: PlannedCall, writes: Iterable[tuple[Path, Json]]) -> None:
        """Check what a result writes against the Tool's ``_output`` and the schemas of the context.

        Raises:
            CallError: ``SchemaMismatch``, with the defects of the first value that has any, or ``tooComplex``.
        """
        checked: list[Json] = []
        schemas = self._prepared.kind_schemas
        for path, value in writes:
            if not node.is_each and not any(value is other for other in checked):  # elements are checked one by one
                checked.append(value)
                self.require_result(node, value)
            check = schemas.check_at(path) if schemas and node.method == "set" else None
            if check is not None:
                text = f"the schema of {path.kind} does not allow this at {path}"
                self._require(check, value, f"the value for {path}", text)

    def require_result(self, node: PlannedCall, value: Json) -> None:
        """Check a result against the Tool's ``_output``. Raises as ``check_writes``."""
        if node.tool.output_check is not None:
            subject = f'the result of "{node.tool.name}"'
            self._require(node.tool.output_check, value, subject, f"{subject} breaks its _output")

    def _require(self, check: Checker, value: Json, subject: str, violation: str, root: str = "") -> None:
        try:
            defects = self._find_defects(check, value)
        except TooComplex as error:
            raise CallError(TOO_COMPLEX, f"{subject}: {error}") from error
        if defects:
            places = ((pointer(*at) if at else root, why) for at, why in defects)
            text = "; ".join(f"{place}: {why}" if place else why for place, why in places)
            raise CallError(SCHEMA_MISMATCH, f"{violation}: {text}")

    def _find_defects(self, check: Checker, value: Json) -> list[Defect]:
        """The first defects of a value; in a dry run what is unknown has none."""
        if self._assume is None:
            return check.defects(value, self._work.steps)[:MAX_DEFECTS_SHOWN]
        try:
            return check.open_defects(value, self._work.steps, is_planned=False)[:MAX_DEFECTS_SHOWN]
        except TooComplex:  # the walk itself checks it
            return []
