"""A run waits for its children, and starts those again that went with another run of it, whenever it was reset."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError, CancelledError, ChildWorkflowError, TerminatedError

from acts.language.wire import DELEGATE, SUPERSEDED_RUN
from workflows.runtime import children
from workflows.runtime.children import Children

ID = "r/1:a"
SUPERSEDED = ApplicationError("another run starts this work again", type=SUPERSEDED_RUN)
CANCELLED = CancelledError("with the run above")
BROKEN = ApplicationError("the call failed", type="ValueError")
KILLED = TerminatedError("by a person")


class Run(asyncio.Future[Any]):
    """A child that has been started."""

    id = ID

    def fail(self, cause: Exception) -> None:
        error = ChildWorkflowError(
            "child", namespace="", workflow_id=ID, run_id="", workflow_type="", initiated_event_id=0,
            started_event_id=0, retry_state=None,
        )  # fmt: skip
        error.__cause__ = cause
        self.set_exception(error)


Act = Callable[["Parent"], None]


def nothing(_: Parent) -> None: ...


def reset(parent: Parent) -> None:
    """The run goes on in another, whose driver has not noted that yet."""
    parent.lineage += 1


def reset_and_noted(parent: Parent) -> None:
    reset(parent)
    parent.noted_lineage = parent.lineage


class Parent:
    """A run with a child, which fails the first time it is started. ``answers``: what was said of each start."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, cause: Exception, before_answer: Act = nothing, after: Act = nothing
    ) -> None:
        self.lineage = self.noted_lineage = 1
        self.starts, self.answers, self.signals = 0, list[tuple[str, bool]](), list[tuple[int, str]]()
        self._cause, self._before_answer, self._after = cause, before_answer, after
        self.answered, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()
        self._endings: list[asyncio.Task[None]] = []
        monkeypatch.setattr(children, "start_child", self._start)

    async def _start(self, *_: object, **__: object) -> Run:
        run = Run()
        self.starts += 1
        if self.starts > 1:
            run.set_result("done")
            return run
        self._before_answer(self)
        self._endings.append(asyncio.create_task(self._end(run)))
        return run

    async def _end(self, run: Run) -> None:
        await self.may_end.wait()
        self._after(self)
        if not run.done():  # cancelled with the run that waits for it
            run.fail(self._cause)

    def run(self) -> Coroutine[Any, Any, Any]:
        outbox: Any = self
        arg: Any = None
        lifeline: Any = self
        self.children = Children(outbox, lambda _: None, lifeline)
        self.children.expect(DELEGATE, "1:a")
        return self.children.run(DELEGATE, "1:a", arg, "a", self._answer)

    def _answer(self, child: Any, is_of_before_reset: bool) -> None:  # noqa: FBT001 - as it is called
        self.answers.append((child.id, is_of_before_reset))
        self.answered.set()

    def send(self, _target: Run, signal: str, *_: object) -> None:
        """As an outbox."""
        self.signals.append((self.starts, signal))


@pytest.mark.parametrize("cause", [SUPERSEDED, CANCELLED])
@pytest.mark.parametrize("when", ["before_answer", "after"])
async def test_a_child_that_went_with_another_run_is_started_again(
    monkeypatch: pytest.MonkeyPatch, cause: Exception, when: str
) -> None:
    """Also one whose start was answered after the reset: it was started before."""
    parent = Parent(monkeypatch, cause, **{when: reset})
    assert await parent.run() == "done"
    assert parent.starts == 2


async def test_a_child_that_was_superseded_is_started_again_by_a_run_that_was_not_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its end is no outcome of its Call: it may have been reset from a run that had been superseded."""
    parent = Parent(monkeypatch, SUPERSEDED)
    assert await parent.run() == "done"
    assert parent.starts == 2


async def test_a_child_that_was_cancelled_is_not_started_again_by_a_run_that_was_not_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent = Parent(monkeypatch, CANCELLED)
    with pytest.raises(ChildWorkflowError):
        await parent.run()
    assert parent.starts == 1


@pytest.mark.parametrize("cause", [BROKEN, KILLED])
async def test_a_child_that_failed_by_itself_or_was_terminated_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch, cause: Exception
) -> None:
    parent = Parent(monkeypatch, cause, before_answer=reset)
    with pytest.raises(ChildWorkflowError):
        await parent.run()
    assert parent.starts == 1


async def test_a_child_that_its_own_run_cancels_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    task: asyncio.Task[Any]
    parent = Parent(monkeypatch, CANCELLED, before_answer=reset, after=lambda _: bool(task.cancel()) and None)
    task = asyncio.create_task(parent.run())
    await asyncio.wait([task])
    assert (parent.starts, task.cancelled()) == (1, True)


@pytest.mark.parametrize(
    ("before_answer", "after", "is_of_before_reset"),
    [(nothing, reset_and_noted, False), (reset, nothing, False), (reset_and_noted, nothing, True)],
)
async def test_the_run_learns_that_a_start_was_answered_after_a_reset_that_it_has_noted(
    monkeypatch: pytest.MonkeyPatch,
    before_answer: Act,
    after: Act,
    is_of_before_reset: bool,  # noqa: FBT001
) -> None:
    """A reset that it notes later is about this child like about all others."""
    parent = Parent(monkeypatch, BROKEN, before_answer, after)
    with pytest.raises(ChildWorkflowError):
        await parent.run()
    assert parent.answers == [(ID, is_of_before_reset)]


async def test_a_child_that_is_started_again_is_sent_again_what_the_first_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would run while the tree is paused, and wait for a message that has come."""

    def resume_provide_pause(parent: Parent) -> None:
        reset(parent)
        for signal in ("resume", "provide", "pause"):
            parent.children.signal_all(signal)

    parent = Parent(monkeypatch, SUPERSEDED, after=resume_provide_pause)
    run = parent.run()
    parent.children.signal_all("pause")  # before it is there
    assert await run == "done"
    sent = ["pause", "resume", "provide", "pause"]
    assert parent.signals == [(start, signal) for start in (1, 2) for signal in sent]


async def test_a_child_whose_result_does_not_come_is_sent_again_what_it_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent = Parent(monkeypatch, BROKEN)
    parent.run().close()
    parent.children.signal_all("pause")
    parent.children.expect(DELEGATE, "1:a")  # as its run does that has missed its end
    parent.starts = 1
    assert await parent.children.run(DELEGATE, "1:a", None, "a", lambda *_: None) == "done"  # type: ignore[arg-type]
    assert parent.signals == [(2, "pause")]


async def test_a_child_that_has_been_replaced_is_not_started_a_third_time_when_its_end_comes_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The third would supersede the second, for which the run waits."""
    parent = Parent(monkeypatch, CANCELLED, after=reset_and_noted)
    parent.may_end.clear()
    first = asyncio.create_task(parent.run())
    await parent.answered.wait()
    parent.children.expect(DELEGATE, "1:a")
    assert await parent.children.run(DELEGATE, "1:a", None, "a", lambda *_: None) == "done"  # type: ignore[arg-type]
    parent.may_end.set()
    with pytest.raises(ChildWorkflowError):
        await first
    assert parent.starts == 2
