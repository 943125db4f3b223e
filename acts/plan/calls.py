"""A planned Call: what it reads, where it writes, what answers it, and what its elements are made of.

``CallReader`` builds these records from the JSON of a plan; nothing changes them afterwards. What becomes of a Call
while its plan runs is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.admission import Work
from acts.language.errors import CallError, TooComplex, truncate
from acts.language.reference_uses import ITEM, ReferenceUse, resolve_references
from acts.language.references import Path, conjunction, is_absent, paths
from acts.language.tools import META, CallKind, Tool
from acts.language.values import ABSENT, UNKNOWN, Json, get, type_name, with_article
from acts.language.wire import ANONYMOUS, LIMIT_EXCEEDED, TOO_COMPLEX, UNRESOLVED, WRONG_KIND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from acts.language.config import Approve
    from acts.language.reference_uses import ReferenceUse


# The kind of a call that is a child of the run: the child walks the Calls of some instances
UNIT: Final = "instance"
# The results of all elements are one value, and that of a Call has to fit one payload of 2 MB
MAX_ELEMENTS: Final = 10_000
# Meta-properties that are for the engine alone
_NOT_SENT: Final = ("_output", "_when", "_each")
# Characters of a label: a summary in the Web UI is one line
MAX_LABEL: Final = 200
# In a ``||`` without an ``_errorPath``, the alternative that takes a failure has one of these as
# the last name of its last path
_ERROR_WORDS: Final = frozenset({"error", "errors", "failed", "failure"})
_ERROR_ENDINGS: Final = ("Error", "Failed")


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A Call of a plan. ``id`` is ``<position from 1>:<tool>``, ``index`` the position from 0.

    ``planned`` is the Call's own JSON; ``call`` is the same with the Tool's constants applied and
    without what only the Tool decides. ``reads`` are the expressions and escaped texts of its parameters, of ``_each``
    and of ``_when``; ``condition`` is that of ``_when``.

    ``outcomes`` are the alternatives of ``_outputPath``, each a conjunction of paths, and after
    them an ``_errorPath`` of its own. A result takes one of the first ``result_outcome_count``, a
    failure the one at the index ``error`` (None: a failure is not written).

    ``name`` tells apart the Calls of instances that are walked together. A *unit* is no Call: it
    is a child that walks all Calls of the instances in ``members``. An *element* is one start of a Call
    with ``_each``: ``element`` is its index, its id ends in ``[index]``, and it writes nothing itself.
    """

    index: int
    id: str
    tool: Tool
    planned: dict[str, Any]
    call: dict[str, Any]
    pointer: str
    instance: str | None
    kind: CallKind
    delegate: str | None
    reads: tuple[ReferenceUse, ...]
    scopes: tuple[Path, ...]
    outcomes: tuple[tuple[Path, ...], ...]
    result_outcome_count: int
    error: int | None
    method: str
    condition: ReferenceUse | None = None
    name: str = ""
    members: tuple[str, ...] = ()
    element: int | None = None

    @property
    def key(self) -> str:
        """The Call's name within a walk: unique where several instances have Calls of the same id."""
        return self.name or self.id

    @property
    def parameters(self) -> dict[str, Any]:
        """The Call without its meta-properties."""
        return {k: v for k, v in self.call.items() if k not in META}

    @property
    def sent(self) -> dict[str, Any]:
        """What its Activity, its model or its delegate is given of the Call, with its expressions in place."""
        return {k: v for k, v in self.call.items() if k not in _NOT_SENT}

    @property
    def parameter_uses(self) -> list[ReferenceUse]:
        """The expressions of the parameters."""
        return [use for use in self.reads if use.at[0] not in META]

    @property
    def is_each(self) -> bool:
        """True for a Call that is made once per element of a list."""
        return "_each" in self.call and self.element is None

    def resolve(
        self, read: Callable[[Path], Json], work: Work | None = None
    ) -> tuple[dict[str, Any], list[ReferenceUse]]:
        """What is sent of the Call, every expression replaced by what it yields, and the uses that are absent."""
        return resolve_references(self.sent, self.parameter_uses, read, work)

    def element_node(self, index: int) -> PlannedCall:
        """One start of a Call with ``_each``."""
        name = f"{self.name}[{index}]" if self.name else ""
        return replace(
            self, id=f"{self.id}[{index}]", name=name, element=index, outcomes=self.outcomes[:1],
            result_outcome_count=min(1, self.result_outcome_count), error=None,
        )  # fmt: skip

    @property
    def writes(self) -> tuple[Path, ...]:
        """Every path the Call may write, without repeats."""
        if len(self.outcomes) == 1 == len(self.outcomes[0]):
            return self.outcomes[0]
        return tuple(dict.fromkeys(p for outcome in self.outcomes for p in outcome))

    @property
    def is_detached(self) -> bool:
        """True for fire-and-forget: the Call is started, and its result is dropped."""
        return not self.outcomes and self.kind in ("activity", "delegate")

    @property
    def runs_activity(self) -> bool:
        """True when an Activity answers, here or in an anonymous delegate: its result may choose an outcome."""
        return self.kind == "activity" or (self.delegate == ANONYMOUS and bool(self.tool.activity))

    @property
    def literal_output(self) -> Json:
        """The ``_output`` of a latent Call, or ABSENT."""
        return self.call.get("_output", ABSENT) if self.kind == "latent" else ABSENT

    @property
    def result_outcomes(self) -> tuple[tuple[Path, ...], ...]:
        """The outcomes that a result may choose."""
        return self.outcomes[: self.result_outcome_count]

    @property
    def outcome_texts(self) -> list[str]:
        """The outcomes that a result may choose, each as one expression."""
        return [conjunction(outcome) for outcome in self.result_outcomes]

    @property
    def label(self) -> str:
        """``tool → path``, for the summary of the Call's activity or child: printable, at most 200 characters."""
        where = " || ".join(self.outcome_texts)
        name = self.tool.name if self.element is None else f"{self.tool.name}[{self.element}]"
        text = f"{name} → {where}" if where else name
        if self.kind == UNIT:
            text = f"instance {self.id}"
        text = text if self.instance is None else f"{text} [{self.instance}]"
        if not text.isprintable():
            text = "".join(c if c.isprintable() else "�" for c in text)
        return truncate(text, MAX_LABEL)

    @property
    def is_branching(self) -> bool:
        """True when a result chooses between several outcomes."""
        return self.result_outcome_count > 1


