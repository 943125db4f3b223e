"""What people and programs see of a run: status, page, drawing, context, result. One view per kind of run.

Views read a run machine and change nothing; the runtime sizes and sends what they return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from acts.language.errors import ActsError
from acts.language.expression_parser import parse
from acts.language.references import Expression
from acts.language.shared_sizes import SharedSizes
from acts.language.strict_json import json_size
from acts.machines import call_report
from acts.machines.instance_results import child_progress, instance_report, statuses
from acts.simulation.forecast_vs_actual import (
    FIGURES,
    actual_figures,
    compare_known,
    expected_ranges,
    seconds_since_approval,
    sum_tables,
)
from acts.tree.plan_request import prompt_context
from acts.tree.search_attributes import COST, MAX_KEYWORD, MODEL, PHASE, TOOLS, WAITING, tool_keywords
from acts.views import approval_page, results
from acts.views.markdown import code_span
from acts.views.mermaid import render_graph
from acts.views.result_cuts import MAX_BATCH_RESULT, MAX_RESULT, cut_result
from acts.views.web_page import agent_page, approvals_section, plan_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from acts.machines.agent_run import AgentRun
    from acts.machines.delegate_run import AnonymousDelegate, DelegateMachine
    from acts.machines.plan_run import PlanRun
    from acts.machines.run_machine import RunMachine
    from acts.plan.validate import ValidatedPlan

# Decisions that ``status`` lists, the latest
MAX_DECISIONS: Final = 100
# The answer to a query travels in one message; the default page of ``context``
PAGE: Final = 1000
# Errors of a delegate that its parent is given
MAX_ERRORS: Final = 20


class RunView(Protocol):
    """What the queries of a run answer."""

    def status(self) -> dict[str, Any]: ...
    def page(self) -> str: ...
    def plan(self) -> list[Any]: ...
    def context(self, page: Any, limit: int) -> Any: ...
    def prompt_context(self, page: Any, limit: int) -> dict[str, Any]: ...
    def graph(self, options: Any) -> Any: ...
    def pending_parameters(self, limit: int) -> dict[str, Any]: ...
    def search_values(self) -> dict[str, Any]: ...


def forecast_plan(prepared: ValidatedPlan, *, child: bool = False) -> dict[str, Any] | None:
    """What a plan will cost, as the ranges that a person approves; None where it cannot be simulated.

    ``child``: an agent starts the run.
    """
    report = approval_page.simulate_for_page(prepared, child=child)
    return None if report is None else expected_ranges(report)


def add_common(run: RunMachine, status: dict[str, Any]) -> dict[str, Any]:
    """A status with what all runs have: how much waits for people, remarks, decisions."""
    if waits := len(run.approvals.pending):
        status["waits"] = waits
    if notes := run.all_notes:
        status["notes"] = notes
    if run.approvals.records:
        status["decisions"] = run.approvals.records[-MAX_DECISIONS:]
    return status


def search_values(run: RunMachine, tools: Iterable[str]) -> dict[str, Any]:
    """The search attributes of a root, by name; None for one that is unknown."""
    return {
        PHASE: run.phase, WAITING: len(run.approvals.pending), TOOLS: tool_keywords(tools) or None,
        MODEL: None if run.config.model is None else run.config.model[:MAX_KEYWORD],
        COST: run.usage.cost if run.usage.requests else None,
    }  # fmt: skip


class PlanView:
    """The view of a run that walks a plan."""

    def __init__(self, run: PlanRun) -> None:
        self._run = run
        self._proposal: tuple[int, str] | None = None
        self._in_queue = run.queue_watch.waiting_calls

    def status(self) -> dict[str, Any]:
        """``{phase, calls, usage, instances?, waits?, notes?, decisions?}``."""
        walk = self._run.walk
        out: dict[str, Any] = {
            "phase": self._run.phase, "calls": call_report.calls(walk, self._in_queue),
            "usage": self._run.usage.to_json()
        }  # fmt: skip
        if walk.prepared.request.instances():
            out["instances"] = statuses(walk)
        if walk.past is not None and self._run.setup.input is None:
            out["resumedFrom"] = walk.past.report(walk)
        return add_common(self._run, out)

    def page(self) -> str:
        """The Markdown page in the Web UI."""
        run = self._run
        page = plan_page(
            run.walk, run.phase, run.all_notes, run.approvals.pending, run.approvals.records, self._in_queue
        )
        return page if run.decisions.is_approved or run.finished is not None else page + self._proposed()

    def _proposed(self) -> str:
        """The plan that waits, with its forecast: drawn once for each version."""
        run = self._run
        version, prepared = run.decisions.version, run.walk.prepared
        if self._proposal is None or self._proposal[0] != version:
            self._proposal = (version, approval_page.page(prepared, approval_page.simulate_for_page(prepared)))
        return self._proposal[1]

    def plan(self) -> list[Any]:
        """The plan's Calls as they were written."""
        plan = self._run.walk.prepared.request.plan
        return list(plan.calls) if plan is not None else []

    def context(self, page: Any, limit: int) -> Any:
        """All messages, a page of them, or the value of an expression."""
        walk = self._run.walk
        messages = [m.raw for m in walk.prepared.request.context]
        return context_page(lambda: messages + results.appended_messages(walk), walk.value, page, limit)

    def prompt_context(self, page: Any, limit: int) -> dict[str, Any]:
        """What a model is shown: the context as it was when the plan began, and the Tools."""
        prepared = self._run.walk.prepared
        mode = prepared.request.plan.mode if prepared.request.plan is not None else "eager"
        return prompt_context(prepared.request, prepared.tools.values(), mode, page, limit)

    def graph(self, options: Any) -> Any:
        """The plan as a Mermaid flowchart."""
        walk = self._run.walk
        states = {"calls": call_report.calls(walk, self._in_queue), "instances": child_progress(walk)}
        return render_graph(self._run.whole_plan, states, options)

    def search_values(self) -> dict[str, Any]:
        """The search attributes, with the Tools of the plan's Calls."""
        return search_values(self._run, (node.tool.name for node in self._run.whole_plan.nodes))

    def pending_parameters(self, limit: int) -> dict[str, Any]:
        """What the Calls that wait here would be called with, as many as fit."""
        walk, calls = self._run.walk, list[dict[str, Any]]()
        for wait in self._run.approvals.own_pending:
            rank = walk.find(wait.call, wait.instance) if wait.call is not None else None
            resolved = walk.calls[rank].resolved if rank is not None else None
            if resolved is None:
                continue
            item = {"call": wait.call, "with": {k: v for k, v in resolved.items() if k != "_id"}}
            calls.append(item if wait.instance is None else {**item, "instance": wait.instance})
            limit -= json_size(calls[-1])
            if limit < 0:
                calls.pop()
                break
        return {"editable": self._run.setup.takes_edits, "calls": calls}

    # -- the end --------------------------------------------------------------------------------

    @property
    def first_message(self) -> int:
        """The position of the first appended message in the whole context."""
        return len(self._run.walk.prepared.request.context)

    def cut_result(self, actions: int, limit: int = MAX_RESULT, batch_limit: int = MAX_BATCH_RESULT) -> dict[str, Any]:
        """The result of a Plan, as much of it as fits into ``limit`` bytes; that of a batch into ``batch_limit``."""
        run = self._run
        out, left_out = results.build_batch_result(run.walk, run.usage, run.finished, batch_limit)
        return cut_result(self._with_records(out, actions), self.first_message, limit, batch_limit, left_out)

    def result(self, actions: int) -> dict[str, Any]:
        """The whole result of a Plan."""
        return self._with_records(results.build_result(self._run.walk, self._run.usage, self._run.finished), actions)

    def _with_records(self, out: dict[str, Any], actions: int) -> dict[str, Any]:
        run = self._run
        if run.approvals.records:
            out["decisions"] = run.approvals.records
        if run.walk.past is not None and run.setup.input is None:
            out["resumedFrom"] = run.walk.past.report(run.walk)
        if run.decisions.forecast is not None:
            seconds = seconds_since_approval(run.approvals.records, run.last_event_at)
            out["forecast"] = compare_known(run.decisions.forecast, actual_figures(out, actions, seconds))
        return out

    def part_result(self, actions: int) -> dict[str, Any]:
        """The result for an agent, or a delegate, whose plan this is: what was written, without the views."""
        run = self._run
        out = self.result(actions)
        del out["state"]
        if run.setup.input is not None and run.setup.input.part:
            del out["context"][: len(run.walk.provided)]  # the agent has them itself
        for item in out.get("instances", {}).values():
            del item["state"]
        return out

    def instance_result(self) -> dict[str, Any]:
        """What a child says of the instances that it walked: of one, or by id."""
        run = self._run
        report = instance_report(run.walk, edited=run.decisions.version > 1)
        members = run.setup.instances
        out: dict[str, Any] = {"status": run.finished}
        if run.usage.requests:
            out["usage"] = run.usage.to_json()
        if len(members) == 1:
            out |= report.get(members[0], {})
        else:
            out["instances"] = report
        if run.approvals.records:
            out["decisions"] = run.approvals.records
        return out

    @property
    def failure_text(self) -> str:
        """Every failure, for the message of a failed workflow."""
        return results.failure_text(self._run.walk)


