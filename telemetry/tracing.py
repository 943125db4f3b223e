"""OpenTelemetry traces: the provider of this process, and the spans that are written through it.

Switched on by OpenTelemetry's own variables: ``OTEL_EXPORTER_OTLP_ENDPOINT`` (or ``…_TRACES_ENDPOINT``), and off by
``OTEL_SDK_DISABLED`` and ``OTEL_TRACES_EXPORTER=none``. The SDK comes with the extra ``otel``, imported only then.

Laws of this file: no content (parameters, results, prompts, answers); an error is a type, and a message only where
somebody wrote it for people (an ``ApplicationError``).
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from telemetry.telemetry_settings import TelemetryError
from telemetry.trace_context import TRACE_PARENT, RunSpan, SpanRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.trace import Span, Tracer

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXTRA: Final = "pip install 'acts-engine[otel]'"
SCOPE: Final = "acts"
# Spans that have not been sent when the process stops
FLUSH_SECONDS: Final = 3.0
MAX_MESSAGE: Final = 300
# What the SDK raises in an Activity that another program completes
_ASYNC: Final = "_CompleteAsyncError"


class Tracing:
    """The traces of one process; ``tracer`` writes them."""

    def __init__(self, provider: TracerProvider, ids: Any) -> None:
        self.provider = provider
        self.tracer: Tracer = provider.get_tracer(SCOPE)
        self._ids = ids

    def is_sampled(self, trace_id: str) -> bool:
        """Whether a trace without a parent is recorded; the usual samplers decide by its id alone."""
        decision: Any = self.provider.sampler.should_sample(_context_of(None), int(trace_id, 16), "run").decision
        return bool(decision.is_sampled())

    def emit(self, span: RunSpan) -> None:
        """Write the span of a run that has ended; from the thread of a workflow task, so nothing waits here."""
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode

        context = _context_of(span.parent)
        with self._ids.fixed(int(span.own.trace_id, 16), int(span.own.span_id, 16)):
            written = self.tracer.start_span(
                span.name, context, kind=SpanKind.SERVER, attributes=dict(span.attributes), start_time=span.start_ns,
                links=[Link(_span_context(ref)) for ref in span.links],
            )  # fmt: skip
        if span.error is not None:
            written.set_attribute("error.type", span.error)
            written.set_status(Status(StatusCode.ERROR, _status_text(span.message, span.error)))
        written.end(span.end_ns)

    @contextmanager
    def span(
        self, name: str, *, kind: str = "SERVER", attributes: Mapping[str, Any] | None = None,
        carrier: Mapping[str, str] | None = None,
    ) -> Iterator[Span]:  # fmt: skip
        """A span around a block, below the span of ``carrier`` or the current one."""
        from opentelemetry import trace
        from opentelemetry.propagate import extract

        context = extract(carrier) if carrier else None
        with self.tracer.start_as_current_span(
            name, context, kind=getattr(trace.SpanKind, kind), attributes=attributes or {}, record_exception=False,
            set_status_on_exception=False,
        ) as span:  # fmt: skip
            try:
                yield span
            except BaseException as error:
                mark_failed(span, error)
                raise

    def inject(self) -> dict[str, str]:
        """The current span as a carrier."""
        from opentelemetry.propagate import inject

        carrier: dict[str, str] = {}
        inject(carrier)
        return carrier if TRACE_PARENT in carrier else {}

    def stop(self) -> None:
        """Send what is left; returns within ``FLUSH_SECONDS``, also where no collector answers."""
        # The exporter tries again and again; a process that ends does not wait for that
        ending = threading.Thread(target=self.provider.shutdown, name="flush", daemon=True)
        ending.start()
        ending.join(FLUSH_SECONDS)


def mark_failed(span: Span, error: BaseException) -> None:
    """Give a span the type of an error, and its message where it was written for people; none that is no failure."""
    from opentelemetry.trace import Status, StatusCode
    from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

    if getattr(error, "category", None) == ApplicationErrorCategory.BENIGN or type(error).__name__ == _ASYNC:
        return
    is_declared = isinstance(error, ApplicationError)
    type_ = getattr(error, "type", None) or getattr(error, "code", None) or type(error).__name__
    span.set_attribute("error.type", str(type_))
    message = str(getattr(error, "message", "")) if is_declared else str(type_)
    span.set_status(Status(StatusCode.ERROR, _status_text(message, str(type_))))


def _status_text(message: str, type_: str) -> str:
    """A failure's text, for people; where payloads are encrypted its type alone, since a text may hold any value."""
    return type_ if os.environ.get("ACTS_CODEC_KEYS") else message[:MAX_MESSAGE] or type_


