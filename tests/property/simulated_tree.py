"""A tree of runs in memory: machines, and a network that delivers their records late, reordered, or not at all.

What the driver and the server guarantee holds here too: one line per pair of runs, in order, the next message
when the one before was acknowledged; a task empties the inbox, then flushes; a run closes when everything that it
sent has arrived and all its updates are answered; what is sent to a run that is gone is lost, and its sender hears
of it. Nothing else is guaranteed: between two runs of different lines any order is possible.
"""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from acts.language.config import Config
from acts.language.errors import CallError, PlanError
from acts.machines.approvals import iso
from acts.machines.commands import AnswerUpdate, CancelTimer, Finish, SendRecord, SignalChildren, StartTimer
from acts.machines.events import (
    Begin,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    DecisionReceived,
    Event,
    PauseChanged,
    RecordEnded,
    RecordReceived,
    TimerFired,
)
from acts.machines.run_machine import RunMachine
from acts.tree.records import Accounting
from acts.tree.wire_format import VersionedRecord

START = datetime(2026, 1, 1, tzinfo=UTC)
Json = Any


class BareRun(RunMachine):
    """A run of these trees: what it does, a test says in ``react``."""

    config = Config()

    @property
    def can_continue_as_new(self) -> bool:
        return not self.in_flight


@dataclass
class Message:
    record: VersionedRecord
    key: str
    arrived: bool = False
    lost: bool = False


@dataclass
class Run:
    """One run: its machine, what waits in its inbox, and what the test asked it for."""

    machine: RunMachine
    parent: str | None
    key: str
    inbox: deque[Event] = field(default_factory=deque)
    timers: dict[str, int] = field(default_factory=dict)
    updates: set[str] = field(default_factory=set)
    commands: list[Any] = field(default_factory=list)


