"""Every name that crosses the wire, defined once: workflow types, signals, queries, Activities, error types.

Sender and handler, raiser and catcher import it from here; no other file spells one of them out.
"""

from __future__ import annotations

from typing import Final

TASK_QUEUE: Final = "acts"
ANONYMOUS: Final = "anonymous"
# Behind the Tool ``plan``, whose Calls hold their plan; of one by its name, with that behind a slash
PLAN_TOOL: Final = "plan"
DELEGATE_SUFFIX: Final = ".json"  # of a definition in a folder; a Call may leave it out
INNER_PLAN: Final = "acts:plan"
# Behind the Tool ``wait``: no worker has it, the run itself waits
WAIT: Final = "acts.wait"
# Delegates that have no definition to load
NOT_LOADED: Final = ("", ANONYMOUS, INNER_PLAN)
# Workflow types
PLAN: Final = "Plan"
AGENT: Final = "Agent"
DELEGATE: Final = "Delegate"
INSTANCE: Final = "Instance"
BACKGROUND: Final = "Background"
BATCH: Final = "Batch"
# The last part of the id of the run that undoes another; the query for its Request; the decision to have it
UNDO: Final = "undo"
# Signals and the update
APPROVE: Final = "approve"
REJECT: Final = "reject"
EDIT: Final = "edit"
ANSWER: Final = "answer"
REVOKE: Final = "revoke"
PROVIDE: Final = "provide"
PAUSE: Final = "pause"
RESUME: Final = "resume"
# When a provided message counts: after the tick of an agent, or at once
NEXT: Final = "next"
NOW: Final = "now"
INTERRUPT: Final = "interrupt"  # from an agent to the runs that walk its plan
DECIDE: Final = "decide"
# Queries
STATUS: Final = "status"
PLAN_QUERY: Final = "plan"
CONTEXT: Final = "context"
PENDING: Final = "pending"
GRAPH: Final = "graph"
# The model Activity reads a run's context by this query, so that no history contains a prompt
PROMPT_CONTEXT: Final = "promptContext"
# It asks so whether Calls of its answer have come
STREAMED_CALLS: Final = "streamedCalls"
# The resolved parameters of the Calls with pending approvals
SUBJECTS: Final = "subjects"
# Activities
REGISTRY: Final = "acts.registry"
LIST_TOOLS: Final = "acts.tools"
QUEUES: Final = "acts.queues"
SEARCH_ATTRIBUTES: Final = "acts.searchAttributes"
APPROVERS: Final = "acts.approvers"
CAPS: Final = "acts.caps"
MODEL: Final = "acts.model"
PAST_RUN: Final = "acts.pastRun"
LOAD_DELEGATE: Final = "acts.delegate"
LOAD_PLAN: Final = "acts.plan"
SURVEY_SET: Final = "acts.surveySet"
READ_PAGE: Final = "acts.readPage"
CREATE_RESULTS: Final = "acts.createResults"
APPEND_RESULTS: Final = "acts.appendResults"
CLOSE_PAGE: Final = "acts.closePage"
# The server refuses a payload above 2 MiB (limit.blobSize.error); the rest is room for its envelope
MAX_PAYLOAD_BYTES: Final = 2 * 1024 * 1024 - 64 * 1024
# With external storage, values from this size on travel as references …
STORED_ABOVE_BYTES: Final = 128 * 1024
# … up to this one: as objects it takes ten times the memory, and 1 to 2 s of the 10 s of a workflow task to read
MAX_STORED_BYTES: Final = 64 * 1024 * 1024
# So many unusable answers of a model in a row end a run, and a latent Call: more would only cost
MAX_UNUSABLE_ANSWERS: Final = 3
# Types of ApplicationError
INVALID_REQUEST: Final = "InvalidRequest"
PLAN_FAILED: Final = "PlanFailed"
ENGINE_ERROR: Final = "EngineError"
SUPERSEDED_RUN: Final = "Superseded"
ALREADY_STARTED: Final = "WorkflowAlreadyStarted"
APPROVAL_TIMEOUT: Final = "ApprovalTimeout"
REFUSED: Final = "DecisionRefused"
LIMIT_EXCEEDED: Final = "LimitExceeded"
RESUME_REFUSED: Final = "ResumeRefused"
TASK_STUCK: Final = "TaskStuck"
RESULT_TOO_LARGE: Final = "PayloadTooLarge"
VALUE_LOST: Final = "ValueLost"
SDK_PAYLOADS_TOO_LARGE: Final = "PayloadsTooLarge"
LOCAL_DEFERRED: Final = "LocalOutcomeDeferred"
DELEGATE_NOT_FOUND: Final = "DelegateNotFound"
DELEGATE_REFUSED: Final = "DelegateRefused"
DELEGATE_TOO_LARGE: Final = "DelegateTooLarge"
DELEGATE_INVALID: Final = "DelegateInvalid"
DELEGATE_CHANGED: Final = "DelegateChanged"
# … the only one of these that Temporal retries
DELEGATE_UNAVAILABLE: Final = "DelegateUnavailable"
PLAN_NOT_FOUND: Final = "PlanNotFound"
# … for a set that cannot be read; only the last one is retried
SET_NOT_FOUND: Final = "SetNotFound"
SET_REFUSED: Final = "SetRefused"
SET_INVALID: Final = "InvalidSet"
SET_TOO_LARGE: Final = "SetTooLarge"
SET_CHANGED: Final = "SetChanged"
SET_UNAVAILABLE: Final = "SetUnavailable"
# … for a results file: not allowed, there already, and (retried, for as long as it takes) not writable now
RESULTS_REFUSED: Final = "ResultsRefused"
RESULTS_EXIST: Final = "ResultsExist"
RESULTS_UNAVAILABLE: Final = "ResultsUnavailable"
# … of a Call of an MCP server's tool
MCP_TOOL_ERROR: Final = "McpToolError"
MCP_REFUSED: Final = "McpRefused"
MCP_TOOL_CHANGED: Final = "McpToolChanged"
# … retried if the Tool may be called again: the server is not up, or ended in mid-call
MCP_UNAVAILABLE: Final = "McpUnavailable"
MCP_INTERRUPTED: Final = "McpInterrupted"
# … of an activity whose payloads need a key that its worker does not have: the class of the codec's error
UNKNOWN_KEY: Final = "UnknownKey"

