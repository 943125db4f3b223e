"""What people and programs see of a run: status, page, drawing, context, result.

Views read a run machine and change nothing; the runtime sizes and sends what they return. A kind of run overrides what
it has of its own (``_own_status``, ``_head``, ``_context``, …); the defaults are for a run that has nothing of it.

The page in the Web UI is Markdown. Text from outside (tool names, messages) is shown as text, see ``text``. A plan too
large to simulate within the time of a page is only counted; ``acts simulate`` has more patience.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, takewhile
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from acts.language.errors import ActsError, TooComplex, begin_json
from acts.language.messages import Request
from acts.language.references import Expression, conjunction, parse
from acts.language.strict_json import SharedSizes, json_size
from acts.language.tools import META, Tool, describe_changes, is_server_tool, read_tool
from acts.language.values import ABSENT
from acts.language.wire import ANSWER, APPROVE, EDIT, REJECT
from acts.machines.agent_run import AgentRun, AnonymousDelegate
from acts.machines.budget import context_bytes
from acts.machines.call_state import SETTLED, CallState, call_item, call_items, error_items
from acts.machines.plan_run import PlanRun, child_progress, instance_report, statuses
from acts.machines.run_machine import RunMachine
from acts.machines.set_run import SetRun
from acts.plan.calls import UNIT
from acts.plan.validate import ValidatedPlan
from acts.planner.request_estimate import estimate_prompt_bytes
from acts.simulation.simulate import FIGURES, QUICK_STEPS, count_steps, sample, simulate_prepared
from acts.tree.decisions import CONTENT, FORM, SIGN, TOOL_CHANGES, UNFILLED, PendingApproval
from acts.tree.records import Turn
from acts.tree.search_attributes import (
    COST,
    MAX_KEYWORD,
    MODEL,
    PHASE,
    TAGS,
    TOOLS,
    WAITING,
    WAITING_SINCE,
    tool_keywords,
)
from acts.views import results
from acts.views import text as words
from acts.views.drawing import Report, draw_mermaid, draw_text
from acts.views.plan_svg import plan_svg

MAX_DECISIONS: Final = 100  # decisions that ``status`` lists, the latest
PAGE: Final = 1000  # the answer to a query travels in one message; the default page of ``context``
_FAILED: Final = ("failed", "rejected")
_MAX_FAILURES: Final = 20  # failures of a set that the page names, and the message of a failed workflow


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a run: its Request, what came after that, and the Tools that a model of it is shown, if any.

    A planner is shown its ``turns``, too; ``settings`` are what it has besides those of the Request.
    """

    request: Request
    tools: Iterable[Tool] | None = None
    mode: str = "lazy"
    appended: Sequence[dict[str, Any]] = ()
    value: Callable[[Expression, str | None], Any] = lambda _tree, _instance: ABSENT
    turns: Sequence[Turn] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


class CurrentTools(NamedTuple):
    """The Tools that a worker has now, and the names of its Activities."""

    schemas: Mapping[str, Any]
    served: Container[str]


class ToolChange(NamedTuple):
    """How the Tool of a Call that has not started differs from that of its plan; ``fits``: the Call is one of it."""

    call: str
    instance: str | None
    text: str
    fits: bool


