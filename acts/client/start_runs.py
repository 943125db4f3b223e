"""Runs are started under an id: what is sent, and what happens where a run has the id already.

Temporal keeps ids unique among open runs. So a program that starts its runs under an id of its own, such as the number
of an order, may repeat a start after a lost answer, and no second run comes of it. A run that was started with another
Request is never taken for the one that was meant.

The line that describes a run in lists has names and first lines only. Parameters of Calls, data of the context and
inputs stay out: it is read by everybody who may list runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ValidationError

from acts.client import server
from acts.client.client_errors import ClientError, explained
from acts.client.run_reader import RunReader
from acts.language.config import Config
from acts.language.errors import MAX_SUMMARY, clean, heading, shell
from acts.language.messages import with_input, with_tags
from acts.language.source_text import TextError, parse
from acts.language.values import Json, is_equal, type_name
from acts.language.wire import MAX_PAYLOAD_BYTES, MAX_STORED_BYTES, PLAN, UNDO
from acts.tree.identity import MAX_ID_BYTES, child_id, fairness_key

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.common import Priority

# What to do while a run of the id runs, and where one has ended
WhileRunning = Literal["fail", "use-existing", "terminate"]
OnceEnded = Literal["again", "again-if-failed", "use-existing", "fail"]
HAS_ENDED: Final = "has ended"
AGAIN: Final = "--if-ended again"
_REUSE: Final = {"again": "ALLOW_DUPLICATE", "again-if-failed": "ALLOW_DUPLICATE_FAILED_ONLY"}


@dataclass(frozen=True)
class IdPolicy:
    """What happens where a run has the id; ``delay`` are seconds until the new one begins, visible already.

    A start that is repeated must do nothing twice. So a run that has ended is used, unless the start says otherwise.
    """

    if_running: WhileRunning = "use-existing"
    if_ended: OnceEnded | None = None
    delay: float | None = None

    @property
    def once_ended(self) -> OnceEnded:
        return self.if_ended or ("again" if self.if_running == "terminate" else "use-existing")


async def start_run(
    client: Client, workflow: str, request: Json, run_id: str, policy: IdPolicy, queue: str, name: str = ""
) -> tuple[RunReader, str]:
    """Start a run. Returns its reader and "", or the reader of the run that has the id, and that run's state.

    ``name`` is that of the Request. ClientError: the id or the Request cannot be used, or the policy refuses it.
    """
    from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
    from temporalio.exceptions import WorkflowAlreadyStartedError

    _check(client, request, run_id, policy, name)
    conflict = policy.if_running == "terminate"
    reader = RunReader(client, run_id)
    try:
        with explained(client):
            await client.start_workflow(
                workflow, request, id=run_id, task_queue=queue, rpc_timeout=server.RPC,
                id_reuse_policy=WorkflowIDReusePolicy[_REUSE.get(policy.once_ended, "REJECT_DUPLICATE")],
                # USE_EXISTING would not say whether the run is new, so a refused start is looked up instead
                id_conflict_policy=WorkflowIDConflictPolicy["TERMINATE_EXISTING" if conflict else "FAIL"],
                start_delay=None if policy.delay is None else timedelta(seconds=policy.delay),
                static_summary=summarize(request) or heading(name), priority=_priority(request, run_id),
            )  # fmt: skip
    except WorkflowAlreadyStartedError:
        return reader, await _use_existing(reader, request, policy)
    return reader, ""


async def undo_run(run: RunReader) -> tuple[RunReader, str]:
    """Start the run that undoes one that has ended, as ``start_run`` does.

    A run is undone once: who asks again gets the run that did so, which a run that failed may have started itself.
    ClientError: there is nothing to undo.
    """
    info, undo, policy = await run.describe(), run.other(child_id(run.id, UNDO)), IdPolicy()
    if await undo.exists():
        earlier = await undo.describe()
        if earlier.start_time >= info.start_time:
            return undo, "is still running" if earlier.close_time is None else HAS_ENDED
        policy = IdPolicy("fail", "again")  # it undid an earlier run of this id
    if (retry := await run.retried_as()) and await _has_taken_over(run.other(retry)):
        text = f'the run "{clean(run.id)}" was retried, and the retry goes on from what it did'
        raise ClientError(text, f"undo that one: {shell('acts', 'undo', retry)}")
    answer = await run.require(run.query(dict, UNDO))
    if "request" not in answer:
        text = f'no call of "{clean(run.id)}" has completed whose tool says what undoes it (_undo)'
        if answer.get("calls"):
            text = f'what undoes the {answer["calls"]:,} calls of "{clean(run.id)}" is too large to be asked for'
        hint = "of a set, or of a delegate, each run below is undone by itself"
        raise ClientError(text, "an ACTS_STORAGE takes it (docs/sizing.md)" if answer.get("calls") else hint)
    return await start_run(run.client, PLAN, answer["request"], undo.id, policy, info.task_queue)


async def _has_taken_over(retry: RunReader) -> bool:
    is_open = (await retry.describe()).close_time is None
    return is_open or bool((await retry.require(retry.query(dict, UNDO))).get("calls"))


def _check(client: Client, request: Json, run_id: str, policy: IdPolicy, name: str) -> None:
    size = len(json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode())
    limit = MAX_PAYLOAD_BYTES if client.data_converter.external_storage is None else MAX_STORED_BYTES
    if size > limit:
        text = f"the request has {size:,} bytes of JSON; a run takes at most {limit:,}"
        hint = "keep large data outside (ACTS_STORAGE, here and for the worker) and pass references, or split the plan"
        raise ClientError(text, hint, name)
    if not run_id or not run_id.isprintable() or len(run_id.encode()) > MAX_ID_BYTES:
        raise ClientError(f"an id is 1 to {MAX_ID_BYTES} bytes of printable text", where="the id")
    if policy.if_running == "terminate" and not policy.once_ended.startswith("again"):
        text = f"--if-running terminate starts a run anew, --if-ended {policy.once_ended} never does"
        raise ClientError(text, "leave one of them out")


async def _use_existing(run: RunReader, request: Json, policy: IdPolicy) -> str:
    """The state of the run that has the id, where the policy is to use it, and it is the run that was meant."""
    is_running = (await run.describe()).close_time is None
    state, name = ("is still running", "--if-running") if is_running else (HAS_ENDED, "--if-ended")
    if (policy.if_running if is_running else policy.once_ended) != "use-existing":
        hint = (
            f"choose another id, or see what it does: {shell('acts', 'show', run.id)}; or use it: {name} use-existing"
        )
        raise ClientError(f'the run "{clean(run.id)}" {state}', hint)
    if not is_equal(await run.request(as_started=True), request):
        text = f'the run "{clean(run.id)}" {state}, and was started with another request'
        anew = "--if-running terminate" if is_running else AGAIN
        raise ClientError(text, f"choose another id, or see that run: {shell('acts', 'show', run.id)}; anew: {anew}")
    return state


# Keys under which a Message may have its text, and of an inline input what is none of its values
_TEXT_KEYS: Final = ("message", "content", "text", "system")
_FRAME: Final = ("type", "kind", "schema", "description", "role")


def summarize(request: Json) -> str:
    """What is asked for, in a line: the user's own text, else the first instruction; the input; and the tools of the
    plan, or its name.
    """
    if not isinstance(request, dict):
        return ""
    context = request.get("context")
    messages = [m for m in context if isinstance(m, dict)] if isinstance(context, list) else []
    parts = [text[: MAX_SUMMARY // 2] for text in _instructions(messages)[:1]]
    inputs = [m.get("input", m) for m in messages if m.get("type") == "input" and "_instance" not in m]
    values = [v for v in (request.get("input"), *inputs) if isinstance(v, dict)]
    pairs = [
        f"{key}: {str(value)[:MAX_SUMMARY]}"
        for part in values for key, value in part.items()
        if key not in _FRAME and isinstance(value, (str, int))
    ]  # fmt: skip
    parts += [", ".join(pairs)[: MAX_SUMMARY // 2]] if pairs else []
    if isinstance(request.get("plan"), str):
        return heading(" · ".join([request["plan"], *parts]))
    plans = [m["plan"] for m in messages if m.get("type") == "plan" and isinstance(m.get("plan"), list)]
    if tools := [str(call.get("_tool")) for call in (plans[-1] if plans else ()) if isinstance(call, dict)]:
        count = f"{len(tools):,} call{'s' * (len(tools) != 1)}"
        parts.append(f"{count}: {', '.join(dict.fromkeys(tools))}")
    return heading(" · ".join(parts))


def _instructions(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The first line of each text: those of the user, the latest first, then those of the author."""
    texts = [(m, m[key]) for m in messages for key in _TEXT_KEYS if isinstance(m.get(key), str)]
    kinds = [(m.get("type") or ("system" if m.get("role") == "system" else "text"), text) for m, text in texts]
    own, others = ([text for kind, text in kinds if kind == wanted] for wanted in ("text", "system"))
    return [text.strip().splitlines()[0] for text in (*reversed(own), *others) if text.strip()]


