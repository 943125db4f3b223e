"""The context that a model is shown, read from the run that has it, and a planner's request made of it.

A prompt holds all of a run's context, tick after tick. As an argument of the model activity, each request would write
it into history again. So the activity gets the run's id and the number of messages that count, and reads them by query,
which leaves no trace in history. Messages and turns are only ever appended: those already read are kept in memory, and
the next tick reads only the new ones.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from acts.activities.models.endpoints import PROVIDERS, context_window, find_model, is_of_openai
from acts.activities.models.interface import ModelError
from acts.activities.models.schema import Dialect, choose_form, compact_json
from acts.language.messages import Message, output_schema, parse_message
from acts.language.tools import Tool, read_tool
from acts.language.values import Json
from acts.language.wire import PROMPT_CONTEXT
from acts.planner.answer_schema import compose_solution_schema
from acts.planner.prompt import Prompt, render_planner_prompt
from acts.planner.request_estimate import conversation_room
from acts.planner.turns import known_tools
from acts.tree.records import ContextRef, Turn

if TYPE_CHECKING:
    from temporalio.client import Client

# Runs whose context stays in memory: about as many as ask models at the same time
MAX_CACHED_RUNS: Final = 64
UNAVAILABLE: Final = "ContextUnavailable"
# A run in a worker's cache answers at once; one that is replayed first has six times as long
_QUERY_TIMEOUT: Final = timedelta(seconds=10)


@dataclass
class PromptContext:
    """What a run shows to a model. ``has_settings``: all but the messages has been read."""

    tools: dict[str, Tool] = field(default_factory=dict)
    output: Json = None
    mode: str = "eager"
    step: str = "plan"
    instances: tuple[str, ...] = ()
    max_ticks: int = 0
    messages: list[Message] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    search: int | None = None
    has_settings: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False)

    @property
    def size(self) -> tuple[int, int, bool]:
        """How much of it has been read: messages, turns, and whether the settings have."""
        return len(self.messages), len(self.turns), self.has_settings

    def add_page(self, page: Any) -> None:
        """Add one answer to the query: messages, and with the first one everything else."""
        if "tools" in page:
            tools = ((name, read_tool(name, t["schema"], served=t["served"])[0]) for name, t in page["tools"].items())
            self.tools = {name: tool for name, tool in tools if tool is not None}
            self.output, self.mode, self.step = page["output"], page["mode"], page["step"]
            self.instances, self.max_ticks = tuple(page["instances"]), page.get("maxTicks", 0)
            self.search = page.get("search")
            self.has_settings = True
        start = len(self.messages)
        self.messages.extend(parse_message(raw, start + i) for i, raw in enumerate(page["messages"]))
        self.turns.extend(map(Turn.from_json, page.get("turns", ())))


class ContextReader:
    """Reads contexts, and keeps the contexts of the latest runs."""

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[str, str], PromptContext] = OrderedDict()

    async def read(self, client: Client, source: ContextRef, turns: int = 0) -> PromptContext:
        """What of a run's context a model is shown: the messages that count, and of an agent its first ``turns``.
        Raises ApplicationError: ``ContextUnavailable``, the run does not answer; retryable.

        Requests that start together read it once: a server holds few queries of one run.
        """
        key, upto = (source.workflowId, source.runId), source.messageCount
        context = self._cache.setdefault(key, PromptContext())
        self._cache.move_to_end(key)
        async with context.lock:
            while context.size[0] < upto or context.size[1] < turns or not context.has_settings:
                size = context.size
                query = {"offset": size[0], "upto": upto, "turns": [size[1], turns], "known": size[2]}
                context.add_page(await query_run(client, *key, PROMPT_CONTEXT, query))
                if context.size == size:
                    text = f"run {source.workflowId} has no message {size[0]}, or no turn {size[1]}"
                    raise ApplicationError(text, type=UNAVAILABLE)
        while len(self._cache) > MAX_CACHED_RUNS:
            self._cache.popitem(last=False)
        return replace(context, messages=context.messages[:upto], turns=context.turns[:turns])


async def query_run(client: Client, workflow_id: str, run_id: str, name: str, *args: Any) -> Any:
    """The answer of a run to a query. Raises ApplicationError: ``ContextUnavailable``, the run does not answer;
    retryable.
    """
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    try:
        try:
            return await handle.query(name, *args, rpc_timeout=_QUERY_TIMEOUT)
        except RPCError:  # lost, or its worker has stopped: the question is put to another one
            return await handle.query(name, *args, rpc_timeout=6 * _QUERY_TIMEOUT)
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError, RPCError) as error:
        raise ApplicationError(f"run {workflow_id} does not answer now: {error}", type=UNAVAILABLE) from error


def room_of(model: str) -> float:
    """The bytes that a conversation with ``provider:name`` may take. Imports the price list on first use (0.2 s)."""
    return conversation_room(model, context_window(model))


def build_planner_request(context: PromptContext, tick: int, room: float) -> tuple[Prompt, Json]:
    """The prompt of a tick, and the schema of its answer."""
    output, tools = output_schema(context.output), context.tools
    is_last = 0 < context.max_ticks <= tick
    tools_known = known_tools(tools, None if is_last and not context.turns else context.search, context.turns)
    may_search = len(tools_known) < len(tools) and not is_last
    schema = compose_solution_schema(
        tools_known, output, mode=context.mode, instances=context.instances, may_search=may_search
    )
    prompt = render_planner_prompt(
        context.messages, context.turns, tools, mode=context.mode, step=context.step, is_last=is_last, room=room,
        known=tools_known,
    )  # fmt: skip
    return prompt, schema


def sent_schema(schema: Json, model: str) -> dict[str, str]:
    """What the provider of ``model`` is sent of a schema: a ``schema`` beside the prompt, ``words`` in it, or both."""
    try:
        endpoint, name = find_model(model)
    except ModelError:  # the worker's endpoints may be unknown here
        endpoint, name = PROVIDERS["anthropic" if "claude" in model else "openai"], model
    dialect: Dialect = "anthropic" if endpoint.provider == "anthropic" else "openai"
    sent = choose_form(schema, dialect, endpoint.quirks.first_form)
    is_imitation = dialect == "openai" and not (endpoint.cloud or is_of_openai(name))  # its model may not see a schema
    words = {"words": sent.in_words} if sent.form == "words" or is_imitation else {}
    return words if sent.form == "words" else {"schema": compact_json(sent.schema), **words}
