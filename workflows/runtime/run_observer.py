"""Around each run: its span, the headers that carry it on, and what is counted and logged when it ends.

The span of a run is written once, when the run ends, with an id that was known from its start (``trace_context.py``).
The SDK's tracing interceptor writes spans without a duration, one more for each Activity, and its plugin draws on the
workflow's randomness; both would also have to be the same on all workers that replay a run.

Laws of this file: no OpenTelemetry here, and no command but for headers; nothing is written during a replay.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    Interceptor,
    StartActivityInput,
    StartChildWorkflowInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

from telemetry import metrics
from telemetry.trace_context import (
    HEADER,
    INSTANCE,
    ROOT,
    TRACE_PARENT,
    RunSpan,
    SpanRef,
    own_trace_id,
    parse_trace_parent,
    read_header,
    run_span_id,
    write_header,
)
from workflows.runtime.handlers import RunWorkflow
from workflows.runtime.run_meters import used_shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from temporalio.api.common.v1 import Payload
    from temporalio.worker import WorkflowInterceptorClassInput

    from acts.machines.run_machine import RunMachine

CONTINUED = "continuedAsNew"


class SpanSink(Protocol):
    """Where the spans of runs go."""

    def is_sampled(self, trace_id: str) -> bool: ...
    def emit(self, span: RunSpan) -> None: ...


class RunObserver(Interceptor):
    """Observes the runs of a worker; ``sink`` None: they have no spans."""

    def __init__(self, sink: SpanSink | None = None) -> None:
        self._sink = sink

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 - the SDK's name
    ) -> type[WorkflowInboundInterceptor]:
        """Observe each run, from outside of all other interceptors."""
        sink = self._sink

        class Inbound(_Inbound):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                self.spans = None if sink is None else RunSpans(sink)
                super().init(outbound if self.spans is None else _Outbound(outbound, self.spans))

        return Inbound


class RunSpans:
    """The place of one run in its trace, read when it is first needed: the SDK makes interceptors before the run."""

    def __init__(self, sink: SpanSink) -> None:
        self._sink = sink
        self._below: tuple[tuple[str, str | None], Payload] | None = None  # by place: the header of what it starts

    @cached_property
    def carrier(self) -> dict[str, str]:
        """What the run was started with."""
        return read_header(workflow.info().headers)

    @cached_property
    def parent(self) -> SpanRef | None:
        """The span that started the run."""
        return parse_trace_parent(self.carrier.get(TRACE_PARENT))

    @cached_property
    def own(self) -> SpanRef:
        """The span of the run."""
        info = workflow.info()
        if self.parent is not None:
            return SpanRef(self.parent.trace_id, run_span_id(info.run_id), self.parent.is_sampled)
        trace_id = own_trace_id(info.first_execution_run_id)
        return SpanRef(trace_id, run_span_id(info.run_id), self._sink.is_sampled(trace_id))

    def add_to(self, headers: Mapping[str, Payload]) -> dict[str, Payload]:
        """The headers of what this run starts: below its span."""
        place = place_of(_machine())
        if self._below is None or self._below[0] != place:  # the machine knows more than the run did before it read
            root, instance = place
            carrier = {**self.carrier, TRACE_PARENT: self.own.trace_parent, ROOT: root}
            carrier |= {} if instance is None else {INSTANCE: instance}
            self._below = place, write_header(carrier)
        return {**headers, HEADER: self._below[1]}

    def add_to_next(self, headers: Mapping[str, Payload]) -> dict[str, Payload]:
        """The headers of the run that continues this one: beside its span."""
        return {**headers, HEADER: write_header(self.carrier)} if self.carrier else dict(headers)

    def emit(self, phase: str, error: BaseException | None) -> None:
        """Write the span."""
        if not self.own.is_sampled:
            return
        info = workflow.info()
        root, instance = place_of(_machine())
        attributes: dict[str, str | int] = {
            "acts.run": info.workflow_id, "acts.run.id": info.run_id, "acts.root": root, "acts.phase": phase,
        }  # fmt: skip
        attributes |= {} if instance is None else {"acts.instance": instance}
        before = info.continued_run_id
        failure = error if isinstance(error, ApplicationError) else None
        self._sink.emit(
            RunSpan(
                info.workflow_type, self.own, self.parent, round(info.workflow_start_time.timestamp() * 1e9),
                workflow.time_ns(), attributes,
                () if before is None else (SpanRef(self.own.trace_id, run_span_id(before)),),
                None if failure is None else failure.type or "ApplicationError",
                "" if failure is None else failure.message,
            )
        )  # fmt: skip


class _Inbound(WorkflowInboundInterceptor):
    spans: RunSpans | None = None

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002 - the SDK's name
        try:
            result = await super().execute_workflow(input)
        except workflow.ContinueAsNewError:
            self._end(CONTINUED, None)
            raise
        except (FailureError, asyncio.CancelledError) as error:
            self._end(_phase(error), error)
            raise
        self._end(_phase(None), None)
        return result

    def _end(self, phase: str, error: BaseException | None) -> None:
        """The run ends now, unless it is replayed; an eviction counts as a replay."""
        if not workflow.in_workflow() or workflow.unsafe.is_replaying():
            return
        if self.spans is not None:
            self.spans.emit(phase, error)
        if phase != CONTINUED and workflow.info().parent is None:
            _record_end(phase)
            level = logging.WARNING if phase == "failed" else logging.INFO
            type_ = f": {error.type}" if isinstance(error, ApplicationError) and error.type else ""
            workflow.logger.log(level, "%s ended: %s%s", workflow.info().workflow_type, phase, type_)


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, spans: RunSpans) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._spans = spans

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        input.headers = self._spans.add_to(input.headers)
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002 - the SDK's name
        input.headers = self._spans.add_to(input.headers)
        return super().start_local_activity(input)

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> workflow.ChildWorkflowHandle[Any, Any]:  # noqa: A002 - the SDK's name
        input.headers = self._spans.add_to(input.headers)
        return await super().start_child_workflow(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:  # noqa: A002 - the SDK's name
        input.headers = self._spans.add_to_next(input.headers)
        super().continue_as_new(input)


def _machine() -> RunMachine | None:
    run = workflow.instance()
    return run.machine if isinstance(run, RunWorkflow) else None


def place_of(machine: RunMachine | None) -> tuple[str, str | None]:
    """The workflow id of the root of a run's tree, and the instance that it works for."""
    own = workflow.info().workflow_id
    if machine is None:
        return read_header(workflow.info().headers).get(ROOT, own), None
    position = machine.position
    return (position.ancestors[0] if position.ancestors else own), position.instance


def _phase(error: BaseException | None) -> str:
    """How a run ended, in the words of ``status``."""
    machine = _machine()
    if isinstance(error, ApplicationError):
        return "failed"
    if error is not None:
        return "cancelled"
    return "completed" if machine is None or machine.finished is None else machine.finished


def _record_end(phase: str) -> None:
    meters, info, machine = metrics.meters(), workflow.info(), _machine()
    if meters is None:
        return
    type_ = info.workflow_type
    meters.add(metrics.RUNS, type=type_, phase=phase)
    began = info.workflow_start_time
    if machine is not None and machine.position.startedAt:  # that of the first run, where it continued as new
        began = datetime.fromisoformat(machine.position.startedAt)
    meters.record(metrics.RUN_SECONDS, max(0.0, workflow.time() - began.timestamp()), type=type_)
    if machine is not None:
        for limit, share in used_shares(machine).items():
            meters.record(metrics.BUDGET_LEFT, max(0.0, 1.0 - share), limit=limit)
