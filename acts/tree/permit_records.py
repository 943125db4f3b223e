"""The signals about permits between a run and the keeper: see ``acts/machines/permits.py``."""

from __future__ import annotations

from acts.tree.signal_records import TreeSignal


class PermitRequest(TreeSignal):
    """To the keeper: ``missing`` permits are lacking here, beside the ``held`` ones, for Calls that could start."""

    workflowId: str
    ancestors: tuple[str, ...]
    missing: int
    held: int


class PermitGrant(TreeSignal):
    """From the keeper, or from the parent: permits to use, or to return."""

    permits: int


class PermitReturn(TreeSignal):
    """To the keeper: ``permits`` that the sender does not use, or that it had lent to ``goneRun``.

    ``goneRun`` is a child of the sender that ended without a word: what it and the runs below it had is free.
    ``startsAgain``: another run takes its place, under the same id.
    """

    workflowId: str
    ancestors: tuple[str, ...]
    permits: int
    goneRun: str | None = None
    startsAgain: bool = False