class AgentView:
    """The view of an agent."""

    def __init__(self, run: AgentRun) -> None:
        self._run = run
        self._proposal: tuple[int, str] | None = None

    def status(self) -> dict[str, Any]:
        """``{phase, tick, calls, usage, waits?, notes?, decisions?}``."""
        run = self._run
        out = {
            "phase": run.phase, "tick": run.loop.tick, "calls": run.loop.current_calls(),
            "usage": run.usage.to_json(),
        }  # fmt: skip
        return add_common(run, out)

    def page(self) -> str:
        """The Markdown page in the Web UI."""
        run = self._run
        page = agent_page(run.loop, run.phase, run.all_notes, run.approvals.pending, run.approvals.records)
        return page + self._proposed() if run.loop.is_proposing and run.finished is None else page

    def _proposed(self) -> str:
        """The plan that waits: all of it, and the forecast of the part that would be walked now."""
        run = self._run
        if self._proposal is None or self._proposal[0] != run.version:
            part, _ = run.loop.pending_plan_request()
            prepared = run.loop.prepared or part
            report = approval_page.simulate_for_page(part, child=True)
            if part is not prepared and (whole := approval_page.simulate_for_page(prepared)) is not None:
                report = {**whole, **{k: v for k, v in (report or {}).items() if k in FIGURES[1:]}}
            self._proposal = (run.version, approval_page.page(prepared, report))
        return self._proposal[1]

    def plan(self) -> list[Any]:
        """The latest plan's Calls as they were written."""
        plan = self._run.loop.request.plan
        return self._run.loop.proposed_calls or (list(plan.calls) if plan is not None else [])

    def context(self, page: Any, limit: int) -> Any:
        """All messages, a page of them, or the value of an expression."""
        loop = self._run.loop
        return context_page(lambda: [m.raw for m in loop.request.context], loop.context.value, page, limit)

    def prompt_context(self, page: Any, limit: int) -> dict[str, Any]:
        """What a model is shown: the context so far, the Tools, and the turns."""
        loop = self._run.loop
        start, stop = (page.get("turns") if isinstance(page, dict) else None) or (0, 0)
        turns = [turn.to_json() for turn in loop.turn_log.turns[start:stop]]
        out = prompt_context(loop.request, loop.tools.values(), loop.mode, page, limit, turns)
        return {**out, "model": self._run.config.model, "at": loop.turn_log.at} if "tools" in out else out

    def graph(self, options: Any) -> Any:
        """The latest plan as a Mermaid flowchart."""
        loop = self._run.loop
        return "" if loop.prepared is None else render_graph(loop.prepared, {"calls": loop.latest_calls()}, options)

    def search_values(self) -> dict[str, Any]:
        """The search attributes, with the Tools that the model may plan with."""
        return search_values(self._run, self._run.loop.tools)

    def pending_parameters(self, limit: int) -> dict[str, Any]:
        """Nothing: the Calls of a plan wait in the run that walks it."""
        return {"editable": True, "calls": []}

    @property
    def first_message(self) -> int:
        """The position of the first appended message in the whole context."""
        loop = self._run.loop
        return len(loop.request.context) - len(loop.context.appended())

    def result(self) -> dict[str, Any]:
        """The result of an Agent."""
        run = self._run
        status = run.finished or "cancelled"
        out = results.build_agent_result(run.loop, status)
        if run.approvals.records:
            out["decisions"] = run.approvals.records
        if run.proposals.forecasts:
            total = run.proposals.forecasts[0]
            for forecast in run.proposals.forecasts[1:]:
                total = sum_tables(total, forecast)
            out["forecast"] = total
        if run.failure is not None:
            item = {"call": None, "code": run.failure.code, "message": run.failure.message}
            out["errors"] = [*out["errors"], item]
        return out


