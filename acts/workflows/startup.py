"""What a run finds out before it begins: its identity, what the worker serves, definitions, an earlier run, approvers.

Each is asked once, by an Activity, and read from history ever after, so that every replay decides alike.

*Approvers* are asked only by a root that a worker with ``ACTS_APPROVERS`` began. The marker of ``workflow.patched``
says so in the history, before anything else: a replay asks if and only if the marker is there, whatever the
environment of the worker is now. So the histories of all other runs are as if there were none.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from acts.language.errors import InvalidRequest, Problem, truncate
from acts.language.messages import ToolMessage, read_request
from acts.language.secrets import inline_secret_problems
from acts.language.strict_json import read_json
from acts.language.tools import read_tools, registered_names, undecided_names
from acts.language.values import pointer
from acts.language.wire import (
    APPROVERS,
    DELEGATE_UNAVAILABLE,
    FIRST_ATTEMPT,
    LOAD_DELEGATE,
    PAST_RUN,
    QUEUES,
    REGISTRY,
)
from acts.machines.approvals import iso
from acts.machines.past import keep_failed_instances, past_of_child, past_of_root, past_of_state
from acts.plan.validate import validate_parsed
from acts.tree.child_requests import merged_tool, resolved_upfront
from acts.tree.decisions import Approver
from acts.tree.identity import root_identity, tree_token
from acts.tree.past_run import PastRun
from acts.tree.records import Capabilities, InstanceInput, TreePosition
from acts.workflows.engine_calls import QUEUES_LABEL, ask, ask_or_fail, ask_or_none, own_context
from acts.workflows.lifeline import exact_date
from acts.workflows.payloads import share_storage

if TYPE_CHECKING:
    from temporalio.common import RawValue

    from acts.language.config import Config
    from acts.language.messages import Request
    from acts.machines.plan_run import PlanSetup
    from acts.machines.run_machine import RunMachine
    from acts.tree.past_run import PastSource
    from acts.tree.records import PlanState


async def complete_position(position: TreePosition, start: RawValue) -> TreePosition:
    """A run's place in its tree, with the identity and the token that a root has to make itself.

    ``start`` is what the run was started with.
    """
    info = workflow.info()
    if not position.identity:
        identity = root_identity(info.workflow_id, await _origin())
        position = position.model_copy(update={"identity": identity})
    if position.is_root and not position.token:
        token = tree_token(position.identity, start.payload.data)
        position = position.model_copy(update={"token": token})
    if position.is_root and not position.startedAt and not position.approvers:
        position = position.model_copy(update={"approvers": await look_up_approvers()})
    if not position.startedAt:
        position = position.model_copy(update={"startedAt": exact_date(info.workflow_start_time)})
    return share_storage(position)


async def _origin() -> str:
    """The id of the run that a person, a schedule or a cron started: the same for all that follows from that.

    All runs of a cron share the id of the first, so a round of it begins with the first attempt of the round.
    """
    info = workflow.info()
    if info.cron_schedule is None:
        return info.first_execution_run_id
    if info.attempt == 1 or info.continued_run_id is None:
        return info.original_execution_run_id
    query = {"workflowId": info.workflow_id, "runId": info.continued_run_id}
    origin: str = await ask(FIRST_ATTEMPT, query, "the first attempt of this cron run")
    return origin


async def prepare_request(raw: dict[str, Any], position: TreePosition) -> tuple[dict[str, Any], Request, Capabilities]:
    """A Request with what its delegates resolve upfront, read; and what the worker serves."""
    parsed = read_request(raw)
    if problems := inline_secret_problems(parsed):
        raise InvalidRequest(problems)
    accounts = position.with_budget(workflow.info().workflow_id, parsed.config.budget).accounts
    needs_price = any(account.limits.cost is not None for account in accounts)
    capabilities = await look_up(parsed, needs_price=needs_price)
    messages, pins = await load_upfront(parsed, capabilities)
    if messages:
        raw = {**raw, "context": [*raw["context"], *messages]}
        parsed = read_request(raw)
        capabilities = capabilities.model_copy(update={"pins": pins})
    return raw, parsed, capabilities


async def look_up(parsed: Request, *, needs_price: bool = False) -> Capabilities:
    """What the worker serves of what the Request leaves open; where a budget limits the cost, the price of a model.

    Of several models it is the highest price.
    """
    names = registered_names(parsed)
    query: dict[str, Any] = {"tools": names, "activities": list(dict.fromkeys((*undecided_names(parsed), *names)))}
    models = parsed.config.models
    if needs_price and models:
        query["model"] = models[0]
        query |= {"otherModels": list(models[1:])} if len(models) > 1 else {}
    if not query["activities"] and "model" not in query:
        return Capabilities()
    answer: dict[str, Any] = await ask(REGISTRY, query, "which tools and activities the worker has")
    unavailable = answer.get("unavailable", {})
    if problems := _unavailable_tools(parsed, {n: r for n, r in unavailable.items() if not answer["tools"].get(n)}):
        raise InvalidRequest(problems)
    price = answer.get("price")
    return Capabilities(
        tools=answer["tools"], served=tuple(answer["served"]),
        price=(price["input"], price["output"]) if price else None,
    )  # fmt: skip


def _unavailable_tools(parsed: Request, reasons: dict[str, str]) -> list[Problem]:
    """The Tools that a server of the worker should offer, and why it does not."""
    places = {m.tool.removeprefix("Tool."): m.index for m in parsed.context
              if isinstance(m, ToolMessage) and isinstance(m.tool, str)}  # fmt: skip
    return [
        Problem(
            "toolUnavailable", f'the tool "{name}" is not there: {reason}', pointer("context", places[name], "tool")
        )
        for name, reason in reasons.items()
        if name in places
    ]


async def load_definition(name: str) -> dict[str, Any]:
    """A delegate's definition, loaded by an Activity and so recorded: ``{definition, sha256, source}``."""
    answer: dict[str, Any] = await ask(LOAD_DELEGATE, {"delegate": name}, f"load {truncate(name, 150)}")
    return answer


