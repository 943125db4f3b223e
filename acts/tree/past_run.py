"""What a run takes over from an earlier one: each Call of that one as a record, and the digests that say "unchanged".

Laws of this file: it says what is compared, ``machines/past.py`` what follows from it. A digest is of JSON whose
keys are sorted, so it does not depend on how a file was written. The records are on the wire: an activity returns them,
a run carries those that it has not used into the next.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from acts.language.values import Json
from acts.plan.calls import PlannedCall
from acts.tree.wire_format import Record, VersionedRecord, digest

_CHARACTERS: Final = 32  # of a digest: 128 bits, two values never meet by chance
_COMMENTS: Final = ("_reasoningForCall",)  # for people, and no part of what a Call does
# Of a Tool: what answers Calls
_ANSWERING: Final = ("_tool", "_activity", "_delegate", "_outputPath", "_errorPath", "_scopes")


class UndoStep(Record):
    """What undoes a Call that has completed, whose ``_id`` is ``id``: a Tool with parameters, or why nothing can."""

    call: str
    id: str
    instance: str | None = None
    tool: str
    parameters: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies defaults
    problem: str | None = None


class PastCall(Record):
    """One Call of the earlier run; ``outcome``, ``written`` and ``error`` are those of its ``CallState``."""

    call: str
    # It had ``completed``, or is ``detached``: started, and nobody waits for it; or is ``open``: it may have been
    # started, and has no result
    state: str
    id: str  # its ``_id``
    planned: str  # the digest of the Call as planned
    reads: str = ""  # … of what it was started with; empty where that cannot be read any more
    instance: str | None = None
    outcome: int = 0
    written: tuple[Any, ...] = ()  # values, in the order of the outcome's paths
    error: dict[str, Any] | None = None
    undo: dict[int, tuple[UndoStep, ...]] = {}  # noqa: RUF012 - pydantic copies defaults
    # Of an open one with ``_each``, by index: the results of its elements, and the ``_id``s of those without one
    results: tuple[Any, ...] = ()
    open: dict[int, str] = {}  # noqa: RUF012 - pydantic copies defaults


class PastInstance(Record):
    id: str
    status: str
    digest: str  # of what the child was started with for it
    report: dict[str, Any] | None = None  # what the child said of it, if it completed
    # The child, if it was started
    workflowId: str | None = None
    runId: str | None = None


class PastResults(Record):
    """A results file of an earlier run over a set; ``run`` is the identity of the run that it belongs to."""

    file: str
    run: str


class PastHistory(Record):
    """An earlier run over a set without a results file: what its rows have come to is in its history."""

    workflowId: str
    runId: str


class PastRow(Record):
    id: str
    status: str
    isLine: bool = False  # it could not be used: its id is ``line`` and its line in the set
    hasErrors: bool = False  # a failure of it took an error path


class PastSet(Record):
    identity: str  # what the ``_id``s of its rows derive from
    id: str | None = None  # the field with the ids of its rows
    source: str = ""  # the name of the file that it read
    isUndone: bool = False  # rows that failed were undone
    results: tuple[PastResults | PastHistory, ...] = ()  # of the runs that it resumed, the oldest first, then its own
    rows: tuple[PastRow, ...] = ()  # those that ended in this run of the workflow, if it has no results file


class PastRun(VersionedRecord):
    workflowId: str
    runId: str
    plan: tuple[str, ...] = ()  # the ids of its Calls
    prompt: str = ""  # the digest of what its latent Calls were shown
    provided: tuple[Any, ...] = ()
    calls: tuple[PastCall, ...] = ()
    instances: tuple[PastInstance, ...] = ()
    undone: tuple[str, ...] = ()  # the ``_id``s of the Calls that it has undone
    set: PastSet | None = None

    def without(self, undone: Container[str]) -> PastRun:
        """Its results without those undone since: such a Call runs again, with another ``_id``."""
        calls = tuple(c for c in self.calls if not any(s.id in undone for steps in c.undo.values() for s in steps))
        reports = ((item, (item.report or {}).get("undo", ())) for item in self.instances)
        instances = tuple(
            item.model_copy(update={"report": None}) if any(step["id"] in undone for step in steps) else item
            for item, steps in reports
        )
        return self.model_copy(update={"calls": calls, "instances": instances})


class _PastTerms(Record):
    calls: tuple[str, ...] | None = None  # the ids of those that may be taken over; None: all
    keepsIds: bool = True
    hasSamePrompt: bool = True  # what latent Calls are shown by the root is unchanged


class PastSource(_PastTerms):
    """The runs of the earlier tree that a child takes over from, and how: what its parent has decided."""

    runs: tuple[tuple[str, str | None], ...]  # workflow id and run id
    instances: tuple[str, ...]


class PastState(_PastTerms):
    """What a run that continues as new still needs of an earlier one."""

    source: dict[str, Any]
    past: tuple[PastRun, ...]
    taken: dict[str, str] = {}  # noqa: RUF012 - pydantic copies defaults; the ``_id`` of what it took over, by key


def planned_digest(node: PlannedCall) -> str:
    """The digest of a Call as planned, and of whether it has a result at all: its Tool may gain an output path."""
    detached = {"": "detached"} if node.is_detached else {}
    return digest({k: v for k, v in node.planned.items() if k not in _COMMENTS} | detached, _CHARACTERS)


def reads_digest(node: PlannedCall, call: Mapping[str, Any], context: Iterable[Any], prompt: str, more: Json) -> str:
    """The digest of what a Call is started with.

    ``call`` has its references resolved, ``context`` is what its scopes show, ``more`` what its elements are made of.
    Of the Tool counts what answers the Call: its Activity or its delegate. A latent Call is answered by a model, which
    is shown the whole Tool and the context of the run (``prompt``).
    """
    own = {k: v for k, v in call.items() if k != "_id" and k not in _COMMENTS}
    answers = [node.kind, node.delegate, node.tool.activity]
    prompted = [dict(node.tool.schema), prompt] if node.kind == "latent" else []
    return digest([own, list(context), answers, prompted, more], _CHARACTERS)


def prompt_digest(messages: Iterable[Mapping[str, Any]], *, instances: bool) -> str:
    """The digest of what latent Calls are shown of a context: instructions and data, without Tools and plans.

    ``instances``: with the data of instances; without them it is what all instances are shown.
    """
    parts = [m for m in messages if m.get("type") not in ("tool", "plan") and (instances or "_instance" not in m)]
    return digest(parts, _CHARACTERS)


def request_digest(request: Mapping[str, Any]) -> str:
    """The digest of what one instance is walked with: its data and its Calls. Of a Tool counts what answers Calls."""
    parts: list[Any] = []
    for message in request["context"]:
        if message.get("type") == "tool" and isinstance(tool := message["tool"], dict):
            parts.append({k: v for k, v in {**tool, **(tool.get("properties") or {})}.items() if k in _ANSWERING})
        elif message.get("type") == "plan":
            parts.append([{k: v for k, v in c.items() if k not in _COMMENTS} for c in message["plan"]])
        else:
            parts.append(message)
    return digest(parts, _CHARACTERS)
