"""``Agent``: the loop of planning and walking. This version does not run it, and says so."""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from acts.errors import InvalidRequest, Problem
from acts.wire import AGENT, INVALID_REQUEST
from workflows.payloads import NOTHING


@workflow.defn(name=AGENT)
class AgentWorkflow:
    """Refuses: better than a run that waits for ever for a worker that knows its type."""

    @workflow.run
    async def run(self, _: RawValue = NOTHING) -> None:
        """Fails at once."""
        problem = Problem("notSupported", "agents are not run by this version", hint="a plan of your own runs as Plan")
        error = InvalidRequest([problem])
        raise ApplicationError(str(error), error.to_json(), type=INVALID_REQUEST, non_retryable=True)
