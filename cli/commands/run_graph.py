"""``acts graph ID``: the plan of a run, with the current states of its calls.

Laws of this file:
- the worker provides the drawing: it knows the Tools, the edits, and the state of each call;
- if no worker answers, the plan that the run was started with is drawn here, and the output says so.
"""

from __future__ import annotations

from acts.language.wire import AGENT, ANONYMOUS, DELEGATE, INSTANCE, PLAN
from cli.command_errors import EXIT_DONE, CommandError, command_error
from cli.commands.offline import print_plan
from cli.console import clean, console, print_err, print_out
from cli.render.terminal_plan import render_plan
from cli.runs.run_reader import RunReader, open_run
from cli.text.preflight import missing_tools_error, run_preflight


async def draw_run(id_: str, *, mermaid: bool) -> int:
    """Draw the plan of a run."""
    return await _draw(await open_run(id_), mermaid=mermaid)


async def _draw(run: RunReader, *, mermaid: bool) -> int:
    info = await run.describe_planning()
    drawing = await run.graph(mermaid=mermaid)
    if drawing:
        if info.workflow_type in (AGENT, DELEGATE):
            print_err("this run plans as it goes; its latest plan:", "dim")
        print_out(drawing.rstrip("\n") if isinstance(drawing, str) else render_plan(drawing, console().width))
        return EXIT_DONE
    if info.workflow_type == DELEGATE and (plan := await run.last_child_plan()) is not None:
        print_err(f"its plan is executed by {clean(plan.id)}:", "dim")
        return await _draw(plan, mermaid=mermaid)
    if drawing is None and info.workflow_type in (PLAN, INSTANCE):
        return await _draw_from_request(run, mermaid=mermaid)
    raise await _no_plan_error(run, answered=drawing is not None)


async def _draw_from_request(run: RunReader, *, mermaid: bool) -> int:
    """Draw the plan that the run was started with, as far as that needs no worker."""
    request = await run.request()
    preflight = run_preflight(request, agent=False)
    if preflight.errors:
        raise await _no_plan_error(run, answered=False)
    if preflight.unseen:
        raise missing_tools_error("no worker answers, and without one the drawing", preflight.unseen, run.id)
    result = await run.result()
    report = result if result and "omitted" not in result else None
    states = "" if report is not None else ", without the states of its calls"
    print_err(f"no worker answers; the plan that the run was started with{states}:", "dim")
    print_plan(request, preflight, mermaid=mermaid, report=report)
    return EXIT_DONE


async def _no_plan_error(run: RunReader, *, answered: bool) -> CommandError:
    if not answered:
        return await run.no_answer_error()
    request = await run.request()
    if isinstance(request, dict) and request.get("delegate") == ANONYMOUS:
        return command_error("this run makes a single call for its parent: it has no plan", where=run.id)
    ended = (await run.describe()).close_time is not None
    head = "this run has ended, and had no plan" if ended else "this run has no plan yet"
    return command_error(head, where=run.id, hint=f"acts show {clean(run.id)}")
