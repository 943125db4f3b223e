"""Whose workflow task computes next: no tree of runs makes another wait for more than what computes now."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from worker_runtime.answer_window import COURTEOUS_ANSWERS, SPARE_ANSWERS, AnswerWindow
from worker_runtime.answer_window import HALF_LIFE_SECONDS as ANSWERS_HALF_LIFE
from worker_runtime.task_threads import LONG_SECONDS, MAX_HOLD_SECONDS, FairTurns, Turn, find_tree
from worker_runtime.tree_loads import AT_WORK_SECONDS, BUSY_SECONDS, HALF_LIFE_SECONDS, MAX_TREES, TreeLoads


class Bench:
    """Turns that end when the test says so, and a server that takes answers when it says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.tasks = 0
        self.running: list[Turn] = []
        self.sleepers = 0
        self.turns = FairTurns(self.running.append, lambda: self.tasks, self.sleep, lambda: self.now)

    def sleep(self) -> None:
        self.sleepers += 1

    def add(self, *trees: str) -> None:
        for tree in trees:
            self.tasks += 1
            self.turns.add(Turn(tree, lambda: None))

    def compute(self, computed: float = 0.003) -> str:
        """End the turn that has run longest, and leave its answer on the way; its tree."""
        turn = self.running.pop(0)
        self.now += computed
        self.turns.end(turn, computed)
        return str(turn.tree)

    def answer(self) -> None:
        """The server takes an answer."""
        self.tasks -= 1
        self.turns.release()

    def end(self, computed: float = 0.003) -> str:
        """End the turn that has run longest, and take its answer; its tree."""
        tree = self.compute(computed)
        self.answer()
        return tree

    def make_busy(self, *trees: str) -> None:
        for tree in trees:
            self.add(tree)
            while self.running:
                self.end(2 * BUSY_SECONDS)

    @property
    def trees(self) -> list[str]:
        return [str(turn.tree) for turn in self.running]


def test_one_task_computes_at_a_time() -> None:
    bench = Bench()
    bench.add(*["batch"] * 9)
    for _ in range(9):
        assert bench.trees == ["batch"]
        bench.end()
    assert bench.trees == []


def test_the_tasks_of_one_tree_keep_their_order() -> None:
    bench = Bench()
    turns = [Turn("batch", lambda: None) for _ in range(20)]
    for turn in turns:
        bench.turns.add(turn)
    order: list[Turn] = []
    while bench.running:
        order.append(bench.running[0])
        bench.end()
    assert order == turns


def test_a_small_tree_waits_for_what_computes_and_not_for_what_waits() -> None:
    bench = Bench()
    bench.add(*["batch"] * 100)
    for _ in range(10):
        bench.add("small")
        assert bench.trees == ["batch"]
        bench.end()
        assert bench.trees == ["small"]
        bench.end()


def test_two_large_trees_share_alike_by_what_their_tasks_compute() -> None:
    bench = Bench()
    bench.add(*["cheap"] * 400, *["dear"] * 400)
    seconds = {"cheap": 0.0, "dear": 0.0}
    for _ in range(200):
        cost = 0.003 if bench.running[0].tree == "cheap" else 0.03
        seconds[bench.end(cost)] += cost
    assert seconds["cheap"] == pytest.approx(seconds["dear"], rel=0.2)


def test_a_tree_that_was_idle_gains_nothing_from_it() -> None:
    bench = Bench()
    bench.add(*["early"] * 1000)
    for _ in range(500):
        bench.end()
    bench.add(*["late"] * 1000)
    ended = [bench.end() for _ in range(200)]
    assert 80 <= ended.count("early") <= 120


def test_a_task_that_computes_for_long_does_not_hold_up_the_others() -> None:
    bench = Bench()
    bench.add("replay", "small")
    assert bench.trees == ["replay"]
    bench.now += 2 * LONG_SECONDS
    bench.turns.advance()
    assert bench.trees == ["replay", "small"]


def test_nothing_remains_of_trees_that_have_ended() -> None:
    bench = Bench()
    bench.add(*[f"tree {n % 50}" for n in range(200)])
    while bench.running:
        bench.end()
    assert (bench.turns._served, bench.turns._waiting, bench.turns._running) == ({}, {}, set())


# -- courtesy ------------------------------------------------------------------------------


