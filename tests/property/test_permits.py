"""One limit of Calls in flight for a tree of runs that start, wait, delegate, die and continue as new.

Whatever happens and in whatever order messages arrive: never more in flight than the limit, nobody waits for ever,
no permit is free while a Call could use it, and in the end the keeper has all permits again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from acts.language import wire
from acts.language.errors import CallError
from acts.machines.commands import Finish, StartChild
from acts.machines.events import Begin, CallEnded, CancelRequested, ChildEnded, Event, HoldChanged, PauseChanged
from acts.machines.run_machine import RunMachine
from acts.tree.records import Accounting, DelegateInput, InstanceInput, PermitLease, TreePosition
from tests.property.simulated_tree import ROOT, SETTINGS, BareRun, PausedRaces, Tree


@dataclass
class Work:
    """What a run has to do: so many Calls, delegates and batch children, some of it after a person has decided.

    ``limit`` is a ``maxParallel`` of its own.
    """

    calls: int = 0
    after_decision: int = 0
    delegates: list[Work] = field(default_factory=list)
    children: list[Work] = field(default_factory=list)
    limit: int | None = None


class WorkingRun(BareRun):
    """A run that starts its Calls as a plan does: as many as it has permits for, in order."""

    def __init__(self, own: str, position: TreePosition, work: Work, lease: PermitLease | None = None) -> None:
        if work.limit is not None or lease is None:
            position = position.with_limit(work.limit or position.maxParallel, lease)
        super().__init__(own, position, lease=lease)
        self.to_start: list[tuple[str, Work | None, bool]] = [(f"c{n}", None, False) for n in range(work.calls)]
        self.to_start += [(f"d{n}", sub, False) for n, sub in enumerate(work.delegates)]
        self.to_start += [(f"u{n}", sub, True) for n, sub in enumerate(work.children)]
        self.undecided = [(f"h{n}", None, False) for n in range(work.after_decision)]
        self.calls_in_flight: set[str] = set()
        self.children_in_flight: dict[str, Work] = {}

    @property
    def in_flight(self) -> int:
        return len(self.calls_in_flight) + len(self.children_in_flight)

    @property
    def waiting_starts(self) -> int:
        return 0 if self.is_paused else len(self.to_start)

    def react(self, event: Event, now: str) -> list[Any]:
        match event:
            case HoldChanged(False):  # a person decides
                self.to_start += self.undecided
                self.undecided = []
            case CallEnded():
                self.calls_in_flight.discard(event.key)
            case ChildEnded():
                self.children_in_flight.pop(event.key, None)
            case CancelRequested():
                self.is_cancelling = True
                self.to_start = []
        if self.to_start or self.undecided or self.in_flight or self.is_cancelling:
            return []
        self.finished = "completed"
        return [Finish("completed")]

    def start_held_calls(self, now: str) -> list[Any]:
        out = []
        while self.to_start:
            key, sub, is_batch = self.to_start[0]
            if is_batch and sub is not None:
                size = sub.calls + len(sub.delegates)
                waiting = sum(batch for _, _, batch in self.to_start)
                has_permit = self.permits.reserve_for_child(key, max(1, sub.calls // 2), max(1, size), waiting)
            else:
                has_permit = self.permits.reserve(key)
            if not has_permit:
                break
            self.to_start.pop(0)
            if sub is None:
                self.calls_in_flight.add(key)
            else:
                self.children_in_flight[key] = sub
                out.append(self._start(key, sub, is_batch=is_batch))
        return out

    def _start(self, key: str, sub: Work, *, is_batch: bool) -> Any:
        node: Any = SimpleNamespace(key=key)
        if is_batch:
            position = self.position.child(self.own)
            own: Any = InstanceInput(request={}, position=position, instances=("i",))
            return StartChild(wire.INSTANCE, node.key, "", own, node)
        position = self.position.delegate(self.own)
        own = DelegateInput(delegate="d", input={}, context=(), config={}, position=position)
        return StartChild(wire.DELEGATE, node.key, "", own, node)

    def renewed(self) -> WorkingRun:
        lease = self.permits.lease_of_next_run()
        if lease is not None:
            lease = PermitLease.from_json(json.loads(json.dumps(lease.to_json())))
        new = WorkingRun(self.own, self.position, Work(), lease)
        new.to_start, new.undecided, new.is_paused = self.to_start, self.undecided, self.is_paused
        return new


class PermitTree(Tree):
    def accounting(self, machine: RunMachine) -> Accounting:
        return Accounting(permits=machine.permits.take_all())

    def has_work(self, id_: str) -> bool:
        machine = self.runs[id_].machine
        assert isinstance(machine, WorkingRun)
        return bool(machine.calls_in_flight)


def works(depth: int) -> st.SearchStrategy[Work]:
    below = st.lists(works(depth - 1), max_size=3) if depth else st.just([])
    return st.builds(
        Work, st.integers(0, 6), st.sampled_from([0, 0, 0, 1, 2]), below, below,
        st.sampled_from([None, None, None, 1, 2, 3]),
    )  # fmt: skip


class PermitRaces(PausedRaces):
    def __init__(self) -> None:
        super().__init__(PermitTree())
        self.limit = 0
        self.orphans: set[str] = set()

    @initialize(work=works(2), limit=st.integers(1, 6))
    def grow(self, work: Work, limit: int) -> None:
        self.limit = work.limit = limit
        self.root = WorkingRun(ROOT, TreePosition(), work)
        self.tree.start(self.root)

    def machine(self, id_: str) -> WorkingRun:
        machine = self.tree.runs[id_].machine
        assert isinstance(machine, WorkingRun)
        return machine

    def _calls(self) -> list[tuple[str, str]]:
        """The Calls in flight that have not reported yet."""
        return [
            (i, key) for i in self.tree.runs for key in sorted(self.machine(i).calls_in_flight)
            if not any(isinstance(e, CallEnded) and e.key == key for e in self.tree.runs[i].inbox)
        ]  # fmt: skip

    # -- what happens ----------------------------------------------------------------------------

    @rule(data=st.data(), count=st.integers(1, 4))
    def end_calls(self, data: st.DataObject, count: int) -> None:
        for _ in range(count):
            if calls := self._calls():
                id_, key = data.draw(st.sampled_from(calls))
                self.tree.runs[id_].inbox.append(CallEnded(key, None))

    @precondition(lambda self: any(run.commands for run in self.tree.runs.values()))
    @rule(data=st.data(), fails=st.sampled_from([False, False, False, True]))
    def start_a_child(self, data: st.DataObject, fails: bool) -> None:  # noqa: FBT001
        parent = data.draw(st.sampled_from([i for i, run in self.tree.runs.items() if run.commands]))
        self._start_child(parent, fails=fails)

    def _start_child(self, parent: str, *, fails: bool) -> None:
        command = self.tree.runs[parent].commands.pop(0)
        key = command.node.key
        if fails:  # what it would be started with is too large
            error = CallError("PayloadTooLarge", "it does not fit")
            self.tree.runs[parent].inbox.append(ChildEnded(key, None, error, is_unstarted=True))
            return
        own = type(command.input).from_json(json.loads(json.dumps(command.input.to_json())))
        work = self.machine(parent).children_in_flight[key]
        id_ = f"{parent}/{key}"
        if parent in self.orphans:
            self.orphans.add(id_)
        self.tree.start(WorkingRun(id_, own.position, work, own.lease), parent, key)

    @rule(data=st.data())
    def decide(self, data: st.DataObject) -> None:
        if ids := [i for i in self._alive() if self.machine(i).undecided]:
            self.tree.runs[data.draw(st.sampled_from(ids))].inbox.append(HoldChanged(False))

    @rule(data=st.data(), one_in=st.integers(0, 3))
    def kill(self, data: st.DataObject, one_in: int) -> None:
        ids = [i for i in self._alive() if i != ROOT]
        if ids and one_in == 0:
            id_ = data.draw(st.sampled_from(ids))
            self.orphans |= {i for i in self.tree.runs if i.startswith(f"{id_}/")}
            self.tree.kill(id_)

    @rule(data=st.data())
    def continue_as_new(self, data: st.DataObject) -> None:
        quiet = [i for i in self._alive() if self.tree.is_quiet(i) and self.machine(i).in_flight == 0]
        quiet = [i for i in quiet if not self.tree.runs[i].commands and not self.machine(i).has_not_begun]
        if quiet:
            run = self.tree.runs[data.draw(st.sampled_from(quiet))]
            assert isinstance(run.machine, WorkingRun)
            run.machine, run.timers = run.machine.renewed(), {}
            run.inbox.append(Begin())
            if run.parent is None and ROOT in self.tree.runs:
                self.root = self.machine(ROOT)

    @rule()
    def let_time_pass(self) -> None:
        self.tree.fire_next_timer()

    # -- the network -----------------------------------------------------------------------------

    @precondition(lambda self: self.tree.lines)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        self.tree.arrive(data.draw(st.sampled_from(list(self.tree.lines))))

    # -- what holds ------------------------------------------------------------------------------

    @invariant()
    def no_limit_is_exceeded(self) -> None:
        for top in self.tree.runs:
            limit = self.machine(top).position.maxParallel
            below = [i for i in self.tree.runs if f"{i}/".startswith(f"{top}/") and i not in self.orphans]
            assert sum(len(self.machine(i).calls_in_flight) for i in below) <= limit, f"below {top}: more than {limit}"

    @rule()
    def come_to_rest(self) -> None:
        self._rest()
        if ROOT not in self.tree.runs or any(run.commands for run in self.tree.runs.values()):
            return
        usable = {i: self.machine(i).permits.usable for i in self._alive() if self.machine(i).permits.is_keeper}
        for id_ in self._alive():
            permits = self.machine(id_).permits
            is_silent = not permits._may_ask and len(permits._holders) > len(permits._children)  # its Calls end
            if self.machine(id_).waiting_starts and id_ not in self.orphans and not is_silent:
                keepers = [i for i in usable if f"{id_}/".startswith(f"{i}/")]
                assert any(usable[i] <= 0 for i in keepers), f"{id_} waits, and nobody uses {usable}"

    def _rest(self) -> None:
        for _ in range(1_000):
            self.tree.settle()
            if not self.tree.fire_next_timer():
                return
        raise AssertionError("timers never end")

    def teardown(self) -> None:
        for _ in range(2_000):
            self._rest()
            if ROOT not in self.tree.runs:
                break
            for id_, run in self.tree.runs.items():
                if self.machine(id_).is_paused:
                    run.inbox.append(PauseChanged(False))
                if self.machine(id_).undecided:
                    run.inbox.append(HoldChanged(False))
            waiting = [i for i, run in self.tree.runs.items() if run.commands]
            if waiting:
                self._start_child(waiting[0], fails=False)
            elif calls := self._calls():
                self.tree.runs[calls[0][0]].inbox.append(CallEnded(calls[0][1], None))
            elif not any(run.inbox for run in self.tree.runs.values()):
                break
        self._check_end()

    def _check_end(self) -> None:
        left = {i: (self.machine(i).to_start, self.machine(i).calls_in_flight) for i in self.tree.runs}
        assert set(left) <= {ROOT} | self.orphans, f"a run never ends: {left}"
        permits = self.root.permits
        assert (permits.free, permits.lent, permits._holders) == (self.limit, 0, {})


TestPermitRaces = PermitRaces.TestCase
TestPermitRaces.settings = SETTINGS
