"""The Activity behind a Call: scheduled by its Tool's options, and what its failure means.

Retries, timeouts and queues come from the Tool's ``_options`` and nowhere else. The activity id is the
Call's key: replay then notices when Calls are started in another order, and a person finds the Call in
the Web UI.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    TimeoutType,
)
from temporalio.exceptions import (
    TimeoutError as ActivityTimeout,
)

from acts.language.errors import CallError, truncate
from acts.language.wire import (
    CANCELLED,
    MAX_PAYLOAD_BYTES,
    NOT_SERVED,
    RESULT_TOO_LARGE,
    SDK_PAYLOADS_TOO_LARGE,
    TIMEOUT,
)
from acts.tree.child_ids import short_id
from workflows.runtime.payloads import encode, payload_bytes

if TYPE_CHECKING:
    from acts.language.config import Options
    from acts.language.tools import Tool
    from acts.machines.run_commands import StartActivity
    from acts.plan.planned_call import PlannedCall

# Results of local activities are recorded by the workflow task they ran in, all of them
# in one message of 4 MiB: so few run at once (others are run as ordinary ones), and each
# is so small, that they fit beside MAX_TASK_BYTES
MAX_LOCAL: Final = 8
# However short an attempt may be, a worker that is being replaced gets this long to
# come back: a wait in the queue that times out is not retried
MIN_QUEUE_SECONDS: Final = 20.0
# Details of a Tool's failure are kept up to this size; they stand in results and prompts
MAX_DETAILS_BYTES: Final = 64 * 1024

_TIMEOUT_TEXT: Final = {
    TimeoutType.SCHEDULE_TO_START: "no worker took it from task queue {queue!r} within {wait:g} s",
    TimeoutType.HEARTBEAT: "it sent no heartbeat for {heartbeat:g} s",
    TimeoutType.START_TO_CLOSE: "an attempt took longer than {timeout:g} s",
}


class ActivityCalls:
    """Starts the Activities of one run."""

    def __init__(self) -> None:
        self._tools: dict[str, RawValue] = {}
        self._policies: dict[str, RetryPolicy] = {}
        self._no_context = encode([])
        self._local_running = 0

    def arguments(self, command: StartActivity) -> tuple[list[RawValue], int]:
        """The three arguments of an Activity, and how many bytes they are.

        Raises:
            CallError: they are too large to be recorded.
        """
        tool = command.node.tool
        if tool.name not in self._tools:
            self._tools[tool.name] = encode(tool.schema)
        context = encode(command.context) if command.context else self._no_context
        args = [encode(command.call), self._tools[tool.name], context]
        total = sum(payload_bytes(a) for a in args)
        if total > MAX_PAYLOAD_BYTES:
            text = f"its parameters, tool and scopes are {total:,} bytes; at most {MAX_PAYLOAD_BYTES:,} can be recorded"
            raise CallError(RESULT_TOO_LARGE, f"{text}: pass a reference to large data")
        return args, total

    def start(self, node: PlannedCall, args: list[RawValue]) -> workflow.ActivityHandle[Any]:
        """The Call's Activity, scheduled.

        Raises:
            CallError: a ``local`` Activity that this worker does not have.
        """
        tool, name = node.tool, str(node.tool.activity)
        if self.is_local(node):
            return self._start_local(node, name, args)
        return workflow.start_activity(
            name, args=args, result_type=RawValue, activity_id=short_id(node.key), summary=node.label,
            **activity_options(tool.options, self._policy(tool)),
        )  # fmt: skip

    def is_local(self, node: PlannedCall) -> bool:
        """True when the Call's Activity runs in the workflow task: it says ``local``, and few do now."""
        return node.tool.options.local and self._local_running < MAX_LOCAL

    def _start_local(self, node: PlannedCall, name: str, args: list[RawValue]) -> workflow.ActivityHandle[Any]:
        try:
            handle = workflow.start_local_activity(
                name, args=args, result_type=RawValue, activity_id=short_id(node.key), summary=node.label,
                start_to_close_timeout=timedelta(seconds=node.tool.options.timeout),
                retry_policy=self._policy(node.tool),
            )  # fmt: skip
        except ValueError as error:  # the SDK's word for an Activity that this worker does not have
            raise CallError(NOT_SERVED, truncate(str(error), 300)) from None
        self._local_running += 1
        handle.add_done_callback(self._local_ended)
        return handle

    def _local_ended(self, _: Any) -> None:
        self._local_running -= 1

    def _policy(self, tool: Tool) -> RetryPolicy:
        policy = self._policies.get(tool.name)
        if policy is None:
            policy = self._policies[tool.name] = retry_policy(tool.options)
        return policy


def queue_seconds(options: Options) -> float:
    """How long a Call may wait for a worker to take it."""
    return max(options.timeout, MIN_QUEUE_SECONDS)


def activity_options(options: Options, policy: RetryPolicy) -> dict[str, Any]:
    """Keyword arguments of ``start_activity``.

    The timeout bounds one attempt and, by itself, the wait for a worker: a Call that
    nobody serves ends in a clear error instead of waiting for ever.
    """
    out: dict[str, Any] = {
        "start_to_close_timeout": timedelta(seconds=options.timeout),
        "schedule_to_start_timeout": timedelta(seconds=queue_seconds(options)),
        "retry_policy": policy,
    }
    if options.taskQueue is not None:
        out["task_queue"] = options.taskQueue
    if options.heartbeat is not None:
        out["heartbeat_timeout"] = timedelta(seconds=options.heartbeat)
    return out


def retry_policy(options: Options) -> RetryPolicy:
    """The Tool's retries. A result too large to be recorded would be so again."""
    retry = options.retry
    return RetryPolicy(
        initial_interval=timedelta(seconds=retry.initialInterval),
        backoff_coefficient=retry.backoff,
        maximum_attempts=retry.maxAttempts,
        non_retryable_error_types=[*retry.nonRetryable, SDK_PAYLOADS_TOO_LARGE],
    )


def call_error(error: BaseException, options: Options, queue: str) -> CallError:
    """What a failed activity or child means for its Call."""
    cause: BaseException = error
    while isinstance(cause, (ActivityError, ChildWorkflowError)) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, CancelledError):
        return CallError(CANCELLED, "the call was cancelled")
    if isinstance(cause, ActivityTimeout):
        text = _TIMEOUT_TEXT.get(cause.type or TimeoutType.START_TO_CLOSE, "it took too long")
        figures = {
            "queue": options.taskQueue or queue, "wait": queue_seconds(options), "timeout": options.timeout,
            "heartbeat": options.heartbeat or 0,
        }  # fmt: skip
        return CallError(TIMEOUT, text.format(**figures))
    if isinstance(cause, ApplicationError):
        return CallError(cause.type or "ApplicationError", truncate(cause.message, 10_000), _details(cause))
    if isinstance(cause, CallError):
        return cause
    message = cause.message if isinstance(cause, FailureError) else str(cause)
    return CallError(type(cause).__name__, truncate(message, 10_000))


def _details(error: ApplicationError) -> Any:
    """The details a Tool attached, when they are JSON of a bearable size."""
    try:
        details = list(error.details)
        if not details or payload_bytes(encode(details)) > MAX_DETAILS_BYTES:
            return None
    except Exception:  # noqa: BLE001 - whatever a foreign SDK put there must not fail the plan
        return None
    return details[0] if len(details) == 1 else details