class DelegateView:
    """The view of a delegate without a planner."""

    def __init__(self, run: DelegateMachine, single: AnonymousDelegate | None = None) -> None:
        self._run, self._single = run, single

    def status(self) -> dict[str, Any]:
        """``{phase, tick, calls, usage}``."""
        return add_common(self._run, {
            "phase": self._run.phase, "tick": 0, "calls": [], "usage": self._run.usage.to_json()
        })  # fmt: skip

    def page(self) -> str:
        """The Markdown page in the Web UI."""
        name = f" {code_span(self._single.node.id)}" if self._single is not None else ""
        page = f"**{self._run.phase}**{name}"
        return page + approvals_section(self._run.approvals.pending, self._run.approvals.records)

    def plan(self) -> list[Any]:
        """Nothing: the plan is that of the child."""
        return []

    def context(self, page: Any, limit: int) -> Any:
        """The messages that it was started with."""
        messages = [m.raw for m in self._run.request.context] if self._single is not None else []
        return context_page(lambda: messages, lambda _tree, _instance: None, page, limit)

    def prompt_context(self, page: Any, limit: int) -> dict[str, Any]:
        """What a model is shown for the one Call."""
        if self._single is None:
            return {"messages": []}
        return prompt_context(self._run.request, self._single.prepared.tools.values(), "lazy", page, limit)

    def graph(self, options: Any) -> Any:
        """Nothing to draw."""
        return ""

    def search_values(self) -> dict[str, Any]:
        """The search attributes, with the Tool of its Call."""
        return search_values(self._run, [] if self._single is None else [self._single.node.tool.name])

    def pending_parameters(self, limit: int) -> dict[str, Any]:
        """Nothing waits here."""
        return {"editable": True, "calls": []}


def context_page(
    messages: Callable[[], list[Any]], value: Callable[[Expression, str | None], Any], page: Any, limit: int
) -> Any:
    """What the query ``context`` answers: all messages, a page of at most ``limit`` bytes, or a value."""
    if isinstance(page, dict) and isinstance(page.get("path"), str):
        try:
            result = value(parse(page["path"]), page.get("instance"))
        except ActsError as error:
            return {"error": str(error)}
        except KeyError:
            return {"error": f"unknown instance {page.get('instance')!r}"}
        is_json = result is None or isinstance(result, (str, int, float, bool, list, dict))
        return {"path": page["path"], "value": result} if is_json else {"path": page["path"], "absent": True}
    every, sizes = messages(), SharedSizes()
    if not isinstance(page, dict):
        if sizes.size_of_list(every) <= limit:
            return every
        page = {}
    offset, count = int(page.get("offset", 0)), int(page.get("limit", PAGE))
    fitting: list[Any] = []
    size = 0
    for message in every[offset : offset + count]:
        size += sizes.size(message)
        if fitting and size > limit:
            break
        fitting.append(message)
    return {"messages": fitting, "offset": offset, "total": len(every)}
