"""``acts graph ID``: the plan of a run, with the states its calls have now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.values import Json
from acts.wire import AGENT, EDIT, GRAPH, PLAN, PLAN_QUERY
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
        states, may_be_edited = await _states(client, handle, found)
        request = await request_of(client, found)
        if may_be_edited:
            request = _with_plan(request, await ask(handle, PLAN_QUERY))
        verdict = judge(request, agent=False)
        if request is not None and not verdict.errors:
            draw(request, verdict, mermaid=mermaid, states=states)
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
) -> tuple[dict[str, str], bool]:
    """The states of the calls by id, and whether the plan may be another than the one in the input.

    Of the result when the run is over, else as it says itself.
    """
    if found.close_time is None:
        told = await status_of(handle)
        edited = told is not None  # the decisions are known at the end only; without a worker nobody tells
    else:
        told = (await ended(client, found)).result
        decisions = told.get("decisions") if isinstance(told, dict) else None
        edited = any(d.get("decision") == EDIT for d in decisions or ())
    calls = told.get("calls") if isinstance(told, dict) else None
    return {str(c.get("id")): str(c.get("state")) for c in calls or ()}, edited


def _with_plan(request: Json, calls: Any) -> Json:
    """A Request with these Calls in its latest plan message, if they are known."""
    if not isinstance(calls, list) or not isinstance(request, dict):
        return request
    context = list(request.get("context") or ())
    at = next((i for i in reversed(range(len(context))) if context[i].get("type") == "plan"), None)
    if at is None:
        return request
    context[at] = {**context[at], "plan": calls}
    return {**request, "context": context}
