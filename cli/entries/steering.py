"""Commands by which people decide, and by which they steer a run.

The command line only: what a command does is imported when it runs.
"""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

from typing import Any

from cli.options import (
    AnyRun,
    AsJson,
    Below,
    By,
    Call,
    Edited,
    Instance,
    Message,
    MostApprovals,
    Note,
    Reason,
    Run,
    SigningKey,
    Version,
    WaitingTool,
    WaitsSince,
    Yes,
)
from cli.program import ExitCode, command


@command
def pending(
    run: AnyRun = None, tool: WaitingTool = None, older: WaitsSince = None, limit: MostApprovals = None,
    as_json: AsJson = False,
) -> ExitCode:  # fmt: skip
    """List everything that waits for a person, across all runs or in one; the oldest runs first.

    Examples:
      acts pending
      acts pending --tool refund --older 1h
    """
    from cli.commands import pending as implementation
    from cli.runs.pending_runs import PendingFilters
    from cli.text.durations import read_seconds

    filters = PendingFilters(tool, read_seconds(older, "--older"), limit)
    return implementation.pending(run, filters, as_json=as_json)


def _target(run: str, by: str | None, **fields: Any) -> Any:
    from cli.commands.decide import ApprovalTarget, login_name

    return ApprovalTarget(run, by=login_name() if by is None else by, **fields)


@command
def approve(
    run: Run, call: Call = None, version: Version = None, by: By = None, note: Note = None, instance: Instance = None,
    workflow_id: Below = None, key: SigningKey = None,
) -> ExitCode:  # fmt: skip
    """Approve a plan or a call that waits.

    Examples:
      acts approve order-7
      acts approve order-7 --call 2:refund --version 1 --note "as agreed"
    """
    from cli.commands.decide import decide

    target = _target(
        run, by, call=call, instance=instance, workflow_id=workflow_id, version=version, reason=note, key=key
    )
    return decide("approve", target)


@command
def reject(
    run: Run, reason: Reason, call: Call = None, version: Version = None, by: By = None, instance: Instance = None,
    workflow_id: Below = None, key: SigningKey = None,
) -> ExitCode:  # fmt: skip
    """Reject a plan or a call that waits, with a reason."""
    from cli.commands.decide import decide

    target = _target(
        run, by, call=call, instance=instance, workflow_id=workflow_id, version=version, reason=reason, key=key
    )
    return decide("reject", target)


@command
def edit(  # noqa: PLR0913, PLR0917 - each is an option of the command
    run: Run, call: Call = None, file: Edited = None, yes: Yes = False, version: Version = None, by: By = None,
    note: Note = None, instance: Instance = None, workflow_id: Below = None, key: SigningKey = None,
) -> ExitCode:  # fmt: skip
    """Change the plan that waits, or one call, in $EDITOR. The new version then waits for an approval of its own."""
    from cli.commands import edit as implementation

    target = _target(
        run, by, call=call, instance=instance, workflow_id=workflow_id, version=version, reason=note, key=key
    )
    return implementation.edit(target, implementation.EditOptions(file, yes))


@command
def provide(run: Run, message: Message) -> ExitCode:
    """Send a run a message that it waits for.

    Examples:
      acts provide order-7 '{"type": "data", "kind": "guest", "data": {"name": "Ada"}}'
    """
    from cli.commands import control

    return control.provide(run, message)


@command
def cancel(run: Run) -> ExitCode:
    """Cancel a run: running calls are cancelled, no more start."""
    from cli.commands import control

    return control.cancel(run)


@command
def pause(run: Run) -> ExitCode:
    """Start no more calls of a run; running ones continue."""
    from acts.language.wire import PAUSE
    from cli.commands import control

    return control.send_signal(run, PAUSE)


@command
def resume(run: Run) -> ExitCode:
    """Resume a paused run."""
    from acts.language.wire import RESUME
    from cli.commands import control

    return control.send_signal(run, RESUME)
