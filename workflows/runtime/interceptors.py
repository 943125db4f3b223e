"""Interceptors: what the SDK would let through, and what would then fail a task or terminate a run.

* The outcome of a local Activity: it is kept back where the message of its workflow task has no room for it
  (``local_outcomes``).
* A large result: it fails its Activity, readably, where the run's history has no room for it (``result_room``).
* An Activity that this worker does not have: it would take the next attempt itself, eagerly (``missed_activities``).
* The SDK's list of a run's signals and queries: the Web UI offers what stands in it. Ours is a table, since one
  dynamic handler takes all signals.
* The page of a run (the SDK's current details) is drawn by the query that shows it. Drawn at the end of each
  workflow task, it took a tenth of the time of a replay, and nearly always nobody looked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from temporalio import activity, workflow
from temporalio.api.failure.v1 import Failure
from temporalio.common import RawValue
from temporalio.converter import DefaultFailureConverter
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    HandleQueryInput,
    Interceptor,
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

from acts.language.wire import BACKGROUND, LOCAL_DEFERRED
from workflows.runtime.handlers import RunWorkflow
from workflows.runtime.local_outcomes import KeptOutcome, LocalOutcomes
from workflows.runtime.missed_activities import must_go_through_queue
from workflows.runtime.payload_limits import HAS_STORAGE
from workflows.runtime.result_room import ResultRoom
from workflows.runtime.signals import describe_interactions

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.worker import WorkflowInterceptorClassInput

# The query by which the Web UI asks a run for its handlers and its page; the answer is a ``WorkflowMetadata``
_METADATA: Final = "__temporal_workflow_metadata"


class SanitizingInterceptor(Interceptor):
    """Installs the interceptors in a worker. ``client`` tells how large a history is; None: nobody asks."""

    def __init__(self, client: Client | None = None) -> None:
        self._outcomes = LocalOutcomes()
        self._room = None if client is None else ResultRoom(client)
        self._has_storage = client is not None and client.data_converter.external_storage is not None

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - the SDK's name
        """Check the sizes of outcomes."""
        return _Outcomes(next, self._outcomes, self._room)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """Describe the signals that are for people, draw the page, and count the tasks of local Activities."""
        outcomes = self._outcomes
        input.unsafe_extern_functions[HAS_STORAGE] = lambda: self._has_storage

        class Inbound(_Inbound):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(_Outbound(outbound, outcomes))

        return Inbound


class _Outcomes(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, outcomes: LocalOutcomes, room: ResultRoom | None) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._outcomes, self._room = outcomes, room

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        info = activity.info()
        if info.workflow_run_id is None:
            return await super().execute_activity(input)
        if info.is_local:
            return await self._execute_local(input, info.workflow_run_id, info.activity_id)
        result = await self._execute(input, info.workflow_run_id, info.activity_id)
        if result is None or self._room is None:
            return result
        payload = activity.payload_converter().to_payload(result)
        await self._room.require(info, payload.ByteSize())
        return RawValue(payload)

    async def _execute(self, input: ExecuteActivityInput, run_id: str, activity_id: str) -> Any:  # noqa: A002 - the SDK's name
        """The outcome that was kept of a local Activity with this id, or that of the Activity itself."""
        outcome = self._outcomes.take(run_id, activity_id)
        if outcome is None:
            return await super().execute_activity(input)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    async def _execute_local(self, input: ExecuteActivityInput, run_id: str, activity_id: str) -> Any:  # noqa: A002 - the SDK's name
        try:
            result = await super().execute_activity(input)
            payload = None if result is None else activity.payload_converter().to_payload(result)
            # Encoded once: the SDK passes a RawValue on as it is
            outcome = (
                KeptOutcome(None, None, 0)
                if payload is None
                else KeptOutcome(RawValue(payload), None, payload.ByteSize())
            )
        except Exception as error:  # noqa: BLE001 - it is raised again, here or by the ordinary activity
            outcome = KeptOutcome(None, error, _failure_bytes(error))
        if not self._outcomes.admit(run_id, outcome.size):
            self._outcomes.keep(run_id, activity_id, outcome)
            raise ApplicationError(
                f"the outcome has {outcome.size:,} bytes: an ordinary activity returns it",
                type=LOCAL_DEFERRED, non_retryable=True, category=ApplicationErrorCategory.BENIGN,
            )  # fmt: skip
        if outcome.error is not None:
            raise outcome.error
        return outcome.value


def _failure_bytes(error: BaseException) -> int:
    failure = Failure()
    DefaultFailureConverter().to_failure(error, activity.payload_converter(), failure)
    return failure.ByteSize()


class _Inbound(WorkflowInboundInterceptor):
    async def handle_query(self, input: HandleQueryInput) -> Any:  # noqa: A002 - the SDK's name
        answer = await super().handle_query(input)
        if input.query != _METADATA:
            return answer
        describe_interactions(answer, takes_signals=workflow.info().workflow_type != BACKGROUND)
        run = workflow.instance()
        page = run.page() if isinstance(run, RunWorkflow) else None
        if page is not None:
            answer.current_details = page
        return answer


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, outcomes: LocalOutcomes) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._outcomes = outcomes

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        if must_go_through_queue.get():
            input.disable_eager_execution = True
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        info = workflow.info()
        self._outcomes.begin_task(info.run_id, info.get_current_history_length())
        return super().start_local_activity(input)
