"""What is done with an input, cut where a workflow task or an activity would be: each step is timed by itself.

Only the project's own errors may come out of a step. They end the case: what would follow does not happen.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

from acts.activities.models.schema import choose_form, drop_nulls
from acts.delegates.definitions import read_definition
from acts.language.errors import ActsError, CallError, EngineError, InvalidRequest
from acts.language.messages import read_request
from acts.language.schemas import Checker, judge_schema
from acts.language.strict_json import read_json, write_json
from acts.language.values import UNKNOWN
from acts.language.wire import DELEGATE
from acts.machines.agent_context import AgentContext
from acts.machines.agent_run import AgentRun, AgentSetup
from acts.machines.commands import AskOutput, AskSolution, StartCall, StartChild
from acts.machines.events import Begin, CallEnded, ChildEnded, DecisionReceived, ModelEnded, Provided
from acts.machines.plan_run import PlanRun, PlanSetup
from acts.plan.validate import validate, validate_parsed
from acts.planner.answer_schema import compose_latent_schema, compose_solution_schema
from acts.planner.prompt import render_planner_prompt
from acts.simulation.simulate import simulate_prepared
from acts.tree.records import Capabilities, ContextRef, TreePosition
from acts.views.results import cut_result
from acts.views.run_views import AgentView, PlanView
from acts.workflows.handlers import provided_message
from acts.workflows.in_flight import MAX_SLICE_BYTES
from acts.workflows.payloads import encode, encode_or_compress, payload_bytes
from tests.fuzz import floods, hostile_json, hostile_requests, hostile_schemas
from tests.fuzz.floods import NOW
from tests.fuzz.hostile_json import Source

Json = Any
Step = tuple[str, Callable[[], Any]]
SERVED = ("t", "act")
# Bytes of one input: what one payload can carry
MAX_BYTES = 2 * 1024 * 1024 - 64 * 1024


class Refused(Exception):
    """The input was refused, in the project's own words: the end of the case."""