class RunView:
    def __init__(self, run: RunMachine) -> None:
        self._run = run
        self._proposal: tuple[int, str, dict[str, Any]] | None = None

    @property
    def _prepared(self) -> ValidatedPlan | None:
        return None

    def _own_status(self) -> dict[str, Any]:
        return {"tick": 0, "calls": []}

    def _head(self) -> list[str]:
        """The lines of the page before the Calls; the first one is behind the phase."""
        return []

    def _calls_section(self) -> str:
        return ""

    def _proposed_version(self) -> int | None:
        """The version of the plan that waits; None where none does."""
        return None

    def _context(self) -> Context | None:
        return None

    def _drawn_states(self) -> dict[str, Any]:
        return {}

    def _tools(self) -> Iterable[str]:
        return () if self._prepared is None else (node.tool.name for node in self._prepared.nodes)

    @property
    def _takes_edits(self) -> bool:
        return True

    def tool_changes(self, current: CurrentTools | None) -> list[ToolChange]:
        return []

    def subjects(self, limit: int, current: CurrentTools | None = None) -> dict[str, Any]:
        """``{editable, waits: [{what, call?, instance?, subject, toolChanges?, calls?, forecast?}]}``: what is decided
        here, as much as fits. ``toolChanges`` are those of the Tools in ``current`` since the plan was made, in words;
        of a plan there is also what to know of a Call, such as ``destructive``, by its id, and what all of it takes.
        """
        waits, changes = [], self.tool_changes(current)
        for wait in self._run.approvals.waits.own:
            item: dict[str, Any] = {"what": wait.what, "call": wait.call, "instance": wait.instance}
            item = {k: v for k, v in item.items() if v is not None} | {"subject": self._run.subject_of(wait)}
            item |= self._changes_for(wait, changes)
            item |= self._proposed()[1] if wait.what == "plan" else {}
            limit -= json_size(item)
            if limit < 0:
                break
            waits.append(item)
        return {"editable": self._takes_edits, "waits": waits}

    def _changes_for(self, wait: PendingApproval, changes: Sequence[ToolChange]) -> dict[str, Any]:
        own = (wait.call, wait.instance)
        texts = [one.text for one in changes if wait.call is None or own == (one.call, one.instance)]
        return {TOOL_CHANGES: texts[: words.MAX_ROWS]} if texts else {}

    def status(self) -> dict[str, Any]:
        """``{phase, tick?, calls, usage, …}``, with ``waits?``, ``notes?``, ``decisions?`` and
        ``remembered?``, approvals that hold for like Calls, by their names.
        """
        run = self._run
        out = {"phase": run.phase, **self._own_status(), "usage": run.usage.to_json()}
        more = {
            "waits": len(run.approvals.pending), "notes": run.all_notes,
            "decisions": run.approvals.records[-MAX_DECISIONS:], "remembered": run.approvals.remembered,
        }  # fmt: skip
        return out | {key: value for key, value in more.items() if value}

    def _proposed(self) -> tuple[str, dict[str, Any]]:
        """``describe_proposal`` of the plan that waits, once for each version."""
        version, prepared = self._proposed_version(), self._prepared
        if version is None or prepared is None:
            return "", {}
        if self._proposal is None or self._proposal[0] != version:
            self._proposal = version, *describe_proposal(prepared, {"version": version})
        return self._proposal[1:]

    def page(self, current: CurrentTools | None = None) -> str:
        """The Markdown page in the Web UI, with the plan and its forecast while that waits."""
        run = self._run
        changes = self.tool_changes(current) if run.approvals.pending else []
        waits = [self._shown_wait(wait, changes) for wait in run.approvals.pending[:MAX_APPROVALS]]
        first, *head = self._head() or [""]
        calls, usage = self._calls_section(), words.usage_text(run.usage.to_json()) if run.usage.requests else ""
        parts = [
            " — ".join(filter(None, [f"**{run.phase}**", first])),
            *head,
            approvals_section([*waits, *run.approvals.pending[MAX_APPROVALS:]], []),
            usage,
            "\n".join(f"- {words.code_span(note, MAX_TEXT)}" for note in run.all_notes[-MAX_NOTES:]),
            words.fold("Calls", calls) if waits and calls else calls,
            self._proposed()[0],
            approvals_section([], run.approvals.records),
        ]
        at = 1 + len(head) + 1  # below what waits
        return _join_sections(*parts[:at], self._picture(MAX_PICTURE_PAGE - sum(map(len, parts))), *parts[at:])

    def _shown_wait(self, wait: PendingApproval, changes: Sequence[ToolChange]) -> PendingApproval:
        """A wait with its subject and how its Call is planned; of a run below, with what is known of it here."""
        planned = self._planned_call(wait)
        if wait.workflow_id != self._run.own:
            return wait.model_copy(update={PLANNED: planned, EDIT: None})
        more = {PLANNED: None, EDIT: planned if self._takes_edits else None, **self._changes_for(wait, changes)}
        return wait.model_copy(update={CONTENT: self._run.subject_of(wait), **more})

    def _planned_call(self, wait: PendingApproval) -> dict[str, Any] | None:
        """How the plan of this run has the Call that waits, here or in a run of one of its instances."""
        prepared = self._prepared
        if prepared is None or wait.call is None:
            return None
        if wait.workflow_id != self._run.own and wait.instance not in prepared.request.instances():
            return None
        nodes = (prepared.unsplit or prepared).nodes
        return next((node.planned for node in nodes if node.id == wait.call), None)

    def _picture(self, room: int) -> str:
        """The plan as an SVG, if it is small; a page that is long already has none."""
        prepared = self._prepared
        if prepared is None or not 1 < len(prepared.nodes) <= MAX_PICTURED:
            return ""
        svg = plan_svg(prepared, self._drawn_states(), links="")
        return f"<div>{svg}</div>" if len(svg) <= min(room, MAX_PICTURE) else ""

    def graph(self, options: Any) -> str:
        """The latest plan as Mermaid; with ``{"format": "text"}`` as lines for a terminal, with ``svg`` as an SVG."""
        format_ = options.get("format") if isinstance(options, dict) else None
        draws: dict[str, Callable[[ValidatedPlan, Report], str]] = {"text": draw_text, "svg": plan_svg}
        draw = draws.get(str(format_), draw_mermaid)
        return "" if self._prepared is None else draw(self._prepared, self._drawn_states())

    def search_values(self) -> dict[str, Any]:
        """The search attributes of a root, by name; None for one that is unknown."""
        run = self._run
        return {
            PHASE: run.phase, WAITING: len(run.approvals.pending), TOOLS: tool_keywords(self._tools()) or None,
            MODEL: None if run.config.model is None else run.config.model[:MAX_KEYWORD],
            COST: run.usage.cost if run.usage.requests else None, TAGS: run.config.tag_keywords or None,
            WAITING_SINCE: min((datetime.fromisoformat(w.since) for w in run.approvals.pending), default=None),
        }  # fmt: skip

    def plan(self, options: Any = None) -> list[Any]:
        context = self._context()
        return [] if context is None else context.request.calls

    def context(self, page: Any, limit: int) -> Any:
        """All messages, a page of at most ``limit`` bytes, or the value of an expression."""
        context = self._context()
        if isinstance(page, dict) and isinstance(page.get("path"), str):
            try:
                value = ABSENT if context is None else context.value(parse(page["path"]), page.get("instance"))
            except ActsError as error:
                return {"error": str(error)}
            except KeyError:
                return {"error": f"unknown instance {page.get('instance')!r}"}
            is_json = value is None or isinstance(value, (str, int, float, bool, list, dict))
            return {"path": page["path"], **({"value": value} if is_json else {"absent": True})}
        every = [] if context is None else [*(m.raw for m in context.request.context), *context.appended]
        if not isinstance(page, dict):
            if SharedSizes().size_of_list(every) <= limit:
                return every
            page = {}
        offset, count = int(page.get("offset", 0)), int(page.get("limit", PAGE))
        messages = _fit_bytes(every[offset : offset + count], limit)
        return {"messages": messages, "offset": offset, "total": len(every)}

    def prompt_context(self, page: Any, limit: int) -> dict[str, Any]:
        """A page of what a model is shown; nothing, where requests to models are made below.

        ``page`` is ``{offset?, upto?, turns?: [offset, upto], known?}``; without ``known`` the page includes the Tools
        and the settings. The turns of a planner follow after the last message.
        """
        context = self._context()
        if context is None or context.tools is None:
            return {"messages": []}
        page = page if isinstance(page, dict) else {}
        request, out = context.request, dict[str, Any]()
        if not page.get("known"):
            out.update(
                tools={t.name: {"schema": t.schema, "served": t.served} for t in context.tools}, output=request.schema,
                mode=context.mode, step=request.config.step, instances=list(request.instances()),
                maxTicks=request.config.maxTicks, search=request.config.tools.search, **context.settings,
            )  # fmt: skip
        offset, (first, last) = int(page.get("offset", 0)), page.get("turns") or (0, 0)
        messages = [m.raw for m in request.context[offset : page.get("upto")]]
        turns = [turn.to_json() for turn in context.turns[first:last]]
        fitting = _fit_bytes([*messages, *turns], limit - json_size(out))
        out["messages"], turns = fitting[: len(messages)], fitting[len(messages) :]
        return {**out, "turns": turns} if turns else out

    def _with_decisions(self, result: dict[str, Any]) -> dict[str, Any]:
        items = result.get("instances", {}).values()  # of a set, numbers
        parts = [self._run.undone, *(item.get("undone") for item in items if isinstance(item, dict))]
        more = {"decisions": self._run.approvals.records, "undone": results.total_undone(parts)}
        return result | {key: value for key, value in more.items() if value}


