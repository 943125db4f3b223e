"""Whose result goes to the server next, where a large tree and a small one end Activities in one worker."""

from __future__ import annotations

import asyncio

from worker_runtime.report_turns import AT_ONCE, RECENT_SECONDS, ReportTurns


class Reports:
    """Ends Activities, and knows which of their results went to the server."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = ReportTurns(lambda: self.now)
        self.sent: list[bytes] = []
        self.tasks: dict[bytes, asyncio.Task[None]] = {}

    async def send(self, tree: str, *names: bytes) -> None:
        async def report(name: bytes) -> None:
            await self.turns.begin(tree, name)
            self.sent.append(name)

        for name in names:
            self.tasks[name] = asyncio.create_task(report(name))
        await settle()

    async def arrive(self, *names: bytes) -> None:
        for name in names:
            self.turns.end(name)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


MANY = [bytes([n]) for n in range(10)]


async def test_a_tree_that_is_alone_is_not_held_back() -> None:
    reports = Reports()
    await reports.send("large", *MANY)
    assert reports.sent == MANY


async def test_beside_another_tree_few_results_of_a_large_one_are_on_their_way() -> None:
    reports = Reports()
    reports.turns.note("small")
    await reports.send("large", *MANY)
    assert reports.sent == MANY[:AT_ONCE]
    await reports.send("small", b"s")
    assert reports.sent[-1] == b"s"
    await reports.arrive(b"s")
    assert len(reports.sent) == AT_ONCE + 1
    await reports.arrive(MANY[0])
    assert reports.sent[-1] == MANY[AT_ONCE]


async def test_all_go_once_the_other_tree_is_at_rest() -> None:
    reports = Reports()
    reports.turns.note("small")
    await reports.send("large", *MANY)
    reports.now = RECENT_SECONDS + 0.1
    await reports.arrive(MANY[0])
    assert reports.sent == MANY


async def test_a_result_whose_activity_is_cancelled_meanwhile_goes_at_once() -> None:
    reports = Reports()
    reports.turns.note("small")
    await reports.send("large", *MANY[: AT_ONCE + 2])
    last = MANY[AT_ONCE + 1]
    reports.tasks[last].cancel()
    await settle()
    assert reports.sent == [*MANY[:AT_ONCE], last]
    assert not reports.tasks[last].cancelled()
    await reports.arrive(*MANY[:AT_ONCE], last)
    assert reports.sent[-1] == MANY[AT_ONCE]


async def test_nothing_is_left_over_when_all_have_arrived() -> None:
    reports = Reports()
    reports.turns.note("small")
    await reports.send("large", *MANY)
    for name in MANY:
        await reports.arrive(name)
    assert reports.sent == MANY
    await reports.arrive(b"of a local activity")
    assert vars(reports.turns)["_waiting"] == {}
    assert not vars(reports.turns)["_under_way"]
    assert not vars(reports.turns)["_trees"]
