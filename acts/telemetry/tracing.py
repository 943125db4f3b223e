"""OpenTelemetry traces: the provider of this process, its spans, and which span a run or a Call belongs to.

Switched on by OpenTelemetry's own variables. The library comes with the extra ``otel``, imported only then.

The span of a run has an id that follows from the run's own, so that every worker that works on the run, and each
replay, names it alike, long before its end, when it is written. A run that was started with the header of the
SDK's tracing interceptors (the same in every language) belongs to that trace; any other begins one whose id follows
from the root's first run. The SDK's own plugin would draw ids from the workflow's randomness, so that workers with and
without traces disagree about a run, and writes the text of each exception into a span, encrypted payloads or not.

Laws of this file: no content (parameters, results, prompts, answers); an error is a type, and a message only where
somebody wrote it for people (an ``ApplicationError``).
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Interceptor, OutboundInterceptor, StartWorkflowInput, WorkflowHandle
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from acts.language.errors import SettingsError, install_hint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.trace import Span, SpanContext


# The header of the SDKs' own interceptors; its value is a W3C carrier
HEADER: Final = "_tracer-data"
TRACE_PARENT: Final = "traceparent"
_TRACE_PARENT_FORM: Final = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
ROOT: Final = "acts-root"
INSTANCE: Final = "acts-instance"


def read_header(headers: Mapping[str, Payload]) -> dict[str, str]:
    """The carrier in the headers of a run or an Activity; empty if there is none that can be read."""
    payload = headers.get(HEADER)
    try:
        carrier = PayloadConverter.default.from_payloads([payload])[0] if payload is not None else None
    except Exception:  # noqa: BLE001 - a header of another program: a trace is not worth a failure
        return {}
    return {k: v for k, v in carrier.items() if isinstance(v, str)} if isinstance(carrier, dict) else {}


def add_header(headers: Mapping[str, Payload], carrier: Mapping[str, str]) -> dict[str, Payload]:
    return {**headers, HEADER: PayloadConverter.default.to_payloads([dict(carrier)])[0]}


def _digits(text: str, count: int) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:count], 16) or 1


ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SCOPE: Final = "acts"
# Spans that have not been sent when the process stops
FLUSH_SECONDS: Final = 3.0
MAX_MESSAGE: Final = 300


@dataclass(frozen=True)
class Tracing:
    """The traces of one process: ``processor`` takes the spans that ``provider`` makes."""

    provider: TracerProvider
    processor: SpanProcessor
    current: ClassVar[Tracing | None] = None  # that of this process, while traces are on

    @contextmanager
    def span(
        self, name: str, *, kind: str = "SERVER", attributes: Mapping[str, Any] | None = None,
        carrier: Mapping[str, str] | None = None,
    ) -> Iterator[Span]:  # fmt: skip
        """A span around a block, below the span of ``carrier`` or the current one; an attribute None is left out."""
        from opentelemetry import trace
        from opentelemetry.propagate import extract

        with self.provider.get_tracer(SCOPE).start_as_current_span(
            name, extract(carrier) if carrier else None, kind=trace.SpanKind[kind],
            attributes={key: value for key, value in (attributes or {}).items() if value is not None},
            record_exception=False, set_status_on_exception=False,
        ) as span:  # fmt: skip
            try:
                yield span
            except BaseException as error:
                status = read_status(error)
                if status is not None:
                    span.set_attribute("error.type", status[0])
                    span.set_status(trace.StatusCode.ERROR, status[1])
                raise

    def stop(self) -> None:
        """Send what is left; returns within ``FLUSH_SECONDS``, also where no collector answers."""
        # The exporter tries again and again; a process that ends does not wait for that
        ending = threading.Thread(target=self.provider.shutdown, name="flush", daemon=True)
        ending.start()
        ending.join(FLUSH_SECONDS)


def read_status(error: BaseException | None) -> tuple[str, str] | None:
    """The type of an error and its text, where that was written for people; None for what is no failure.

    Where payloads are encrypted, the text is the type alone, since a text may hold any value.
    """
    is_benign = getattr(error, "category", None) == ApplicationErrorCategory.BENIGN
    # The SDK raises the one named here in an Activity that another program completes
    if error is None or is_benign or type(error).__name__ == "_CompleteAsyncError":
        return None
    type_ = str(getattr(error, "type", None) or getattr(error, "code", None) or type(error).__name__)
    is_written = isinstance(error, ApplicationError) and not os.environ.get("ACTS_CODEC_KEYS")
    return type_, error.message[:MAX_MESSAGE] if is_written and error.message else type_  # type: ignore[attr-defined]


class RunSpans:
    """The place of one run in its trace, in workflow code: what it was started with, its parent's span and its own.

    It is made before the run, so all is read when first needed. The span is written once, when the run ends.
    """

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    @cached_property
    def carrier(self) -> dict[str, str]:
        return read_header(workflow.info().headers)

    @cached_property
    def parent(self) -> SpanContext | None:
        match = _TRACE_PARENT_FORM.fullmatch(self.carrier.get(TRACE_PARENT, ""))
        parent = match and _context(*(int(digits, 16) for digits in match.groups()))
        return parent if parent and parent.is_valid else None

    @cached_property
    def own(self) -> SpanContext:
        info = workflow.info()
        span_id = _digits(f"span {info.run_id}", 16)
        if self.parent is not None:
            return _context(self.parent.trace_id, span_id, self.parent.trace_flags)
        from opentelemetry.context import Context

        trace_id = _digits(f"trace {info.first_execution_run_id}", 32)
        # The usual samplers decide by the id alone
        decision: Any = self._tracing.provider.sampler.should_sample(Context(), trace_id, "run").decision
        return _context(trace_id, span_id, int(decision.is_sampled()))

    def add_to(self, headers: Mapping[str, Payload], root: str, instance: str | None) -> dict[str, Payload]:
        """The headers of what this run starts: below its span."""
        own = f"00-{self.own.trace_id:032x}-{self.own.span_id:016x}-{self.own.trace_flags:02x}"
        place = {ROOT: root} | ({} if instance is None else {INSTANCE: instance})
        return add_header(headers, {**self.carrier, TRACE_PARENT: own, **place})

    def emit(self, attributes: dict[str, str], error: BaseException | None) -> None:
        """Write the span of a run that ends; from the thread of a workflow task, so nothing waits here."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode

        info, own, status = workflow.info(), self.own, read_status(error)
        attributes |= {"acts.run": info.workflow_id, "acts.run.id": info.run_id}
        attributes |= {} if status is None else {"error.type": status[0]}
        before = info.continued_run_id and _digits(f"span {info.continued_run_id}", 16)
        self._tracing.processor.on_end(
            ReadableSpan(
                info.workflow_type, own, self.parent, self._tracing.provider.resource, attributes,
                links=[Link(_context(own.trace_id, before, own.trace_flags))] if before else [],
                kind=SpanKind.SERVER, status=Status() if status is None else Status(StatusCode.ERROR, status[1]),
                start_time=round(info.workflow_start_time.timestamp() * 1e9), end_time=workflow.time_ns(),
                instrumentation_scope=InstrumentationScope(SCOPE),
            )
        )  # fmt: skip


