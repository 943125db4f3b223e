"""The context that a model is shown, read from the run that has it.

A prompt holds all of a run's context, tick after tick. As an argument of the model activity, each request would write
it into history again. So the activity gets the run's id and the number of messages that count, and reads them by query,
which leaves no trace in history. Messages and turns are only ever appended: those already read are kept in memory, and
the next tick reads only the new ones.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from acts.language.messages import Message
from acts.language.request_reader import parse_message
from acts.language.tools import Tool, read_tool
from acts.language.values import Json
from acts.language.wire import PROMPT_CONTEXT
from acts.planner.turns import Turn

if TYPE_CHECKING:
    from temporalio.client import Client

# Runs whose context stays in memory: about as many as ask models at the same time
MAX_CACHED_RUNS: Final = 64
UNAVAILABLE: Final = "ContextUnavailable"


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
    has_settings: bool = False

    def add_page(self, page: Any) -> None:
        """Add one answer to the query: messages, and with the first one everything else."""
        if "tools" in page:
            for name, item in page["tools"].items():
                tool, _ = read_tool(name, item["schema"], served=item["served"])
                if tool is not None:
                    self.tools[name] = tool
            self.output, self.mode, self.step = page["output"], page["mode"], page["step"]
            self.instances = tuple(page["instances"])
            self.max_ticks = page.get("maxTicks", 0)
            self.has_settings = True
        start = len(self.messages)
        self.messages.extend(parse_message(raw, start + i) for i, raw in enumerate(page["messages"]))
        self.turns.extend(map(Turn.from_json, page.get("turns", ())))


@dataclass(frozen=True, slots=True)
class ContextPart:
    """What of a run's context a model is shown: its first ``messages``, and of an agent its first ``turns``."""

    workflow_id: str
    run_id: str
    messages: int
    turns: int = 0


class ContextReader:
    """Reads contexts, and keeps those of the runs that were read last."""

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[str, str], PromptContext] = OrderedDict()

    async def read(self, client: Client, part: ContextPart) -> PromptContext:
        """A part of a run's context, with its Tools and settings.

        Raises:
            ApplicationError: ``ContextUnavailable``, the run does not answer; retryable.
        """
        key = (part.workflow_id, part.run_id)
        context = self._cache.pop(key, None) or PromptContext()
        handle = client.get_workflow_handle(part.workflow_id, run_id=part.run_id)
        try:
            while not _is_read(context, part):
                have = len(context.messages), len(context.turns)
                query = {"offset": have[0], "upto": part.messages, "turns": [have[1], part.turns]}
                context.add_page(await handle.query(PROMPT_CONTEXT, {**query, "known": context.has_settings}))
                if (len(context.messages), len(context.turns)) != have:
                    continue
                if have[0] < part.messages:
                    text = f"run {part.workflow_id} has no message {have[0]}"
                    raise ApplicationError(text, type=UNAVAILABLE)
                break  # a run of an earlier version has no more turns
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError, RPCError) as error:
            text = f"the context of run {part.workflow_id} cannot be read now: {error}"
            raise ApplicationError(text, type=UNAVAILABLE) from error
        self._cache[key] = context
        while len(self._cache) > MAX_CACHED_RUNS:
            self._cache.popitem(last=False)
        return replace(context, messages=context.messages[: part.messages], turns=context.turns[: part.turns])


def _is_read(context: PromptContext, part: ContextPart) -> bool:
    """True when all of the part is in memory."""
    has_all = len(context.messages) >= part.messages and len(context.turns) >= part.turns
    return has_all and context.has_settings
