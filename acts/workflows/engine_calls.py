"""The engine's own Activities: how each is called, what a run asks before it begins, and the requests to models.

What an Activity finds out stands in history, so that every replay decides alike. What they do is not known here.

The model Activity gets no prompt. It is told which run has the context and how many of its messages count, and reads
them by the query ``promptContext``, so that no history holds a prompt. What the query answers never changes for the
same count: messages are only appended.

*Approvers* are asked only by a root that a worker with ``ACTS_APPROVERS`` began. The marker of ``workflow.patched``
says so in the history, before anything else: a replay asks if and only if the marker is there, whatever the
environment of the worker is now. So the histories of all other runs are as if there were none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from acts.language import wire
from acts.language.config import Config, Options
from acts.language.errors import InvalidRequest, Problem, format_choices, heading, truncate
from acts.language.messages import Request, ToolMessage, read_request, with_input, with_tags
from acts.language.strict_json import read_json, unpack
from acts.language.tools import (
    Tool,
    activity_names,
    defined_names,
    inline_secret_problems,
    read_tools,
    registered_names,
)
from acts.language.values import pointer, type_name
from acts.machines.budget import latent_price, output_cap
from acts.machines.commands import AskOutput, AskSolution
from acts.machines.past import keep_failed_instances, past_of_root, past_of_state
from acts.machines.plan_run import PlanSetup
from acts.machines.run_machine import RunMachine
from acts.plan.validate import approve_problems, validate_parsed
from acts.planner.request_estimate import LONGEST_ANSWER_TOKENS, answer_seconds
from acts.tree.child_requests import approved_delegates, merged_tool, resolved_upfront
from acts.tree.decisions import Approver, who_problems
from acts.tree.identity import root_identity, short_id, tree_token
from acts.tree.past_run import PastRun, PastState
from acts.tree.records import Capabilities, ContextRef, InstanceInput, ModelQuestion, PlanState, Reserved, TreePosition
from acts.workflows.children import cause_of, exact_date
from acts.workflows.payloads import decide_storage, decode, decode_or_none, encode, record_type, share_storage

Handle = workflow.ActivityHandle[RawValue]
# Five times the rhythm of the Activities that beat; a worker that died is missed after this long
HEARTBEAT_SECONDS: Final = 15.0
# One attempt: as many of the longest answers as it may ask for, and twice the time that one waits for its turn. The
# Activity bounds each request by its own cap
REQUEST_SECONDS: Final = wire.MAX_UNUSABLE_ANSWERS * answer_seconds(LONGEST_ANSWER_TOKENS) + 600.0


def _retries(attempts: int = 0, first: float = 1, longest: float | None = None) -> RetryPolicy:
    """So many attempts (0: without a limit), with pauses in seconds; the Activity says which failures are final."""
    return RetryPolicy(
        initial_interval=timedelta(seconds=first), maximum_attempts=attempts,
        maximum_interval=None if longest is None else timedelta(seconds=longest),
        non_retryable_error_types=list(wire.NON_RETRYABLE_TYPES),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class EngineActivity:
    """How an Activity is called: ``seconds`` for one attempt; ``beats`` says whether it sends heartbeats."""

    seconds: float
    retry: RetryPolicy | None = None
    is_local: bool = False
    beats: bool = False


# A full disk is looked at again after 1, 2, 4 … 30 s, for as long as it takes
_FILE_RETRY: Final = _retries(first=1, longest=30)
ENGINE_ACTIVITIES: Final[dict[str, EngineActivity]] = {
    # A model without capacity is waited for as long as ``patience`` allows: the Activity decides how often
    wire.MODEL: EngineActivity(REQUEST_SECONDS, _retries(first=2, longest=60), beats=True),
    # A survey reads about 50,000 rows a second, a page may have to be fetched together with the whole file, and an
    # append waits for a lock of 20 s and for a disk
    wire.SURVEY_SET: EngineActivity(3600, _FILE_RETRY, beats=True),
    wire.READ_PAGE: EngineActivity(1800, _FILE_RETRY, beats=True),
    wire.CREATE_RESULTS: EngineActivity(60, _FILE_RETRY, beats=True),
    wire.APPEND_RESULTS: EngineActivity(60, _FILE_RETRY, beats=True),
    wire.CLOSE_PAGE: EngineActivity(1800, _FILE_RETRY, beats=True),
    # A definition of 1 MiB over a slow line
    wire.LOAD_DELEGATE: EngineActivity(60, _retries(5), beats=True),
    # A worker replays the earlier run: 50,000 events, the most that a run may have, take about a minute
    wire.PAST_RUN: EngineActivity(300, _retries(5), beats=True),
    wire.REGISTRY: EngineActivity(10, is_local=True),
    wire.LOAD_PLAN: EngineActivity(10, is_local=True),
    wire.APPROVERS: EngineActivity(10, is_local=True),  # a small local file
    wire.CAPS: EngineActivity(60, _retries(3)),  # some lists of runs of the day
    # Above the Activities' own limits, of 2 s for each queue, all of which are asked at once
    wire.QUEUES: EngineActivity(10, _retries(1), is_local=True),
    wire.SEARCH_ATTRIBUTES: EngineActivity(5, _retries(1), is_local=True),
}
# What a Request, whose plan is a list, hardly ever has: only then it is read here
_NAMES_PLAN: Final = re.compile(rb'"plan"\s*:\s*"')
PLAN_MEMO: Final = "actsPlan"  # {name, sha256, source}: which plan of that name this run walks
QUEUES_LABEL: Final = "which task queues have workers"
# The model Activity, and those of a set, in the words of a Tool's options: for the text of a failure
OPTIONS: Final = Options(timeout=REQUEST_SECONDS, heartbeat=HEARTBEAT_SECONDS)


def start_engine_activity(name: str, request: Any, label: str, id_: str | None = None) -> Handle:
    """Schedule one of the engine's Activities with its JSON (None: it takes nothing); CallError: it is too large."""
    how = ENGINE_ACTIVITIES[name]
    args = [] if request is None else [request if isinstance(request, RawValue) else encode(request)]
    options: dict[str, Any] = {
        "args": args, "result_type": RawValue, "summary": heading(label), "retry_policy": how.retry,
        "start_to_close_timeout": timedelta(seconds=how.seconds),
        "activity_id": None if id_ is None else short_id(id_),
    }  # fmt: skip
    if how.is_local:
        return workflow.start_local_activity(name, **options)
    beat = timedelta(seconds=HEARTBEAT_SECONDS) if how.beats else None
    return workflow.start_activity(name, heartbeat_timeout=beat, **options)


