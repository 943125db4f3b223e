"""One planner's request, built of the context of a run: for the model activity, and for people who want to see it."""

from __future__ import annotations

from typing import Any

from activities.context_reader import PromptContext
from activities.providers.interface import ModelError
from activities.providers.prices import context_window
from activities.providers.provider_keywords import Dialect
from activities.providers.schema_ladder import SchemaLadder
from activities.providers.select import find_model
from acts.language.messages import output_schema
from acts.language.values import Json
from acts.planner.answer_schema import compose_solution_schema
from acts.planner.prompt import PlannerView, Prompt, render_planner_prompt
from acts.planner.request_estimate import conversation_room


def room_of(model: str) -> float:
    """The bytes that a conversation with ``provider:name`` may take. Imports the price list on first use (0.2 s)."""
    return conversation_room(model, context_window(model))


def build_planner_request(context: PromptContext, tick: int, room: float) -> tuple[Prompt, Json]:
    """The prompt of a tick, and the schema of its answer."""
    output = output_schema(context.output)
    schema = compose_solution_schema(context.tools, output, mode=context.mode, instances=context.instances)
    is_last = 0 < context.max_ticks <= tick
    view = PlannerView(context.tools, context.mode, context.step, is_last=is_last, room=room)
    return render_planner_prompt(context.messages, context.turns, view), schema


def sent_schema(schema: Json, model: str) -> dict[str, Any]:
    """The schema as the provider of ``model`` is sent it first: in the strictest form that is within its limits."""
    try:
        address = find_model(model)
        is_anthropic, endpoint = address.provider == "anthropic", address.endpoint
    except ModelError:  # the worker's endpoints may be unknown here
        is_anthropic, endpoint = "claude" in model, None
    first = endpoint.quirks.first_form if endpoint else "strict"
    dialect: Dialect = "anthropic" if is_anthropic else "openai"
    ladder = SchemaLadder(dialect, has_unenforced=not is_anthropic, first=first)
    return ladder.choose(model, schema).wire.schema
