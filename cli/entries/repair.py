"""Commands that go on from a run that went wrong, and one that says whether a run can.

The command line only: what a command does is imported when it runs.
"""

# ruff: noqa: FBT002 - a flag of the command line is a bool with a default

from __future__ import annotations

from cli.options import (
    AsJson,
    Detach,
    FromCall,
    HistoryOrRun,
    Mended,
    NewId,
    OnlyFailed,
    RetryResults,
    Run,
    RunId,
    Watch,
)
from cli.program import ExitCode, command


@command
def retry(  # noqa: PLR0913, PLR0917 - each is an option of the command
    run: Run, edit: Mended = None, only_failed: OnlyFailed = False, results: RetryResults = None, run_id: RunId = None,
    new_id: NewId = None, watch: Watch = False, as_json: AsJson = False, detach: Detach = False,
) -> ExitCode:  # fmt: skip
    """Run what a plan has not completed: completed calls are taken over, failed ones keep their _id.

    A new run is started; the one that failed stays as it is. Of a set, rows that completed do not run again.

      acts retry order-7
      acts retry order-7 --edit mended.yaml
      acts retry orders-1f2e3d4c --only-failed --results out.2.jsonl
    """
    from cli.commands import resume_run
    from cli.commands.run import RunOptions

    options = RunOptions(watch=watch, as_json=as_json, detach=detach, run=new_id, results=results)
    return resume_run.retry(run, run_id, edit, options, only_failed=only_failed)


@command
def fork(
    run: Run, from_call: FromCall, edit: Mended = None, run_id: RunId = None, new_id: NewId = None,
    watch: Watch = False, as_json: AsJson = False, detach: Detach = False,
) -> ExitCode:  # fmt: skip
    """Run a plan another way from one call on: the calls before it are taken over, all others run with a new _id.

    The first run stays as it is; it may still run.

      acts fork order-7 --from 7:charge --edit other.yaml
    """
    from cli.commands import resume_run
    from cli.commands.run import RunOptions

    options = RunOptions(watch=watch, as_json=as_json, detach=detach, run=new_id)
    return resume_run.fork(run, run_id, from_call, edit, options)


@command
def replay(history: HistoryOrRun, run_id: RunId = None, as_json: AsJson = False) -> ExitCode:
    """Replay the history of a run with the code that is installed here: could this worker go on with it?

    Exit codes: 0 it replays, 1 it does not, 2 there is no such history, 3 no server.

      acts replay order-7
      temporal workflow show -w order-7 -o json > order-7.json; acts replay order-7.json
    """
    from cli.commands import replay_history

    return replay_history.replay(history, run_id, as_json=as_json)