async def ask(name: str, request: Any, label: str) -> Any:
    """What an Activity returns that a run cannot do without: its failure is that of the run."""
    try:
        answer = await start_engine_activity(name, request, label)
    except FailureError as error:
        cause = cause_of(error)
        if is_cancelled_exception(error) or not isinstance(cause, ApplicationError):
            raise
        raise ApplicationError(cause.message, type=cause.type, non_retryable=True) from None
    return unpack(answer.payload.data) if name == wire.PAST_RUN else decode(answer)


async def ask_or_none(name: str, request: Any, label: str) -> Any:
    """What an Activity returns that a run can do without; None where it fails."""
    try:
        return await ask(name, request, label)
    except FailureError as error:
        if is_cancelled_exception(error):
            raise
        return None


APPROVERS_VARIABLE: Final = "ACTS_APPROVERS"
CAP_VARIABLES: Final = ("ACTS_MAX_PARALLEL", "ACTS_MAX_COST", "ACTS_DAY_COST")
_APPROVERS, _CAPS = "acts-approvers", "acts-caps"  # patches
_VARIABLES: Final = {_APPROVERS: (APPROVERS_VARIABLE,), _CAPS: CAP_VARIABLES}


def decide_settings() -> None:
    """What a new root decides by the settings of its worker: once, before anything else.

    A replay misses a patch that is first asked about after a local activity, if a workflow task ended between the two:
    it goes on in the earlier task, and knows only the patches of that.
    """
    decide_storage()
    for patch in _VARIABLES:
        _is_set(patch)


def _is_set(patch: str) -> bool:
    """Whether the worker that began the run has one of the variables."""
    is_asked = workflow.unsafe.is_replaying() or any(map(os.environ.get, _VARIABLES[patch]))
    return is_asked and workflow.patched(patch)


