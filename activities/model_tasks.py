"""What a model is asked: the request for a Solution or for the result of a latent Call, and what its answer must be.

Built of the activity's request and the context of a run. Nothing here makes a request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from activities.context_reader import PromptContext
from activities.planner_request import build_planner_request
from activities.providers.interface import ModelRequest, ModelTurn, PromptBlock
from acts.language.schemas import checker
from acts.language.values import Json, pointer
from acts.planner.answer_schema import compose_latent_schema
from acts.planner.conversation import PromptTurn
from acts.planner.prompt import Prompt, render_latent_prompt


@dataclass(frozen=True)
class ModelTask:
    """What is asked: the request, the defects of an answer to it, and the answer's part of the activity's result."""

    request: ModelRequest
    find_defects: Callable[[Json], list[str]]
    read_answer: Callable[[Json], dict[str, Any]]
    is_planning: bool


def build_task(request: dict[str, Any], context: PromptContext, room: float) -> ModelTask:
    """The task of an activity's request; ``room`` are the bytes that the conversation may take."""
    build = _solution_task if request["ask"] == "solution" else _latent_task
    return build(request, context, room)


def _solution_task(request: dict[str, Any], context: PromptContext, room: float) -> ModelTask:
    prompt, schema = build_planner_request(context, request["tick"], room)
    model_request = build_model_request(request, prompt, schema, "solution", f"tick {request['tick']}")
    # The agent validates the Calls as a plan; their problems go back to the planner in the next tick
    return ModelTask(model_request, lambda _: [], lambda value: {"solution": value}, is_planning=True)


def _latent_task(request: dict[str, Any], context: PromptContext, room: float) -> ModelTask:
    tool, paths = context.tools[request["tool"]], request["paths"]
    schema, has_path = compose_latent_schema(tool, paths)
    prompt = render_latent_prompt(context.messages, tool, request["call"], paths, request["scoped"], room=room)

    def find_defects(value: Json) -> list[str]:
        return [f"{pointer(*at) or 'it'}: {why}" for at, why in checker(schema).defects(value)]

    def read_answer(value: Json) -> dict[str, Any]:
        if has_path:
            return {"output": value["output"], "path": paths.index(value["path"])}
        return {"output": value, "path": 0}

    model_request = build_model_request(request, prompt, schema, "output", tool.name)
    return ModelTask(model_request, find_defects, read_answer, is_planning=False)


def build_model_request(request: dict[str, Any], prompt: Prompt, schema: Json, label: str, topic: str) -> ModelRequest:
    """The request to a model; ``request`` has the settings: model, source, temperature, cap, effort."""
    last_system = len(prompt.system) - 1
    return ModelRequest(
        model=request["model"],
        system=tuple(
            PromptBlock(part.text, is_cached=i == last_system, is_rules=part.kind == "rules")
            for i, part in enumerate(prompt.system)
        ),
        turns=tuple(ModelTurn(turn.role, _blocks(turn, prompt.stable_parts)) for turn in prompt.turns),
        schema=schema,
        label=label,
        temperature=request.get("temperature"),
        maxOutputTokens=request.get("maxOutputTokens"),
        effort=request.get("effort"),
        cache_key=request["source"]["workflowId"],
        topic=topic,
    )


def _blocks(turn: PromptTurn, stable_parts: int | None) -> tuple[PromptBlock, ...]:
    """A turn as one block; that of a latent Call as two: what other Calls have too, and its own."""
    if stable_parts is None:
        return (PromptBlock(turn.text, is_cached=turn.role == "user"),)
    texts = [part.text for part in turn.parts]
    return (
        PromptBlock("\n".join(texts[:stable_parts]), is_cached=True), PromptBlock("\n".join(texts[stable_parts:]))
    )  # fmt: skip