def as_text(value: Json) -> bytes:
    """The JSON of an input, as another program would send it; lone surrogates escaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def sized(value: Json) -> bytes:
    """The same, or a small stand-in where the generator went over the size of one payload.

    A mutation doubles parts without copying them, so gigabytes of text may come from kilobytes of values: the size is
    computed first, once for each part.
    """
    return as_text(value) if text_size(value, {}) <= MAX_BYTES else b"[]"


def text_size(value: Json, sizes: dict[int, int]) -> int:
    """The length of ``as_text(value)``; ``sizes`` remembers that of each list and object by its ``id``."""
    if not isinstance(value, (dict, list)):
        return len(as_text(value))
    size = sizes.get(id(value))
    if size is None:
        inner = value.values() if isinstance(value, dict) else value
        if not any(isinstance(part, (dict, list)) for part in inner):
            size = len(as_text(value))
        else:
            size = 2 + max(0, len(value) - 1) + sum(text_size(part, sizes) for part in inner)
            size += sum(len(as_text(key)) + 1 for key in value) if isinstance(value, dict) else 0
        sizes[id(value)] = size
    return size


def plan_case(source: Source) -> Iterator[Step]:
    """A Request comes, its plan is walked, people decide, views are asked for."""
    made = hostile_requests.request(source)
    data = sized(made)
    run: list[Any] = []

    def first_task() -> None:
        raw = read_json(data)
        if not isinstance(raw, dict):
            raise Refused
        parsed = read_request(raw)
        capabilities = Capabilities(served=SERVED)
        prepared = validate_parsed(parsed, capabilities.tools, capabilities.served)
        setup = PlanSetup(
            raw,
            prepared,
            capabilities,
            TreePosition(),
            ContextRef(workflowId="w", runId="r", messageCount=len(parsed.context)),
        )
        machine = PlanRun("w", setup, lambda node: f"w/{node.id}")
        view = PlanView(machine)
        commands = machine.handle(Begin(), NOW)
        machine.flush(NOW)
        view.page()
        run.extend((machine, view, commands))

    yield "first task", first_task
    machine, view, commands = run
    yield from _views(view)
    yield "simulate", lambda: simulate_prepared(machine.whole_plan)
    calls = [n.planned for n in machine.whole_plan.nodes[:1000]]
    for _ in range(3):
        if machine.finished is not None:
            return
        if machine.approvals.waits.own:
            decided = hostile_requests.decision(
                Source(source.random.randrange(10**9), source.pick((1000, 100_000, MAX_BYTES))), calls, ["t", "t0"]
            )
            text = sized(decided)
            yield "decision", lambda text=text: _decide(machine, view, read_json(text))
            yield "decisions", lambda: commands.extend(floods.decide_each(source, machine, view))
        if machine.approvals.waits.own:
            yield "approval", lambda: commands.extend(_decide(machine, view, {"decision": "approve"}))
        yield from _results(source, machine, view, commands)
    message = sized({"type": "state", "state": hostile_json.value(source)})
    yield "provide", lambda: _event(machine, view, Provided(provided_message(read_json(message))))
    yield "messages", lambda: floods.provide_many(source, machine, view)
    yield from _views(view)
    yield "result", lambda: write_json(cut_result(view.result(), view.first_message))
    yield (
        "snapshot",
        lambda: _send_report(machine.walk.snapshot().model_dump(mode="json")) if not machine.walk.running else None,
    )


def _decide(machine: Any, view: Any, raw: Json) -> list[Any]:
    machine.approvals.judge(raw)
    return _event(machine, view, DecisionReceived(raw, None, None))


def _event(machine: Any, view: Any, event: Any) -> list[Any]:
    return [*machine.handle(event, NOW), *floods.end_task(machine, view)]


def _views(view: Any) -> Iterator[Step]:
    yield "status", lambda: write_json(view.status())
    yield "graph", lambda: view.graph({})
    yield "graph json", lambda: view.graph({"format": "json"})
    yield "context", lambda: view.context({"path": "†state"}, MAX_BYTES)
    yield "prompt context", lambda: view.prompt_context({}, MAX_BYTES)
    yield "pending", lambda: view.subjects(MAX_BYTES)


def _results(source: Source, machine: Any, view: Any, commands: list[Any]) -> Iterator[Step]:
    """The Calls that were started end: the first with a heavy result, all others at once with small ones."""
    started = [c for c in commands if isinstance(c, (StartCall, AskOutput)) or getattr(c, "type", "") == DELEGATE]
    commands.clear()
    yield "send", lambda: _send(started)
    heavy = True
    batch: list[Any] = []
    for command in started[:2000]:
        node = command.node
        if heavy:
            heavy = False
            data = sized(
                hostile_requests.result(
                    Source(source.random.randrange(10**9), source.pick((1000, MAX_BYTES))), node.tool.output
                )
            )
            yield (
                "heavy result",
                lambda key=node.key, data=data: commands.extend(_event(machine, view, CallEnded(key, read_json(data)))),
            )
        elif source.chance(0.1):
            batch.append(CallEnded(node.key, error=CallError("Oops", "x" * 100)))
        else:
            batch.append(CallEnded(node.key, source.pick((1, "x", {"a": 1}, [1], None))))

    def small_results() -> None:
        for event in batch:
            commands.extend(machine.handle(event, NOW))
        commands.extend(machine.flush(NOW))
        view.page()

    yield "small results", small_results


def _send(commands: list[Any]) -> None:
    """Encode what one workflow task sends: what is too large costs time too, and the next one is tried."""
    sent = 0
    for command in commands:
        parts = [command.input.to_json()] if isinstance(command, StartChild) else [command.call, command.context]
        try:
            sent += sum(payload_bytes(encode(part)) for part in parts)
        except CallError:
            continue
        if sent > MAX_SLICE_BYTES:
            return


def _send_report(report: Json) -> None:
    """What a run carries into the next, or reports to the one above; too large is an answer."""
    with contextlib.suppress(CallError):
        encode_or_compress(report)


def agent_case(source: Source) -> Iterator[Step]:
    """An agent: Solutions come, their plans end."""
    data = sized(hostile_requests.request(source, agent=True))
    run: list[Any] = []

    def first_task() -> None:
        raw = read_json(data)
        if not isinstance(raw, dict):
            raise Refused
        parsed = read_request(raw)
        setup = AgentSetup(raw, parsed, Capabilities(served=SERVED), TreePosition(), "r")
        machine = AgentRun("w", setup)
        view = AgentView(machine)
        commands = _event(machine, view, Begin())
        run.extend((machine, view, commands))

    yield "first task", first_task
    machine, view, commands = run
    agent = machine.context
    context = agent.request.context
    yield "prompt", lambda: render_planner_prompt(context, machine.turns, agent.tools, mode=agent.mode)
    yield "answer schema", lambda: compose_solution_schema(agent.tools, agent.output_schema, mode=agent.mode)
    for _ in range(3):
        asked = next((c for c in commands if isinstance(c, AskSolution)), None)
        if asked is None or machine.finished is not None:
            break
        commands.clear()
        answer = Source(source.random.randrange(10**9), source.pick((1000, 100_000, MAX_BYTES)))
        text = sized(hostile_requests.solution(answer, list(agent.tools)[:5] or ["t"]))
        yield (
            "solution",
            lambda text=text: commands.extend(
                _event(machine, view, ModelEnded({"solution": read_json(text), "usage": {}}))
            ),
        )
        if machine.approvals.waits.own:
            yield "approval", lambda: commands.extend(_decide(machine, view, {"decision": "approve"}))
        start = next((c for c in commands if isinstance(c, StartChild)), None)
        if start is not None:
            commands.clear()
            payload = sized(
                {
                    "status": "completed",
                    "calls": [],
                    "errors": [],
                    "context": [{"type": "state", "state": hostile_json.value(answer)}],
                }
            )
            report = read_json(payload)
            if isinstance(report, dict):
                yield (
                    "plan ended",
                    lambda start=start, report=report: commands.extend(
                        _event(machine, view, ChildEnded(start.name, report))
                    ),
                )
        yield from _views(view)
    yield "result", lambda: write_json(cut_result(view.result(), view.first_message))


def schema_case(source: Source) -> Iterator[Step]:
    """A schema alone, and values for it, some with unknown parts."""
    form = read_json(sized(hostile_schemas.schema(source)))
    yield "schema", lambda: _refuse_if(judge_schema(form).reason)
    check = Checker(form)
    for _ in range(3):
        value = read_json(
            sized(
                hostile_schemas.value_for(
                    Source(source.random.randrange(10**9), source.pick((200, 20_000, MAX_BYTES))), form
                )
            )
        )
        yield "strict", lambda value=value: check.defects(value)
        unknown = _with_marks(value)
        yield "relaxed", lambda unknown=unknown: check.open_defects(unknown)
        if isinstance(value, dict):
            yield "partial", lambda value=value: check.open_defects({**value, "unknown": UNKNOWN}, is_planned=False)


def _refuse_if(reason: str | None) -> None:
    if reason is not None:
        raise Refused(reason)


def _with_marks(value: Json) -> Json:
    """The value with a reference in it, at an end of it that is easy to reach."""
    if isinstance(value, dict):
        return {**value, next(iter(value), "a"): "†state.x"}
    return [*value, "†state.x"] if isinstance(value, list) else value


def model_case(source: Source) -> Iterator[Step]:
    """The model activity: Tools become the schemas that providers get, and answers come back."""
    raw = read_json(sized(hostile_requests.request(source, agent=True)))
    found: list[Any] = []

    def read() -> None:
        if not isinstance(raw, dict):
            raise Refused
        found.append(AgentContext(read_request(raw), {}, SERVED))

    yield "first task", read
    agent = found[0]
    composed: list[Any] = []
    yield (
        "answer schema",
        lambda: composed.append(compose_solution_schema(agent.tools, agent.output_schema, mode=agent.mode)),
    )
    for tool in itertools.islice(agent.tools.values(), 3):
        yield "latent schema", lambda tool=tool: composed.append(compose_latent_schema(tool, ["†state.r"])[0])
    for form in composed:
        for dialect in ("openai", "anthropic"):
            yield f"form {dialect}", lambda form=form, dialect=dialect: choose_form(form, dialect).in_words
            answer = read_json(
                sized(
                    hostile_requests.solution(
                        Source(source.random.randrange(10**9), source.pick((1000, 200_000))), ["t", "t0"]
                    )
                )
            )
            yield "answer", lambda form=form, answer=answer: drop_nulls(answer, form)
            yield "check of answer", lambda form=form, answer=answer: Checker(form).defects(answer)


def definition_case(source: Source) -> Iterator[Step]:
    made = (
        hostile_json.value(source) if source.chance(0.2) else hostile_requests.request(source, agent=source.chance(0.5))
    )
    data = sized(made)[: 1024 * 1024]
    yield "definition", lambda: read_definition(data, "here")


def text_case(source: Source) -> Iterator[Step]:
    """JSON text that nests, repeats or counts as far as it can."""
    n = source.count(2)
    text = source.pick((
        "[" * n, "[" * n + "]" * n, '{"a":' * (n // 3), "9" * n, "-" * n, '"' + "\\ud800" * (n // 6) + '"', "1e" + "9" * min(n, 5000),
        "[" + "1," * n + "1]", "[" + "{}," * (n // 2) + "{}]", '{"a":1,' * 3, "\ufeff" * 3, "[" + '"\\u0000",' * (n // 8) + "1]", "{" + ",".join(f'"{i}":{i}' for i in range(n // 12)) + "}",
        "[" * 900 + "]" * 900, '{"context":' * 95 + "1" + "}" * 95, "[" + "9" * 4000 + "]", "NaN", "[1e400]",
    ))  # fmt: skip

    def read() -> None:
        value = read_json(text)
        read_request(value)

    yield "text", read
    yield "validate", lambda: validate(read_json(text))


CASES: tuple[Callable[[Source], Iterator[Step]], ...] = (
    plan_case, plan_case, plan_case, agent_case, agent_case, schema_case, schema_case, model_case, definition_case, text_case,
)  # fmt: skip


def is_expected(error: BaseException) -> bool:
    """True for the errors that outside input may end in."""
    if isinstance(error, EngineError):
        return False
    if isinstance(error, (ActsError, Refused, InvalidRequest)):
        return True
    name = type(error).__name__
    return (
        type(error) is ValueError or name in ("JSONDecodeError", "NestingError", "UnicodeDecodeError")
    ) or name == "ApplicationError"
