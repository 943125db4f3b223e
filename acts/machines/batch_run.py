"""A run that walks a page of a set: the machine of ``Batch``.

It is a run of a plan over the rows of its page, and of nothing else. As its children end, it has the lines of their
instances appended to the results file, one append at a time: what ends meanwhile is in the next. It ends when every
line is written. Without a results file it keeps what each instance came to, for its own result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import CallError
from acts.language.strict_json import json_size
from acts.language.wire import APPEND_RESULTS, BUDGET_SPENT, CANCELLED
from acts.machines.child_reports import reported_instances
from acts.machines.commands import PlanFinished
from acts.machines.events import ChildEnded, SetActivityEnded
from acts.machines.plan_run import PlanRun
from acts.machines.run_commands import Finish, StartSetActivity
from acts.plan.planned_call import UNIT
from acts.tree.set_rows import MAX_FAILURES, bad_row_line, failure_of, line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from acts.machines.commands import Command
    from acts.machines.events import Event
    from acts.machines.plan_decisions import Forecast
    from acts.machines.plan_setup import PlanSetup
    from acts.plan.planned_call import PlannedCall
    from acts.tree.set_records import BatchInput

# Of the lines of one append, in the history of the Batch; one line alone may have more
MAX_APPEND_BYTES: Final = 256 * 1024


class PageResults:
    """What became of the rows of a page. A *line* is ``{id, status, state, errors}``, with the number of its row."""

    def __init__(self, own: BatchInput, rows: Sequence[Sequence[Any]], bad: Sequence[Sequence[Any]]) -> None:
        self._own = own
        self.rows = {id_: number for number, id_, _ in rows}
        self.completed = self.failed = 0
        self.failures: list[dict[str, Any]] = []
        self.kept: dict[str, Any] = {}
        self.spent: str | None = None
        self._unsent: list[tuple[int, dict[str, Any]]] = []
        self._sent: list[tuple[int, dict[str, Any]]] = []
        self._appends = 0
        for row in bad:
            self._add(row[0], bad_row_line(own.set.source, row))

    @property
    def is_written(self) -> bool:
        """True when no line waits to be written."""
        return not self._unsent and not self._sent

    @property
    def is_appending(self) -> bool:
        """True while an append is in flight."""
        return bool(self._sent)

    def add(self, id_: str, report: Mapping[str, Any]) -> None:
        """An instance has ended; one that has a line already keeps it."""
        number = self.rows.pop(id_, None)
        if number is not None:
            self._add(number, line_of(id_, report), report)

    def _add(self, number: int, line: dict[str, Any], report: Mapping[str, Any] | None = None) -> None:
        if line["status"] == "completed":
            self.completed += 1
        else:
            self.failed += 1
            if len(self.failures) < MAX_FAILURES:
                self.failures.append(failure_of(line))
            spent = [e["message"] for e in line["errors"] if e.get("code") == BUDGET_SPENT]
            self.spent = self.spent or (spent[0] if spent else None)
        if self._own.results is not None:
            self._unsent.append((number, line))
        else:
            calls = {} if report is None else {"calls": report.get("calls", [])}
            self.kept[line["id"]] = {k: v for k, v in line.items() if k != "id"} | calls

    def append(self) -> StartSetActivity | None:
        """The next append, unless one is in flight or there is nothing to write."""
        if self._sent or not self._unsent:
            return None
        size = count = 0
        for _, line in self._unsent:
            size += json_size(line)
            if count and size > MAX_APPEND_BYTES:
                break
            count += 1
        self._sent, self._unsent = self._unsent[:count], self._unsent[count:]
        return self._command()

    def _command(self) -> StartSetActivity:
        self._appends += 1
        own = self._own
        argument = {
            "file": own.results, "run": own.run, "root": own.position.ancestors[0], "token": own.position.token,
            "lines": [[number, line] for number, line in self._sent],
        }  # fmt: skip
        label = f"append {len(self._sent)} results"
        return StartSetActivity(f"append/{self._appends}", APPEND_RESULTS, argument, label)

    def appended(self, error: CallError | None) -> StartSetActivity | None:
        """An append has ended. One that was cancelled is made again: what it wrote is not written twice.

        Raises:
            CallError: the file cannot take the results of this run.
        """
        if error is not None and error.code == CANCELLED:
            return self._command()
        if error is not None:
            raise error
        self._sent = []
        return self.append()

    def report(self) -> dict[str, Any]:
        """What the run above counts: ``{completed, failed, failures, spent?, instances?}``."""
        out: dict[str, Any] = {"completed": self.completed, "failed": self.failed, "failures": self.failures}
        if self.spent is not None:
            out["spent"] = self.spent
        if self._own.results is None:
            out["instances"] = self.kept
        return out


class BatchRun(PlanRun):
    """``page`` takes what becomes of its rows."""

    def __init__(
        self, own: str, setup: PlanSetup, identify: Callable[[PlannedCall], str], forecast: Forecast, page: PageResults
    ) -> None:  # fmt: skip
        super().__init__(own, setup, identify, forecast)
        self.page = page
        self.failure: CallError | None = None
        self._ending: str | None = None

    @property
    def in_flight(self) -> int:
        """Children, and the append."""
        return super().in_flight + self.page.is_appending

    @property
    def can_continue_as_new(self) -> bool:
        """False: a page is small, and its Batch ends before its history is long."""
        return False

    def react(self, event: Event, now: str) -> list[Any]:
        """The effects of an event; first the lines of the instances that have ended."""
        if isinstance(event, SetActivityEnded):
            return self._appended(event)
        if isinstance(event, ChildEnded):
            self._collect(event)
        return super().react(event, now) if not isinstance(event, ChildEnded) else [
            *super().react(event, now), *self._advance()
        ]  # fmt: skip

    def _collect(self, event: ChildEnded) -> None:
        row = self.walk.rows.get(event.key)
        node = None if row is None else self.walk.states.node(row)
        if node is not None and node.kind == UNIT:
            for id_, report in reported_instances(node, event.report, event.error).items():
                self.page.add(id_, report)

    def perform(self, commands: Iterable[Command], now: str) -> list[Any]:
        """Commands of the walk; its end waits for the lines."""
        others: list[Command] = []
        for command in commands:
            if isinstance(command, PlanFinished):
                self._ending = command.status
                self._add_the_rest()
            else:
                others.append(command)
        return [*super().perform(others, now), *self._advance()]

    def _add_the_rest(self) -> None:
        """The rows whose children did not start: cancelled ones have no line, since they did not run."""
        for node, call in zip(self.walk.nodes, self.walk.calls, strict=True):
            if call.state == CANCELLED or self.is_cancelling:
                continue
            status = "failed" if call.error is not None else call.state
            errors = [] if call.error is None else [{"call": None, **call.error}]
            for id_ in node.members:
                self.page.add(id_, {"status": status, "errors": errors})

    def _appended(self, event: SetActivityEnded) -> list[Any]:
        try:
            command = self.page.appended(event.error)
        except CallError as error:
            self.failure, self.finished = error, "failed"
            return [Finish(self.finished)]
        return [command] if command is not None else self._advance()

    def _advance(self) -> list[Any]:
        """Write what is to be written; the end when nothing is."""
        if self.finished is not None:
            return []
        command = self.page.append()
        if command is not None:
            return [command]
        if self._ending is None or not self.page.is_written:
            return []
        self.finished = self._ending
        return [Finish(self.finished)]
