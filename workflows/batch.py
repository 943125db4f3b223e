"""``Batch``: walks a page of a set. It reads its rows by an activity, and each row is an instance of the plan."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from acts.language.errors import InvalidRequest
from acts.language.request_reader import read_request
from acts.language.wire import BATCH, INVALID_REQUEST, READ_PAGE
from acts.machines.batch_run import BatchRun, PageResults
from acts.machines.plan_setup import PlanSetup
from acts.plan.validate import validate_parsed
from acts.tree.records import Capabilities
from acts.tree.set_records import BatchInput
from acts.tree.set_rows import page_request
from acts.views.run_views import PlanView, forecast_plan
from workflows.plan import FATAL, identify
from workflows.runtime import results
from workflows.runtime.handlers import RunWorkflow
from workflows.runtime.model_calls import own_context
from workflows.runtime.payloads import NOTHING, decode_record
from workflows.runtime.set_activities import run_set_activity
from workflows.runtime.startup import complete_position

if TYPE_CHECKING:
    from collections.abc import Sequence


@workflow.defn(name=BATCH, failure_exception_types=FATAL)
class BatchWorkflow(RunWorkflow):
    """The instances of one page."""

    @workflow.run
    async def run(self, value: RawValue = NOTHING) -> RawValue:
        """``value`` is what the run over the set sends."""
        return await self.guarded(self._run(value), value)

    async def _run(self, value: RawValue) -> RawValue:
        own = decode_record(value, BatchInput)
        own = own.model_copy(update={"position": await complete_position(own.position, value)})
        workflow.set_current_details(f"**reading** {own.page.rows} rows")
        read = await _final(run_set_activity(READ_PAGE, _page_query(own), f"read rows {own.page.row:,} …"))
        rows, page = read["rows"], PageResults(own, read["rows"], read["bad"])
        setup = _setup(own, rows, page) if rows else None
        if setup is None:
            return await _write_lines(own, page)
        run = BatchRun(
            workflow.info().workflow_id, setup, partial(identify, own.position.identity, None), forecast_plan, page
        )
        try:
            actions = await self.drive(run, PlanView(run), _cannot_carry, {})
        except asyncio.CancelledError:
            await self.report_cancelled({**page.report(), "usage": run.usage.to_json()})
            raise
        return results.batch_result(run, actions)


def _page_query(own: BatchInput) -> dict[str, Any]:
    query = {
        "source": own.set.source, "id": own.set.id, "dialect": own.dialect, "page": own.page.to_json(),
        "repeated": list(own.repeated), "root": own.position.ancestors[0], "token": own.position.token,
    }  # fmt: skip
    return {**query, "skipped": list(own.skipped)} if own.skipped else query


async def _final(activity: Any) -> Any:
    """What an activity returns; its failure is that of the run."""
    try:
        return await activity
    except ActivityError as error:
        cause = error.__cause__
        if is_cancelled_exception(error) or not isinstance(cause, ApplicationError):
            raise
        raise ApplicationError(cause.message, type=cause.type, non_retryable=True) from None


def _setup(own: BatchInput, rows: Sequence[Any], page: PageResults) -> PlanSetup | None:
    """What the run knows before it begins; None where the plan fits none of its rows, which have failed then."""
    raw = page_request(own, rows)
    capabilities = own.capabilities or Capabilities()
    try:
        parsed = read_request(raw)
        prepared = validate_parsed(parsed, capabilities.tools, capabilities.served)
    except InvalidRequest as error:
        problem = next((p for p in error.problems if p.fatal), error.problems[0])
        item = {"call": problem.call, "code": INVALID_REQUEST, "message": problem.text()}
        for _, id_, _ in rows:
            page.add(id_, {"status": "failed", "errors": [item]})
        return None
    source = own_context(len(parsed.context))
    return PlanSetup(raw, prepared, capabilities, own.position, source, own, own.lease)


async def _write_lines(own: BatchInput, page: PageResults) -> RawValue:
    """The result of a page of which no row runs: their lines are written."""
    command = page.append()
    while command is not None:
        await _final(run_set_activity(command.activity, command.argument, command.label))
        command = page.appended(None)
    return results.idle_batch_result(page, own.lease)


def _cannot_carry(_actions: dict[str, int]) -> Any:
    raise AssertionError("a Batch does not continue as new")
