"""Schedules the Activity of a Call by its Tool's options, and converts its failure into a ``CallError``.

Retries, timeouts and task queues come from the Tool's ``_options`` only. The activity id is the Call's
key, so that replay detects a changed start order, and people find the Call in the Web UI.
"""

from __future__ import annotations

from dataclasses import replace
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
    TerminatedError,
    TimeoutType,
)
from temporalio.exceptions import (
    TimeoutError as ActivityTimeout,
)

from acts.language.errors import CallError, truncate
from acts.language.wire import (
    CANCELLED,
    RESULT_TOO_LARGE,
    SDK_PAYLOADS_TOO_LARGE,
    STORED_ABOVE_BYTES,
    TIMEOUT,
)
from acts.tree.child_ids import short_id
from workflows.runtime.payload_limits import max_payload_bytes, payload_bytes, recorded_bytes, too_large_hint
from workflows.runtime.payloads import encode

if TYPE_CHECKING:
    from acts.language.config import Options
    from acts.language.tools import Tool
    from acts.machines.run_commands import StartActivity
    from acts.plan.planned_call import PlannedCall

# A longer wait before another attempt of a local Activity is a timer, so that its workflow task can end
MAX_LOCAL_WAIT: Final = timedelta(milliseconds=100)
# Larger details of a failure are dropped: results and prompts contain them
MAX_DETAILS_BYTES: Final = 64 * 1024

# What the SDK says of an Activity whose arguments cannot be decoded, or read from external storage
_UNDECODED: Final = "Failed decoding arguments"

_TIMEOUT_TEXT: Final = {
    TimeoutType.SCHEDULE_TO_START: "no worker took it from task queue {queue!r} within {wait:g} s (queueTimeout)",
    TimeoutType.HEARTBEAT: "it sent no heartbeat for {heartbeat:g} s",
    TimeoutType.START_TO_CLOSE: "an attempt took longer than {timeout:g} s",
}

_TERMINATED_TEXT: Final = (
    "its own run was terminated, by a person or by the server; what of it had run is in the history of that run, and "
    "acts retry runs it again once the root has ended"
)


class ActivityCalls:
    """Starts the Activities of one run."""

    def __init__(self) -> None:
        self._tools: dict[str, tuple[RawValue, int]] = {}  # by name: what is the same for each Call, with its size
        self._options: dict[str, dict[str, Any]] = {}
        empty = encode([])
        self._context: tuple[list[dict[str, Any]], RawValue, int] = [], empty, payload_bytes(empty)

    def arguments(self, command: StartActivity) -> tuple[list[RawValue], int, int]:
        """The three arguments of an Activity (Call, Tool, scopes), their bytes, and those that history has of them.

        Raises:
            CallError: they are too large to record.
        """
        tool = command.node.tool
        if tool.name not in self._tools:
            schema = encode(tool.schema)
            self._tools[tool.name] = schema, payload_bytes(schema)
        schema, schema_bytes = self._tools[tool.name]
        own, context, context_bytes = self._context
        if command.context is not own and (command.context or own):  # all elements of a Call have the same
            context = encode(command.context)
            context_bytes = payload_bytes(context)
            self._context = command.context, context, context_bytes
        call = encode(command.call)
        args, total = [call, schema, context], payload_bytes(call) + schema_bytes + context_bytes
        if total < STORED_ABOVE_BYTES:
            return args, total, total
        if total > max_payload_bytes():
            limit = f"at most {max_payload_bytes():,} can be recorded"
            text = f"its parameters, tool and scopes are {total:,} bytes; {limit}: {too_large_hint()}"
            raise CallError(RESULT_TOO_LARGE, text)
        return args, total, sum(recorded_bytes(payload_bytes(arg)) for arg in args)

    def start(
        self, node: PlannedCall, args: list[RawValue], attempts: int | None = None
    ) -> workflow.ActivityHandle[Any]:
        """Schedule the Call's Activity, with so many attempts or (None) as its Tool says."""
        tool = node.tool
        options = self._options_of(tool)
        if attempts is not None:
            options = {**options, "retry_policy": replace(options["retry_policy"], maximum_attempts=attempts)}
        return workflow.start_activity(
            str(tool.activity), args=args, result_type=RawValue, activity_id=short_id(node.key), summary=node.label,
            **options,
        )  # fmt: skip

    def start_local(self, node: PlannedCall, args: list[RawValue]) -> workflow.ActivityHandle[Any]:
        """Run the Call's Activity in this workflow task."""
        tool = node.tool
        return workflow.start_local_activity(
            str(tool.activity), args=args, result_type=RawValue, activity_id=short_id(node.key),
            summary=node.label, start_to_close_timeout=timedelta(seconds=tool.options.timeout),
            retry_policy=self._options_of(tool)["retry_policy"], local_retry_threshold=MAX_LOCAL_WAIT,
        )  # fmt: skip

    def _options_of(self, tool: Tool) -> dict[str, Any]:
        options = self._options.get(tool.name)
        if options is None:
            options = self._options[tool.name] = activity_options(tool.options, retry_policy(tool.options))
        return options


