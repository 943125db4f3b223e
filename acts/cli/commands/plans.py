"""``acts validate``, ``simulate``, ``graph``, ``prompt`` and ``schema``: commands about plans; most need no server.

Temporal is imported only for a Request that needs the Activities of this environment, for one of an agent, and for a
run. Problems go to stderr, what was requested to stdout. A prompt is built by the code that the model activity uses.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from acts.cli import console as cli
from acts.cli.console import clean, command_error, count_text, option, print_blocks, print_err, print_json
from acts.cli.render.tables import new_table, print_drawing, print_plan, print_simulation
from acts.cli.text.preflight import Preflight, check_file, missing_tools_error, name_modules, request_cost
from acts.cli.text.source import looks_like_file, problem_blocks, source_error
from acts.language.errors import InvalidRequest, Problem
from acts.language.source_text import SourceText
from acts.language.values import Json
from acts.language.wire import AGENT, DELEGATE, GRAPH, PROMPT_CONTEXT
from acts.planner.request_estimate import estimate_prompt_bytes
from acts.views.text import BY_MODEL

if TYPE_CHECKING:
    from acts.activities.model_context import PromptContext

ExitCode = int | Coroutine[Any, Any, int]
Strict = Annotated[bool, option("--strict", "A tool that this environment does not load is an error, not a warning.")]
AsMermaid = Annotated[bool, option("--mermaid", "As a Mermaid flowchart.")]
AsSvg = Annotated[bool, option("--svg", "As a picture, an SVG.")]
AsGantt = Annotated[bool, option("--gantt", "Of a run: when each call ran and what waited for it, an SVG.")]
Tick = Annotated[int | None, option("--tick", "One tick of a run (default: the latest).", min=1)]

app = cli.CommandGroup()


@app.add
def validate(
    file: cli.FileOrPlan,
    inputs: cli.Inputs = None,
    strict: Strict = False,
    as_json: cli.AsJson = False,
    agent: cli.Agent = None,
    activities: cli.Modules = None,
    set_file: cli.SetFile = None,
) -> int:
    """List every problem of a request, or of a plan by its name (in ACTS_PLANS, or in this folder). Needs no server.

    Whether a file is a plan or a task for an agent is decided as by `acts run`.

    Examples:
      acts validate plan.yaml
    """
    name_modules(activities)
    source, _, preflight = check_file(file, inputs, set_file=set_file, strict=strict, agent=agent)
    errors = [p for p in preflight.problems if p.fatal]
    code = cli.EXIT_WRONG_INPUT if errors else cli.EXIT_DONE
    if as_json:
        print_json([p.to_json() for p in preflight.problems])
        return code
    print_blocks(problem_blocks(preflight.problems, source))
    if errors:
        print_err(f"{clean(source.name)} is not valid: {count_text(len(errors), 'error')}", "bold red")
        return code
    request, calls = preflight.request, count_text(preflight.calls, "call")
    parts = [calls]
    if preflight.agent and request is not None:
        notes = [f"{calls} to be shown to it"] if preflight.calls else []
        parts = ["a task for an agent", clean(f"model {request.config.model}", 100), *notes]
    elif request is not None and request.set is not None:
        parts.append(clean(f"for each row of {request.set.source}", 200))
    elif request is not None and request.instances():
        parts.append(count_text(len(request.instances()), "instance"))
    if by_model := preflight.by_model:
        parts.append(f"{len(by_model)} {BY_MODEL} ({cli.list_names(by_model, 10)})")
    parts += [count_text(len(preflight.problems), "warning")] if preflight.problems else []
    print(f"{clean(source.name)} is valid: {', '.join(parts)}")
    return code


@app.add
def simulate(
    file: cli.FileOrPlan, inputs: cli.Inputs = None, as_json: cli.AsJson = False, activities: cli.Modules = None,
    set_file: cli.SetFile = None,
) -> int:  # fmt: skip
    """Show what a plan would do: waves, outcomes, forecast. Runs nothing.

    Examples:
      acts simulate plan.yaml -i n=3
    """
    from acts.machines.budget import context_bytes
    from acts.simulation.simulate import simulate as simulate_request

    name_modules(activities)
    source, preflight, request = _read_plan(file, inputs, "the simulation", set_file)
    context = () if preflight.request is None else preflight.request.context
    try:
        simulation = simulate_request(
            request, preflight.tools, preflight.served,
            lambda model: request_cost(model, estimate_prompt_bytes(context_bytes(context), 0, latent=True)),
        )  # fmt: skip
    except InvalidRequest as error:
        raise source_error(source, error.problems) from None
    has_errors = any(p.get("severity", "error") == "error" for p in simulation["problems"])
    code = cli.EXIT_WRONG_INPUT if has_errors else cli.EXIT_DONE
    if as_json:
        print_json(simulation)
        return code
    listed = {(p.code, p.pointer) for p in preflight.problems}
    new = [p for p in map(Problem.from_json, simulation["problems"]) if (p.code, p.pointer) not in listed]
    print_blocks(problem_blocks([*preflight.problems, *new], source))
    print_simulation(simulation)
    if "set" in simulation:
        print_err(clean(f"all figures are for one row of {simulation['set']['source']}", 300), "yellow")
    return code


def _read_plan(
    file: str, inputs: Sequence[str] | None, what: str, set_file: str | None = None
) -> tuple[SourceText, Preflight, Json]:
    """A valid Request with a plan for ``what``; of an agent's Request, the plan that its model is shown."""
    source, request, preflight = check_file(file, inputs, set_file=set_file)
    if preflight.agent and not preflight.errors:
        if not preflight.calls:
            text, hint = "the file has no plan: its agent makes one when it runs", cli.shell("acts", "run", source.name)
            raise command_error(text, where=source.name, hint=hint)
        text = "an agent is shown this plan and makes its own; this is the one in the file"
        cli.print_message(text, where=source.name, severity="note")
        source, request, preflight = check_file(file, inputs, set_file=set_file, agent=False)
    if preflight.errors:
        raise source_error(source, preflight.problems)
    if preflight.unseen:
        raise missing_tools_error(what, preflight.unseen, source.name)
    return source, preflight, request