async def complete_position(position: TreePosition, start: RawValue) -> TreePosition:
    """A run's place in its tree, with the identity and the token that a root has to make itself.

    ``start`` is what the run was started with.
    """
    info = workflow.info()
    more: dict[str, Any] = {}
    if not position.identity:
        origin = info.first_execution_run_id  # that a person, a schedule or a cron started, whatever follows from that
        if info.cron_schedule is not None:  # all rounds of a cron share the id of the first
            if info.retry_policy is not None:  # nor does the attempt of a round know the one before it
                hint = "use a schedule: acts schedule create"
                text = "a run of a cron with a retry policy would not know what its earlier attempts have done"
                raise InvalidRequest([Problem("invalidRequest", text, hint=hint)])
            origin = info.original_execution_run_id
        more["identity"] = root_identity(info.workflow_id, origin)
    if position.is_root and not position.token:
        more["token"] = tree_token(more.get("identity", position.identity), start.payload.data)
    if position.is_root and not position.startedAt and not position.approvers and _is_set(_APPROVERS):
        approvers = await ask(wire.APPROVERS, None, "who may decide")
        more["approvers"] = tuple(map(Approver.from_json, approvers))
    if not position.startedAt:
        more["startedAt"] = exact_date(info.workflow_start_time)
    return share_storage(position.model_copy(update=more))


async def pin_plan(value: RawValue, *, is_untouched: Callable[[], bool]) -> RawValue:
    """The Request that a run was started with; of ``{"plan": name, "input"?, "tags"?}`` the one that its worker serves.

    The run continues as new with that Request: no replay and no reset of it asks again. Where somebody has sent it
    something already, which would be lost, it stays as it is.
    """
    data = value.payload.data
    if record_type(value) or len(data) > wire.MAX_PAYLOAD_BYTES or not _NAMES_PLAN.search(data):
        return value
    named = decode_or_none(value)
    if not isinstance(named, dict) or not isinstance(name := named.get("plan"), str):
        return value
    if problems := _named_problems(named):
        raise InvalidRequest(problems)
    decide_settings()
    loaded = await ask(wire.LOAD_PLAN, {"plan": name}, f"the plan {name}")
    request = encode(with_tags(with_input(loaded["request"], named.get("input")), named.get("tags")))
    if is_untouched():
        origin = {"name": name, "sha256": loaded["sha256"], "source": loaded["source"]}
        workflow.continue_as_new(request, memo={**workflow.memo(), PLAN_MEMO: origin})
    return request


def _named_problems(named: dict[str, Any]) -> list[Problem]:
    hint = 'a plan is started by name with {"plan": "refund", "input": {…}}'
    problems = [
        Problem("unknownKey", f'unknown key "{truncate(key, 100)}" beside the name of a plan', pointer(key), hint=hint)
        for key in named if key not in ("plan", "input", "tags")
    ]  # fmt: skip
    for key in ("input", "tags"):
        if not isinstance(named.get(key), dict | None):
            text = f"{key} is an object, not {type_name(named[key])}"
            problems.append(Problem("invalidRequest", text, pointer(key), hint=hint))
    return problems


async def prepare_request(raw: dict[str, Any], position: TreePosition) -> tuple[dict[str, Any], Request, Capabilities]:
    """A Request with what its delegates resolve upfront, read; and what the worker serves."""
    parsed = read_request(raw)
    if problems := inline_secret_problems(parsed):
        raise InvalidRequest(problems)
    if position.is_root and (lower := await _ask_caps(parsed.config)):
        raw = {**raw, "config": {**(raw.get("config") or {}), **lower}}
        parsed = read_request(raw)
    capabilities = await _look_up(parsed, position)
    tools = read_tools(parsed, capabilities.tools, frozenset(capabilities.served).__contains__).by_name
    if position.is_root and (problems := [p for p in approve_problems(parsed, tools) if p.fatal]):
        raise InvalidRequest(problems)
    if problems := who_problems(parsed.config.approve, tools.values(), position.approvers):
        raise InvalidRequest(problems)
    messages, pinned = await _load_upfront(parsed, tools, position)
    own = defined_names(parsed)  # over what a Tool of the worker asks about, they ask, too
    asks = set(capabilities.asks)
    asking = (tools[name] for name in tools if name in own and asks & {tools[name].answer, tools[name].activity})
    messages += [{"type": "tool", "tool": tool.asking()} for tool in asking if not tool.approval]
    if messages:
        raw = {**raw, "context": [*raw["context"], *messages]}
        parsed = read_request(raw)
    capabilities = capabilities.model_copy(update=pinned) if pinned["pins"] else capabilities
    return raw, parsed, capabilities


