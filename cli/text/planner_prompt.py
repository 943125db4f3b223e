"""What a planner is or was shown, as text: of a Request before it runs, or of a tick of a run.

Laws of this file: the prompt is built by the code that the model activity uses; nothing is rendered here a second way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from acts.language.errors import InvalidRequest
from acts.language.values import Json
from acts.machines.loop import Loop
from acts.planner.prompt import Prompt
from acts.planner.request_estimate import bytes_per_token
from acts.planner.turns import Turn
from cli.command_errors import CommandError, command_error
from cli.text.preflight import Preflight
from cli.text.problems import problem_blocks
from cli.text.source_text import SourceText


@dataclass(frozen=True)
class ShownPrompt:
    """A prompt with the schema that is sent beside it. ``tokens`` are estimates, by the kind of part."""

    model: str
    tick: int
    prompt: Prompt
    schema: dict[str, Any]
    tokens: dict[str, int]

    def to_json(self) -> dict[str, Json]:
        """The prompt as JSON."""
        turns = [
            {"role": t.role, "parts": [{"kind": p.kind, "text": p.text} for p in t.parts]} for t in self.prompt.turns
        ]
        system = [{"kind": p.kind, "text": p.text} for p in self.prompt.system]
        return {
            "model": self.model, "tick": self.tick, "system": system, "turns": turns, "schema": self.schema,
            "tokens": self.tokens,
        }  # fmt: skip


def prompt_of_request(preflight: Preflight, source: SourceText) -> ShownPrompt:
    """The prompt of the first tick of a Request.

    Raises:
        CommandError: it is not valid, or has no planner.
    """
    from activities.context_reader import PromptContext

    request = preflight.request
    if preflight.errors or request is None:
        raise CommandError(*problem_blocks(preflight.problems, source))
    try:
        loop = Loop(request, preflight.tools, preflight.served)
    except InvalidRequest as error:
        raise CommandError(*problem_blocks(error.problems, source)) from None
    context = PromptContext(
        dict(loop.tools), request.schema, loop.mode, request.config.step, request.instances(), request.config.maxTicks,
        list(request.context),
    )  # fmt: skip
    return _show(context, str(request.config.model), 1)


async def prompt_of_run(name: str, tick: int | None, ask: Callable[[Json], Awaitable[Any]]) -> ShownPrompt:
    """The prompt of a tick of a run (None: the latest); ``ask`` sends a page to the query ``promptContext``.

    Raises:
        CommandError: the run has no planner, or has not come to the tick.
    """
    from activities.context_reader import PromptContext

    context, settings = PromptContext(), dict[str, Any]()
    while True:
        have = len(context.messages), len(context.turns)
        page = await ask({"offset": have[0], "turns": [have[1], have[1] + 1_000], "known": context.has_settings})
        if not isinstance(page, dict) or ("model" not in page and not context.has_settings):
            text, hint = "this run has no planner", f"acts show {name}"
            raise command_error(text, where=name, hint=hint)
        settings = {**page, **settings}
        context.add_page(page)
        if (len(context.messages), len(context.turns)) == have:
            break
    # The turn of the last answer is there once its plan has ended
    is_answered = bool(context.turns) and context.turns[-1].at == settings["at"]
    last = len(context.turns) + (not is_answered)
    number = last if tick is None else tick
    if not 1 <= number <= last:
        raise command_error(f"this run has come to tick {last}, not {number}", where="--tick", hint=f"1 to {last}")
    end = context.turns[number - 1].at if number <= len(context.turns) else settings["at"]
    turns: list[Turn] = context.turns[: number - 1]
    return _show(replace(context, messages=context.messages[:end], turns=turns), str(settings["model"]), number)


def _show(context: Any, model: str, tick: int) -> ShownPrompt:
    from activities.planner_request import build_planner_request, room_of, sent_schema

    prompt, composed = build_planner_request(context, tick, room_of(model))
    schema = sent_schema(composed, model)
    sizes: dict[str, int] = {}
    for part in (*prompt.system, *(part for turn in prompt.turns for part in turn.parts)):
        sizes[part.kind] = sizes.get(part.kind, 0) + len(part.text.encode())
    sizes["schema"] = len(json.dumps(schema, ensure_ascii=False, separators=(",", ":")).encode())
    per_token = bytes_per_token(model)
    return ShownPrompt(model, tick, prompt, schema, {k: math.ceil(size / per_token) for k, size in sizes.items()})