def _context(trace_id: int, span_id: int, flags: int) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))


def is_requested() -> bool:
    """True where the environment asks for traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(map(os.environ.get, ENDPOINTS))


def start_tracing(service: str) -> Tracing | None:
    """Begin to trace, if the environment asks for it. Raises SettingsError where the extra is not installed.

    ``service`` is the default of ``OTEL_SERVICE_NAME``.
    """
    if not is_requested():
        return None
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        hint = install_hint("otel")
        raise SettingsError(f"{ENDPOINTS[1]} is set, and traces need OpenTelemetry's SDK: {hint} ({error})") from None
    tracing = create_tracing(service, BatchSpanProcessor(OTLPSpanExporter()))
    # For what Tools and libraries write themselves: it belongs to the spans of their Calls
    trace.set_tracer_provider(tracing.provider)
    Tracing.current = tracing
    return tracing


def create_tracing(service: str, processor: SpanProcessor) -> Tracing:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    attributes = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    # ``stop`` ends it: at the interpreter's own end it would wait for a collector that does not answer
    provider = TracerProvider(shutdown_on_exit=False, resource=Resource.create(attributes))
    provider.add_span_processor(processor)
    return Tracing(provider, processor)


class ClientSpans(Interceptor):
    """Writes a span for each run that the client starts, and sends it along."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - the SDK's name
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        tracing = self._tracing

        class Outbound(OutboundInterceptor):
            async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002 - the SDK's name
                attributes = {"acts.run": input.id, "acts.root": input.id}
                carrier: dict[str, str] = {}
                with tracing.span(f"start {input.workflow}", kind="CLIENT", attributes=attributes):
                    TraceContextTextMapPropagator().inject(carrier)
                    input.headers = add_header(input.headers, carrier)
                    return await super().start_workflow(input)

        return Outbound(next)