def test_a_busy_tree_has_a_few_answers_on_their_way() -> None:
    bench = Bench()
    bench.make_busy("batch")
    bench.add(*["batch"] * 10)
    for _ in range(SPARE_ANSWERS):
        bench.compute()
    assert bench.trees == []
    bench.answer()
    assert bench.trees == ["batch"]


def test_it_has_fewer_while_a_quiet_tree_is_at_work() -> None:
    bench = Bench()
    bench.make_busy("batch")
    bench.add("small", *["batch"] * 9)
    assert bench.end() == "small"
    for _ in range(COURTEOUS_ANSWERS):
        assert bench.compute() == "batch"
    assert bench.trees == []
    bench.add("small")
    assert bench.trees == ["small"]  # nobody else waits for answers
    bench.end()
    assert bench.trees == []
    bench.answer()
    assert bench.trees == ["batch"]


def test_a_quiet_tree_never_waits_for_answers() -> None:
    bench = Bench()
    bench.add(*["small"] * 10)
    for _ in range(10):
        assert bench.compute(BUSY_SECONDS / 20) == "small"


def test_no_task_waits_for_answers_for_long() -> None:
    bench = Bench()
    bench.tasks = 100  # as many are fetched
    bench.add("batch")
    bench.compute(2 * BUSY_SECONDS)
    bench.add("batch", "batch")
    assert bench.trees == []
    assert bench.sleepers == 1
    bench.now += MAX_HOLD_SECONDS
    bench.turns.wake()
    assert [bench.compute(), bench.compute()] == ["batch", "batch"]
    bench.add("batch")
    assert bench.trees == []


@pytest.mark.parametrize("which", [{"is_work": False}, {"is_cached": False}])
def test_evictions_replays_and_first_tasks_wait_for_no_answers(which: dict[str, bool]) -> None:
    bench = Bench()
    bench.make_busy("batch")
    bench.tasks = 100
    bench.add("batch")
    assert bench.trees == []
    turn = Turn("batch", lambda: None, **which)
    bench.turns.add(turn)
    assert bench.running == [turn]


def test_what_waits_for_no_answers_keeps_its_order() -> None:
    bench = Bench()
    bench.add("batch")
    turns = [Turn("batch", lambda: None, is_cached=False) for _ in range(5)]
    for turn in turns:
        bench.turns.add(turn)
    bench.end()
    order: list[Turn] = []
    while bench.running:
        order.append(bench.running[0])
        bench.end()
    assert order == turns


def test_a_tree_that_starts_runs_without_end_still_answers_for_those_it_has() -> None:
    bench = Bench()
    held = Turn("batch", lambda: None)
    bench.turns.add(Turn("batch", lambda: None, is_cached=False))
    bench.turns.add(held)
    while held not in bench.running and bench.now < 2 * MAX_HOLD_SECONDS:
        bench.turns.add(Turn("batch", lambda: None, is_cached=False))
        bench.compute(0.01)
    assert held in bench.running
    assert bench.now >= 0.9 * MAX_HOLD_SECONDS  # they go first


def test_a_run_that_waits_for_local_activities_is_not_counted_twice() -> None:
    """Its task is left out of the count, also while the end of such an Activity waits here."""
    bench = Bench()
    bench.make_busy("batch")
    bench.tasks = SPARE_ANSWERS  # on their way; those of 20 runs with local Activities are left out
    local = [True] * 20
    for n in range(20):
        bench.turns.add(Turn("batch", lambda: None, is_local=partial(local.__getitem__, n)))
    assert bench.turns._count_unanswered() == SPARE_ANSWERS
    assert bench.trees == []
    bench.tasks -= 1
    bench.turns.release()
    local[0], bench.tasks = False, SPARE_ANSWERS  # it computes, and then waits no more
    assert bench.compute() == "batch"
    assert bench.turns._count_unanswered() == SPARE_ANSWERS
    assert bench.trees == []


def test_what_goes_on_with_a_local_activity_is_no_answer() -> None:
    bench = Bench()
    bench.tasks = 1
    bench.turns.add(Turn("small", lambda: None))
    bench.compute()  # its answer is alone on its way
    since = bench.turns._window._alone_since
    bench.turns.add(Turn("other", lambda: None, is_local=lambda: True))
    bench.compute()
    assert bench.turns._window._alone_since == since is not None


