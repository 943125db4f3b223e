"""The child that walks the plan of a tick: how it is started, and how it gets Calls that are written meanwhile.

Laws of this file: it decides nothing about the loop. ``AgentRun`` says when a plan starts and what its end means;
``streamed_plan`` says what of an answer that is still being written can start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.machines.loop_steps import AskModel, DropRest, StartPlan
from acts.machines.provided_messages import provide_signal
from acts.machines.run_commands import StartPlanRun
from acts.machines.streamed_plan import StreamedPlan, may_stream
from acts.tree.identity import part_identity
from acts.tree.records import ContextRef, PlanInput, SettledRequest
from acts.tree.signal_records import PlanExtension, StreamedCalls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acts.machines.agent_run import AgentRun
    from acts.machines.events import ChildEnded


class TickChild:
    """The child of one agent, which has one at a time. ``stream`` is the answer that is being written, if it may start.

    ``settled_before`` are the requests whose end the child reports to the root with its own.
    """

    def __init__(self, run: AgentRun) -> None:
        self.stream: StreamedPlan | None = None
        self.settled_before: tuple[SettledRequest, ...] = ()
        self._run = run

    def expect_answer(self) -> None:
        """The model is asked now: unless Calls are counted first, its answer may start a child while it is written."""
        run = self._run
        self.stream = StreamedPlan(run.loop) if may_stream(run.loop) and not run.budget.limits_calls else None

    @property
    def is_streaming(self) -> bool:
        """True while a child walks the beginning of an answer that is not complete."""
        return self.stream is not None and self.stream.has_started and not self.stream.is_over

    @property
    def started_calls(self) -> list[Any]:
        """The Calls of the answer that the child has."""
        return [] if self.stream is None else self.stream.started_calls

    def start(self, tick: int, request: dict[str, Any], ids: Sequence[str], *, is_growing: bool = False) -> list[Any]:
        """Start the plan, and give it the messages that came after its Request was built."""
        run, name = self._run, f"plan-{tick}"
        self.settled_before = run.budget.take_unreported()
        position = run.position.child(run.own, identity=part_identity(run.position.identity, name))
        own = PlanInput(
            request=request, position=position, part=True, isGrowing=is_growing,
            capabilities=run.setup.capabilities.model_copy(update={"tools": {}}),
            context=ContextRef(workflowId=run.own, runId=run.setup.run_id,
                               messageCount=len(run.loop.request.context)),
            approve=(run.setup.raw.get("config") or {}).get("approve"), forecast=run.proposals.take_forecast(),
            settled=self.settled_before,
        )  # fmt: skip
        start = StartPlanRun(name, f"tick {tick}: {', '.join(ids)}", own)
        return [start, *map(provide_signal, run.provided.messages)]

    def extend(self, record: StreamedCalls, step: AskModel) -> list[Any]:
        """More Calls of the answer have come: what can start is passed on."""
        if self.stream is None or record.tick != step.tick:
            return []
        part = self.stream.add(record, may_start=not self._run.is_paused)
        if part is None or isinstance(part, PlanExtension):
            return [] if part is None else list(self.stream.send(part))
        ids = [call["id"] for call in self._run.loop.results.walking]
        return self.start(step.tick, part, [*ids, "…"], is_growing=True)

    def complete(self, step: StartPlan | DropRest) -> list[Any]:
        """The answer is complete: its plan gets the rest, or the word that there is none."""
        stream = self.stream
        if stream is None:
            return []
        last = (
            PlanExtension(isComplete=True, dropped=step.reason)
            if isinstance(step, DropRest)
            else stream.complete(step.request)
        )
        permits = self._run.permits.hand_over_more(f"plan-{step.tick}")  # that of the request, too
        return list(stream.send(last.model_copy(update={"permits": permits})))

    def started(self, workflow_id: str) -> list[Any]:
        """The child runs: it gets what has been written since its start."""
        return [] if self.stream is None else list(self.stream.child_started(workflow_id))

    def ended_early(self, event: ChildEnded) -> bool:
        """True when the child ended before the answer was complete; its end is then judged with the answer."""
        if self.stream is None:
            return False
        self.stream.child_ended(event)
        return True
