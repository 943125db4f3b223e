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
from acts.machines.commands import Finish, StartSetActivity
from acts.machines.events import ChildEnded, SetActivityEnded
from acts.machines.instances import reported_instances
from acts.machines.plan_run import PlanRun
from acts.plan.calls import UNIT
from acts.tree.set_records import RowCounts, bad_row_line, line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from acts.machines.commands import Command
    from acts.machines.events import Event
    from acts.machines.plan_run import PlanSetup
    from acts.plan.calls import PlannedCall
    from acts.tree.set_records import BatchInput

# Of the lines of one append, in the history of the Batch; one line alone may have more
MAX_APPEND_BYTES: Final = 256 * 1024


class PageResults:
    """What became of the rows of a page. A *line* is ``{id, status, state, errors}``, with the number of its row.

    ``kept`` are the results by id where there is no results file.
    """

    def __init__(self, own: BatchInput, rows: Sequence[Sequence[Any]], bad: Sequence[Sequence[Any]]) -> None:
        self._own = own
        self._numbers = {id_: number for number, id_, _ in rows}
        self._counts, self._kept = RowCounts(), dict[str, Any]()
        self._spent: str | None = None
        self._unwritten: list[tuple[int, dict[str, Any]]] = []
        self._in_append = self._appends = 0
        for row in bad:
            self._add(row[0], bad_row_line(own.reading.source, row), ())

    @property
    def is_written(self) -> bool:
        """True when no line waits to be written."""
        return not self._unwritten

    @property
    def is_appending(self) -> bool:
        """True while an append is in flight."""
        return self._in_append > 0

    def add(self, id_: str, report: Mapping[str, Any]) -> None:
        """An instance has ended; one that has a line already keeps it."""
        number = self._numbers.pop(id_, None)
        if number is not None:
            self._add(number, line_of(id_, report), report.get("calls", ()))

    def _add(self, number: int, line: dict[str, Any], calls: Sequence[Any]) -> None:
        self._counts.add(line)
        for error in line["errors"]:
            if error["code"] == BUDGET_SPENT:
                self._spent = self._spent or error["message"]
        if self._own.results is not None:
            self._unwritten.append((number, line))
        else:
            self._kept[line["id"]] = {k: v for k, v in line.items() if k != "id"} | {"calls": list(calls)}

    def append(self) -> StartSetActivity | None:
        """The next append, unless one is in flight or there is nothing to write."""
        if self.is_appending or self.is_written:
            return None
        size = 0
        for _, line in self._unwritten:
            size += json_size(line)
            if self._in_append and size > MAX_APPEND_BYTES:
                break
            self._in_append += 1
        self._appends += 1
        lines = [[number, line] for number, line in self._unwritten[: self._in_append]]
        argument = {"file": self._own.results, "run": self._own.run, "lines": lines}
        label = f"append {self._in_append} results"
        return StartSetActivity(f"append/{self._appends}", APPEND_RESULTS, argument, label)

    def record_append(self, error: CallError | None) -> None:
        """An append has ended. One that was cancelled is made again: what it wrote is not written twice.

        Raises:
            CallError: the file cannot take the results of this run.
        """
        if error is not None and error.code != CANCELLED:
            raise error
        if error is None:
            del self._unwritten[: self._in_append]
        self._in_append = 0

    def report(self) -> dict[str, Any]:
        """What the run above counts: ``{completed, failed, failures, spent?, instances?}``."""
        out = self._counts.to_json()
        if self._spent is not None:
            out["spent"] = self._spent
        return out if self._own.results is not None else {**out, "instances": self._kept}


def page_request(own: BatchInput, rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """The Request of a Batch with its rows, ``[number, id, data]``, as the data of one instance each."""
    messages = [{"type": own.type, "kind": own.kind, own.type: data, "_instance": id_} for _, id_, data in rows]
    context = own.request["context"]
    return {**own.request, "context": [*context[: own.index], *messages, *context[own.index :]]}


class BatchRun(PlanRun):
    """``page`` takes what becomes of its rows."""

    def __init__(
        self, own: str, setup: PlanSetup, identify: Callable[[PlannedCall], str], page: PageResults
    ) -> None:  # fmt: skip
        super().__init__(own, setup, identify)
        self.page = page
        self.failure: CallError | None = None
        self._ending: str | None = None

    @property
    def in_flight(self) -> int:
        """Children, and the append."""
        return super().in_flight + self.page.is_appending

    can_continue_as_new = False  # a page is small, and its Batch ends before its history is long

    def react(self, event: Event, now: str) -> list[Any]:
        """The effects of an event; first the lines of the instances that have ended."""
        if isinstance(event, SetActivityEnded):
            try:
                self.page.record_append(event.error)
            except CallError as error:
                self.failure, self.finished = error, "failed"
                return [Finish(self.finished)]
            return self._advance()
        if not isinstance(event, ChildEnded):
            return super().react(event, now)
        call = self.walk.by_key.get(event.key)
        if call is not None and call.node.kind == UNIT:
            for id_, report in reported_instances(call.node, event.report, event.error).items():
                self.page.add(id_, report)
        return [*super().react(event, now), *self._advance()]

    def perform(self, commands: Iterable[Command], now: str) -> list[Any]:
        """Commands of the walk; its end waits for the lines."""
        others: list[Command] = []
        for command in commands:
            if isinstance(command, Finish):
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