async def _ask_caps(config: Config) -> dict[str, Any]:
    """The settings that the operator's caps lower. ApplicationError: the money of the day is spent."""
    if not _is_set(_CAPS):
        return {}
    query = {"tags": config.tag_keywords} if config.model_names else {}
    caps = await ask(wire.CAPS, query, "what the operator allows")
    if caps.get("spent"):
        raise ApplicationError(caps["spent"], type=wire.BUDGET_SPENT, non_retryable=True)
    lower = config.capped(caps.get("maxParallel"), caps.get("cost") if config.model_names else None)
    if lower and not workflow.unsafe.is_replaying():
        workflow.logger.warning("the operator's caps lower the settings of this run to %s", lower)
    return lower


async def _look_up(parsed: Request, position: TreePosition) -> Capabilities:
    """What the worker serves of what the Request leaves open; where a budget limits the cost, the price of a model.

    Of several models it is the highest price.
    """
    names = registered_names(parsed)
    query: dict[str, Any] = {"tools": names, "activities": list(dict.fromkeys((*activity_names(parsed), *names)))}
    if defined_names(parsed):
        query["asks"] = True
    config = parsed.config
    models = config.model_names
    accounts = position.with_budget(workflow.info().workflow_id, config.budget).accounts
    if models and any(account.limits.cost is not None for account in accounts):
        query["model"] = models[0]
        query |= {"otherModels": list(models[1:])} if len(models) > 1 else {}
    if config.models.batch:
        models = (config.latent_model or "", *config.fallbackModels)
        query["batch"] = [model for model in models if not model.startswith("scripted:")]  # which cost nothing
    if not query["activities"] and not {"asks", "model", "batch"} & set(query):
        return Capabilities()
    answer = await ask(wire.REGISTRY, query, "which tools and activities the worker has")
    places = {m.tool.removeprefix("Tool."): m.index for m in parsed.context
              if isinstance(m, ToolMessage) and isinstance(m.tool, str)}  # fmt: skip
    problems = []
    for name, reason in answer.get("unavailable", {}).items():  # by a server that should offer it
        if name in places and not answer["tools"].get(name):
            text, place = f'the tool "{name}" is not there: {reason}', pointer("context", places[name], "tool")
            problems.append(Problem("toolUnavailable", text, place))
    if direct := answer.get("direct"):
        text = f"{format_choices(direct)} is asked directly: there are batches of Anthropic and OpenAI, not of clouds"
        hint = "leave batch out, or set latentModel and fallbackModels"
        problems.append(Problem("invalidSetting", text, "/config/models/batch", hint=hint))
    if problems:
        raise InvalidRequest(problems)
    price = answer.get("price")
    return Capabilities(
        tools=answer["tools"], served=tuple(answer["served"]), asks=tuple(answer.get("asks", ())),
        price=(price["input"], price["output"]) if price else None,
    )  # fmt: skip


async def load_definition(name: str, sha256: str | None = None, *, uses: bool = False) -> Any:
    """A delegate's definition: ``{definition, sha256, source, uses?}``; it may be pinned by its SHA-256."""
    query = {"delegate": name, **({} if sha256 is None else {"sha256": sha256}), **({"uses": True} if uses else {})}
    return await ask(wire.LOAD_DELEGATE, query, f"load {name}")