@app.add
def schema() -> int:
    """Print the JSON Schema of a request file, for editors."""
    from acts.cli.text.editor_schema import request_schema

    return print_json(request_schema())


@app.add
def graph(
    what: cli.FileOrRun, inputs: cli.Inputs = None, mermaid: AsMermaid = False, svg: AsSvg = False,
    gantt: AsGantt = False,
) -> ExitCode:  # fmt: skip
    """Draw a plan; the plan of a run with the states of its calls.

    Examples:
      acts graph plan.yaml
      acts graph plan-1f2e3d4c --svg > plan.svg
      acts graph plan-1f2e3d4c --gantt > times.svg
    """
    chosen = [name for name, wanted in (("mermaid", mermaid), ("svg", svg), ("gantt", gantt)) if wanted]
    if len(chosen) > 1:
        raise command_error(f"--{chosen[0]} and --{chosen[1]} are two drawings", hint="ask for one of them")
    format_ = chosen[0] if chosen else "text"
    if not looks_like_file(what):
        return _draw_times(what) if gantt else _draw_run(what, format_)
    if gantt:
        raise command_error("a request has not run yet", where="--gantt", hint="give the id of a run")
    source, preflight, request = _read_plan(what, inputs, "the drawing")
    print_blocks(problem_blocks(preflight.problems, source))
    print_plan(request, preflight, format_)
    return cli.EXIT_DONE


async def _draw_run(id_: str, format_: str) -> int:
    from acts.client.run_reader import open_run

    run = await open_run(id_)
    info = await run.describe_planning()
    drawing = await run.require(run.query(str, GRAPH, {"format": format_}))
    if not drawing:
        name = cli.shell(run.id)
        hint = f"`acts show {name}` shows it; that of a delegate without a planner is {name}/plan"
        raise command_error("this run has no plan", where=run.id, hint=hint)
    if info.workflow_type in (AGENT, DELEGATE):
        print_err("this run plans as it goes; its latest plan:", "dim")
    print_drawing(drawing, format_)
    return cli.EXIT_DONE


async def _draw_times(id_: str) -> int:
    from acts.client import client, server
    from acts.views.gantt_svg import gantt_svg

    source = client.Run(await server.connect(), id_)
    print_drawing(gantt_svg([event async for event in source.events(follow=False)], time.time()), "svg")
    return cli.EXIT_DONE


