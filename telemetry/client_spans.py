"""The span of a client that starts a run: the beginning of the run's trace.

The SDK's own interceptor writes one for each query and signal, too: a command that watches a run would drown in them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from temporalio.client import Interceptor, OutboundInterceptor, StartWorkflowInput, WorkflowHandle

from telemetry.trace_context import HEADER, write_header
from telemetry.tracing import Tracing, start_tracing

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVICE: Final = "acts-cli"


def client_interceptors() -> Sequence[Interceptor]:
    """What a client of this environment is made with: nothing, unless traces are switched on.

    Raises:
        TelemetryError: what the environment asks for is not there.
    """
    # Each failed attempt to reach the collector would be a line among those of the command
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    tracing = start_tracing(SERVICE)
    return () if tracing is None else (ClientSpans(tracing),)


class ClientSpans(Interceptor):
    """Writes a span for each run that the client starts, and sends it along."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - the SDK's name
        """Observe the client."""
        return _Outbound(next, self._tracing)


class _Outbound(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, tracing: Tracing) -> None:  # noqa: A002 - the SDK's name
        super().__init__(next)
        self._tracing = tracing

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002 - the SDK's name
        attributes = {"acts.run": input.id, "acts.root": input.id}
        with self._tracing.span(f"start {input.workflow}", kind="CLIENT", attributes=attributes):
            carrier = self._tracing.inject()
            if carrier:
                input.headers = {**input.headers, HEADER: write_header(carrier)}
            return await super().start_workflow(input)