async def _load_upfront(
    parsed: Request, tools: Mapping[str, Tool], position: TreePosition
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages that put what delegates take and return into their Tools, and the ``pins`` and ``uses``.

    Pinned is, too, whatever people approve: what runs then is the content that they were asked about.
    """
    by_tool = resolved_upfront(parsed, tools)
    loaded: dict[str, Any] = {}
    problems = []
    approved = [name for name in approved_delegates(parsed, tools) if name not in position.pins]
    for name in dict.fromkeys((*by_tool.values(), *approved)):
        try:
            loaded[name] = await load_definition(name, position.pins.get(name), uses=name in approved)
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
            code = error.type if isinstance(error, ApplicationError) and error.type else wire.DELEGATE_UNAVAILABLE
            tool = next((f' of tool "{t}"' for t, d in by_tool.items() if d == name), "")
            hint = 'or let it be loaded when it is used: "resolve"' if tool else "people are asked about its content"
            text = f'the delegate "{name}"{tool} cannot be loaded: {truncate(str(cause_of(error)))}'
            problems.append(Problem(code, text, "/context", hint=hint))
    if problems:
        raise InvalidRequest(problems)
    merged = [merged_tool(tools[t], loaded[by_tool[t]]["definition"]) for t in sorted(by_tool)]
    uses = {name: item["uses"] for name, item in loaded.items() if item.get("uses")}
    pins = {name: item["sha256"] for name, item in loaded.items()}
    return [{"type": "tool", "tool": tool} for tool in merged], {"pins": pins, "uses": uses}


def refuse_resume(config: Config) -> None:
    """Raise InvalidRequest for ``config.resume`` where a model plans, or in a definition; and for ``config.undoes``."""
    if config.undoes is not None:
        text = "undoes belongs to the Plan that `acts undo` starts: neither an agent nor a delegate has it"
        raise InvalidRequest([Problem("invalidSetting", text, "/config/undoes")])
    if config.resume is not None:
        text = "an agent cannot resume another run, and neither can a delegate: only a Plan that a person starts can"
        hint = "resume the plan of one of the agent's ticks as a Plan, or reset the agent: docs/repair.md"
        raise InvalidRequest([Problem("invalidSetting", text, "/config/resume", hint=hint)])


async def read_past(workflow_id: str, run_id: str | None) -> PastRun:
    """What an earlier run had done; ApplicationError where it is none that can be resumed."""
    query = {"workflowId": workflow_id, **({} if run_id is None else {"runId": run_id})}
    return PastRun.from_json(read_json(await ask(wire.PAST_RUN, query, f"what {workflow_id} had done")))


async def add_past(setup: PlanSetup, state: PlanState | None) -> PlanSetup:
    """What a run knows before it begins, with what an earlier run had done, if it resumes one.

    ``state`` is what the run before carried over: it has read that already.
    """
    own, resume = setup.input, setup.prepared.request.config.resume
    if state is not None:
        past = None if state.past is None else past_of_state(state.past, setup.prepared, setup.instances)
        return replace(setup, past=past)
    if isinstance(own, InstanceInput) and own.resume is not None:
        source, runs = own.resume, list[PastRun]()
        for workflow_id, run_id in source.runs:
            past_run = await read_past(workflow_id, run_id)
            calls = tuple(c for c in past_run.calls if c.instance is None or c.instance in source.instances)
            runs.append(past_run.model_copy(update={"calls": calls}))
        fields = source.model_dump(include={"calls", "keepsIds", "hasSamePrompt"})
        past_state = PastState(source={}, past=tuple(runs), **fields)
        return replace(setup, past=past_of_state(past_state, setup.prepared, source.instances))
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


def own_context(message_count: int) -> ContextRef:
    info = workflow.info()
    return ContextRef(workflowId=info.workflow_id, runId=info.run_id, messageCount=message_count)


def model_request(run: RunMachine, command: AskSolution | AskOutput) -> RawValue:
    """What the model Activity is asked for a tick, or for a latent Call; CallError where that is too large."""
    config, position, grant, least_cap, price = run.config, run.position, command.grant, None, run.price
    if isinstance(command, AskSolution):
        source, least_cap = own_context(command.message_count), command.least_cap
        question: dict[str, Any] = {
            "ask": "solution", "model": config.model, "tick": command.tick, "streams": command.streams,
            "answersLeft": command.answers_left,
        }  # fmt: skip
    else:
        node, source, price = command.node, command.source, latent_price(config, price)
        # A template's Call does not name its instance, and must be shown no other's data
        call = command.call if node.instance is None else {**command.call, "_instance": node.instance}
        question = {
            "ask": "output", "model": config.latent_model, "tool": node.tool.name, "call": call,
            "paths": node.outcome_texts, "scoped": command.context if "_scopes" in node.call else None,
            "batch": config.models.batch,
        }  # fmt: skip
    cap = config.maxOutputTokens if least_cap is None else max(config.maxOutputTokens or 0, least_cap)
    reserved = Reserved()
    if grant is not None:
        cap = output_cap(config, price, grant, least_cap)
        turns = 2 if grant.mayRepair else 1
        reserved = Reserved(tokens=turns * grant.tokens or None, cost=turns * grant.cost or None)
    request = ModelQuestion(
        **question, source=source, fallbackModels=config.fallbackModels, patience=config.patience,
        effort=config.effort, temperature=config.temperature, maxOutputTokens=cap, priced=run.budget.limits_cost,
        mayRepair=grant is None or grant.mayRepair, reserved=reserved, token=position.token,
        root=position.ancestors[0] if position.ancestors else None,
    )  # fmt: skip
    return encode(request.model_dump(exclude_defaults=True))
