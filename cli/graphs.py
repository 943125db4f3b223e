"""``acts graph ID``: the plan of a run, with the states its calls have now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acts.values import Json
from acts.wire import AGENT, GRAPH, PLAN
from cli import server
from cli.failures import DONE, refuse
from cli.known import judge
from cli.local import draw
from cli.output import out, say
from cli.questions import ask, status_of
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


async def request_of(client: Client, found: WorkflowExecutionDescription) -> Json:
    """The Request that a run was started with, or None.

    It stands in the first event of the first run; later runs (continue-as-new) name it.
    """
    handle = client.get_workflow_handle(found.id, run_id=found.run_id)
    first = await _first_event(handle)
    if first is not None and first.first_execution_run_id not in ("", found.run_id):
        first = await _first_event(client.get_workflow_handle(found.id, run_id=first.first_execution_run_id))
    if first is None or not first.input.payloads:
        return None
    values = await client.data_converter.decode(first.input.payloads[:1])
    return values[0]


async def _first_event(handle: WorkflowHandle[Any, Any]) -> Any:
    async for event in handle.fetch_history_events(page_size=1, rpc_timeout=server.RPC):
        return event.workflow_execution_started_event_attributes
    return None


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