def activity_options(options: Options, policy: RetryPolicy) -> dict[str, Any]:
    """Keyword arguments of ``start_activity``.

    Only the time of an attempt is limited by default. How long a Call waits for a worker depends on what
    else is in the queue: that is no failure of the Call.
    """
    out: dict[str, Any] = {"start_to_close_timeout": timedelta(seconds=options.timeout), "retry_policy": policy}
    if options.queueTimeout is not None:
        out["schedule_to_start_timeout"] = timedelta(seconds=options.queueTimeout)
    if options.taskQueue is not None:
        out["task_queue"] = options.taskQueue
    if options.heartbeat is not None:
        out["heartbeat_timeout"] = timedelta(seconds=options.heartbeat)
    return out


def retry_policy(options: Options) -> RetryPolicy:
    """The Tool's retry policy; a result too large to record is never retried."""
    retry = options.retry
    return RetryPolicy(
        initial_interval=timedelta(seconds=retry.initialInterval),
        backoff_coefficient=retry.backoff,
        maximum_attempts=retry.maxAttempts,
        non_retryable_error_types=[*retry.nonRetryable, SDK_PAYLOADS_TOO_LARGE],
    )


def call_error(error: BaseException, options: Options, queue: str) -> CallError:
    """The error of a Call whose Activity or child workflow failed."""
    cause: BaseException = error
    while isinstance(cause, (ActivityError, ChildWorkflowError)) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, CancelledError):
        return CallError(CANCELLED, "the call was cancelled")
    if isinstance(cause, TerminatedError):
        return CallError(type(cause).__name__, _TERMINATED_TEXT)
    if isinstance(cause, ActivityTimeout):
        text = _TIMEOUT_TEXT.get(cause.type or TimeoutType.START_TO_CLOSE, "it took too long")
        figures = {
            "queue": options.taskQueue or queue, "wait": options.queueTimeout or 0, "timeout": options.timeout,
            "heartbeat": options.heartbeat or 0,
        }  # fmt: skip
        return CallError(TIMEOUT, text.format(**figures))
    if isinstance(cause, ApplicationError):
        # The SDK says that an argument could not be decoded, and only its cause says why: content that is not stored
        more = f": {cause.__cause__}" if cause.message == _UNDECODED and cause.__cause__ is not None else ""
        return CallError(cause.type or "ApplicationError", truncate(cause.message + more, 10_000), _details(cause))
    if isinstance(cause, CallError):
        return cause
    message = cause.message if isinstance(cause, FailureError) else str(cause)
    return CallError(type(cause).__name__, truncate(message, 10_000))


def _details(error: ApplicationError) -> Any:
    """The details of a failure, or None unless they are JSON of at most MAX_DETAILS_BYTES."""
    try:
        details = list(error.details)
        if not details or payload_bytes(encode(details)) > MAX_DETAILS_BYTES:
            return None
    except Exception:  # noqa: BLE001 - undecodable details of a foreign SDK must not fail the plan
        return None
    return details[0] if len(details) == 1 else details