async def load_or_fail(name: str, sha256: str | None) -> dict[str, Any]:
    """The same for the run of a delegate, whose Request may have pinned the definition; it cannot do without."""
    query = {"delegate": name} if sha256 is None else {"delegate": name, "sha256": sha256}
    answer: dict[str, Any] = await ask_or_fail(LOAD_DELEGATE, query, f"load {truncate(name, 150)}")
    return answer


async def load_upfront(parsed: Request, capabilities: Capabilities) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The messages that put what delegates take and return into their Tools, and the pinned SHA-256 by name.

    Raises:
        InvalidRequest: a definition cannot be loaded.
    """
    tools = read_tools(parsed, capabilities.tools, frozenset(capabilities.served).__contains__).by_name
    by_tool = resolved_upfront(parsed, tools)
    loaded: dict[str, Any] = {}
    problems = []
    for name in dict.fromkeys(by_tool.values()):
        try:
            loaded[name] = await load_definition(name)
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            cause = error.__cause__
            code = cause.type if isinstance(cause, ApplicationError) and cause.type else DELEGATE_UNAVAILABLE
            tool = next(t for t, d in by_tool.items() if d == name)
            text = f'the delegate "{name}" of tool "{tool}" cannot be loaded: {truncate(str(cause))}'
            problems.append(Problem(code, text, "/context", hint='or let it be loaded when it is used: "resolve"'))
    if problems:
        raise InvalidRequest(problems)
    if not loaded:
        return [], {}
    pins = {name: item["sha256"] for name, item in loaded.items()}
    merged = [merged_tool(tools[t], loaded[by_tool[t]]["definition"]) for t in sorted(by_tool)]
    return [{"type": "tool", "tool": tool} for tool in merged], pins


APPROVERS_VARIABLE: Final = "ACTS_APPROVERS"
_APPROVERS_PATCH: Final = "acts-approvers"


async def look_up_approvers() -> tuple[Approver, ...]:
    """The approvers of the tree of this run; none: decisions need no signature."""
    is_asked = workflow.unsafe.is_replaying() or bool(os.environ.get(APPROVERS_VARIABLE))
    if not is_asked or not workflow.patched(_APPROVERS_PATCH):
        return ()
    answer: list[dict[str, Any]] = await ask(APPROVERS, None, "who may decide")
    return tuple(Approver.from_json(item) for item in answer)


async def add_past(setup: PlanSetup, state: PlanState | None) -> PlanSetup:
    """What a run knows before it begins, with what an earlier run had done, if it resumes one.

    ``state`` is what the run before carried over; it has read that already.

    Raises:
        InvalidRequest: ``config.resume`` does not fit the plan, or the earlier run.
    """
    own, resume = setup.input, setup.prepared.request.config.resume
    if state is not None:
        past = None if state.past is None else past_of_state(state.past, setup.prepared, setup.instances)
        return replace(setup, past=past)
    if isinstance(own, InstanceInput):
        if own.resume is None:
            return setup
        return replace(setup, past=past_of_child(own.resume, await _past_of_source(own.resume), setup.prepared))
    if own is not None or resume is None:
        return setup
    past_run = await read_past(resume.workflowId, resume.runId)
    if past_run.set is not None:
        text = f"{past_run.workflowId} is a run over a set, and this request names none"
        hint = "name its set (_instances), as that run did"
        raise InvalidRequest([Problem("invalidSetting", text, "/config/resume", hint=hint)])
    if resume.only is not None:
        raw = keep_failed_instances(setup.raw, past_run)
        parsed, served = read_request(raw), setup.capabilities
        prepared = validate_parsed(parsed, served.tools, served.served)
        setup = replace(setup, raw=raw, prepared=prepared, source=own_context(len(parsed.context)))
    return replace(setup, past=past_of_root(resume, past_run, setup.prepared))


def refuse_resume(config: Config) -> None:
    """Refuse ``config.resume`` where a model plans, or in a definition.

    Raises:
        InvalidRequest: it is set.
    """
    if config.resume is not None:
        text = "an agent cannot resume another run, and neither can a delegate: only a Plan that a person starts can"
        hint = "resume the plan of one of the agent's ticks as a Plan, or reset the agent: docs/repair.md"
        raise InvalidRequest([Problem("invalidSetting", text, "/config/resume", hint=hint)])


async def read_past(workflow_id: str, run_id: str | None) -> PastRun:
    """What an earlier run had done.

    Raises:
        ApplicationError: it is no run that can be resumed; the message says why.
    """
    query = {"workflowId": workflow_id, **({} if run_id is None else {"runId": run_id})}
    packed = await ask_or_fail(PAST_RUN, query, f"what {truncate(workflow_id, 100)} had done")
    return PastRun.from_json(read_json(zlib.decompress(packed)))


async def _past_of_source(source: PastSource) -> tuple[PastRun, ...]:
    """What the runs had done that walked these instances."""
    out: list[PastRun] = []
    for workflow_id, run_id in source.runs:
        past = await read_past(workflow_id, run_id)
        calls = tuple(call for call in past.calls if call.instance is None or call.instance in source.instances)
        out.append(past.model_copy(update={"calls": calls}))
    return tuple(out)


# -- task queues ---------------------------------------------------------------------------------


async def watch_queues(run: RunMachine, *, is_first_run: bool) -> None:
    """Have a run watch the task queues of its Tools; the first check is over before the run begins.

    A run that continues as new begins at once, and checks then: people may ask what it waits for.
    """
    queues = [queue for queue in run.foreign_queues if queue != workflow.info().task_queue]
    if not queues:
        return
    run.queue_watch.queues = tuple(queues)
    if is_first_run:
        has_workers = await ask_or_none(QUEUES, {"queues": queues}, QUEUES_LABEL)
        run.queue_watch.record_check(has_workers or {}, iso(workflow.now()))