def read_plan_file(file: Path) -> dict[str, Any]:
    """The Request of a file in JSON or YAML. ClientError: it is none, with the line."""
    try:
        value = parse(file.read_text("utf-8-sig"), "JSON" if file.suffix.lower() == ".json" else "YAML")
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"it cannot be read: {error}", where=clean(file, 200)) from None
    except TextError as error:
        line = "" if error.position is None else f":{error.position.line}"
        raise ClientError(error.message, error.hint, f"{clean(file, 200)}{line}") from None
    if not isinstance(value, dict):
        hint = "{config?, context: [messages], schema?}"
        raise ClientError(f"a Request is an object, not {type_name(value)}", hint, clean(file, 200))
    return value


def with_calls(request: dict[str, Any], calls: list[Json]) -> dict[str, Any]:
    """A Request whose plan has these Calls, whatever plans it had before."""
    others = [m for m in request["context"] if not isinstance(m, dict) or m.get("type") != "plan"]
    plans = [m for m in request["context"] if isinstance(m, dict) and m.get("type") == "plan"]
    return {**request, "context": [*others, {**(plans[-1] if plans else {"type": "plan"}), "plan": calls}]}


def make_request(
    plan: str | Mapping[str, Any], values: Mapping[str, Any] | None, tags: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a run is started with: the plan of a name with its input, or a Request with one more Message; and tags."""
    if isinstance(plan, str):
        named: dict[str, Any] = {"plan": plan} | ({} if values is None else {"input": dict(values)})
        return named | ({"tags": dict(tags)} if tags else {})
    return with_tags(with_input(dict(plan), None if values is None else dict(values)), tags)


def _priority(request: Json, run_id: str) -> Priority:
    """For the run's own tasks, before it has read its Request; one that is wrong is refused by the run."""
    from temporalio.common import Priority

    raw = request.get("config") if isinstance(request, dict) else None
    try:
        config = Config.model_validate(raw or {})
    except ValidationError:
        return Priority()
    return Priority(priority_key=config.priority, fairness_key=fairness_key(config, run_id))
