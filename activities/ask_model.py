"""The one activity that asks a model: for a Solution, or for the result of a latent Call.

It is told what to ask about and where the context is; it reads the context, makes the
prompt and the schema, asks, checks the answer, and gives the model one more turn when
the answer cannot be used. What it returns is small, and is all that history records.

    {"ask": "solution" | "output", "model", "temperature"?, "maxOutputTokens"?, "repair": bool,
     "priced": bool, "left": {tokens?, cost?}, "source": {"workflowId", "runId", "upto"},
     "tick" | "tool", "call", "paths", "scoped"}
    → {"solution" | "output", "path"?, "unusable"?: {code, message}, "usage": {…}, "made": [{requestId, …}]}
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.context_reader import ContextReader, PromptContext
from activities.heartbeat import heartbeat
from activities.providers import select
from activities.providers.interface import ModelError, ModelRequest, ModelResponse, PromptBlock, RepairTurn
from acts.language.errors import truncate
from acts.language.messages import output_schema
from acts.language.schemas import checker
from acts.language.usage import Usage
from acts.language.values import Json, pointer
from acts.language.wire import INVALID_ANSWER, MODEL, RESULT_TOO_LARGE
from acts.planner.answer_schema import compose_latent_schema, compose_solution_schema
from acts.planner.prompt import Prompt, render_latent_prompt, render_planner_prompt, render_repair_turn

# A provider may ask for hours; sooner or later a person should see that nothing moves
MAX_RETRY_AFTER_SECONDS: Final = 300.0
# An answer with these faults may be mended by the model itself
_REPAIRABLE: Final = ("modelNotJson", "modelTruncated", INVALID_ANSWER)
# … and a planner goes on with the next tick, where it is told
_TELLABLE: Final = ("modelNotJson", "modelTruncated", RESULT_TOO_LARGE)
# What one payload holds, without what is recorded beside the answer
MAX_ANSWER_BYTES: Final = 1_900_000

_contexts: Final = ContextReader()


@activity.defn(name=MODEL)
async def ask_model(asked: dict[str, Any]) -> dict[str, Any]:
    """One question to a model; see the top of the file."""
    source = asked["source"]
    material = await _contexts.read(activity.client(), source["workflowId"], source["runId"], source["upto"])
    planning = asked["ask"] == "solution"
    question, check = _solution(asked, material) if planning else _output(asked, material)
    spent, made = Usage(), _Made()
    out: dict[str, Any]
    # Providers may think for minutes before the first word
    async with heartbeat(lambda: {"calls": made.calls}):
        try:
            _check_price(asked)
            answer = await _answered(asked, question, check, spent, made)
            out = {"solution": answer.value} if planning else _chosen(answer.value, asked, material)
            _check_size(out)
        except ModelError as error:
            if not planning or error.code not in _TELLABLE:
                raise _failure(error, spent) from error
            out = {"unusable": {"code": error.code, "message": error.message}}
    return {**out, "usage": spent.to_json(), "made": made.requests}


async def _answered(
    asked: dict[str, Any], question: ModelRequest, check: Callable[[Json], list[str]], spent: Usage, made: _Made
) -> ModelResponse:
    """The answer, after one more turn if the first cannot be used.

    Raises:
        ModelError: there is none.
    """
    turns: tuple[RepairTurn, ...] = ()
    while True:
        made.calls = 0
        own = ModelRequest(**{**_fields(question), "turns": turns})
        try:
            answer = await select.ask(asked["model"], own, made.progress)
            made.add(answer, spent)
            _check_answer(answer, check)
        except ModelError as error:
            if error.usage is not None:
                made.lost(error, spent)
            if turns or error.code not in _REPAIRABLE or not asked["repair"] or _spent_up(asked, spent):
                raise
            turns = (RepairTurn(error.text, render_repair_turn([error.message])),)
        else:
            return answer


def _spent_up(asked: dict[str, Any], spent: Usage) -> bool:
    """True when the first request took what the budget had left of tokens or money."""
    left = asked.get("left") or {}
    tokens, cost = spent.inputTokens + spent.outputTokens, spent.cost or 0.0
    return bool(tokens >= left.get("tokens", math.inf) or cost >= left.get("cost", math.inf))


def _check_answer(answer: ModelResponse, check: Callable[[Json], list[str]]) -> None:
    defects = check(answer.value)
    if defects:
        text = f"the answer does not fit what was asked for: {'; '.join(defects[:5])}"
        raise ModelError(INVALID_ANSWER, text, retryable=False, text=answer.text)


def _check_size(out: dict[str, Any]) -> None:
    bytes_ = len(json.dumps(out, ensure_ascii=False).encode())
    if bytes_ > MAX_ANSWER_BYTES:
        text = f"the answer has {bytes_:,} bytes; at most {MAX_ANSWER_BYTES:,} can be recorded: ask for less at a time"
        raise ModelError(RESULT_TOO_LARGE, text, retryable=False)


def _check_price(asked: dict[str, Any]) -> None:
    if asked.get("priced") and not select.priced(asked["model"]):
        text = f"no price list knows the model {asked['model']}, so budget.cost cannot be kept: remove it"
        raise ModelError("noPrice", text, retryable=False)


def _fields(question: ModelRequest) -> dict[str, Any]:
    return {name: getattr(question, name) for name in question.__slots__}


class _Made:
    """The requests that were made, and how far the present one is."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.calls = 0

    def progress(self, index: int, _: Json) -> None:
        self.calls = index + 1

    def add(self, answer: ModelResponse, spent: Usage) -> None:
        usage = {
            "requests": 1, "inputTokens": answer.usage.inputTokens, "outputTokens": answer.usage.outputTokens,
            "cachedTokens": answer.usage.cachedTokens, "reasoningTokens": answer.usage.reasoningTokens,
            "cost": answer.cost,
        }  # fmt: skip
        spent.add(usage)
        del usage["requests"]
        self.requests.append(
            {"requestId": answer.requestId, "model": answer.model, "strict": answer.strict, "usage": usage}
        )

    def lost(self, error: ModelError, spent: Usage) -> None:
        """A request that was answered and could not be used costs all the same."""
        if error.usage is not None:
            self.add(ModelResponse(error.text, None, error.usage, error.cost, error.details.get("requestId")), spent)


