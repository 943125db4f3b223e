"""A plan as a child of a workflow: what workflow code may call. It reads no clock, file or environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError, is_cancelled_exception

from acts.client.run_reader import RunResult, outcome_of_failure, outcome_of_value
from acts.client.start_runs import make_request, summarize
from acts.language.wire import AGENT, PLAN, TASK_QUEUE


async def run_plan(
    plan: str | Mapping[str, Any], input: Mapping[str, Any] | None = None, *, id: str | None = None,  # noqa: A002 - the words of the protocol
    agent: bool = False, task_queue: str = TASK_QUEUE, **options: Any,
) -> RunResult:  # fmt: skip
    """Run a plan by its name, or a Request, as a child of this workflow, and wait for its end, whatever it is.

    ``task_queue`` is that of the engine's worker; ``options`` are those of ``workflow.execute_child_workflow``. Raises
    nothing but the cancellation of this workflow.
    """
    request = make_request(plan, input)
    id_ = id or f"{workflow.info().workflow_id}/{workflow.uuid4()}"
    options = {"static_summary": summarize(request), **options}
    try:
        value = await workflow.execute_child_workflow(
            AGENT if agent else PLAN, request, id=id_, task_queue=task_queue, **options
        )
    except ChildWorkflowError as error:
        if is_cancelled_exception(error) and workflow.cancellation_reason() is not None:
            raise  # it is this workflow that was cancelled
        return replace(outcome_of_failure(error.cause), id=id_)
    return outcome_of_value(value, id_)
