"""``acts graph ID``: the plan of a run, with the states its calls have now.

Laws of this file:
- the worker draws, who knows the Tools, what was edited, and how far each call is;
- where no worker answers, the plan as it was started is drawn here, and it is said so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.language.wire import AGENT, ANONYMOUS, DELEGATE, GRAPH, INSTANCE, PLAN
from cli.command_errors import DONE, CommandError, refuse
from cli.commands.diff import plan_below
from cli.commands.offline import draw
from cli.commands.show import ended
from cli.console import clean, console, out, say
from cli.runs import server
from cli.runs.queries import ask, request_of
from cli.text.preflight import judge, needs_tools

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription


def graph_of_run(run: str, *, mermaid: bool) -> int:
    """Draw a run's plan.

    Raises:
        Refusal: there is no such run, it has no plan, or nobody can tell it.
    """
    return server.go(_graph(run, mermaid=mermaid))


async def _graph(run: str, *, mermaid: bool) -> int:
    client = await server.connect()
    handle = server.handle(client, run)
    found = await server.about(run, handle.describe(rpc_timeout=server.RPC))
    if found.workflow_type not in (PLAN, AGENT, DELEGATE, INSTANCE):
        raise refuse(f"a run of type {clean(found.workflow_type, 100)} has no plan", where=run)
    text = await ask(handle, GRAPH, *([] if mermaid else [{"format": "json"}]))
    if isinstance(text, dict):
        from cli.render.terminal_plan import render_plan

        text = render_plan(text, console().width)
    if isinstance(text, str) and text:
        if found.workflow_type in (AGENT, DELEGATE):
            say("this run plans as it goes; its latest plan:", "dim")
        out(text.rstrip("\n"))
        return DONE
    if found.workflow_type == DELEGATE and (below := await plan_below(client, found)) is not None:
        say(f"its plan is walked by {clean(below)}:", "dim")
        return await _graph(below, mermaid=mermaid)
    if text is None and found.workflow_type in (PLAN, INSTANCE):
        return await _drawn_here(client, found, mermaid=mermaid)
    raise await _nothing(client, found, answered=text is not None)


async def _drawn_here(client: Client, found: WorkflowExecutionDescription, *, mermaid: bool) -> int:
    """The plan as the run was started with it, as far as it can be drawn without a worker."""
    request = await request_of(client, found)
    verdict = judge(request, agent=False)
    if verdict.errors:
        raise await _nothing(client, found, answered=False)
    if verdict.unseen:
        raise needs_tools("no worker answers, and without one the picture", verdict.unseen, found.id)
    told = await _result(client, found)
    states = "" if told is not None else ", without the states of its calls"
    say(f"no worker answers; the plan as it was started{states}:", "dim")
    draw(request, verdict, mermaid=mermaid, told=told)
    return DONE


async def _result(client: Client, found: WorkflowExecutionDescription) -> dict[str, Any] | None:
    """The result of a run that is over, if it tells of each call."""
    told = None if found.close_time is None else (await ended(client, found)).result
    return told if isinstance(told, dict) and "omitted" not in told else None


async def _nothing(client: Client, found: WorkflowExecutionDescription, *, answered: bool) -> CommandError:
    """Why there is no picture."""
    if not answered:
        return refuse("nobody can draw this run: no worker answers", where=found.id, hint="start one: `acts dev`")
    given = await request_of(client, found)
    if isinstance(given, dict) and given.get("delegate") == ANONYMOUS:
        return refuse("this run does a single call for the run above: it has no plan", where=found.id)
    if found.close_time is not None:
        return refuse("this run has ended, and had no plan", where=found.id, hint=f"acts show {clean(found.id)}")
    return refuse("this run has no plan yet", where=found.id, hint=f"acts show {clean(found.id)}")
