"""Commands that need no server: ``validate``, ``simulate``, ``graph FILE``, ``schema``.

Laws of this file:
- Temporal is imported only for a Request that needs the Activities of this environment, or that is for an agent;
- problems go to stderr, what was requested to stdout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acts.language.errors import InvalidRequest
from acts.language.values import Json
from cli.command_errors import EXIT_DONE, EXIT_WRONG_INPUT, CommandError, command_error, message
from cli.console import clean, console, count_text, print_blocks, print_json, print_out
from cli.text.inputs import add_inputs
from cli.text.local_set import describe_set
from cli.text.preflight import Preflight, missing_tools_error, run_preflight
from cli.text.problems import problem_blocks, problems_from_json
from cli.text.source_text import STDIN, SourceText, read_source

if TYPE_CHECKING:
    from acts.simulation.time_forecast import Durations


def validate(file: str, inputs: Sequence[str], *, strict: bool, as_json: bool, agent: bool | None = None) -> int:
    """Print every problem. 0 if a worker may run the Request, else 2."""
    source, request = _read_request(file, inputs)
    preflight = run_preflight(request, strict=strict, file=_file_or_none(file), agent=agent)
    code = EXIT_WRONG_INPUT if preflight.errors else EXIT_DONE
    if as_json:
        print_json([p.to_json() for p in preflight.problems])
        return code
    print_blocks(problem_blocks(preflight.problems, source))
    name = clean(source.name)
    if preflight.errors:
        console(stderr=True).print(f"{name} is not valid: {_count_problems(preflight)}", style="bold red")
    else:
        print_out(f"{name} is valid: {_summary(preflight)}")
    return code


def simulate(file: str, inputs: Sequence[str], *, as_json: bool, durations: Durations | None = None) -> int:
    """Print what the plan would do. ``durations`` are those of calls in earlier runs.

    Raises:
        CommandError: the Request is invalid, or has no plan.
    """
    from acts.simulation.simulate import simulate as simulate_request
    from cli.render.simulation_view import print_simulation

    source, preflight, request = _read_plan(file, inputs, "the simulation")
    try:
        simulation = simulate_request(request, preflight.tools, preflight.served, durations=durations)
    except InvalidRequest as error:
        raise CommandError(*problem_blocks(error.problems, source)) from None
    errors = [p for p in simulation["problems"] if p.get("severity", "error") == "error"]
    code = EXIT_WRONG_INPUT if errors else EXIT_DONE
    if as_json:
        print_json(simulation)
        return code
    listed = {(p.code, p.pointer) for p in preflight.problems}
    new = [p for p in problems_from_json(simulation["problems"]) if (p.code, p.pointer) not in listed]
    print_blocks(problem_blocks([*preflight.problems, *new], source))
    print_simulation(simulation)
    if "set" in simulation:
        console().print(describe_set(simulation["set"]["source"]), style="yellow")
    return code


def draw_file(file: str, inputs: Sequence[str], *, mermaid: bool) -> int:
    """Print the plan as a drawing.

    Raises:
        CommandError: the Request is invalid, or has no plan.
    """
    source, preflight, request = _read_plan(file, inputs, "the drawing")
    print_blocks(problem_blocks(preflight.problems, source))
    print_plan(request, preflight, mermaid=mermaid)
    return EXIT_DONE


def print_plan(request: Json, preflight: Preflight, *, mermaid: bool, report: Mapping[str, Any] | None = None) -> None:
    """Print the plan of a valid Request as a drawing; ``report`` is the result of its run."""
    from acts.plan.validate import validate_request
    from acts.views.mermaid import mermaid as draw_mermaid
    from acts.views.plan_drawing import draw_waves
    from cli.render.terminal_plan import render_plan

    prepared = validate_request(request, preflight.tools, preflight.served)
    if mermaid:
        print_out(draw_mermaid(prepared, report).rstrip("\n"))
    else:
        print_out(render_plan(draw_waves(prepared, report), console().width))


def print_schema() -> int:
    """Print the JSON Schema of a Request file."""
    from cli.text.editor_schema import request_schema

    print_json(request_schema())
    return EXIT_DONE


def _read_request(file: str, inputs: Sequence[str]) -> tuple[SourceText, Json]:
    source = read_source(file)
    return source, add_inputs(source.value, inputs)


def _file_or_none(file: str) -> str | None:
    return None if file == STDIN else file


def _read_plan(file: str, inputs: Sequence[str], what: str) -> tuple[SourceText, Preflight, Json]:
    """A valid Request with a plan; of an agent's Request, the plan that its model is shown.

    Raises:
        CommandError: it is invalid, has no plan, or ``what`` needs Tools that only the worker knows.
    """
    source, request = _read_request(file, inputs)
    preflight = run_preflight(request, file=_file_or_none(file))
    if preflight.agent and not preflight.errors:
        if not preflight.calls:
            text, hint = "the file has no plan: its agent makes one when it runs", f"acts run {source.name}"
            raise command_error(text, where=source.name, hint=hint)
        text = "an agent is shown this plan and makes its own; this is the one in the file"
        print_blocks([message(text, where=source.name, severity="note")])
        preflight = run_preflight(request, file=_file_or_none(file), agent=False)
    if preflight.errors:
        raise CommandError(*problem_blocks(preflight.problems, source))
    if preflight.unseen:
        raise missing_tools_error(what, preflight.unseen, source.name)
    return source, preflight, request


def _count_problems(preflight: Preflight) -> str:
    errors = len(preflight.errors)
    warnings = len(preflight.problems) - errors
    return count_text(errors, "error") + (f", {count_text(warnings, 'warning')}" if warnings else "")


def _summary(preflight: Preflight) -> str:
    request = preflight.request
    parts = [count_text(preflight.calls, "call")]
    if preflight.agent and request is not None:
        calls = [f"{parts[0]} to be shown to it"] if preflight.calls else []
        parts = ["a task for an agent", clean(f"model {request.config.model}", 100), *calls]
    elif request is not None and request.set is not None:
        parts.append(clean(f"for each row of {request.set.source}", 200))
    elif request is not None and request.instances():
        parts.append(count_text(len(request.instances()), "instance"))
    warnings = len(preflight.problems)
    return ", ".join([*parts, *([count_text(warnings, "warning")] if warnings else [])])