def _fit_bytes(items: Sequence[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """The first items of so many bytes of JSON together, at least one."""
    totals = accumulate(map(SharedSizes().size, items))
    return list(items[: max(1, sum(1 for _ in takewhile(lambda total: total <= limit, totals)))])


def _tool_change(call: CallState, after: Tool | None, parts: Sequence[str]) -> ToolChange:
    node, name = call.node, call.node.tool.name
    if after is None:
        return ToolChange(node.id, node.instance, f'the worker that answers has no tool "{name}" any more', fits=False)
    resolved = call.resolved or node.call
    check = after.parameters.open_defects if call.resolved is None else after.parameters.defects
    try:
        defects = check({key: value for key, value in resolved.items() if key not in (*META, "_id")})
    except TooComplex:
        defects = []  # the Call itself ends with that
    text = f'the tool "{name}" has changed since the plan was made: {", ".join(parts)}'
    text += f"; the call does not fit it: {'; '.join(why for _, why in defects)}" if defects else ""
    return ToolChange(node.id, node.instance, text, not defects)


class PlanView(RunView):
    _run: PlanRun

    @property
    def _in_queue(self) -> set[str]:
        return self._run.queue_watch.waiting_calls

    @property
    def _prepared(self) -> ValidatedPlan:
        return self._run.whole_plan

    def _own_status(self) -> dict[str, Any]:
        walk = self._run.walk
        is_batch, causes = bool(walk.prepared.request.instances()), self._causes()
        return {
            "calls": call_items(walk.calls, self._in_queue), **({"instances": statuses(walk)} if is_batch else {}),
            **({"causes": causes} if causes else {}), **self._resumed(),
        }  # fmt: skip

    def _causes(self) -> list[dict[str, Any]]:
        walk = self._run.walk
        names = frozenset(walk.prepared.request.instances())
        return words.find_causes(error_items(walk.calls), names) if names else []

    def _resumed(self) -> dict[str, Any]:
        walk = self._run.walk
        if walk.past is None or self._run.setup.input is not None:
            return {}
        return {"resumedFrom": walk.past.report(walk.calls, walk.prepared.request.instances())}

    def _head(self) -> list[str]:
        walk = self._run.walk
        counts = walk.counts
        queued = sum(key in walk.by_key and walk.by_key[key].parent is None for key in self._in_queue)  # not elements
        counts.update({"ready": queued, "running": -queued})
        return [", ".join(f"{counts[s]} {s}" for s in words.CALL_STATES if counts[s]) or "no calls"]

    def _calls_section(self) -> str:
        """Each Call with the paths that it may still write, and what was written; of many, those that failed. Of a
        batch first how far it came, and why instances failed.
        """
        walk = self._run.walk
        names, parts = walk.prepared.request.instances(), list[str]()
        if names:
            parts.append(words.code_span(words.progress_bar(Counter(statuses(walk).values()))))
            causes = [f"- ✗ {words.code_span(words.failure_cause_text(c), MAX_TEXT)}" for c in self._causes()]
            parts += ["\n".join(["### Why instances failed\n", *causes])] if causes else []
        ranks = sorted(range(len(walk.nodes)), key=lambda rank: walk.nodes[rank].index)
        ranks.sort(key=lambda rank: bool(names) and walk.calls[rank].state not in _FAILED)
        if len(ranks) > words.MAX_ROWS:
            ranks = [rank for rank in ranks if walk.calls[rank].state in _FAILED]
        items, written = [], []
        for rank in ranks[: words.MAX_ROWS]:
            items.append(item := call_item(walk.calls[rank], self._in_queue))
            if walk.calls[rank].state not in SETTLED:
                item.setdefault("outputPath", " || ".join(map(conjunction, walk.nodes[rank].outcomes)))
            for path, value, _ in walk.calls[rank].written:
                text = words.code_span(begin_json(value, MAX_TEXT), MAX_TEXT)
                written.append(
                    f"- {words.STATE_MARKS['completed']} {call_name(item)}: {words.code_span(path)} = {text}"
                )
        listed = _calls_table(items, len(ranks), written)
        return _join_sections(*parts, words.fold("Instances and calls", listed) if names else listed)

    def _proposed_version(self) -> int | None:
        return None if self._run.is_approved or self._run.finished is not None else self._run.version

    def _context(self) -> Context:
        walk = self._run.walk
        request, tools = walk.prepared.request, walk.prepared.tools.values()
        return Context(request, tools, request.mode, results.appended_messages(walk), walk.context.log.value)

    def _drawn_states(self) -> dict[str, Any]:
        return {**self._own_status(), "instances": child_progress(self._run.walk)}

    def tool_changes(self, current: CurrentTools | None) -> list[ToolChange]:
        """Of each Call that has not started, what has changed about its Tool, if a worker had loaded that."""
        run = self._run
        if current is None or run.finished is not None:
            return []
        names = {name for name, schema in run.capabilities.tools.items() if schema} | current.schemas.keys()
        changed: dict[str, tuple[Tool | None, Sequence[str]]] = {}
        for name, before in run.walk.prepared.tools.items():
            schema = current.schemas.get(name)
            after = None if schema is None else read_tool(name, schema, served=name in current.served)[0]
            parts = ["everything"] if after is None else describe_changes(before, after)
            if name in names and not is_server_tool(before.schema) and parts:
                changed[name] = after, parts
        waiting = (call for call in run.walk.calls if changed and not call.has_started and call.node.kind != UNIT)
        return [_tool_change(c, *changed[c.node.tool.name]) for c in waiting if c.node.tool.name in changed]

    @property
    def _takes_edits(self) -> bool:
        return self._run.setup.takes_edits

    @property
    def first_message(self) -> int:
        return len(self._run.walk.prepared.request.context)

    def result(self, batch_limit: int | None = None) -> dict[str, Any]:
        run = self._run
        out = results.build_result(run.walk, run.usage, run.finished, batch_limit)
        return {**self._with_decisions(out), **self._resumed()}

    def part_result(self) -> dict[str, Any]:
        """The result for an agent, or a delegate, whose plan this is: what was written, without the views."""
        run = self._run
        out = self.result()
        del out["state"]
        if run.setup.input is not None and run.setup.input.part:
            del out["context"][: len(run.walk.context.provided)]  # the agent has them itself
        for item in out.get("instances", {}).values():
            del item["state"]
        more = {"undo": run.steps_left, "undoAsked": run.undo_asked, "reached": run.walk.is_reached}
        return out | {key: value for key, value in more.items() if value}

    def instance_result(self) -> dict[str, Any]:
        """What a child says of the instances that it walked: of one, or by id."""
        run = self._run
        report = instance_report(run.walk, edited=run.version > 1, undo=run.steps_left)
        members = run.setup.instances
        out: dict[str, Any] = {"status": run.finished}
        if run.usage.requests:
            out["usage"] = run.usage.to_json()
        if run.undone is not None:
            for item in [item for item in report.values() if item["status"] == "failed"]:
                item |= {"errors": item["errors"] + run.undone["errors"], "undone": run.undone}
        out |= report.get(members[0], {}) if len(members) == 1 else {"instances": report}
        return self._with_decisions(out)


class AgentView(RunView):
    _run: AgentRun

    @property
    def _prepared(self) -> ValidatedPlan | None:
        return self._run.prepared

    def _own_status(self) -> dict[str, Any]:
        return {"tick": self._run.tick, "calls": self._run.current_calls}

    def _head(self) -> list[str]:
        return [f"tick {self._run.tick} of at most {self._run.request.config.maxTicks}"]

    def _calls_section(self) -> str:
        items = sorted(self._run.current_calls, key=lambda item: -item.get("tick", 0))
        return _calls_table(items, len(items))

    def _proposed_version(self) -> int | None:
        return self._run.version if self._run.proposal is not None and self._run.finished is None else None

    def _context(self) -> Context:
        run, context = self._run, self._run.context
        settings, tools = {"model": run.config.model, "at": run.turn_at}, context.tools.values()
        return Context(run.request, tools, context.mode, value=context.log.value, turns=run.turns, settings=settings)

    def _drawn_states(self) -> dict[str, Any]:
        return {"calls": [call for call in self._run.current_calls if call["tick"] == self._run.plan_tick]}

    def _tools(self) -> Iterable[str]:
        return self._run.context.tools

    def plan(self, options: Any = None) -> list[Any]:
        """The plan that waits or runs; with ``{"as": "proposed"}`` as the model wrote it, before people edited it.

        With ``{"as": "output"}``, a list of one: the latest output as the model wrote it, with its references.
        """
        run = self._run
        if isinstance(options, dict) and options.get("as") == "output":
            return [run.wanted_output]
        calls = run.proposed_calls or super().plan()
        if not isinstance(options, dict) or options.get("as") != "proposed":
            return calls
        last = next((turn for turn in reversed(run.turns) if turn.hasPlan or turn.changed), None)
        if run.answer_calls or last is None:
            return run.answer_calls or calls
        return list(last.answer["calls"]) if last.changed else calls

    @property
    def first_message(self) -> int:
        return len(self._run.request.context) - len(self._run.context.appended())

    def result(self) -> dict[str, Any]:
        run = self._run
        out = self._with_decisions(results.build_agent_result(run, run.finished or "cancelled"))
        if run.failure is not None:
            item = {"call": None, "code": run.failure.code, "message": run.failure.message}
            out["errors"] = [*out["errors"], item]
        return out


class SingleCallView(RunView):
    _run: AnonymousDelegate

    def _head(self) -> list[str]:
        return [words.code_span(self._run.node.id)]

    def _context(self) -> Context:
        return Context(self._run.request, self._run.prepared.tools.values())


class SetView(RunView):
    """The view of a run over a set: how far it has come. Its rows are seen in the runs below it."""

    _run: SetRun

    @property
    def _prepared(self) -> ValidatedPlan:
        return self._run.setup.prepared

    def counts(self) -> dict[str, Any]:
        """``{total, completed, failed, running, handled?, undeclared?}``; ``total`` None until the rows are counted."""
        progress = self._run.progress
        handled = {"handled": progress.handled, "undeclared": dict(progress.undeclared)} if progress.handled else {}
        return {
            "total": progress.total, "completed": progress.completed, "failed": progress.failed,
            "running": sum(map(progress.rows_to_run, self._run.running.values())), **handled,
        }  # fmt: skip

    def _own_status(self) -> dict[str, Any]:
        run, progress = self._run, self._run.progress
        batches = {"batches": list(run.children.values())} if run.children else {}
        errors = {} if progress.stopped is None else {"errors": progress.errors()[:1]}
        return {"calls": [], **self._outcome(), **batches, **errors}

    def _outcome(self) -> dict[str, Any]:
        failures = [failure["id"] for failure in self._run.progress.failures]
        return {"instances": self.counts(), "failures": failures, **self._run.report_resumed()}

    def _head(self) -> list[str]:
        run, progress, counts = self._run, self._run.progress, self.counts()
        source = (progress.survey.source if progress.survey is not None else "") or run.setup.message.source
        rows = f"{progress.ended:,} of {counts['total'] or 0:,} rows have ended" if counts["total"] is not None else ""
        return [
            f"{words.code_span(source)}: {rows or 'counting the rows'}",
            f"{counts['completed']:,} completed, {counts['failed']:,} failed, {counts['running']:,} running",
            f"{progress.handled:,} took an error path" if progress.handled else "",
            f"results: {words.code_span(run.config.results)}" if run.config.results is not None else "",
            *self._cause_lines(),
            ""
            if progress.stopped is None
            else f"stopped: {words.code_span(progress.errors()[0]['message'], MAX_TEXT)}",
        ]

    def _cause_lines(self) -> list[str]:
        progress = self._run.progress
        listed, causes = len(progress.failures), words.find_causes(_row_errors(progress.failures))
        head = "failed" if listed == progress.failed else f"of the first {listed:,} that failed"
        return [f"{head}: {words.code_span(words.failure_cause_text(cause), MAX_TEXT)}" for cause in causes]

    def _proposed_version(self) -> int | None:
        return None if self._run.is_approved or self._run.finished is not None else 1

    def _context(self) -> Context:
        return Context(self._run.setup.prepared.request)

    @property
    def _takes_edits(self) -> bool:
        return False

    def result(self) -> dict[str, Any]:
        run = self._run
        errors = run.progress.errors()
        out: dict[str, Any] = {
            "status": run.finished, "state": {}, **self._outcome(), "calls": [], "context": [], "errors": errors,
            "usage": run.usage.to_json(),
        }  # fmt: skip
        if run.config.results is not None:
            out["results"] = run.config.results
        return self._with_decisions(out)

    @property
    def failure_text(self) -> str:
        progress = self._run.progress
        if progress.stopped is not None:
            return str(progress.errors()[0]["message"])
        lines = list(map(_failure_line, progress.failures[:_MAX_FAILURES]))
        return results.list_failures(progress.text(), lines, progress.failed)


def _row_errors(failures: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for row_ in failures:
        first = row_["errors"][0] if row_["errors"] else {"code": row_["status"], "message": ""}
        yield {**first, "instance": row_["id"]}


def _failure_line(failure: dict[str, Any]) -> str:
    errors = failure["errors"]
    why = f"[{errors[0]['code']}] {errors[0]['message']}" if errors else failure["status"]
    return f"{failure['id']}: {why}"


# -- the page in the Web UI ------------------------------------------------------------------------------------

MAX_CALLS: Final = 150  # a person reads no more than so many Calls, and a run with more is seldom approved on a page
MAX_MESSAGES: Final = 5_000  # … and a context of so many messages, mostly that of a batch, takes about as long
MAX_PATHS: Final = 8  # paths of one cell; a Call may read hundreds
MAX_APPROVALS: Final = 20  # pending approvals with their JSON, and decisions
MAX_NOTES: Final = 5  # notes, the latest ones
MAX_PICTURED: Final = 40  # Calls of a plan that is drawn on the page
MAX_PICTURE: Final = 20_000  # characters of its picture, …
MAX_PICTURE_PAGE: Final = 60_000  # … and of the page with it: see ``text``
MAX_TEMPLATE: Final = 2_000  # characters of JSON that edits one Call
MAX_TEXT: Final = 300  # characters of a note, of an error, of a reason, of a problem
MAX_SUBJECT: Final = 16_000  # characters of what is decided, as JSON: nobody decides here about what is not here whole
ASK_STATUS: Final = "ask the query `status`"
_ASK_PENDING: Final = "ask the query `pending`"
_HOW_TO_DECIDE: Final = (
    "To decide: *More Actions*, *Send an Update*, `decide`, and one of these lines as *Data*, with your name and, "
    "to reject, the reason in place of each `…`."
)
_HOW_TO_SEE: Final = (
    "What is decided is too long for this page, or on that of the run that waits: look there, or at `acts show`, "
    "which prints it with the commands that decide."
)
_HOW_TO_SIGN: Final = "Only an approver decides, by a signature: `acts pending` lists the commands (`--key FILE`)."
PLANNED: Final = "planned"  # in a wait of a run below: how the plan of this run has its Call
_ADDRESS: Final = ("workflowId", "call", "instance", "version", "subject")


def _join_sections(*sections: str) -> str:
    return "\n\n".join(section for section in sections if section)


def _calls_table(items: Sequence[Mapping[str, Any]], count: int, results: Sequence[str] = ()) -> str:
    """The first of ``count`` Calls as a table, then why they failed or wait, and ``results``, a line for each.

    All but the state, the Call and where it writes is too long for a table in half the width of a window.
    """
    heads, ticks = ("", "call", "writes"), any(item.get("tick") for item in items)
    rows, remarks = [], []
    for item in items[: words.MAX_ROWS]:
        state, name = item["state"], call_name(item)
        cells = (f"{words.STATE_MARKS[state]}\u00a0{state}", name, words.code_span(item.get("outputPath", "")))
        rows.append(words.row(*([str(item.get("tick", ""))] if ticks else []), *cells))
        if text := words.describe_call({k: v for k, v in item.items() if k != "elements"}):
            remarks.append(f"- {words.STATE_MARKS[state]} {name}: {words.code_span(text, MAX_TEXT)}")
    lines = [*remarks, *results]
    return _join_sections(
        words.table(("tick", *heads) if ticks else heads, words.fit_lines(rows, count, ASK_STATUS)),
        "\n".join(words.fit_lines(lines, len(lines), ASK_STATUS)),
    )


def call_name(item: Mapping[str, Any]) -> str:
    counts = words.element_counts_text(item.get("elements"))
    unit = f"{UNIT} " if item["tool"] == UNIT else ""
    return unit + _name(item, "id") + (f" ({counts})" if counts else "")


def _name(item: Mapping[str, Any], key: str) -> str:
    """What an item names by a key, and its instance."""
    return words.code_span(item[key]) + (f" [{words.code_span(item['instance'])}]" if item.get("instance") else "")


# -- approvals ---------------------------------------------------------------------------


def approvals_section(pending: Sequence[PendingApproval], decisions: Sequence[Mapping[str, Any]]) -> str:
    """The pending approvals, each with the JSON that decides it, and the records of decisions, the latest first."""
    parts = []
    if pending:
        parts.append("### Waits for a decision\n\n" + _HOW_TO_DECIDE)
        parts += words.fit_lines(
            map(_approval_lines, pending), len(pending), _ASK_PENDING, MAX_APPROVALS, words.MAX_WAITS
        )
    if decisions:
        parts.append("### Decisions\n")
        parts += words.fit_lines(map(_decision_line, reversed(decisions)), len(decisions), ASK_STATUS, MAX_APPROVALS)
    return "\n".join(parts)


def _approval_lines(approval: PendingApproval) -> str:
    """One pending approval: what has changed about it, all that is decided, and the JSON that approves or rejects it.

    A run below may have reported anything: nothing of it is trusted.
    """
    report = approval.to_json()
    address = {k: v for k, v in report.items() if k in _ADDRESS}
    call = f"**{words.decided_name(report)}**" if approval.call is None else words.code_span(approval.call)
    subject = {"scopes": "the scopes of ", ANSWER: "an answer to "}.get(approval.what, "") + call
    until = f", until {_utc(approval.deadline)}" if approval.deadline else ""
    count, hints = report.get("elements"), report.get("hints")
    subject += f" for each of {count:,} elements" if isinstance(count, int) else ""
    subject += f" ({', '.join(map(words.code_span, hints[:4]))})" if isinstance(hints, list) and hints else ""
    subject += f" — {words.code_span(words.who_text(report), MAX_TEXT)}" if words.who_text(report) else ""
    run = _name(report, "workflowId")
    parts = [f"\n{subject} of {run}, version {approval.version}, since {_utc(approval.since)}{until}"]
    parts += [f"- changed: {words.code_span(line, MAX_TEXT)}" for line in words.change_lines(report.get("changes"))]
    parts += [f"- {words.code_span(text, MAX_TEXT)}" for text in words.tool_change_lines(report)]
    content = approval.content
    # Indented JSON is slow to write, and a character has at most four bytes
    if content is None or json_size(content) > 4 * MAX_SUBJECT or len(text := words.fence(content)) > MAX_SUBJECT:
        planned = report.get(PLANNED)
        parts += (
            [f"As it is planned:\n\n{words.fence(planned)}"] if planned and json_size(planned) <= MAX_TEMPLATE else []
        )
        return "\n\n".join([*parts, _HOW_TO_SEE]) + "\n"
    parts.append(f"What is decided:\n\n{text}")
    if SIGN in report:  # nobody can sign here
        return "\n\n".join([*parts, _HOW_TO_SIGN]) + "\n"
    confirms: dict[str, Any] = {"decision": APPROVE}
    if approval.what == ANSWER:
        confirms = {"decision": ANSWER, "output": sample(content.get(FORM))}
    decisions: list[dict[str, Any]] = [confirms, {"decision": REJECT, "reason": UNFILLED}]
    if (planned := report.get(EDIT)) and json_size(planned) <= MAX_TEMPLATE:
        decisions.append({"decision": EDIT, "with": planned})
    parts += [words.fence({**decision, "by": UNFILLED, **address}, None) for decision in decisions]
    return "\n\n".join(parts) + "\n"


def _decision_line(record: Mapping[str, Any]) -> str:
    subject = _name(record, "call") if "call" in record else words.decided_name(record)
    subject += f" [{words.code_span(record['instance'])}]" if "call" not in record and "instance" in record else ""
    why = f": {words.code_span(record['reason'], MAX_TEXT)}" if record.get("reason") else ""
    who = words.code_span(record.get("by", "")) or "somebody"
    signed = ", signed" if record.get("signed") else ""
    return f"- {_utc(record['date'])} {who}: {record['decision']} {subject} (version {record['version']}{signed}){why}"


def _utc(date: str) -> str:
    try:
        return f"{datetime.fromisoformat(date):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return words.code_span(date)


def describe_proposal(
    prepared: ValidatedPlan, address: Mapping[str, Any] = MappingProxyType({})
) -> tuple[str, dict[str, Any]]:
    """The section of a plan that waits: its forecast, a table, and the JSON that edits it, of one that is too large
    only its size; and ``{calls: {id: [what to know of it]}, forecast: {figures, prompt?: {model, bytes}}}``.
    """
    whole = prepared.unsplit or prepared  # the Calls, not the children that walk them
    is_large = len(whole.nodes) > MAX_CALLS or len(whole.request.context) > MAX_MESSAGES
    if is_large or count_steps(whole) > QUICK_STEPS:
        return f"### The plan\n\n{len(whole.nodes)} calls: `acts simulate` shows what they would do", {}
    simulation = simulate_prepared(whole, max_steps=QUICK_STEPS)
    calls, problems, outcomes = simulation["calls"], simulation["problems"], simulation["outcomes"]
    more = " or more" if outcomes["truncated"] else ""
    rows = [
        words.row(
            _name(call, "id"),
            words.code_span(words.how_text(call)),
            _first_paths([*call["reads"], *(f"{scope} (scope)" for scope in call["scopes"])]),
            _first_paths(call["writes"]),
        )
        for call in calls
    ]
    lines = [
        f"- {words.code_span(p['call']) + ': ' if 'call' in p else ''}{words.code_span(p['message'], MAX_TEXT)}"
        for p in problems
    ]
    # The plan as it was written, ready to be changed and sent
    edit = words.fence({"decision": EDIT, "by": UNFILLED, **address, "plan": prepared.request.calls})
    how = f"To change it, send this with your changes; the new version then waits for a decision:\n\n{edit}"
    remarks = {"approval": "after approval", "background": "in the background"}
    notes = {c["id"]: [*c.get("hints", ()), *(text for key, text in remarks.items() if c[key])] for c in calls}
    forecast: dict[str, Any] = {k: simulation[k] for k in FIGURES if k in simulation}
    if simulation["requests"]["max"]:
        size = estimate_prompt_bytes(context_bytes(whole.request.context), 0, latent=True)
        settings = whole.request.config
        part = {"part": settings.models.price} if settings.models.batch else {}
        forecast["prompt"] = {"model": settings.latent_model, "bytes": size, **part}
    summary = {"calls": {k: v for k, v in notes.items() if v}, "forecast": forecast}
    section = _join_sections(
        "### The plan",
        f"{len(calls)} calls in {len(simulation['waves'])} waves, {len(outcomes['combinations'])}{more} combinations "
        f"of outcomes — {words.code_span(words.forecast_text(simulation), MAX_TEXT)}",
        "\n".join(words.fit_lines(lines, len(lines), "see `acts simulate`")),
        words.fold(
            "What each call does", words.table(_PLAN_HEADS, words.fit_lines(rows, len(rows), "ask the query `plan`"))
        ),
        words.fold("Change it", how if len(edit) <= words.MAX_SECTION else ""),
        "" if len(edit) <= words.MAX_SECTION else "The calls as they were written: ask the query `plan`",
    )
    return section, summary


_PLAN_HEADS: Final = ("call", "how", "reads", "writes")


def _first_paths(paths: Sequence[str]) -> str:
    return ", ".join(map(words.code_span, paths[:MAX_PATHS])) + (
        f", … ({len(paths)})" if len(paths) > MAX_PATHS else ""
    )