def is_requested(environment: Mapping[str, str] | None = None) -> bool:
    """True where the environment asks for traces."""
    values = os.environ if environment is None else environment
    if values.get("OTEL_SDK_DISABLED", "").lower() == "true" or values.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(values.get(name) for name in ENDPOINTS)


def start_tracing(service: str) -> Tracing | None:
    """Begin to trace, if the environment asks for it; ``service`` is the default of ``OTEL_SERVICE_NAME``.

    Raises:
        TelemetryError: the extra is not installed, or the protocol is another one.
    """
    if not is_requested():
        return None
    protocol = next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        hint = "collectors take http/protobuf at port 4318"
        raise TelemetryError(f"{PROTOCOLS[1]} is {protocol!r}; traces are sent as http/protobuf: {hint}")
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TelemetryError(f"{ENDPOINTS[1]} is set, and traces need OpenTelemetry's SDK: {EXTRA} ({error})") from None
    from opentelemetry import trace

    tracing = create_tracing(service, BatchSpanProcessor(OTLPSpanExporter()))
    # For what Tools and libraries write themselves: it belongs to the spans of their Calls
    trace.set_tracer_provider(tracing.provider)
    use(tracing)
    return tracing


def create_tracing(service: str, *processors: SpanProcessor) -> Tracing:
    """Traces that go to these processors."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class FixedIds(RandomIdGenerator):
        """Random ids, but those of ``fixed`` in its block and thread."""

        def __init__(self) -> None:
            self._local = threading.local()

        @contextmanager
        def fixed(self, trace_id: int, span_id: int) -> Iterator[None]:
            self._local.ids = trace_id, span_id
            try:
                yield
            finally:
                self._local.ids = None

        def generate_trace_id(self) -> int:
            ids = getattr(self._local, "ids", None)
            return super().generate_trace_id() if ids is None else int(ids[0])

        def generate_span_id(self) -> int:
            ids = getattr(self._local, "ids", None)
            return super().generate_span_id() if ids is None else int(ids[1])

    ids = FixedIds()
    attributes = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": service}
    # ``stop`` ends it: at the interpreter's own end it would wait for a collector that does not answer
    provider = TracerProvider(shutdown_on_exit=False, resource=Resource.create(attributes), id_generator=ids)
    for processor in processors:
        provider.add_span_processor(processor)
    return Tracing(provider, ids)


_current: Tracing | None = None


def use(tracing: Tracing | None) -> None:
    """Write the spans of this process here from now on; None: nowhere."""
    global _current  # noqa: PLW0603 - one process has one provider
    _current = tracing


def flush() -> None:
    """Send what is left of this process, if it traces; for a program that exits at once."""
    if _current is not None:
        _current.stop()


def tracing() -> Tracing | None:
    """The traces of this process; None while they are off."""
    return _current


def _context_of(ref: SpanRef | None) -> Context:
    from opentelemetry import trace
    from opentelemetry.context import Context

    return (
        Context() if ref is None else trace.set_span_in_context(trace.NonRecordingSpan(_span_context(ref)), Context())
    )


def _span_context(ref: SpanRef) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED if ref.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(int(ref.trace_id, 16), int(ref.span_id, 16), is_remote=True, trace_flags=flags)
