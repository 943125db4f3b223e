r"""The prompt of one request, in parts: what goes into the provider's system channel, and the turns of a conversation.

* The system channel holds what a run never changes: the engine's rules (``rules.py``), the Tools, and what the
  developer says. The schema of the answer is sent beside it and says which parameters a Tool takes; it is not repeated.
* A planner's turns are the conversation of its run (``conversation.py``), which only grows.
* A latent Call is one user turn: the words, the data that it may see, then the Tool and the Call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from acts.language.messages import Data, Instruction
from acts.language.references import Path
from acts.language.secrets import without_secrets
from acts.language.strict_json import json_size
from acts.language.tools import META
from acts.language.values import Json
from acts.planner.answer_schema import author_choices, is_author_choice, properties_of
from acts.planner.conversation import PromptPart, PromptTurn, build_conversation, current_values, text_parts, value_part
from acts.planner.notation import data_json, describe_type, find_limit, in_part
from acts.planner.rules import DEVELOPER_HEAD, LAST_ANSWER, LATENT_CALL, planner_rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.language.messages import Message
    from acts.language.tools import Tool
    from acts.tree.records import Turn

# Of the room, the part that the present values may take for a latent Call without scopes: it may need any of them
_AMBIENT_SHARE: Final = 0.5
# … and the part that the values may take which the Call names: nine tenths of the model's window, of which the room is
# six tenths. A summary needs all of its document, and a larger prompt would be refused
_NAMED_SHARE: Final = 1.5
_TOOLS_NOTE: Final = (
    "The schema of your answer says which properties each of them takes. Here is what they give back and what is fixed:"
)
_FIXED: Final = {
    "_outputPath": "stored at {}", "_outputMethod": "by {}", "_errorPath": "a failure at {}", "_scopes": "sees {}",
    "_when": "made when {}", "_each": "made for each of {}",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Prompt:
    """``system`` goes into the system channel; ``turns`` alternate, the user's first and last.

    ``stable_parts`` is how many parts of a latent Call's one turn other Calls of the plan have too.
    """

    system: tuple[PromptPart, ...]
    turns: tuple[PromptTurn, ...]
    stable_parts: int | None = None

    @property
    def text(self) -> str:
        """All of it, for searches and sizes."""
        return "\n".join([*(part.text for part in self.system), *(turn.text for turn in self.turns)])


def render_planner_prompt(
    messages: Sequence[Message],
    turns: Sequence[Turn],
    tools: Mapping[str, Tool],
    *,
    mode: str = "eager",
    step: str = "plan",
    is_last: bool = False,
    room: float | None = None,
) -> Prompt:
    """The prompt of the tick after these turns. ``is_last``: no further answer will be requested.

    ``room`` is how many bytes the turns may take before old ones are left out; None: without a limit.
    """
    has_instances = any(isinstance(m, Data) and m.instance is not None for m in messages)
    offered = {key for tool in tools.values() for key in author_choices(tool, mode)}
    rules = planner_rules(mode, step, offered, has_instances=has_instances)
    listed = [_tool_line(tools[name], mode) for name in sorted(tools)]
    about_tools = "\n".join(["# Tools", _TOOLS_NOTE, *listed]) if listed else "# Tools\nThere are none."
    shown = build_conversation(messages, turns, room)
    if is_last:
        shown = (*shown[:-1], replace(shown[-1], parts=(*shown[-1].parts, PromptPart("rules", LAST_ANSWER))))
    system = (PromptPart("rules", rules), PromptPart("tools", about_tools), *_developer_parts(messages))
    return Prompt(system, shown)


def render_latent_prompt(
    messages: Sequence[Message],
    tool: Tool,
    call: Mapping[str, Json],
    paths: Sequence[str],
    scoped: Iterable[Json] | None,
    *,
    room: float | None = None,
) -> Prompt:
    """The prompt of one latent Call: words, data, the Tool and the Call with its parameters resolved.

    ``paths`` are the outcomes the model may choose. ``scoped`` are the messages its scopes select; None: the Call has
    no scopes and sees all data that is global or of its instance. What its scopes and parameters name is shown whole
    where it fits the window of the model, else in part; other data has a part of ``room`` bytes (None: no limit).
    """
    room = math.inf if room is None else room
    stable = [part for m in messages if isinstance(m, Instruction) for part in text_parts(m)]
    if scoped is None:
        data = [m for m in messages if isinstance(m, Data)]
        stable += current_values(data, room * _AMBIENT_SHARE, call.get("_instance"))
    parameters = {k: v for k, v in call.items() if k not in META and k != "_id"}
    named = [(str(m.get("kind", m["type"])), m.get(str(m["type"]))) for m in scoped or () if isinstance(m, dict)]
    sizes = map(json_size, [*parameters.values(), *(value for _, value in named)])
    limit = find_limit(sizes, room * _NAMED_SHARE, whole=True)
    own = [value_part(Path(kind), in_part(value, None, limit)) for kind, value in named]
    shown = {name: in_part(value, None, limit) for name, value in parameters.items()}
    lines = [_describe_tool(tool), f"<call>\n{data_json({'_tool': tool.name, **shown})}\n</call>"]
    if isinstance(call.get("_reasoningForCall"), str):
        lines.append(f"Why it is made: {data_json(call['_reasoningForCall'])}")
    if len(paths) > 1:
        lines.append(f"The result goes to one of these places; choose by what it means: {', '.join(paths)}")
    turn = PromptTurn("user", (*stable, *own, PromptPart("call", "\n".join(lines))))
    system = (PromptPart("rules", LATENT_CALL), *_developer_parts(messages))
    return Prompt(system, (turn,), stable_parts=len(stable))


def render_repair_turn(defects: Iterable[str]) -> str:
    """The reply to an answer that could not be used."""
    lines = "\n".join(f"- {d}" for d in defects)
    return f"That answer cannot be used:\n{lines}\nAnswer again, with the whole JSON and nothing else."


# -- parts ---------------------------------------------------------------------


def _developer_parts(messages: Iterable[Message]) -> list[PromptPart]:
    texts = [m.text for m in messages if isinstance(m, Instruction) and m.type == "system"]
    return [PromptPart("developer", DEVELOPER_HEAD + "\n\n".join(texts))] if texts else []


def _tool_line(tool: Tool, mode: str) -> str:
    """What the schema of the answer does not say about a Tool: its result, and what is fixed."""
    marks = []
    if tool.call_kind(tool.consts.get("_delegate")) == "latent":
        marks.append("latent" if mode == "lazy" or "_output" in tool.meta else "answered when it runs")
    if tool.approval:
        marks.append("a person confirms each call")
    text = f"- {tool.name} ({', '.join(marks)})" if marks else f"- {tool.name}"
    if tool.output is not None and not is_author_choice(tool, "_output", mode):
        text += f" gives {describe_type(tool.output, _definitions(tool))}"
    fixed = [(words, tool.consts[key]) for key, words in _FIXED.items() if key in tool.consts]
    facts = [words.format(value if isinstance(value, str) else data_json(value)) for words, value in fixed]
    return f"{text}; {', '.join(facts)}" if facts else text


def _definitions(tool: Tool) -> dict[str, Json]:
    """The definitions that the schema of a Tool's result may refer to."""
    own, inner = tool.schema.get("$defs"), tool.output.get("$defs") if isinstance(tool.output, dict) else None
    return {**(own if isinstance(own, dict) else {}), **(inner if isinstance(inner, dict) else {})}


def _describe_tool(tool: Tool) -> str:
    """The Tool that a latent Call is of: its purpose, and what its parameters mean."""
    description = tool.schema.get("description")
    head = f'The tool "{tool.name}": {description}' if isinstance(description, str) else f'The tool "{tool.name}"'
    parameters = {k: v for k, v in properties_of(without_secrets(tool.schema)).items() if k not in META}
    if not any(isinstance(v, dict) and "description" in v for v in parameters.values()):
        return head
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    types = describe_type(schema, _definitions(tool))
    return f"{head}\nIts parameters: {types}"