def error_alternative(outcomes: Sequence[Sequence[Path]]) -> int | None:
    """The index of the alternative of a ``||`` that takes a failure, by its last name, or None."""
    if len(outcomes) == 1:
        return None
    for index, outcome in enumerate(outcomes):
        names = outcome[-1].names
        if names and (names[-1] in _ERROR_WORDS or names[-1].endswith(_ERROR_ENDINGS)):
            return index
    return None


def approval_needed(call: PlannedCall, approve: Approve) -> str | None:
    """What a human confirms of a Call: ``call``, ``scopes``, or None."""
    listed = approve.calls is True or (isinstance(approve.calls, tuple) and call.tool.name in approve.calls)
    if listed or call.tool.approval or call.call.get("_approval") is True:
        return "call"
    return "scopes" if approve.scopes and call.scopes and "_scopes" not in call.tool.consts else None


@dataclass(frozen=True, slots=True)
class ElementReading:
    """What the elements of a Call are made of.

    ``items`` are the elements, ``call`` what they share, with the expressions of ``uses`` in place; ``values``
    are those of the context that these expressions read besides, and ``context`` what the Call's scopes show.
    ``is_known`` is False in a dry run that does not know the list: one unknown element stands for all.
    """

    items: list[Json]
    call: dict[str, Any]
    uses: tuple[ReferenceUse, ...] = ()
    values: dict[Path, Json] = field(default_factory=dict)
    context: list[dict[str, Any]] = field(default_factory=list)
    is_known: bool = True
    work: Work = field(default_factory=Work, compare=False)

    def resolve(self, index: int) -> dict[str, Any]:
        """The Call of one element.

        Raises:
            CallError: an expression yields nothing for it, or its texts are too long.
        """
        read = self._reader(index)
        try:
            call, missing = resolve_references(self.call, self.uses, read, self.work)
        except TooComplex as error:
            raise CallError(TOO_COMPLEX, str(error)) from error
        if missing:
            texts = ", ".join(dict.fromkeys(text for use in missing for text in use.absent_texts(read)))
            raise CallError(UNRESOLVED, f"there is no value at {texts}")
        return dict(call)

    def find_partly_missing(self) -> list[ReferenceUse]:
        """The expressions that yield nothing for some element and read a path that the context lacks.

        What an element alone lacks is the failure of that element.

        Raises:
            TooComplex: all elements of the plan have too many of them.
        """
        mixed = [use for use in self.uses if any(self.values[path] is ABSENT for path in use.paths)]
        self.work.steps.spend(3 * len(self.items) * sum(len(paths(use.tree)) for use in mixed))
        readers = [self._reader(index) for index in range(len(self.items))] if mixed else []
        return [use for use in mixed if any(is_absent(use.tree, read) for read in readers)]

    def _reader(self, index: int) -> Callable[[Path], Json]:
        item = self.items[index]

        def read(path: Path) -> Json:
            if path in self.values:
                return self.values[path]
            return get(item if path.kind == ITEM else index, path.names)

        return read


def read_elements(
    node: PlannedCall, read: Callable[[Path], Json], context: list[dict[str, Any]], work: Work
) -> tuple[ElementReading, list[ReferenceUse]]:
    """What the elements of a Call are made of, and the expressions that yield nothing for all of them.

    Raises:
        CallError: ``_each`` yields no list, or too long a one.
        TooComplex: texts, or values that are repeated, are more than is allowed.
    """
    uses = [use for use in node.reads if use.at[0] == "_each"]
    each, missing = resolve_references({"_each": node.call["_each"]}, uses, read, work)
    items = each["_each"]
    own = tuple(use for use in node.parameter_uses if use.is_of_element)
    shared = [use for use in node.parameter_uses if not use.is_of_element]
    call, more = resolve_references(node.sent, shared, read, work)
    missing += more
    if missing:
        return ElementReading([], call), missing
    is_known = items is not UNKNOWN
    items = items if is_known else [UNKNOWN]
    if not isinstance(items, list):
        text = f"_each needs a list; {node.call['_each']} is {with_article(type_name(items))}"
        raise CallError(WRONG_KIND, text)
    if len(items) > MAX_ELEMENTS:
        raise CallError(LIMIT_EXCEEDED, f"_each has {len(items):,} elements; at most {MAX_ELEMENTS:,} are allowed")
    values = {path: read(path) for use in own for path in use.paths}
    return ElementReading(items, call, own, values, context, is_known, work), []
