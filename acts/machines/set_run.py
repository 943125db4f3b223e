"""A run over a set: the machine of a ``Plan`` whose instances are the rows of a file.

Theory of operation. The machine holds no rows. An activity surveys the file, then Batches walk its pages, a few at a
time. Each reads its page itself; its result says how many instances completed, how many failed, and which. So neither
what this run holds nor the history of each of its runs grows with the set. Each Batch is started with its share of
``maxParallel``, and keeps it for its part of the tree. After enough Batches the run lets all end and continues as new.

A Batch that ends without a word of all its rows (terminated, cancelled alone, timed out, failed as a whole) is *lost*:

* it concerns its page, not the set: the other Batches continue. Its other rows count as failed or cancelled; where
  there is a results file, an activity *closes* the page: each row without a line gets one, and all are counted;
* a Batch that fails since the set, its results file or the Request cannot be used stops the run: the next would fail
  alike;
* of a run that is cancelled, rows without a line stay without one.

A run that resumes another one reads what became of the rows from results files, or from histories of runs without one:
an activity does so with the survey. A row that runs again has the ``_id``s that it had.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from acts.language import wire
from acts.language.config import Resume
from acts.language.errors import CallError, DecisionRefused, EngineError, InvalidRequest, Problem, truncate
from acts.language.messages import Data, SetData
from acts.language.references import Path
from acts.language.schemas import declared_types
from acts.language.strict_json import json_size
from acts.language.values import Json
from acts.machines import commands, events
from acts.machines.past import describe_source
from acts.machines.plan_run import PlanRun, PlanSetup, reported_instances
from acts.machines.run_machine import RunMachine
from acts.plan.calls import UNIT, PlannedCall
from acts.plan.validate import ValidatedPlan
from acts.tree import set_records
from acts.tree.child_requests import with_answers, without_plan
from acts.tree.decisions import Decision, PendingApproval
from acts.tree.past_run import PastHistory, PastResults, PastRow, PastRun, PastSet
from acts.tree.records import Capabilities, PermitLease, TreePosition
from acts.tree.subjects import show
from acts.tree.wire_format import digest

# Batches at once: fewer leave the worker idle while one reads or writes; more only hold more instances in its memory.
# Above this many Calls of each, there are more of them
MIN_BATCHES: Final = 4
MAX_BATCHES: Final = 16
CALLS_OF_BATCH: Final = 50
# A Batch is about 10 events in the history of this run: 300 are 3,000, a seventeenth of the server's limit
BATCHES_PER_RUN: Final = 300
# Without a results file the result of a Batch has those of its rows, about 125 kB: 30 are 4 MB, a twelfth of the limit
BATCHES_WITH_RESULTS: Final = 30
# Continue-as-new ends a cron, so a run of one goes on to four fifths of the limit, with 875,000 rows
BATCHES_OF_CRON: Final = 3_500
# Instances of a set that one child walks, unless the Request says otherwise: see docs/delegates.md
INSTANCES_PER_CHILD: Final = 25
# Settings that hold for the whole set: a Batch has its own, or none
_OF_THE_ROOT: Final = ("budget", "results", "resume")
# The keys of the activities; behind the last is the name of a Batch
_SURVEY: Final = "survey"
_RESULTS: Final = "results"
_APPEND: Final = "append/"
_CLOSE: Final = "close/"
# A Batch that fails so is not lost: no other could do better
_STOPPING: Final = (
    wire.SET_NOT_FOUND, wire.SET_REFUSED, wire.SET_INVALID, wire.SET_TOO_LARGE, wire.SET_CHANGED,
    wire.RESULTS_REFUSED, wire.RESULTS_EXIST, wire.INVALID_REQUEST,
)  # fmt: skip
# What a field of CSV may be as a number; more digits are an id
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?")
# How a Batch ended, as a verb; the first is the SDK's word for a workflow that somebody has terminated
_ENDINGS: Final = {
    "TerminatedError": "was terminated", wire.CANCELLED: "was cancelled", wire.TIMEOUT: "timed out"
}  # fmt: skip
# Of the lines of one append, in the history of the Batch; one line alone may have more
MAX_APPEND_BYTES: Final = 256 * 1024
# Characters of the message of a Batch's own failure: each of its rows has it
_MAX_REASON: Final = 300


@dataclass(frozen=True, slots=True)
class SetSetup:
    """What a run over a set knows: ``raw`` is its Request as JSON, ``resumed`` the earlier run that it resumes."""

    raw: dict[str, Any]
    prepared: ValidatedPlan
    message: SetData
    capabilities: Capabilities
    position: TreePosition
    date: str  # of its start, in UTC: ``2026-11-28``
    lease: PermitLease | None = None
    resumed: set_records.ResumedSet | None = None
    provided: tuple[Any, ...] = ()


class SetProgress:
    """``survey`` is what the survey returned, None before; ``failures`` are the first ``{id, status, errors}``,
    ``handled`` and ``undeclared`` as in ``RowCounts``.

    ``stopped`` says why no further Batch starts: ``{code, message}``. ``rows`` are those that ended in this run of the
    workflow, where no results file has them: another run that resumes this one reads them; they are not carried over.
    """

    def __init__(self) -> None:
        self.survey: set_records.Survey | None = None
        self.next_page = self.completed = self.failed = 0
        self.failures: list[dict[str, Any]] = []
        self.handled, self.undeclared = 0, dict[str, int]()
        self.stopped: dict[str, str] | None = None
        self.rows: list[PastRow] = []
        self._repeated = self._skipped = b""
        self.pages: list[set_records.SetPage] = []

    def begin(self, survey: set_records.Survey) -> None:
        """Lay out the pages of a survey that have rows to run."""
        self.survey = survey
        self._repeated, self._skipped = (
            set_records.unpack_bits(survey.repeated),
            set_records.unpack_bits(survey.skipped),
        )
        offset, line, row = survey.dialect.start, survey.dialect.lines + 1, 1
        for size, rows, lines, hash_ in survey.pages:
            page = set_records.SetPage(offset=offset, line=line, row=row, rows=rows, lines=lines, hash=hash_)
            self.pages += [page] if self.rows_to_run(page) else []
            offset, line, row = offset + size, line + lines, row + rows

    @property
    def total(self) -> int | None:
        """The rows that this run walks; None before they are counted."""
        return None if self.survey is None else self.survey.total - self.survey.takenOver - self.survey.leftOut

    @property
    def ended(self) -> int:
        return self.completed + self.failed

    @property
    def has_pages(self) -> bool:
        return self.stopped is None and self.next_page < len(self.pages)

    def reading(self, page: set_records.SetPage, message: SetData) -> set_records.PageReading:
        """How a page of the set of this message is read."""
        if self.survey is None:
            raise EngineError("a page without a survey")
        rows = (page.row, page.row + page.rows - 1)
        repeated, skipped = (set_records.numbers_between(bits, *rows) for bits in (self._repeated, self._skipped))
        return set_records.PageReading(
            source=self.survey.source or message.source, id=message.id_field, dialect=self.survey.dialect, page=page,
            repeated=repeated, skipped=skipped,
        )  # fmt: skip

    def rows_to_run(self, page: set_records.SetPage) -> int:
        return page.rows - set_records.count_between(self._skipped, page.row, page.row + page.rows - 1)

    def add(self, report: Mapping[str, Any]) -> None:
        self.completed += report["completed"]
        self.failed += report["failed"]
        self.failures += list(report["failures"])[: set_records.MAX_FAILURES - len(self.failures)]
        self.handled += report.get("handled", 0)
        set_records.add_counts(self.undeclared, report.get("undeclared", {}))
        for id_, item in report.get("instances", {}).items():
            is_line = set_records.is_bad_row(id_, item["errors"])
            self.rows.append(PastRow(id=id_, status=item["status"], isLine=is_line, hasErrors="handled" in item))

    def stop(self, code: str, message: str) -> None:
        """No further Batch starts, for this reason; the first one counts."""
        self.stopped = self.stopped or {"code": code, "message": message}

    @property
    def status(self) -> str:
        if self.stopped is None and not self.failed:
            return "completed"
        is_cut_short = self.stopped is None or self.stopped["code"] == wire.BUDGET_SPENT
        return "partial" if is_cut_short and self.completed else "failed"

    def text(self) -> str:
        total = self.total or 0
        rest = f", {total - self.ended:,} did not run to their end" if self.ended < total else ""
        handled = f", {self.handled:,} took an error path" if self.handled else ""
        counts = f"{self.completed:,} completed, {self.failed:,} failed{handled}"
        return f"{self.ended:,} of {total:,} rows have ended ({counts}){rest}"

    def errors(self) -> list[dict[str, Any]]:
        """The errors of the run: why it stopped, and those of the failures that it lists."""
        out: list[dict[str, Any]] = []
        if self.stopped is not None:
            text = self.stopped["message"]
            text = f"the run stopped: {text}; {self.text()}" if self.next_page else text
            out.append({"call": None, "code": self.stopped["code"], "message": text})
        for failure in self.failures:
            out += [{**error, "instance": failure["id"]} for error in failure["errors"]]
        return out


class SetRun(RunMachine):
    """``running`` are the pages of the Batches in flight, by the Batch's name, with those of lost Batches that are
    not closed yet. ``provided`` are messages as JSON. ``has_results``: its results file is there.
    """

    def __init__(self, own: str, setup: SetSetup, *, is_cron: bool = False) -> None:
        super().__init__(own, setup.position, setup.lease, setup.capabilities)
        self.setup, self.config = setup, setup.prepared.request.config
        self.progress = SetProgress()
        self.watched_tools = [node.tool for node in setup.prepared.nodes]
        self.is_approved = not setup.prepared.request.asks_for_plan
        self.running: dict[str, set_records.SetPage] = {}
        self._lost_reports: dict[str, Mapping[str, Any]] = {}  # what lost Batches reported whose pages are being closed
        self.provided, self.has_results = list(setup.provided), False
        self._activity: str | None = None
        per_run = BATCHES_WITH_RESULTS if self.config.results is None else BATCHES_PER_RUN
        self._started, self._most = 0, BATCHES_OF_CRON if is_cron else per_run
        self.notes += [p.text() for p in setup.prepared.warnings if p.code == "limitLowered"]

    @property
    def in_flight(self) -> int:
        """The Batches, the pages that are being closed, and the activity before them."""
        return len(self.running) + (self._activity is not None)

    @property
    def can_continue_as_new(self) -> bool:
        return not self.in_flight

    @property
    def wants_new_run(self) -> bool:
        """True between Batches, after enough of them."""
        return self._started >= self._most and self.can_continue_as_new

    @property
    def live_phase(self) -> str:
        """``awaiting`` while the plan waits for a person."""
        if self.is_paused:
            return "paused"
        return "awaiting" if self.approvals.waits.own else "running"

    def react(self, event: events.Event, now: str) -> list[Any]:  # noqa: PLR0911 - a row for each event
        match event:
            case events.Begin():
                return self._survey() if self.progress.survey is None else self._go_on(now)
            case events.CallEnded() if event.key.startswith(_CLOSE):
                return self._page_closed(event.key.removeprefix(_CLOSE), event)
            case events.CallEnded():
                return self._activity_ended(event, now)
            case events.ChildEnded() if event.key in self.running:
                return self._batch_ended(event)
            case events.Provided(Data() as message):
                return self._provide(message, now)
            case events.PauseChanged(False):
                return self._fill()
            case events.HoldChanged(False):  # where the state did not fit another run, this one goes on
                self._started = 0 if self.wants_new_run else self._started
                return self._fill()
            case events.CancelRequested():
                return self._cancel()
        return []

    @property
    def _source(self) -> str:
        """The name of its set, which may still be a pattern."""
        setup = self.setup
        named = setup.resumed.file if setup.resumed is not None else ""
        return named or set_records.fill_name(setup.message.source, self.own, setup.date)

    def _survey(self) -> list[Any]:
        message, resumed = self.setup.message, self.setup.resumed
        argument: dict[str, Any] = {"source": self._source, "id": message.id_field}
        if resumed is not None:
            results = [item.to_json() for item in resumed.results]
            past = {"run": resumed.source["workflowId"], "results": results, "only": resumed.source.get("only")}
            argument["past"] = past
        self._activity, label = _SURVEY, f"survey {self._source}"
        return [commands.StartEngineActivity(_SURVEY, wire.SURVEY_SET, argument, label)]

    def _activity_ended(self, event: events.CallEnded, now: str) -> list[Any]:
        """Take the survey, or the results file, which belongs to this run from now on."""
        self._activity = None
        if event.error is not None:
            self.progress.stop(event.error.code, event.error.message)
            return self.finish("cancelled" if self.is_cancelling else "failed")
        self.has_results = event.key == _RESULTS
        if event.key == _SURVEY:
            survey = set_records.Survey.from_json(event.value)
            name = survey.source or self._source  # of one that the Request names whole, it says nothing
            is_named = name == self.setup.message.source
            self.progress.begin(survey if is_named else survey.model_copy(update={"source": name}))
        return self._go_on(now)

    def _go_on(self, now: str) -> list[Any]:
        """Ask people about the plan and its rows, or create the results file, or start Batches."""
        file = self.config.results
        if not self.is_approved:
            return self._ask(now)
        if file is None or self.has_results:
            return self._fill()
        self._activity, argument = _RESULTS, {"file": file, "run": self.position.identity}
        return [commands.StartEngineActivity(_RESULTS, wire.CREATE_RESULTS, argument, f"create {file}")]

    @property
    def _most_batches(self) -> int:
        limit = self.permits.limit
        return min(limit, MAX_BATCHES, max(MIN_BATCHES, -(-limit // CALLS_OF_BATCH)))

    def _fill(self) -> list[Any]:
        """Start as many Batches as may run now; the end when there are no more."""
        out: list[Any] = []
        while self._may_start() and (command := self._next_batch()) is not None:
            out.append(command)
        progress = self.progress
        waits = progress.has_pages or not (self.is_approved or progress.stopped)
        if self.in_flight or progress.survey is None or (waits and not self.is_cancelling):
            return out
        return out + self.finish("cancelled" if self.is_cancelling else progress.status)

    def _may_start(self) -> bool:
        is_idle = self.is_paused or self.is_held or self.is_cancelling or self._activity is not None
        is_idle = is_idle or not self.is_approved
        is_free = self._started < self._most and len(self.running) < self._most_batches
        return not is_idle and is_free and self.progress.has_pages

    def _next_batch(self) -> commands.StartChild | None:
        """Start the Batch of the next page; None where the budget of Calls, or the permits, do not allow it."""
        page = self.progress.pages[self.progress.next_page]
        calls = self.progress.rows_to_run(page) * len(self.setup.prepared.nodes)
        refusal = self.budget.calls_refusal(calls)
        if refusal is not None:
            self.progress.stop(wire.BUDGET_SPENT, refusal)
            return None
        name, share = f"batch-{self.progress.next_page + 1}", max(1, self.permits.limit // self._most_batches)
        if not self.permits.reserve(name, share):
            return None
        self.budget.count_calls(calls)
        self.running[name] = page
        self.progress.next_page += 1
        self._started += 1
        label = f"rows {page.row:,} to {page.row + page.rows - 1:,}"
        return commands.StartChild(wire.BATCH, name, label, self._batch_input(name, page, share))

    def _batch_input(self, name: str, page: set_records.SetPage, share: int) -> set_records.BatchInput:
        """The input of the Batch that walks this page with ``share`` Calls in flight. It holds a lease of that name."""
        setup, message = self.setup, self.setup.message
        keeper = self.own if self.permits.is_keeper else self.permits.keeper
        identity = None if setup.resumed is None else setup.resumed.identity
        position = self.position.child(self.own, identity=identity)
        position = position.guarded(self.config.approve.plan_rule) if setup.prepared.request.asks_for_plan else position
        position = position.model_copy(update={"permitKeeper": keeper, "keepsPermits": True, "maxParallel": share})
        return set_records.BatchInput(
            request=self._batch_request(share), position=position, capabilities=setup.capabilities,
            approve=with_answers(setup.raw.get("config") or {}, setup.prepared.tools), lease=self.permits.lease(name),
            index=message.index, type=message.type, kind=message.kind, reading=self.progress.reading(page, message),
            types=self._column_types(), results=self.config.results, run=self.position.identity,
        )  # fmt: skip

    def _column_types(self) -> dict[str, str]:
        survey = self.progress.survey
        is_csv = survey is not None and bool(survey.dialect.columns)
        return column_types(self.setup.prepared, self.setup.message.kind) if is_csv else {}

    def _batch_request(self, share: int) -> dict[str, Any]:
        """The Request of a Batch without rows; ``share`` is how many Calls it may have in flight."""
        raw, at = self.setup.raw, self.setup.message.index
        config = {k: v for k, v in (raw.get("config") or {}).items() if k not in _OF_THE_ROOT}
        config["approve"] = without_plan(config.get("approve"))
        config["maxParallel"] = share
        config["instancesPerChild"] = config.get("instancesPerChild") or INSTANCES_PER_CHILD
        return {"config": config, "context": [*raw["context"][:at], *self.provided, *raw["context"][at + 1 :]]}

    def _batch_ended(self, event: events.ChildEnded) -> list[Any]:
        """Count what a Batch reports. The rest of its page is closed, unless the run is about to end."""
        name, report, error = event.key, event.report or {}, event.error
        if report.get("spent"):
            self.progress.stop(wire.BUDGET_SPENT, str(report["spent"]))
        reported = int(report.get("completed", 0) + report.get("failed", 0))
        missing = self.progress.rows_to_run(self.running[name]) - reported
        if error is not None and (event.is_unstarted or error.code in _STOPPING):
            self.progress.stop(error.code, error.message)
        elif missing > 0 and not self.is_cancelling:
            return [*self._close(event, missing), *self._fill()]
        self._end_page(name, report)
        return self._fill()

    def _end_page(self, name: str, report: Mapping[str, Any]) -> None:
        del self.running[name]
        if "completed" in report:
            self.progress.add(report)

    def _close(self, event: events.ChildEnded, missing: int) -> list[Any]:
        """Count the ``missing`` rows of a lost Batch; where there is a results file, each has a line before that."""
        name, report, line = event.key, event.report or {}, self._line_of_lost(event)
        page, file = self.running[name], self.config.results
        text = f"those of its {self.progress.rows_to_run(page):,} rows that it had not reported"
        self.note(f"{name} {_ending(event.error)}: {text} count as {line['status']}")
        if file is not None:
            self._lost_reports[name] = report
            reading = self.progress.reading(page, self.setup.message).to_json()
            argument = {"run": self.position.identity, "file": file, "line": line, "reading": reading}
            return [commands.StartEngineActivity(f"{_CLOSE}{name}", wire.CLOSE_PAGE, argument, f"close {name}")]
        self._end_page(name, report)
        error = {"call": None, "code": line["code"], "message": line["message"]}
        failure = {"id": f"rows of {name}", "status": line["status"], "errors": [error]}
        self.progress.add({"completed": 0, "failed": missing, "failures": [failure]})
        return []

    def _page_closed(self, name: str, event: events.CallEnded) -> list[Any]:
        """The file has the lines of all rows of a page, also those that the Batch has reported."""
        report = self._lost_reports.pop(name)
        if event.error is not None and not self.is_cancelling:
            self.progress.stop(event.error.code, event.error.message)
        self._end_page(name, report if event.error is not None else event.value)
        return self._fill()

    def _line_of_lost(self, event: events.ChildEnded) -> dict[str, str]:
        """What the lines of its rows say. A person who cancels a Batch cancels its rows; all else is a failure."""
        own, status, code = self.own, "failed", wire.BATCH_LOST
        option = "" if self.config.results is None else " --only-failed"
        if event.error is not None and event.error.code == wire.CANCELLED:
            status, code, option = "cancelled", wire.CANCELLED, ""
        ending = f"{own}/{event.key} {_ending(event.error)} before it reported this row"
        text = f"{ending}, so what of the row has run is not known"
        command = f"acts retry {shlex.quote(own)}{option}"
        hint = f"when {own} has ended, this runs such rows again, with the _ids that they had: {command}"
        return {"status": status, "code": code, "message": f"{text}; {hint}"}

    def _cancel(self) -> list[Any]:
        self.is_cancelling = True
        if self.progress.survey is not None:
            self.note(f"cancelled: {self.progress.text()}")
        return self.approvals.close_all() if self.in_flight else self.finish("cancelled")

    def _ask(self, now: str) -> list[Any]:
        if self.progress.survey is None:
            return []
        return self.approvals.open("plan", 1, self.config.approve.plan_rule, now, subject=self.subject_of())

    def _provide(self, message: Data, now: str) -> list[Any]:
        """A Message joins the global data of the Batches: of those that run, and of those to come."""
        if message.instance is not None:
            text = "a message for one row of a set is sent to the run that walks it"
            raise DecisionRefused(f"{text}, {self.own}/batch-…/…")
        if self.setup.prepared.request.asks_for_plan and self.is_approved:
            raise DecisionRefused("the plan of this set was approved with the data that it has")
        self.provided.append(message.raw)
        return [commands.SignalChildren(wire.PROVIDE, message.raw)] if self.is_approved else self._ask(now)

    def on_history_full(self, error: CallError, now: str) -> list[Any]:
        self.progress.stop(error.code, error.message)
        return [*self.approvals.close_all(), *self._fill()]

    def subject_of(self, wait: PendingApproval | None = None) -> Json:
        provided = {"provided": [show(message) for message in self.provided]} if self.provided else {}
        survey, rows = self.progress.survey, {}
        if survey is not None:  # a page whose bytes differ from its hash is refused
            rows = {"rows": {"count": self.progress.total, "sha256": digest([[*page] for page in survey.pages])}}
        return {"plan": self.setup.prepared.request.calls, "request": show(self.setup.raw), **rows, **provided}

    def check_decision(self, decision: Decision, wait: PendingApproval) -> None:
        """Raise DecisionRefused for an edit: the rows that ran would have had another plan."""
        if decision.decision == wire.EDIT:
            raise DecisionRefused("the plan of a set cannot be edited: reject it, and start another run")

    def on_decided(self, effect: commands.Decided, now: str) -> list[Any]:
        decision = effect.decision
        if decision.decision == wire.APPROVE:
            self.is_approved = True
            return self._go_on(now)
        if self.in_flight:  # it was approved before a reset
            self.progress.stop(wire.REJECTED, decision.reason or "nobody decided in time")
            return []
        return self.finish("rejected" if decision.decision in (wire.REJECT, wire.UNDO) else "failed")

    def on_void(self, now: str) -> list[Any]:
        self.is_approved = not self.setup.prepared.request.asks_for_plan
        return [] if self.is_approved else self._ask(now)

    def read_facts(self, run_id: str) -> PastRun:
        """What such a run has to know. ``run_id`` is that of this run."""
        resumed, progress, identity = self.setup.resumed, self.progress, self.position.identity
        results = () if resumed is None else resumed.results
        if self.config.results is None and progress.survey is not None:
            results = (*results, PastHistory(workflowId=self.own, runId=run_id))
        elif self.config.results is not None and self.has_results:
            results = (*results, PastResults(file=self.config.results, run=identity))
        of_rows = identity if resumed is None else resumed.identity or identity
        source = "" if progress.survey is None else progress.survey.source
        facts = PastSet(
            identity=of_rows, id=self.setup.message.id_field, source=source, results=results, rows=tuple(progress.rows),
            isUndone=self.config.onFailure is not None,
        )  # fmt: skip
        return PastRun(workflowId=self.own, runId=run_id, provided=tuple(self.provided), set=facts)

    def report_resumed(self) -> dict[str, Any]:
        """``{workflowId, runId, keep, ids, only?, instances?}`` of the run that this one resumes.

        ``instances`` says how many rows were taken over, or left out by ``only``.
        """
        if self.setup.resumed is None:
            return {}
        survey, out = self.progress.survey, dict(self.setup.resumed.source)
        if survey is not None:
            left_out = {"leftOut": survey.leftOut} if "only" in out else {}
            out["instances"] = {"takenOver": survey.takenOver, **left_out}
        return {"resumedFrom": out}

    def snapshot(self) -> set_records.SetState:
        progress = self.progress
        return set_records.SetState(
            **self.common_snapshot(), request=self.setup.raw, position=self.position,
            capabilities=self.setup.capabilities, survey=progress.survey, nextPage=progress.next_page,
            completed=progress.completed, failed=progress.failed, failures=tuple(progress.failures),
            handled=progress.handled, undeclared=progress.undeclared, stopped=progress.stopped,
            provided=tuple(self.provided), usage=self.usage.to_json(),
            notes=tuple(self.notes), isApproved=self.is_approved, isPaused=self.is_paused, resumed=self.setup.resumed,
        )  # fmt: skip

    def restore(self, state: set_records.SetState) -> None:
        self.restore_common(state.approvals, state.budget)
        self.usage.add(state.usage)
        self.notes[:] = state.notes
        self.provided, self.is_paused, self.is_approved = list(state.provided), state.isPaused, state.isApproved
        self.has_results = state.survey is not None and self.config.results is not None
        progress = self.progress
        if state.survey is not None:
            progress.begin(state.survey)
        progress.next_page, progress.completed, progress.failed = state.nextPage, state.completed, state.failed
        progress.failures, progress.stopped = list(state.failures), state.stopped
        progress.handled, progress.undeclared = state.handled, dict(state.undeclared)


def _ending(error: CallError | None) -> str:
    if error is None:
        return "ended"
    return _ENDINGS.get(error.code) or f"failed ([{error.code}] {truncate(error.message, _MAX_REASON)})"


def resumed_set(resume: Resume, past: PastRun, message: SetData) -> set_records.ResumedSet:
    """What a run over a set takes over from an earlier one. Raises InvalidRequest: that one is over no set, or its rows
    have other ids.
    """
    earlier, name = past.set, past.workflowId
    if earlier is None:
        text = f"{name} was not a run over a set, or ended before it began"
        raise _refusal(text, "resume the run before it, or start the plan without config.resume")
    if earlier.id != message.id_field:
        own, other = (
            f'the field "{id_}"' if id_ else "the number of the row" for id_ in (message.id_field, earlier.id)
        )
        raise _refusal(f"the id of a row is {own} here, and was {other} in {name}", "rows are recognised by their ids")
    if earlier.isUndone:  # what undid a row's Calls answers to their ``_id``s
        resume = resume.model_copy(update={"ids": "new"})
    file = earlier.source if set_records.has_pattern(message.source) else ""
    source, identity = describe_source(resume, past), earlier.identity if resume.keeps_ids else None
    return set_records.ResumedSet(source=source, results=earlier.results, file=file, identity=identity)


def _refusal(text: str, hint: str) -> InvalidRequest:
    return InvalidRequest([Problem("invalidSetting", text, "/config/resume", hint=hint)])


class PageResults:
    """What became of the rows of a page. A *line* is ``{id, status, state, errors}``, with the number of its row.

    ``unwritten`` are those that are not in the results file, of which ``in_append`` are being written. Without such a
    file the results are kept, by id.
    """

    def __init__(
        self, own: set_records.BatchInput, rows: Sequence[Sequence[Any]], bad: Sequence[Sequence[Any]]
    ) -> None:
        self._own = own
        self._numbers = {id_: number for number, id_, _ in rows}
        self._counts, self._members = set_records.RowCounts(), dict[str, Any]()
        self._spent: str | None = None
        self.unwritten: list[tuple[int, dict[str, Any]]] = []
        self.in_append = self._appends = 0
        for row in bad:
            self._add(row[0], set_records.bad_row_line(own.reading.source, row), ())

    def add(self, id_: str, report: Mapping[str, Any]) -> None:
        """An instance has ended; one that has a line already keeps it."""
        number = self._numbers.pop(id_, None)
        if number is not None:
            self._add(number, set_records.line_of(id_, report), report.get("calls", ()))

    def _add(self, number: int, line: dict[str, Any], calls: Sequence[Any]) -> None:
        self._counts.add(line)
        for error in line["errors"]:
            if error["code"] == wire.BUDGET_SPENT:
                self._spent = self._spent or error["message"]
        if self._own.results is not None:
            self.unwritten.append((number, line))
        else:
            self._members[line["id"]] = {k: v for k, v in line.items() if k != "id"} | {"calls": list(calls)}

    def append(self) -> commands.StartEngineActivity | None:
        """The next append, unless one is in flight or there is nothing to write."""
        if self.in_append or not self.unwritten:
            return None
        size = 0
        for _, line in self.unwritten:
            size += json_size(line)
            if self.in_append and size > MAX_APPEND_BYTES:
                break
            self.in_append += 1
        self._appends += 1
        lines = [[number, line] for number, line in self.unwritten[: self.in_append]]
        argument = {"file": self._own.results, "run": self._own.run, "lines": lines}
        label = f"append {self.in_append} results"
        return commands.StartEngineActivity(f"{_APPEND}{self._appends}", wire.APPEND_RESULTS, argument, label)

    def record_append(self, error: CallError | None) -> None:
        """An append has ended. One that was cancelled is made again: what it wrote is not written twice. Raises
        CallError: the file cannot take the results of this run.
        """
        if error is not None and error.code != wire.CANCELLED:
            raise error
        if error is None:
            del self.unwritten[: self.in_append]
        self.in_append = 0

    def report(self) -> dict[str, Any]:
        """What the run above counts: ``{completed, failed, failures, spent?, instances?}``."""
        out = self._counts.to_json()
        if self._spent is not None:
            out["spent"] = self._spent
        return out if self._own.results is not None else {**out, "instances": self._members}


def column_types(prepared: ValidatedPlan, kind: str) -> dict[str, str]:
    """``integer``, ``number`` or ``boolean`` for each column that a parameter of that type takes, and none that is a
    text; with ``?`` where each of them may be null.
    """
    types_by_name: dict[str, list[set[str]]] = {}
    for node in prepared.nodes:
        for use in node.parameter_uses:
            if isinstance(use.tree, Path) and use.tree.kind == kind and len(use.tree.names) == 1:
                types = declared_types(node.tool.parameters.schema, use.at)
                types_by_name.setdefault(use.tree.names[0], []).append(types)
    out = {}
    for column, every in types_by_name.items():
        names = set[str]().union(*every) - {"null"}
        name = "number" if names == {"integer", "number"} else "".join(names)
        if name in ("integer", "number", "boolean"):
            out[column] = name + ("?" if all("null" in types for types in every if types) else "")
    return out


def read_cell(text: Json, type_: str) -> Json:
    """The value of a field of CSV, or the text where it is none of this type: its Call says what is wrong then."""
    name, null, _ = type_.partition("?")
    word = text.strip() if isinstance(text, str) and type_ else None
    if not word:
        return None if word == "" and null else text
    if name == "boolean":
        return {"true": True, "false": False}.get(word.lower(), text)
    if not _NUMBER.fullmatch(word):
        return text
    if word.lstrip("+-").isdigit():
        return int(word)
    return float(word) if name == "number" else text


def page_request(own: set_records.BatchInput, rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The Request of a Batch with its rows, ``[number, id, data]``, as the data of one instance each."""
    if own.types and own.reading.dialect.columns:
        typed = ({k: read_cell(v, own.types.get(k, "")) for k, v in row[2].items()} for row in rows)
        rows = [(*row[:2], data) for row, data in zip(rows, typed, strict=True)]
    messages = [{"type": own.type, "kind": own.kind, own.type: data, "_instance": id_} for _, id_, data in rows]
    context = own.request["context"]
    return {**own.request, "context": [*context[: own.index], *messages, *context[own.index :]]}


