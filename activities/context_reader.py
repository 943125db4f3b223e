"""The context a model is shown, read from the run that has it.

A prompt holds all of a run's context, tick after tick. Were it an argument of the model
activity, each request would write it into history again. So the activity is told which
run to ask and how many of its messages count, and asks by query, which leaves no trace
in history. Messages are only ever appended: what was read is kept, and the next tick
reads what is new.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from acts.language.messages import Message, parse_message
from acts.language.tools import Tool, read_tool
from acts.language.values import Json
from acts.language.wire import PROMPT_CONTEXT

if TYPE_CHECKING:
    from temporalio.client import Client

# Runs whose context is kept in memory: as many as may be asking models at about the same time
MAX_KEPT: Final = 64
UNAVAILABLE: Final = "ContextUnavailable"


@dataclass
class PromptContext:
    """What a run has to say to a model."""

    tools: dict[str, Tool] = field(default_factory=dict)
    output: Json = None
    mode: str = "eager"
    step: str = "plan"
    instances: tuple[str, ...] = ()
    messages: list[Message] = field(default_factory=list)
    known: bool = False


class ContextReader:
    """Reads contexts, and keeps those read last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], PromptContext] = OrderedDict()

    async def read(self, client: Client, workflow_id: str, run_id: str, upto: int) -> PromptContext:
        """The first ``upto`` messages of a run's context, and what goes with them.

        Raises:
            ApplicationError: the run does not answer; worth another attempt.
        """
        key = (workflow_id, run_id)
        found = self._kept.pop(key, None) or PromptContext()
        try:
            while len(found.messages) < upto or not found.known:
                asked = {"offset": len(found.messages), "upto": upto, "known": found.known}
                page = await client.get_workflow_handle(workflow_id, run_id=run_id).query(PROMPT_CONTEXT, asked)
                _take(found, page)
                if not page["messages"] and len(found.messages) < upto:
                    raise ApplicationError(f"run {workflow_id} has no message {len(found.messages)}", type=UNAVAILABLE)
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError, RPCError) as error:
            text = f"the context of run {workflow_id} cannot be read now: {error}"
            raise ApplicationError(text, type=UNAVAILABLE) from error
        self._kept[key] = found
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return PromptContext(
            found.tools, found.output, found.mode, found.step, found.instances, found.messages[:upto], known=True
        )


def _take(found: PromptContext, page: Any) -> None:
    if "tools" in page:
        for name, item in page["tools"].items():
            tool, _ = read_tool(name, item["schema"], served=item["served"])
            if tool is not None:
                found.tools[name] = tool
        found.output, found.mode, found.step = page["output"], page["mode"], page["step"]
        found.instances = tuple(page["instances"])
        found.known = True
    at = len(found.messages)
    found.messages.extend(parse_message(raw, at + i) for i, raw in enumerate(page["messages"]))