# Failures of these types are never retried: the same input would fail again
NON_RETRYABLE_TYPES: Final = (
    INVALID_REQUEST, PLAN_FAILED, SDK_PAYLOADS_TOO_LARGE,
    DELEGATE_NOT_FOUND, DELEGATE_REFUSED, DELEGATE_TOO_LARGE, DELEGATE_INVALID, DELEGATE_CHANGED,
    PLAN_NOT_FOUND, SET_NOT_FOUND, SET_REFUSED, SET_INVALID, SET_TOO_LARGE, SET_CHANGED, RESULTS_REFUSED,
    RESULTS_EXIST,
)  # fmt: skip

# Error codes of failed Calls; a failed Activity has the type of its ApplicationError instead
TIMEOUT: Final = "timeout"
CANCELLED: Final = "cancelled"
REJECTED: Final = "rejected"
# A Call of an answer that could not be used, which had not started when that became known
NOT_RUN: Final = "notRun"
INVALID_SOLUTION: Final = "invalidSolution"
# An answer whose Calls had started, and that nobody reads to its end any more
INTERRUPTED: Final = "modelInterrupted"
BATCHED: Final = "modelBatched"  # no failure: the request waits in a batch of the provider
UNRESOLVED: Final = "UnresolvedReference"
SCHEMA_MISMATCH: Final = "SchemaMismatch"
BAD_RESULT: Final = "badResult"  # what a Call returned does not fit: its effect may have happened
# … also the code of a Problem: a check would take longer than a limit allows
TOO_COMPLEX: Final = "tooComplex"
WRONG_KIND: Final = "WrongKind"
RULES_DIFFER: Final = "RulesDiffer"
NOT_SERVED: Final = "NotServed"
NOT_JSON: Final = "NotJson"
OUTSIDE_OUTPUT: Final = "OutsideOutputPath"
EACH_FAILED: Final = "eachFailed"
UNTIL_UNMET: Final = "untilUnmet"  # a plan has ended, and its ``until`` does not hold
# Of a row of a set that cannot be used, and of one whose id an earlier row has
BAD_ROW: Final = "badRow"
DUPLICATE_ID: Final = "duplicateId"
# … and of one whose Batch was terminated, or failed, before it reported the row
BATCH_LOST: Final = "BatchLost"
BUDGET_SPENT: Final = "BudgetExceeded"
INVALID_ANSWER: Final = "InvalidAnswer"

# The codes of the engine's own failures. Activities may use the same codes, and messages quote values,
# so such text counts as coming from outside
ENGINE_CODES: Final = frozenset({
    TIMEOUT, CANCELLED, UNRESOLVED, SCHEMA_MISMATCH, WRONG_KIND, NOT_SERVED, NOT_JSON, OUTSIDE_OUTPUT, BUDGET_SPENT,
    INVALID_ANSWER, RESULT_TOO_LARGE, SDK_PAYLOADS_TOO_LARGE, APPROVAL_TIMEOUT, BAD_RESULT, RULES_DIFFER,
})  # fmt: skip