class BatchRun(PlanRun):
    """A run of a plan over the rows of a page, and of nothing else; ``page`` takes what becomes of them.

    As its children end, it has the lines of their instances appended to the results file, one append at a time: what
    ends meanwhile is in the next. It ends when every line is written. Without a results file it keeps the outcome of
    each instance, for its own result.
    """

    def __init__(self, own: str, setup: PlanSetup, identify: Callable[[PlannedCall], str], page: PageResults) -> None:
        super().__init__(own, setup, identify)
        self.page = page
        self._ending: str | None = None

    @property
    def in_flight(self) -> int:
        return super().in_flight + (self.page.in_append > 0)

    can_continue_as_new = False  # a page is small, and its Batch ends before its history is long

    def react(self, event: events.Event, now: str) -> list[Any]:
        """The effects of an event; first the lines of the instances that have ended."""
        if isinstance(event, events.CallEnded) and event.key.startswith(_APPEND):
            try:
                self.page.record_append(event.error)
            except CallError as error:
                self.failure = error
                return self.finish("failed")
            return self._advance()
        if not isinstance(event, events.ChildEnded):
            return super().react(event, now)
        call = self.walk.by_key.get(event.key)
        if call is not None and call.node.kind == UNIT:
            for id_, report in reported_instances(call.node, event.report, event.error).items():
                self.page.add(id_, report)
        return [*super().react(event, now), *self._advance()]

    def perform(self, walk_commands: Iterable[commands.Command], now: str) -> list[Any]:
        """Commands of the walk; its end waits for the lines."""
        others: list[commands.Command] = []
        for command in walk_commands:
            if isinstance(command, commands.Finish):
                self._ending = command.status
                self._add_the_rest()
            else:
                others.append(command)
        return [*super().perform(others, now), *self._advance()]

    def _add_the_rest(self) -> None:
        """The rows whose children did not start: cancelled ones have no line, since they did not run."""
        for node, call in zip(self.walk.nodes, self.walk.calls, strict=True):
            if call.state == wire.CANCELLED or self.is_cancelling:
                continue
            status = "failed" if call.error is not None else call.state
            errors = [] if call.error is None else [{"call": None, **call.error}]
            for id_ in node.members:
                self.page.add(id_, {"status": status, "errors": errors})

    def _advance(self) -> list[Any]:
        if self.finished is None and (command := self.page.append()) is not None:
            return [command]
        if self.finished is not None or self._ending is None or self.page.unwritten:
            return []
        return self.finish(self._ending)