@app.add
def prompt(what: cli.FileOrRun, inputs: cli.Inputs = None, tick: Tick = None, as_json: cli.AsJson = False) -> ExitCode:
    """Show what a planner is shown for a request, or was shown in a run, with an estimate of its tokens by part."""
    if not looks_like_file(what):
        return _print_prompt_of_run(what, tick, as_json=as_json)
    if tick not in (None, 1):
        raise command_error("a request that has not run has one tick", where="--tick", hint="give the id of a run")
    from acts.activities.model_context import PromptContext
    from acts.machines.agent_context import AgentContext

    source, _, preflight = check_file(what, inputs, agent=True)
    request = preflight.request
    if preflight.errors or request is None:
        raise source_error(source, preflight.problems)
    try:
        agent = AgentContext(request, preflight.tools, preflight.served)
    except InvalidRequest as error:
        raise source_error(source, error.problems) from None
    context = PromptContext(
        dict(agent.tools), request.schema, agent.mode, request.config.step, request.instances(),
        request.config.maxTicks, list(request.context), search=request.config.tools.search,
    )  # fmt: skip
    return _print_prompt(context, str(request.config.model), 1, as_json=as_json)


async def _print_prompt_of_run(id_: str, tick: int | None, *, as_json: bool) -> int:
    """Print the prompt of a tick of a run (None: the latest), built once more."""
    from acts.activities.model_context import PromptContext
    from acts.client.run_reader import open_run

    run = await open_run(id_)
    await run.describe_planning()
    await run.allow_replay_time()
    context, settings, size = PromptContext(), dict[str, Any](), None
    while size != context.size:
        size = context.size
        query = {"offset": size[0], "turns": [size[1], size[1] + 1_000], "known": context.has_settings}
        page = await run.require(run.query(dict, PROMPT_CONTEXT, query))
        if "model" not in page and not context.has_settings:
            raise command_error("this run has no planner", where=clean(id_, 200), hint=cli.shell("acts", "show", id_))
        settings = {**page, **settings}
        context.add_page(page)
    # The turn of the last answer is there once its plan has ended
    is_answered = bool(context.turns) and context.turns[-1].at == settings["at"]
    last = len(context.turns) + (not is_answered)
    number = last if tick is None else tick
    if not 1 <= number <= last:
        raise command_error(f"this run has come to tick {last}, not {number}", where="--tick", hint=f"1 to {last}")
    end = context.turns[number - 1].at if number <= len(context.turns) else settings["at"]
    context = replace(context, messages=context.messages[:end], turns=context.turns[: number - 1])
    return _print_prompt(context, str(settings["model"]), number, as_json=as_json)


def _print_prompt(context: PromptContext, model: str, tick: int, *, as_json: bool) -> int:
    from acts.activities.model_context import build_planner_request, room_of, sent_schema
    from acts.planner.request_estimate import bytes_per_token

    prompt, composed = build_planner_request(context, tick, room_of(model))
    schemas = sent_schema(composed, model)
    sizes: dict[str, int] = {}
    for part in (*prompt.system, *(part for turn in prompt.turns for part in turn.parts)):
        sizes[part.kind] = sizes.get(part.kind, 0) + len(part.text.encode())
        if part.files:
            sizes["files"] = sizes.get("files", 0) + sum(file.text_bytes for file in part.files)
    sizes |= {name: len(text.encode()) for name, text in schemas.items()}
    tokens = {kind: math.ceil(size / bytes_per_token(model)) for kind, size in sizes.items()}
    if as_json:
        turns = [{"role": t.role, "parts": [{"kind": p.kind, "text": p.text} for p in t.parts]} for t in prompt.turns]
        system = [{"kind": p.kind, "text": p.text} for p in prompt.system]
        sent = {"schema": json.loads(schemas["schema"])} if "schema" in schemas else {}
        sent |= {"words": schemas["words"]} if "words" in schemas else {}
        return print_json({"model": model, "tick": tick, "system": system, "turns": turns, **sent, "tokens": tokens})
    blocks = [(f"system: {part.kind}", part.text) for part in prompt.system]
    blocks += [(turn.role, "\n".join(part.text for part in turn.parts)) for turn in prompt.turns]
    heads = {"schema": "schema of the answer", "words": "system: the form of the answer, in words"}
    for head, text in (*blocks, *((heads[name], text) for name, text in schemas.items())):
        print("\n".join([f"=== {head}", *cli.clean_lines(text)]))
    table = new_table("part", "tokens, about")
    for kind, count in (*tokens.items(), (f"all of tick {tick}", sum(tokens.values()))):
        table.add_row(kind, f"{count:,}")
    cli.console().print(table)
    return cli.EXIT_DONE
