"""Every name that crosses the wire, once. Raiser and catcher, sender and handler
import it from here; a literal of one of these anywhere else is a mistake.
"""

from __future__ import annotations

from typing import Final

TASK_QUEUE: Final = "acts"

# The delegate that no definition stands behind
ANONYMOUS: Final = "anonymous"

# Workflow types
PLAN: Final = "Plan"
AGENT: Final = "Agent"
DELEGATE: Final = "Delegate"
INSTANCE: Final = "Instance"
BACKGROUND: Final = "Background"

# Signals and the update
APPROVE: Final = "approve"
REJECT: Final = "reject"
EDIT: Final = "edit"
PROVIDE: Final = "provide"
PAUSE: Final = "pause"
RESUME: Final = "resume"
DECIDE: Final = "decide"
# Between our own runs: to the root of the tree, and from there to the run that it concerns
PENDING_CHANGED: Final = "pendingChanged"
DECISION: Final = "decision"
DECISION_ANSWER: Final = "decisionAnswer"
BUDGET_REQUEST: Final = "budgetRequest"
BUDGET_GRANT: Final = "budgetGrant"
BUDGET_REPORT: Final = "budgetReport"
RUN_ENDED: Final = "runEnded"
# … and from a cancelled child to its parent
CANCELLED_REPORT: Final = "cancelledReport"

# Queries
STATUS: Final = "status"
PLAN_QUERY: Final = "plan"
CONTEXT: Final = "context"
PENDING: Final = "pending"
GRAPH: Final = "graph"
# The model activity reads the context of a run by this query, so that no history holds a prompt
PROMPT_CONTEXT: Final = "promptContext"
# What the Calls that wait for a decision would be called with
PENDING_PARAMETERS: Final = "pendingParameters"

# The activity that tells which Tools and Activities this worker serves
REGISTRY: Final = "acts.registry"
# … and the one that asks a model
MODEL: Final = "acts.model"
# … and the one that loads a saved Request
LOAD_DELEGATE: Final = "acts.delegate"

# The server refuses a payload above 2 MiB (limit.blobSize.error); the rest is room for its envelope
MAX_PAYLOAD_BYTES: Final = 2 * 1024 * 1024 - 64 * 1024

# Types of ApplicationError
INVALID_REQUEST: Final = "InvalidRequest"
PLAN_FAILED: Final = "PlanFailed"
ENGINE_ERROR: Final = "EngineError"
ALREADY_STARTED: Final = "WorkflowAlreadyStarted"
APPROVAL_TIMEOUT: Final = "ApprovalTimeout"
REFUSED: Final = "DecisionRefused"
LIMIT_EXCEEDED: Final = "LimitExceeded"
RESULT_TOO_LARGE: Final = "PayloadTooLarge"
SDK_PAYLOADS_TOO_LARGE: Final = "PayloadsTooLarge"
# … of a saved Request that was not loaded
DELEGATE_NOT_FOUND: Final = "DelegateNotFound"
DELEGATE_REFUSED: Final = "DelegateRefused"
DELEGATE_TOO_LARGE: Final = "DelegateTooLarge"
DELEGATE_INVALID: Final = "DelegateInvalid"
DELEGATE_CHANGED: Final = "DelegateChanged"
# … the one of these that is worth another attempt
DELEGATE_UNAVAILABLE: Final = "DelegateUnavailable"

# Failures of a type listed here are never worth another attempt: the same input
# would be refused again.
NON_RETRYABLE_TYPES: Final = (
    INVALID_REQUEST, PLAN_FAILED, SDK_PAYLOADS_TOO_LARGE,
    DELEGATE_NOT_FOUND, DELEGATE_REFUSED, DELEGATE_TOO_LARGE, DELEGATE_INVALID, DELEGATE_CHANGED,
)  # fmt: skip

# Codes of failed Calls, where the failure is not an ApplicationError's own type
TIMEOUT: Final = "timeout"
CANCELLED: Final = "cancelled"
REJECTED: Final = "rejected"
UNRESOLVED: Final = "UnresolvedReference"
SCHEMA_MISMATCH: Final = "SchemaMismatch"
WRONG_KIND: Final = "WrongKind"
NOT_SERVED: Final = "NotServed"
NOT_JSON: Final = "NotJson"
OUTSIDE_OUTPUT: Final = "OutsideOutputPath"
BUDGET_SPENT: Final = "BudgetExceeded"
INVALID_ANSWER: Final = "InvalidAnswer"