def test_a_thread_that_is_left_behind_is_forgotten() -> None:
    bench = Bench()
    lost = Turn("stuck", lambda: None, is_lost=lambda: True)
    bench.tasks = 1
    bench.turns.add(lost)
    bench.now += 2 * LONG_SECONDS
    bench.turns.look()
    bench.answer()
    assert (bench.turns._here, bench.turns._served, bench.turns._count_unanswered()) == (0, {}, 0)
    bench.turns.end(lost, 1.0)  # or it ends in the end
    assert bench.turns._here == 0


def test_tasks_that_wait_beside_a_replay_are_waked() -> None:
    bench = Bench()
    bench.make_busy("batch")
    bench.turns.add(Turn("old", lambda: None, is_cached=False))
    bench.now += 2 * LONG_SECONDS
    bench.tasks, sleepers = 100, bench.sleepers
    bench.add("batch")
    assert [turn.tree for turn in bench.running] == ["old"]
    assert bench.sleepers == sleepers + 1


def test_two_busy_trees_are_no_reason_for_courtesy() -> None:
    bench = Bench()
    bench.make_busy("batch", "large")
    bench.add(*["batch", "large"] * 5)
    for _ in range(SPARE_ANSWERS):
        bench.compute()
    assert bench.trees == []


def test_a_long_way_holds_more_answers() -> None:
    """100 answers a second, each on its way for 50 ms: five of them, or nearly so, are always there."""
    window = AnswerWindow()
    for n in range(1_000):
        now = n * 0.01
        window.send(now, 1)
        window.arrive(now + 0.05, 0)
    assert window.size(10.0) in (SPARE_ANSWERS + 4, SPARE_ANSWERS + 5)
    assert window.size(10.0 + 20 * ANSWERS_HALF_LIFE) == SPARE_ANSWERS


def test_a_line_at_the_server_is_not_taken_for_a_long_way() -> None:
    window = AnswerWindow()
    window.send(0.0, 1)
    window.arrive(0.002, 0)
    for n in range(1, 500):
        window.send(n * 0.01, 9)
        window.arrive(n * 0.01 + 0.005, 8)
    assert window.size(5.0) == SPARE_ANSWERS


def test_the_quiet_are_at_work_for_a_while_after_each_task() -> None:
    loads = TreeLoads()
    loads.add("batch", 10 * BUSY_SECONDS, 0.0)
    assert not loads.is_courteous("batch", 0.0)
    loads.arrive("small", 0.0)
    assert loads.is_courteous("batch", 0.9 * AT_WORK_SECONDS)
    assert not loads.is_courteous("small", 0.0)
    assert not loads.is_courteous("batch", AT_WORK_SECONDS)


def test_a_tree_does_not_give_way_to_itself() -> None:
    loads = TreeLoads()
    loads.arrive("batch", 0.0)
    loads.add("batch", 2 * BUSY_SECONDS, 0.0)
    assert not loads.is_courteous("batch", 0.0)


def test_an_eviction_is_no_work() -> None:
    bench = Bench()
    bench.make_busy("batch")
    bench.turns.add(Turn("ended", lambda: None, is_work=False))
    bench.turns.end(bench.running.pop(), 0.001)
    bench.add(*["batch"] * (SPARE_ANSWERS + 1))
    for _ in range(SPARE_ANSWERS):
        assert bench.compute() == "batch"
    assert bench.trees == []


def test_a_tree_that_rests_is_quiet_again() -> None:
    loads = TreeLoads()
    loads.add("batch", 1.5 * BUSY_SECONDS, 0.0)
    loads.arrive("small", HALF_LIFE_SECONDS)
    assert not loads.is_courteous("batch", HALF_LIFE_SECONDS)


def test_trees_at_rest_are_forgotten() -> None:
    loads = TreeLoads()
    for n in range(3 * MAX_TREES):
        loads.add(n, 0.01, n * HALF_LIFE_SECONDS)
    assert len(loads._loads) <= MAX_TREES


# -- whose task it is --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "tree"), [(None, "order-7/i3"), (SimpleNamespace(workflow_id="order-7", run_id="r"), "order-7")]
)
def test_a_run_belongs_to_the_tree_of_its_root(root: Any, tree: str) -> None:
    info = SimpleNamespace(root=root, workflow_id="order-7/i3")
    running = SimpleNamespace(instance=SimpleNamespace(get_info=lambda: info))

    class Activation:
        instance = running.instance

        def activate(self) -> None: ...

    assert find_tree(Activation().activate) == tree
    assert find_tree(print) is None
