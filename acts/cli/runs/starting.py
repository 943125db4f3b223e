"""How a run is started: under which id, what happens where that id is in use, and the line that describes it in lists.

Temporal keeps ids unique among open runs. So a program that starts its runs under an id of its own, such as the number
of an order, may repeat a start after a lost answer, and no second run comes of it.

The line has names and first lines only. Parameters of Calls, data of the context and inputs stay out: it is read by
everybody who may list runs.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from acts.cli.console import clean, command_error, count_text, print_err
from acts.cli.runs import server
from acts.cli.runs.run_reader import RunReader
from acts.cli.text.source import STDIN
from acts.language.values import Json
from acts.language.wire import MAX_PAYLOAD_BYTES, MAX_STORED_BYTES
from acts.tree.identity import MAX_ID_BYTES

if TYPE_CHECKING:
    from temporalio.client import Client

# What to do while a run of the id runs, and where one has ended
WhileRunning = Literal["fail", "use-existing", "terminate"]
OnceEnded = Literal["again", "again-if-failed", "use-existing", "fail"]
MAX_SUMMARY_BYTES: Final = 200  # the server takes 400
# File names that say nothing of the plan: the name of the folder is used
_GENERIC: Final = ("plan", "request", "agent", "index", "main")
_MAX_STEM: Final = 60


@dataclass(frozen=True)
class StartPolicy:
    """``delay`` are seconds until the run begins; it is visible, and can be cancelled, until then."""

    if_running: WhileRunning = "fail"
    if_ended: OnceEnded = "again"
    delay: float | None = None

    def start_options(self) -> dict[str, Any]:
        """Keyword arguments of the SDK's ``start_workflow``.

        Raises:
            CommandError: the server would refuse both words together.
        """
        from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy

        # USE_EXISTING of the server would not say whether the run is new, so a refused start is looked up instead
        reuse = WorkflowIDReusePolicy.REJECT_DUPLICATE
        if self.if_ended.startswith("again"):
            always, if_failed = WorkflowIDReusePolicy.ALLOW_DUPLICATE, WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
            reuse = always if self.if_ended == "again" else if_failed
        elif self.if_running == "terminate":
            text = f"--if-running terminate starts a run anew, --if-ended {self.if_ended} never does"
            raise command_error(text, hint="leave one of them out")
        conflict = WorkflowIDConflictPolicy
        return {
            "id_reuse_policy": reuse,
            "id_conflict_policy": conflict.TERMINATE_EXISTING if self.if_running == "terminate" else conflict.FAIL,
            "start_delay": None if self.delay is None else timedelta(seconds=self.delay),
        }


def new_id(file: str) -> str:
    """An unused id that names the file: ``weather-1f2e3d4c``."""
    path = Path(file).resolve()
    stem = path.parent.name if path.stem in _GENERIC else path.stem
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in stem).strip("-.")[:_MAX_STEM]
    return f"{'run' if file == STDIN or not name else name}-{secrets.token_hex(4)}"


async def start(
    client: Client, workflow: str, request: Json, run_id: str, source_name: str, policy: StartPolicy | None = None
) -> RunReader:
    """Start a run; where the policy says so, use the one that has this id already.

    Raises:
        CommandError: the id is invalid or in use, or the Request is too large.
    """
    from temporalio.exceptions import WorkflowAlreadyStartedError

    policy = policy or StartPolicy()
    size = len(json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode())
    limit = MAX_PAYLOAD_BYTES if client.data_converter.external_storage is None else MAX_STORED_BYTES
    if size > limit:
        text = f"the request has {size:,} bytes of JSON; a run takes at most {limit:,}"
        hint = "keep large data outside (ACTS_STORAGE, here and for the worker) and pass references, or split the plan"
        raise command_error(text, where=source_name, hint=hint)
    if not run_id or not run_id.isprintable() or len(run_id.encode()) > MAX_ID_BYTES:
        raise command_error(f"an id is 1 to {MAX_ID_BYTES} bytes of printable text", where="--id")
    try:
        await client.start_workflow(
            workflow, request, id=run_id, task_queue=server.task_queue(), rpc_timeout=server.RPC,
            static_summary=summarize(request) or source_name[:MAX_SUMMARY_BYTES], **policy.start_options(),
        )  # fmt: skip
    except WorkflowAlreadyStartedError:
        await _require_use_of_existing(client, run_id, policy)
    return RunReader(client, run_id)


async def _require_use_of_existing(client: Client, run_id: str, policy: StartPolicy) -> None:
    """Say that the run of this id is used. Raises CommandError where the policy does not allow it."""
    status = (await client.get_workflow_handle(run_id).describe(rpc_timeout=server.RPC)).status
    is_running = status is not None and status.name == "RUNNING"
    state, option = ("is still running", "--if-running") if is_running else ("has ended", "--if-ended")
    if (policy.if_running if is_running else policy.if_ended) == "use-existing":
        print_err(f'the run "{clean(run_id)}" {state}: no other one is started', "dim")
        return
    hint = f"choose another id, or see what it does: acts show {clean(run_id)}; or use it: {option} use-existing"
    raise command_error(f'the run "{clean(run_id)}" {state}', where="--id", hint=hint)


def summarize(request: Json) -> str:
    """The first line of a Request's first instruction, and the tools of its plan."""
    context = request.get("context") if isinstance(request, dict) else None
    messages = [m for m in context if isinstance(m, dict)] if isinstance(context, list) else []
    texts = [m.get("content") or m.get("text") for m in messages if m.get("type", "text") in ("text", "system")]
    lines = [line for text in texts if isinstance(text, str) for line in text.strip().splitlines()[:1]]
    parts = [line[: MAX_SUMMARY_BYTES // 2] for line in lines[:1]]
    plans = [m["plan"] for m in messages if m.get("type") == "plan" and isinstance(m.get("plan"), list)]
    if tools := [str(call.get("_tool")) for call in (plans[-1] if plans else ()) if isinstance(call, dict)]:
        parts.append(f"{count_text(len(tools), 'call')}: {', '.join(dict.fromkeys(tools))}")
    data = " ".join(" · ".join(parts).split()).encode(errors="replace")
    is_short = len(data) <= MAX_SUMMARY_BYTES
    return data.decode() if is_short else data[: MAX_SUMMARY_BYTES - 3].decode(errors="ignore") + "…"
