"""Arguments and options that commands share, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

File = Annotated[str, typer.Argument(metavar="FILE", help="A request in JSON or YAML; - is standard input.")]
Run = Annotated[str, typer.Argument(metavar="ID", help="The id of a run.")]
AnyRun = Annotated[str | None, typer.Argument(metavar="ID", help="The id of a run (default: all runs).")]
FileOrRun = Annotated[str, typer.Argument(metavar="FILE|ID", help="A request, or the id of a run.")]
ValuePath = Annotated[str, typer.Argument(metavar="PATH", help="The path of a value, like state.order[0].price.")]
Message = Annotated[
    str, typer.Argument(metavar="MESSAGE", help="A data, input or state message: JSON, or a file that holds it.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="KEY=JSON", help="Add to the input; a value that is not JSON is a string."),
]
SetFile = Annotated[
    str | None,
    typer.Option(
        "--set",
        metavar="FILE[:ID]",
        help="Run the plan for each row of a JSON Lines or CSV file; ID is the field of its id.",
    ),
]
ResultsFile = Annotated[
    str | None, typer.Option("--results", metavar="FILE", help="The file that takes a line for each row of the set.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest first.")]
PhaseNames = Annotated[
    list[str] | None,
    typer.Option("--phase", "-p", metavar="PHASE", help="Only in this phase, like awaiting."),
]
Waiting = Annotated[bool, typer.Option("--waiting", help="Only those that wait for a person.")]
ByTool = Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Only those with this tool.")]
ByModel = Annotated[str | None, typer.Option("--model", metavar="NAME", help="Only those with this model.")]
MinCost = Annotated[float | None, typer.Option("--min-cost", metavar="USD", help="Only those that cost at least this.")]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Started within this time, like 30m, 2h or 7d.")]
Older = Annotated[str | None, typer.Option(metavar="TIME", help="Started before this time, like 1h.")]
WaitingTool = Annotated[
    str | None, typer.Option("--tool", metavar="NAME", help="Only calls of this tool, and plans that have one.")
]
WaitsSince = Annotated[str | None, typer.Option("--older", metavar="TIME", help="Waiting for this time, like 1h.")]
MostApprovals = Annotated[
    int | None, typer.Option("--limit", min=1, max=10_000, help="At most so many (default: 50; with --json all).")
]
AllRuns = Annotated[bool, typer.Option("--all", "-a", help="Also runs below others: delegates, instances.")]
WatchList = Annotated[bool, typer.Option("--watch", "-w", help="Show it again every two seconds.")]
ShowOnly = Annotated[bool, typer.Option("--show", help="Print the commands for an administrator; change nothing.")]
Here = Annotated[bool, typer.Option("--here", help="Ask no worker: list what this environment loads.")]
ToolName = Annotated[str | None, typer.Argument(metavar="[TOOL]", help="One tool: its schema.", show_default=False)]
Like = Annotated[
    list[str] | None,
    typer.Option(metavar="ID", help="Take the durations of calls from this run; may be repeated. Needs the server."),
]
AsMermaid = Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")]
Agent = Annotated[
    bool | None,
    typer.Option("--agent/--plan", help="What to run the file as (default: see above).", show_default=False),
]
Tick = Annotated[int | None, typer.Option(min=1, help="One tick of a run (default: the latest).")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show every call as it happens.")]
NewId = Annotated[str | None, typer.Option("--id", help="The id of the run (default: a new one).")]
IfRunning = Annotated[
    str, typer.Option("--if-running", metavar="WORD", help="If a run of --id runs: fail, use-existing or terminate it.")
]
IfEnded = Annotated[
    str,
    typer.Option("--if-ended", metavar="WORD", help="If one has ended: again, again-if-failed, use-existing or fail."),
]
Delay = Annotated[str | None, typer.Option("--delay", metavar="TIME", help="Begin after this time, like 30m or 2h.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Start it, print its id, do not wait.")]
RunId = Annotated[str | None, typer.Option(help="One of several runs of the same id (default: the latest).")]
OneInstance = Annotated[
    str | None, typer.Option(metavar="NAME", help="One instance of a batch, whichever run executes it.")
]
InstanceView = Annotated[str | None, typer.Option(metavar="NAME", help="In the view of an instance.")]
Depth = Annotated[int, typer.Option(min=1, max=50, help="How many calls back.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="A tool that this environment does not load is an error, not a warning.")
]
State = Annotated[Path, typer.Option(envvar="ACTS_STATE", help="The folder of the state; one server per folder.")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="Of the server (default 7233, or a free one).")]
UiPort = Annotated[int | None, typer.Option(min=1, max=65535, help="Of the Web UI (default 8233, or a free one).")]
Ui = Annotated[bool, typer.Option("--ui/--no-ui", help="Serve the Web UI.")]
MODULES_HELP: Final = "Python modules with Activities, comma separated (default: the examples)."
Modules = Annotated[str | None, typer.Option(envvar="ACTS_ACTIVITIES", metavar="MODULES", help=MODULES_HELP)]
# Of a run that resumes another
Mended = Annotated[
    str | None,
    typer.Option("--edit", metavar="FILE", help="The mended plan: calls, or a whole request (default: as it was)."),
]
FromCall = Annotated[
    str, typer.Option("--from", metavar="CALL", help="The first call that runs anew, like 7:charge; plan order counts.")
]
OnlyFailed = Annotated[bool, typer.Option("--only-failed", help="Of a batch or set: what failed, no others.")]
RetryResults = Annotated[
    str | None,
    typer.Option("--results", metavar="FILE", help="Of a set: the file for the results (default: out.2.jsonl)."),
]
HistoryOrRun = Annotated[
    str, typer.Argument(metavar="ID|FILE", help="A run, or a history as `temporal workflow show -o json` prints it.")
]
# Of a decision
Call = Annotated[str | None, typer.Option("--call", "-c", metavar="CALL", help="One call, like 2:refund.")]
Instance = Annotated[str | None, typer.Option(metavar="NAME", help="One of several instances.")]
Below = Annotated[
    str | None, typer.Option("--workflow-id", metavar="ID", help="One of several waiting runs below this one.")
]
Version = Annotated[
    int | None, typer.Option(min=1, help="The version that you have seen; the decision is refused for another one.")
]
By = Annotated[str | None, typer.Option(metavar="NAME", help="Who decides (default: the login name).")]
Note = Annotated[str | None, typer.Option(metavar="TEXT", help="Why.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; an agent plans again with it.")]
Edited = Annotated[
    str | None, typer.Option("--file", metavar="PLAN", help="Calls, or a call: sent instead of opening an editor.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Send it without asking.")]
# Of keys and encrypted payloads
KeyFile = Annotated[str | None, typer.Argument(metavar="FILE", help="Where the private key is written.")]
CodecKey = Annotated[bool, typer.Option("--codec", help="A key for ACTS_CODEC_KEYS instead.")]
CodecHost = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")]
CodecPort = Annotated[int, typer.Option("--port", min=0, max=65535, help="Where to listen; 0: a free port.")]
CodecOrigins = Annotated[
    list[str] | None,
    typer.Option("--origin", metavar="URL", help="The Web UI whose pages may ask (default: http://localhost:8233)."),
]
SigningKey = Annotated[
    str | None, typer.Option("--key", metavar="FILE", help="Sign the decision with this private key (acts keygen).")
]