class Tree:
    """Runs by workflow id. ``now`` is in milliseconds; ``answers`` are those of updates, in order."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.lines: dict[tuple[str, str], deque[Message]] = {}
        self.now = 0
        self.answers: list[AnswerUpdate] = []
        self.asked: Counter[str] = Counter()
        self.gone: set[str] = set()
        self.abandoned: set[str] = set()

    @property
    def clock(self) -> str:
        return iso(START + timedelta(milliseconds=self.now))

    # -- runs ----------------------------------------------------------------------------------

    def start(self, machine: RunMachine, parent: str | None = None, key: str = "") -> None:
        self.runs[machine.own] = Run(machine, parent, key)
        if parent is not None:
            self.runs[parent].inbox.append(ChildStarted(key, machine.own))
        self.runs[machine.own].inbox.append(Begin())

    def work(self, id_: str) -> None:
        """One workflow task: the inbox is emptied, and the root hears what has changed."""
        run = self.runs[id_]
        while True:
            while run.inbox:
                self.handle(id_, run.inbox.popleft())
            is_over = run.machine.finished is not None or run.machine.is_cancelling
            self.flush(id_, at_end=is_over)
            if not run.inbox:
                break
        self.close_if_over(id_)

    def handle(self, id_: str, event: Event) -> None:
        self.perform(id_, self.runs[id_].machine.handle(event, self.clock))

    def flush(self, id_: str, *, at_end: bool) -> None:
        machine = self.runs[id_].machine
        self.perform(id_, machine.flush_at_end(self.clock) if at_end else machine.flush(self.clock))

    def perform(self, id_: str, commands: list[Any]) -> None:
        run = self.runs[id_]
        for command in commands:
            match command:
                case SendRecord():
                    self.lines.setdefault((id_, command.workflow_id), deque()).append(
                        Message(command.record, command.key)
                    )
                case StartTimer():
                    run.timers[command.name] = self.now + max(1, round(command.seconds * 1000))
                case CancelTimer():
                    run.timers.pop(command.name, None)
                case AnswerUpdate():
                    assert command.id in run.updates, f"update {command.id} was answered twice, or never sent"
                    run.updates.remove(command.id)
                    self.answers.append(command)
                case Finish() | SignalChildren():
                    pass
                case _:
                    run.commands.append(command)

    def close_if_over(self, id_: str) -> None:
        run = self.runs[id_]
        is_over = run.machine.finished is not None or run.machine.is_cancelling
        if not is_over or run.inbox or run.updates or self.sends(id_) or self.children(id_) or self.has_work(id_):
            return
        self.end(id_, None if run.machine.is_cancelling else self.accounting(run.machine))

    def has_work(self, id_: str) -> bool:
        """True while something of a run is in flight that the tree knows nothing of."""
        return False

    def accounting(self, machine: RunMachine) -> Accounting:
        return Accounting(settled=machine.budget.take_unreported())

    def end(self, id_: str, accounting: Accounting | None) -> None:
        """The run is over: its parent hears of it, with what it says of its work, if anything."""
        run = self.runs.pop(id_)
        self.gone.add(id_)
        if run.parent in self.runs:
            error = None if accounting is not None else CallError("Terminated", "it was terminated")
            report = None if accounting is None else {}
            self.runs[run.parent].inbox.append(ChildEnded(run.key, report, error, accounting=accounting))

    def kill(self, id_: str) -> None:
        """Terminate a run: what it had not sent yet is never sent; runs below it are cancelled."""
        for child in self.children(id_):
            self.runs[child].inbox.appendleft(CancelRequested())
            self.runs[child].parent = None
        for line in [line for line in self.lines if line[0] == id_]:
            del self.lines[line]
        self.abandoned |= self.runs[id_].updates  # the server answers these
        self.end(id_, None)

    def children(self, id_: str) -> list[str]:
        return [child for child, run in self.runs.items() if run.parent == id_]

    def sends(self, id_: str) -> bool:
        return any(source == id_ for source, _ in self.lines)

    def is_quiet(self, id_: str) -> bool:
        """True when the run could continue as new: nothing in its inbox, nothing on its way from it."""
        run = self.runs[id_]
        return not (run.inbox or run.updates or self.sends(id_) or self.children(id_) or run.machine.finished)

    # -- the network ------------------------------------------------------------------------------

    def arrive(self, line: tuple[str, str], *, fails: bool = False) -> None:
        """The first message of a line reaches its run, or is lost."""
        message = self.lines[line][0]
        if message.arrived:
            return
        message.arrived = True
        message.lost = fails or line[1] not in self.runs
        if not message.lost:
            record = type(message.record).from_json(json.loads(json.dumps(message.record.to_json())))
            assert record == message.record
            self.runs[line[1]].inbox.append(RecordReceived(record))

    def acknowledge(self, line: tuple[str, str]) -> None:
        """Its sender hears what became of the first message of a line; the next may go."""
        message = self.lines[line][0]
        if not message.arrived:
            return
        self.lines[line].popleft()
        if not self.lines[line]:
            del self.lines[line]
        event = RecordEnded(message.key, "it is gone" if message.lost else None)
        self.runs[line[0]].inbox.append(event)

    def fire_next_timer(self, *, until: int | None = None) -> bool:
        timers = [(at, id_, name) for id_, run in self.runs.items() for name, at in run.timers.items()]
        if not timers:
            return False
        at, id_, name = min(timers)
        if until is not None and at > until:
            return False
        self.now = max(self.now, at)
        del self.runs[id_].timers[name]
        self.runs[id_].inbox.append(TimerFired(name))
        return True

    def busy(self) -> Iterator[Any]:
        """Everything that is still to happen by itself, timers left out."""
        for id_, run in list(self.runs.items()):
            if run.inbox and id_ in self.runs:
                yield lambda id_=id_: self.work(id_)
        for line in list(self.lines):
            yield lambda line=line: (self.arrive(line), self.acknowledge(line))

    def settle(self) -> None:
        """Let everything happen that happens by itself, except timers."""
        for _ in range(10_000):
            steps = list(self.busy())
            if not steps:
                return
            for step in steps[:1]:
                step()
        raise AssertionError("the tree never comes to rest")

    # -- people -----------------------------------------------------------------------------------

    def tell(self, id_: str, raw: Json, word: str | None, update: str | None = None) -> str | None:
        """A person decides; returns the refusal of the update's validator, None where it was let in."""
        run = self.runs[id_]
        if update is not None:
            if not run.inbox and not run.machine.has_not_begun:
                try:
                    run.machine.approvals.judge(raw)
                except (PlanError, CallError) as error:
                    return str(error)
            run.updates.add(update)
            self.asked[update] += 1
        run.inbox.append(DecisionReceived(raw, word, update))
        return None


ROOT = "r"
SETTINGS = settings(
    max_examples=int(os.environ.get("TEST_EXAMPLES", "60")), stateful_step_count=60, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    report_multiple_bugs=False,
)  # fmt: skip


class Races(RuleBasedStateMachine):
    """The network of a tree: what is in an inbox is worked on, what is on its way arrives and is acknowledged."""

    def __init__(self, tree: Any) -> None:
        super().__init__()
        self.tree = tree

    @precondition(lambda self: any(run.inbox for run in self.tree.runs.values()))
    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        self.tree.work(data.draw(st.sampled_from([i for i, run in self.tree.runs.items() if run.inbox])))

    @precondition(lambda self: self.tree.lines)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        self.tree.acknowledge(data.draw(st.sampled_from(list(self.tree.lines))))


class PausedRaces(Races):
    """A race of runs that are paused and resumed, too."""

    def _alive(self) -> list[str]:
        machines = {id_: run.machine for id_, run in self.tree.runs.items()}
        return [id_ for id_, machine in machines.items() if not machine.is_cancelling and machine.finished is None]

    @rule(data=st.data(), event=st.sampled_from([PauseChanged(True), PauseChanged(False), PauseChanged(False)]))
    def pause_or_resume(self, data: st.DataObject, event: Event) -> None:
        if ids := self._alive():
            self.tree.runs[data.draw(st.sampled_from(ids))].inbox.append(event)
