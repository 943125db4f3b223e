"""What the decisions of people add to the history of a run, in events, workflow tasks and bytes: from, to.

Measured on a real server. A signal is one event, an update two, each with a workflow task of
its own (three more); signals that come at once share one. So five events for an update, four
for a signal. A limit in time adds a timer, started and then cancelled or fired, so two more;
a decision of the timer is nothing else. Early decisions, which nothing waited for yet, cost
one event, and are not foreseen.

A run below another reports what waits in it: a signal, sent and delivered, each time that changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIGNAL_EVENTS: Final = 1
_UPDATE_EVENTS: Final = 2
_TIMER_EVENTS: Final = 2
_REPORT_EVENTS: Final = 2

# Bytes, with a decision that says its version, its author and few words
_SIGNAL: Final = 160
_UPDATE: Final = 480
_TIMER: Final = 190
_REPORT: Final = 275
# What the status, the answer to an update, tells of a Call, and of a decision (as the result does)
_CALL: Final = 55
_RECORD: Final = 115
# … and a report of what waits
_WAIT: Final = 120
# Of so many decisions the status tells
_TOLD: Final = 100


@dataclass(frozen=True, slots=True)
class ApprovalCost:
    """The part of decisions in a history: the least and the most."""

    events: tuple[int, int] = (0, 0)
    tasks: tuple[int, int] = (0, 0)
    bytes: tuple[int, int] = (0, 0)


def approval_cost(asked: Sequence[int], calls: int, *, whole: bool, limited: bool, below: bool) -> ApprovalCost:
    """What is added by a decision about the ``whole`` plan and by those about ``asked`` Calls in each wave.

    ``calls`` is the number of Calls of the plan; ``limited`` says that there is a limit in time, ``below`` that
    the run is below another.
    """
    waves = [n for n in asked if n]
    count = whole + sum(waves)
    if not count:
        return ApprovalCost()
    timers = count * _TIMER_EVENTS if limited else 0
    # A timer that fires has decided
    events = [timers or count * _SIGNAL_EVENTS, timers + count * _UPDATE_EVENTS]
    tasks = [whole + len(waves), count]
    records = count * _RECORD + (count * _TIMER if limited else 0)
    told = sum(min(n, _TOLD) for n in range(1, count + 1))  # each answer tells the decisions so far
    answers = count * (_UPDATE + calls * _CALL) + told * _RECORD
    bytes_ = [records + count * (0 if limited else _SIGNAL), records + answers]
    if below:
        reports = (2 * len(waves), sum(2 * n for n in waves))
        waiting = (sum(waves), sum(n * (n + 1) // 2 for n in waves))
        events = [n + _REPORT_EVENTS * r for n, r in zip(events, reports, strict=True)]
        tasks[1] += reports[1]
        bytes_ = [b + _REPORT * r + _WAIT * w for b, r, w in zip(bytes_, reports, waiting, strict=True)]
    return ApprovalCost((events[0], events[1]), (tasks[0], tasks[1]), (bytes_[0], bytes_[1]))