# -- questions -----------------------------------------------------------------


def _solution(asked: dict[str, Any], material: PromptContext) -> tuple[ModelRequest, Callable[[Json], list[str]]]:
    output = output_schema(material.output)
    prompt = render_planner_prompt(
        material.messages, material.tools, output, mode=material.mode, step=material.step, tick=asked["tick"]
    )
    schema = compose_solution_schema(material.tools, output, mode=material.mode, instances=material.instances)
    # Whether the Calls may be made is the loop's to say: its errors go back in the next tick
    return _question(asked, prompt, schema, "solution", f"tick {asked['tick']}"), lambda _: []


def _output(asked: dict[str, Any], material: PromptContext) -> tuple[ModelRequest, Callable[[Json], list[str]]]:
    tool = material.tools[asked["tool"]]
    schema, _ = compose_latent_schema(tool, asked["paths"])
    prompt = render_latent_prompt(material.messages, tool, asked["call"], asked["paths"], asked["scoped"])

    def check(value: Json) -> list[str]:
        return [f"{pointer(*at) or 'it'}: {why}" for at, why in checker(schema).defects(value)]

    return _question(asked, prompt, schema, "output", tool.name), check


def _question(asked: dict[str, Any], prompt: Prompt, schema: Json, name: str, topic: str) -> ModelRequest:
    last = len(prompt.system) - 1
    return ModelRequest(
        model=asked["model"],
        system=tuple(PromptBlock(text, cache=i == last) for i, text in enumerate(prompt.system)),
        user=tuple(PromptBlock(text, cache=i == prompt.stable_blocks - 1) for i, text in enumerate(prompt.user)),
        schema=schema,
        name=name,
        temperature=asked.get("temperature"),
        maxOutputTokens=asked.get("maxOutputTokens"),
        key=asked["source"]["workflowId"],
        topic=topic,
    )


def _chosen(value: Json, asked: dict[str, Any], material: PromptContext) -> dict[str, Any]:
    """The result of a latent Call, and which of the paths it goes to."""
    _, both = compose_latent_schema(material.tools[asked["tool"]], asked["paths"])
    if both and isinstance(value, dict):
        return {"output": value["output"], "path": asked["paths"].index(value["path"])}
    return {"output": value, "path": 0}


# -- how it goes ---------------------------------------------------------------


def _failure(error: ModelError, spent: Usage) -> ApplicationError:
    after = error.retryAfter
    return ApplicationError(
        truncate(error.message, 2000),
        {"usage": spent.to_json(), **error.details},
        type=error.code,
        non_retryable=not error.retryable,
        next_retry_delay=timedelta(seconds=min(after, MAX_RETRY_AFTER_SECONDS)) if after is not None else None,
    )
