"""Whose workflow task computes next: no tree of runs makes another wait for more than what computes now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from worker_runtime.task_threads import LONG_SECONDS, TURNS, FairTurns, Turn, find_tree


class Bench:
    """Turns that end when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.running: list[Turn] = []
        self.turns = FairTurns(self.running.append, lambda: self.now)

    def add(self, *trees: str) -> None:
        for tree in trees:
            self.turns.add(Turn(tree, lambda: None))

    def end(self, computed: float = 0.003) -> str:
        """End the turn that has run longest; its tree."""
        turn = self.running.pop(0)
        self.turns.end(turn, computed)
        return str(turn.tree)

    def drain(self, computed: float = 0.003) -> list[str]:
        return [self.end(computed) for _ in iter(lambda: len(self.running), 0)]


def test_a_few_compute_at_a_time() -> None:
    bench = Bench()
    bench.add(*["batch"] * 9)
    assert len(bench.running) == TURNS
    assert len(bench.drain()) == 9


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
        assert [str(turn.tree) for turn in bench.running].count("small") == 0
        bench.end()
        assert str(bench.running[-1].tree) == "small"
        while any(turn.tree == "small" for turn in bench.running):
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
    bench.add("replay", "replay", "small")
    assert [turn.tree for turn in bench.running] == ["replay", "replay"]
    bench.now += 2 * LONG_SECONDS
    bench.turns.advance()
    assert [turn.tree for turn in bench.running] == ["replay", "replay", "small"]


def test_nothing_remains_of_trees_that_have_ended() -> None:
    bench = Bench()
    bench.add(*[f"tree {n % 50}" for n in range(200)])
    bench.drain()
    assert (bench.turns._served, bench.turns._waiting, bench.turns._running) == ({}, {}, set())


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
