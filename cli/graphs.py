"""``acts graph ID``: the plan of a run, with the states its calls have now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.wire import AGENT, GRAPH, PLAN
from cli import server
from cli.failures import DONE, refuse
from cli.known import judge
from cli.local import draw
from cli.output import out, say
from cli.questions import ask, request_of, status_of
from cli.show import ended

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHandle


def graph_of_run(run: str, *, mermaid: bool) -> int:
    """Draw a run's plan.

    Raises:
        Refusal: there is no such run, it has no plan yet, or nobody can tell it.
    """
    return server.go(_graph(run, mermaid=mermaid))


async def _graph(run: str, *, mermaid: bool) -> int:
    client = await server.connect()
    handle = server.handle(client, run)
    found = await server.about(run, handle.describe(rpc_timeout=server.RPC))
    if found.workflow_type == PLAN:
        request = await request_of(client, found)
        verdict = judge(request)
        if request is not None and not verdict.errors and not verdict.agent:
            draw(request, verdict, mermaid=mermaid, states=await _states(client, handle, found))
            return DONE
    text = await ask(handle, GRAPH)
    if not isinstance(text, str) or not text:
        raise refuse(f"nobody can draw the run {run!r}: it has no plan yet, or no worker answers")
    if not mermaid:
        what = "this run plans as it goes; its latest plan" if found.workflow_type == AGENT else "the plan"
        say(f"{what}, as the worker draws it (Mermaid):", "dim")
    out(text.rstrip("\n"))
    return DONE


async def _states(
    client: Client, handle: WorkflowHandle[Any, Any], found: WorkflowExecutionDescription
) -> dict[str, str]:
    """The states of the calls by id: of the result when the run is over, else as it says itself."""
    if found.close_time is None:
        calls = (await status_of(handle) or {}).get("calls")
    else:
        result = (await ended(client, found)).result
        calls = result.get("calls") if isinstance(result, dict) else None
    return {str(c.get("id")): str(c.get("state")) for c in calls or ()}
