"""Every signal that a run takes, by its name, and the JSON that people send to a run.

Laws
----
* All signals pass one dynamic handler. With a handler for each name the SDK would drop a signal with several
  arguments or an unknown encoding without a word, and keep one of an unknown name for ever.
* The signals of people are described to the Web UI; those between the runs of a tree are not.
* A signal that makes no sense becomes a note. None fails the run or its task.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from temporalio.api.sdk.v1 import WorkflowInteractionDefinition

from acts.language.errors import CallError, truncate
from acts.language.values import defect
from acts.language.wire import (
    APPROVE,
    BUDGET_GRANT,
    BUDGET_REPORT,
    BUDGET_REQUEST,
    CANCELLED_REPORT,
    CHILD_RESET,
    DECISION,
    DECISION_ANSWER,
    EDIT,
    FILE_WAIT,
    MODEL_WAIT,
    NOT_JSON,
    PAUSE,
    PENDING_CHANGED,
    PERMIT_GRANT,
    PERMIT_REQUEST,
    PERMIT_RETURN,
    PLAN_EXTENSION,
    PROMPT_CONTEXT,
    PROVIDE,
    REJECT,
    RESUME,
    RESYNC,
    RUN_ENDED,
    STREAMED_CALLS,
    SUPERSEDED,
)
from acts.tree.permit_records import PermitGrant, PermitRequest, PermitReturn
from acts.tree.set_records import FileWait
from acts.tree.signal_records import (
    BudgetGrant,
    BudgetReport,
    BudgetRequest,
    CancelledReport,
    ChildReset,
    DecisionAnswer,
    ForwardedDecision,
    ModelWait,
    PendingChanged,
    PlanExtension,
    Resync,
    RunEnded,
    StreamedCalls,
    Superseded,
    TreeSignal,
)
from workflows.runtime.payloads import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from temporalio.api.sdk.v1 import WorkflowMetadata
    from temporalio.common import RawValue

AIM: Final = 'No input needed; {"workflowId"?, "instance"?} names one run below.'
WHICH: Final = '"call"? names a call, "workflowId"? and "instance"? one of several; "version"? what you have seen'

# What people send, with what the Web UI says of it
PEOPLES_SIGNALS: Final[Mapping[str, str]] = {
    APPROVE: f'Let it run: {{}} or {{"call": "2:refund", "by": "Ada", "note": "…"}}. {WHICH}.',
    REJECT: f'Do not let it run: {{"reason": "…", "call": "2:refund", "by": "Ada"}}. {WHICH}.',
    EDIT: f'Change: {{"plan": [calls]}} or {{"call": "2:refund", "with": {{call}}}}, then approve. {WHICH}.',
    PAUSE: f"Start no more calls; what runs goes on. {AIM}",
    RESUME: f"Go on after pause. {AIM}",
    PROVIDE: 'Give a message that the run waits for: {"type": "input", "input": {"name": "value"}}',
}
# What the runs of a tree send each other
TREE_SIGNALS: Final[Mapping[str, type[TreeSignal]]] = {
    PENDING_CHANGED: PendingChanged,
    DECISION: ForwardedDecision,
    DECISION_ANSWER: DecisionAnswer,
    BUDGET_REQUEST: BudgetRequest,
    BUDGET_GRANT: BudgetGrant,
    BUDGET_REPORT: BudgetReport,
    PERMIT_REQUEST: PermitRequest,
    PERMIT_GRANT: PermitGrant,
    PERMIT_RETURN: PermitReturn,
    RUN_ENDED: RunEnded,
    CANCELLED_REPORT: CancelledReport,
    SUPERSEDED: Superseded,
    RESYNC: Resync,
    CHILD_RESET: ChildReset,
    STREAMED_CALLS: StreamedCalls,
    PLAN_EXTENSION: PlanExtension,
    FILE_WAIT: FileWait,
    MODEL_WAIT: ModelWait,
}
# Queries that our own Activities make
_ENGINES_QUERIES: Final = (PROMPT_CONTEXT, STREAMED_CALLS)
# How alike a misspelt name must be to be recognised: `aprove` and `approve` are 0.92, `stop` and `provide` 0.36
_LIKENESS: Final = 0.7
# Characters of a name that a note shows; the server allows 1,000
_MAX_NAME: Final = 60


def read_input(value: RawValue) -> Any:
    """The JSON that a person sent with a signal or an update.

    Raises:
        CallError: it is none, or cannot be stored.
    """
    try:
        data = decode(value)
    except CallError as error:
        raise CallError(error.code, error.message.replace("the result", "the input")) from error
    problem = defect(data)
    if problem is not None:
        raise CallError(NOT_JSON, f"the input cannot be stored: {truncate(problem[0], 60) or 'it'}: {problem[1]}")
    return data


def read_aim(value: RawValue) -> dict[str, Any]:
    """The run below that a signal names; empty where the signal holds anything else."""
    try:
        aim = read_input(value)
    except CallError:
        return {}
    return aim if isinstance(aim, dict) else {}


def unknown_signal(name: str) -> str:
    """The note about a signal that no run takes, with the name that was probably meant."""
    near = get_close_matches(name.lower()[:_MAX_NAME], PEOPLES_SIGNALS, n=1, cutoff=_LIKENESS)
    hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(PEOPLES_SIGNALS)}"
    return f'the signal "{truncate(name, _MAX_NAME)}" is unknown and was ignored; {hint}'


def describe_interactions(metadata: WorkflowMetadata, *, takes_signals: bool) -> None:
    """Make the Web UI offer what is for people: their signals, and no query of the engine's own."""
    definition = metadata.definition
    del definition.signal_definitions[:]
    for name, text in PEOPLES_SIGNALS.items() if takes_signals else ():
        definition.signal_definitions.append(WorkflowInteractionDefinition(name=name, description=text))
    shown = [query for query in definition.query_definitions if query.name not in _ENGINES_QUERIES]
    del definition.query_definitions[:]
    definition.query_definitions.extend(shown)
