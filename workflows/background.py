"""``Background``: one fire-and-forget Call, an Activity or a delegate, as a run of its own. Its result is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from acts.language.config import Options
from acts.language.errors import CallError
from acts.language.wire import BACKGROUND, DELEGATE, INVALID_REQUEST, SUPERSEDED
from acts.tree.records import BackgroundInput
from acts.tree.signal_records import Superseded
from acts.tree.wire_format import RecordError
from acts.views.markdown import code_span
from workflows.runtime.activity_calls import activity_options, retry_policy
from workflows.runtime.children import start_child
from workflows.runtime.lifeline import Lifeline
from workflows.runtime.missed_activities import MissedActivity, miss_of
from workflows.runtime.payloads import NOTHING, decode_record, decode_signal, encode, encode_record


@workflow.defn(name=BACKGROUND)
class BackgroundWorkflow:
    """Runs what is behind a Call without ``_outputPath``; outlives the plan that started it."""

    def __init__(self) -> None:
        self.uses_storage = False
        self._lifeline = Lifeline()
        self._show = partial(_show, "")

    @workflow.run
    async def run(self, value: RawValue = NOTHING) -> None:
        """``value`` is a ``BackgroundInput``."""
        self._lifeline.begin()
        try:
            own = decode_record(value, BackgroundInput)
        except RecordError as error:
            raise ApplicationError(str(error), type=INVALID_REQUEST, non_retryable=True) from None
        self._lifeline.token = own.token
        self.uses_storage = own.storesValues
        name = own.delegate.delegate if own.delegate is not None else str(own.activity)
        self._show = partial(_show, f"fire-and-forget: {code_span(name)}")
        self._show(None)
        try:
            await self._perform(own)
        except (FailureError, asyncio.CancelledError) as error:
            ending = self._lifeline.ending_of(error)
            if ending is None:
                raise
            raise ending from None

    async def _perform(self, own: BackgroundInput) -> None:
        if own.delegate is not None:
            policy = workflow.ParentClosePolicy.REQUEST_CANCEL
            arg = encode_record(own.delegate)
            await (await start_child(DELEGATE, "delegate", arg, own.label, self._lifeline, parent_close_policy=policy))
            return
        options = Options.model_validate(own.options)
        retries = retry_policy(options)
        args = [encode(own.call), encode(own.tool), encode(list(own.context))]

        def start(attempts: int) -> workflow.ActivityHandle[Any]:
            return workflow.start_activity(
                str(own.activity), args=args, result_type=RawValue, summary=own.label,
                **activity_options(options, replace(retries, maximum_attempts=attempts)),
            )  # fmt: skip

        try:
            await start(retries.maximum_attempts)
        except ActivityError as error:
            miss = miss_of(error, options)
            if miss is None:
                raise
            try:
                await MissedActivity(start, options, self._show).run(miss)
            except CallError as failure:
                raise ApplicationError(failure.message, type=failure.code, non_retryable=True) from None

    @workflow.signal(dynamic=True)
    def take_signal(self, name: str, args: Sequence[RawValue]) -> None:
        """Stop when the run that started this one was reset, and starts the Call again; ignore all else."""
        if name != SUPERSEDED:
            return
        try:
            record = decode_signal(args[0] if args else NOTHING, Superseded)
        except RecordError:
            return
        parent = workflow.info().parent
        is_of_tree = record.token and record.token == self._lifeline.token
        if is_of_tree and record.is_about(parent.workflow_id if parent else None, self._lifeline.started_at):
            self._lifeline.supersede(record.runId)


def _show(title: str, note: str | None) -> None:
    workflow.set_current_details(title if note is None else f"{title}\n\n{code_span(note)}")
