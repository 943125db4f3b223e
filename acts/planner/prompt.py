r"""The prompt of one request, in parts: what goes into the provider's system channel, and the turns of a conversation.

* The system channel holds what a run never changes: the engine's rules (``rules.py``), the Tools, and what the
  developer says. The schema of the answer is sent beside it and says which parameters a Tool takes; it is not repeated.
* A latent Call is one user turn: the words, the data that it may see, then the Tool and the Call.
* A planner's turns are the conversation of its run. The messages of a context and the turns of an agent are one story:
  a turn says how many messages there were when it was requested, so the messages from there to the next turn are what
  came of it. The first user turn holds the messages before the first turn; then each answer is an assistant turn, and
  the user turn after it holds the outcomes of its calls with what they wrote, other data that came meanwhile, and the
  problems. Provenance (which Call wrote a message, and when) is not shown; the outcome of the Call says it.

Both lists only grow, and what is shown of a message or a turn depends on nothing after it: each conversation begins
with all of the one before, byte by byte, and a provider's prompt cache hits. The user's words, data and outcomes stand
between tags of their own, and none of them can hold a tag of ours (``notation.py``).

A conversation that outgrows its room is made shorter by rule, without a model, alike on every worker. What goes first:
the answers and outcomes of old ticks, and values that later ones replaced. What stays: everything that the developer
and the user said, the last ticks as they were, the values as they are now (large ones in part), and one line for each
Call that may have had an effect, so that none is repeated. It is cut back to half of the room; so between two cuts a
conversation begins with all of the one before, and what was cut once stays cut.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from acts.language.errors import truncate
from acts.language.messages import GROWING_METHODS, WHOLE, Data, ErrorMessage, Instruction, Message, PlanMessage
from acts.language.references import Path, parse, paths
from acts.language.strict_json import json_size
from acts.language.tools import FAILURES, META, SERVER_TOOL, Tool, without_secrets
from acts.language.values import ABSENT, Json, get
from acts.plan.context_log import START, Log
from acts.planner.answer_schema import author_choices
from acts.planner.notation import (
    LARGE_VALUE_BYTES,
    File,
    data_json,
    describe_type,
    escape_text,
    files_of,
    find_limit,
    in_part,
    shown_bytes,
    with_files,
)
from acts.planner.rules import DEVELOPER_HEAD, LAST_ANSWER, LATENT_CALL, planner_rules
from acts.planner.turns import COMPLETED, FAILED, STARTED
from acts.tree.records import Turn

# Bytes of compact JSON, some 700 tokens: up to this size a planner is shown a value. A larger one is passed on by its
# reference, and what a planner needs of it is the shape, unless its Tool or its Message says ``_show``
SHOWN_VALUE_BYTES: Final = 2048
# Of the room, the part that the present values may take for a latent Call without scopes: it may need any of them
_AMBIENT_SHARE: Final = 0.5
# … and the part that the values may take which the Call names: nine tenths of the model's window, of which the room is
# six tenths. A summary needs all of its document, and a larger prompt would be refused
_NAMED_SHARE: Final = 1.5
_TOOLS_NOTE: Final = "The form of your answer says what they take; here is the rest:"
_SEARCH_NOTE: Final = (
    'There are {:,}, listed below. Before you can call one, ask for its form: answer {{"tools": [names], "calls": [], '
    '"output": null}} with all that you may need. The form of your next answer has them, from then on.'
)
# Bytes of the list that a planner searches (6,000 tokens), and of one description in it; a shorter one says nothing
TOOL_LIST_BYTES: Final = 16_000
_MAX_ABOUT: Final = 100
_LEAST_ABOUT: Final = 12
_GROUP: Final = re.compile(r"[._/-]")
_SENTENCE: Final = re.compile(r"(?<=\.)\s|\n")
_FIXED: Final = {
    "_outputPath": "stored at {}", "_outputMethod": "by {}", "_errorPath": "a failure at {}", "_scopes": "sees {}",
    "_when": "made when {}", "_each": "made for each of {}",
}  # fmt: skip
# Data of instances that is shown, in bytes of JSON (about 10,000 tokens). One plan serves all of them, so their data is
# an example; what is beyond is counted
MAX_INSTANCE_DATA_BYTES: Final = 32 * 1024
# How a value was added, in the past tense
_VERBS: Final = {"set": "wrote", "merge": "merged", "assign": "assigned", "push": "pushed", "concat": "concatenated"}
KEPT_TURNS: Final = 2  # the last ticks stay as they were, whatever their size
# Parts of the room after a cut: for the last ticks, for the current values, and for the lines of Calls
_TAIL_SHARE: Final = 0.25
_DATA_SHARE: Final = 0.25
_EFFECTS_SHARE: Final = 0.125
# A value that would take more than this part of the room is large, however small the model's window
_VALUE_SHARE: Final = 0.125
_MAX_CALL_BYTES: Final = 400  # bytes of a Call in a line: its parameters say which effect it had


class PromptPart(NamedTuple):
    """A piece of a prompt. ``kind`` says what it is, for estimates: rules, tools, text, data, outcomes …

    ``files`` are those that its text shows.
    """

    kind: str
    text: str
    files: tuple[File, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptTurn:
    """One turn of a conversation. ``role`` is ``user`` or ``assistant``."""

    role: str
    parts: tuple[PromptPart, ...]

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.parts)

    @property
    def bytes(self) -> int:
        return len(self.text.encode()) + sum(file.text_bytes for part in self.parts for file in part.files)


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
    known: Mapping[str, Tool] | None = None,
) -> Prompt:
    """The prompt of the tick after these turns. ``is_last``: no further answer will be requested.

    ``known`` are the Tools whose schemas are shown, None: all. ``room`` is how many bytes the turns may take before old
    ones are left out; None: without a limit.
    """
    has_instances = any(isinstance(m, Data) and m.instance is not None for m in messages)
    offered = {key for tool in tools.values() for key in author_choices(tool, mode)}
    rules = planner_rules(mode, step, offered, has_instances=has_instances)
    about_tools = _describe_tools(tools, tools if known is None else known, mode)
    shown_whole = {name for name, tool in tools.items() if tool.consts.get("_show") == WHOLE}
    conversation = build_conversation(messages, turns, room, shown_whole)
    if is_last:
        *before, last = conversation
        conversation = (*before, replace(last, parts=(*last.parts, PromptPart("rules", LAST_ANSWER))))
    system = (PromptPart("rules", rules), PromptPart("tools", about_tools), *_developer_parts(messages))
    return Prompt(system, conversation)


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
    stable = [part for m in messages if isinstance(m, Instruction) for part in _text_parts(m)]
    if scoped is None:
        data = [m for m in messages if isinstance(m, Data)]
        stable += _current_values(data, room * _AMBIENT_SHARE, call.get("_instance"))
    parameters = {k: with_files(v, None) for k, v in call.items() if k not in META and k != "_id"}
    named = [
        (str(m.get("kind", m["type"])), with_files(m.get(str(m["type"])), None))
        for m in scoped or ()
        if isinstance(m, dict)
    ]
    everything = [*parameters.values(), *(value for _, value in named)]
    # Of files, the size is no more than a guess: half of the room is for the rest
    left = max(room * _NAMED_SHARE - sum(file.text_bytes for file in files_of(everything)), room * _NAMED_SHARE / 2)
    limit = find_limit(map(json_size, everything), left, whole=True)
    own = [_data_part(f"path={data_json(str(Path(kind)))}", in_part(value, None, limit)) for kind, value in named]
    values = {name: in_part(value, None, limit) for name, value in parameters.items()}
    lines = [_describe_tool(tool), f"<call>\n{data_json({'_tool': tool.name, **values})}\n</call>"]
    if isinstance(call.get("_reasoningForCall"), str):
        lines.append(f"Why it is made: {data_json(call['_reasoningForCall'])}")
    if len(paths) > 1:
        lines.append(f"The result goes to one of these places; choose by what it means: {', '.join(paths)}")
    turn = PromptTurn("user", (*stable, *own, PromptPart("call", "\n".join(lines), tuple(files_of(values)))))
    system = (PromptPart("rules", LATENT_CALL), *_developer_parts(messages))
    return Prompt(system, (turn,), stable_parts=len(stable))


def render_repair_turn(defects: Iterable[str]) -> str:
    lines = "\n".join(f"- {d}" for d in defects)
    return f"That answer cannot be used:\n{lines}\nAnswer again, with the whole JSON and nothing else."


def _developer_parts(messages: Iterable[Message]) -> list[PromptPart]:
    texts = [m.text for m in messages if isinstance(m, Instruction) and m.type == "system"]
    return [PromptPart("developer", DEVELOPER_HEAD + "\n\n".join(texts))] if texts else []


def _describe_tools(tools: Mapping[str, Tool], described: Mapping[str, Tool], mode: str) -> str:
    """What the schema of the answer does not say about Tools; those that are not ``known`` are listed with all others,
    in groups: by server, or by the beginning of the name.
    """
    if not tools:
        return "# Tools\nThere are none."
    lines = [line for name in sorted(described) if (line := _tool_line(tools[name], mode)) != f"- {name}"]
    if len(described) == len(tools):
        return "\n".join(["# Tools", _TOOLS_NOTE, *lines])
    groups: dict[str, list[str]] = {}
    for name in sorted(tools):
        source, about = tools[name].schema.get(SERVER_TOOL), tools[name].schema.get("description")
        group = str(source.get("server")) if isinstance(source, dict) else _GROUP.split(name, maxsplit=1)[0]
        room = min(_MAX_ABOUT, TOOL_LIST_BYTES // len(tools) - len(name))
        about = _SENTENCE.split(about.strip(), maxsplit=1)[0] if isinstance(about, str) else ""
        groups.setdefault(group, []).append(
            f"{name}: {truncate(about, room)}" if about and room > _LEAST_ABOUT else name
        )
    single = [names.pop() for names in groups.values() if len(names) == 1]
    parts = [f"{group}:\n" + "\n".join(names) for group, names in groups.items() if names]
    parts += ["others:\n" + "\n".join(single)] if single else []
    head = _SEARCH_NOTE.format(len(tools))
    return "\n".join(
        ["# Tools", head, escape_text("\n\n".join(parts)), *(["", _TOOLS_NOTE, *lines] if described else [])]
    )


def _tool_line(tool: Tool, mode: str) -> str:
    """What the schema of the answer does not say about a Tool: its result, and what is fixed."""
    marks = []
    if tool.call_kind(tool.consts.get("_delegate")) == "latent":
        marks.append("latent" if mode == "lazy" or "_output" in tool.meta else "answered when it runs")
    if tool.person is not None:
        marks.append("a person answers; it may take days")
    if tool.approval:
        marks.append("a person confirms each call")
    text = f"- {tool.name} ({', '.join(marks)})" if marks else f"- {tool.name}"
    if tool.output is not None:
        result = describe_type(tool.output, _definitions(tool))
        text += "" if result in ("any", "object", "{…}") else f" gives {result}"
    if isinstance(codes := tool.schema.get(FAILURES), dict) and codes:
        text += f"; may fail with {', '.join(data_json(code) for code in codes)}"
    fixed = [(words, tool.consts[key]) for key, words in _FIXED.items() if key in tool.consts]
    facts = [words.format(value if isinstance(value, str) else data_json(value)) for words, value in fixed]
    return f"{text}; {', '.join(facts)}" if facts else text


def _definitions(tool: Tool) -> dict[str, Json]:
    own, inner = tool.schema.get("$defs"), tool.output.get("$defs") if isinstance(tool.output, dict) else None
    return {**(own if isinstance(own, dict) else {}), **(inner if isinstance(inner, dict) else {})}


def _describe_tool(tool: Tool) -> str:
    """The Tool that a latent Call is of: its purpose, and what its parameters mean."""
    description = tool.schema.get("description")
    head = f'The tool "{tool.name}": {description}' if isinstance(description, str) else f'The tool "{tool.name}"'
    parameters = {k: v for k, v in without_secrets(tool.schema)["properties"].items() if k not in META}
    if not any(isinstance(v, dict) and "description" in v for v in parameters.values()):
        return head
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    types = describe_type(schema, _definitions(tool))
    return f"{head}\nIts parameters: {types}"


# -- a planner's turns -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Exchange:
    """An answer and what came of it. ``end`` is the number of messages when the next answer was requested."""

    turn: Turn
    answer: PromptTurn
    outcome: PromptTurn
    end: int


@dataclass(slots=True)
class _DisplayRoom:
    """How much of the data is shown: of a value up to ``value_bytes``, or ``whole_bytes`` where its Message or one of
    these Tools says so; of instances what is left of a sum.
    """

    whole_bytes: int
    whole_tools: Container[str]
    instance_bytes: float = MAX_INSTANCE_DATA_BYTES

    @property
    def value_bytes(self) -> int:
        return min(SHOWN_VALUE_BYTES, self.whole_bytes)

    def bytes_of(self, message: Data) -> int:
        return self.whole_bytes if self.shows_whole(message) else self.value_bytes

    def shows_whole(self, message: Data) -> bool:
        call = message.raw.get("_call")
        tool = call.get("_tool") if isinstance(call, dict) else None
        return message.raw.get("_show") == WHOLE or (isinstance(tool, str) and tool in self.whole_tools)


def build_conversation(
    messages: Sequence[Message], turns: Sequence[Turn], room: float | None = None, whole_tools: Container[str] = ()
) -> tuple[PromptTurn, ...]:
    """The turns that a planner is shown, the user's first and last; ``room`` is in bytes, None: without a limit.

    Results of ``whole_tools`` are shown whole.
    """
    limit = LARGE_VALUE_BYTES if room is None else min(LARGE_VALUE_BYTES, int(room * _VALUE_SHARE))
    display = _DisplayRoom(limit, whole_tools)
    begin = messages[: turns[0].at] if turns else messages
    first = PromptTurn("user", tuple(_message_parts(begin, display)))
    exchanges: list[_Exchange] = []
    for index, turn in enumerate(turns):
        end = turns[index + 1].at if index + 1 < len(turns) else len(messages)
        after = messages[turn.at : end]
        answer = PromptTurn("assistant", (PromptPart("answers", _answer_text(turn, after)),))
        outcome = PromptTurn("user", tuple(_outcome_parts(turn, after, display)))
        exchanges.append(_Exchange(turn, answer, outcome, end))
    start = 0
    if room is not None:
        start, is_short = _find_cut(first.bytes, exchanges, room, messages, begin, display)
        first = _short_turn(messages, begin, exchanges[:start], room, display) if is_short else first
    return (first, *(turn for e in exchanges[start:] for turn in (e.answer, e.outcome)))


def _answered_calls(turn: Turn, after: Iterable[Message]) -> list[Json]:
    """The Calls that outcomes of a turn are about: as answered, or as a person changed them."""
    if turn.hasPlan:
        plan = next((m for m in after if isinstance(m, PlanMessage)), None)
        return list(plan.calls) if plan is not None else []
    calls = turn.changed or (turn.answer.get("calls") if isinstance(turn.answer, dict) else None)
    return list(calls) if isinstance(calls, (list, tuple)) else []


def _answer_text(turn: Turn, after: Iterable[Message]) -> str:
    if turn.text is not None:
        return turn.text or "(nothing)"
    return data_json({"calls": _answered_calls(turn, after), **turn.answer} if turn.hasPlan else turn.answer)


# -- messages ------------------------------------------------------------------


def _message_parts(messages: Iterable[Message], room: _DisplayRoom) -> Iterator[PromptPart]:
    """Messages that no outcome is about, in their order."""
    left_out: dict[str, None] = {}
    for message in messages:
        if isinstance(message, Instruction):
            yield from _text_parts(message)
        elif isinstance(message, Data):
            if message.instance is not None:
                room.instance_bytes -= shown_bytes(message.payload)
                if room.instance_bytes < 0:
                    left_out[message.instance] = None
                    continue
            yield _render_data(message, room.bytes_of(message))
        elif isinstance(message, PlanMessage) and message.calls:
            yield _proposed_plan(message)
        elif isinstance(message, ErrorMessage):
            yield PromptPart("data", f"<error>\n{data_json(in_part(message.data, None, room.value_bytes))}\n</error>")
    if left_out:
        some = ", ".join([*left_out][:3])
        yield PromptPart("data", f"(data of {len(left_out):,} more instances is not shown: {some} …)")


def _proposed_plan(message: PlanMessage) -> PromptPart:
    head = "A plan that the request proposes; nothing of it has run:"
    calls = with_files(list(message.calls), None)
    return PromptPart("data", f"<plan>\n{head}\n{data_json(calls)}\n</plan>", tuple(files_of(calls)))


def _text_parts(message: Instruction) -> Iterator[PromptPart]:
    """The words of a user, or of someone else in the user's conversation; not those of the developer."""
    if message.type == "system":
        return
    role = message.raw.get("role")
    name = f" from={data_json(role)}" if isinstance(role, str) and role != "user" else ""
    yield PromptPart("text", f"<text{name}>\n{escape_text(message.text)}\n</text>")


def _render_data(message: Data, limit: int) -> PromptPart:
    """A data-like message: the value it adds, and how it is added."""
    at = Path(message.kind) if message.path is None else message.path
    value = message.payload if message.path is None or message.payload is ABSENT else get(message.payload, at.names)
    name = "path" if message.path is None or message.method == "set" else message.method
    of = "" if message.instance is None else f" instance={data_json(message.instance)}"
    whole = None if message.method in GROWING_METHODS else at  # what is added has no reference of its own
    part = value if value is ABSENT else in_part(value, whole, limit)
    about = message.raw.get("description")
    notes = [f"description: {data_json(in_part(about, None, limit))}"] if isinstance(about, str) else []
    return _data_part(f"{name}={data_json(str(at))}{of}", part, message.schema, notes)


def _data_part(place: str, value: Json, schema: Json = None, notes: Sequence[str] = ()) -> PromptPart:
    """A value at its place, and the schema that it is kept to."""
    fit = [] if schema is None else [f"what is written here must fit: {data_json(in_part(schema, None))}"]
    values = [] if value is ABSENT else [data_json(value)]
    text = "\n".join([f"<data {place}>", *notes, *fit, *values, "</data>"])
    return PromptPart("data", text, tuple(files_of(value)))


def _current_values(
    data: Sequence[Data], room: float, instance: str | None = None, display: _DisplayRoom | None = None
) -> list[PromptPart]:
    """The present value of each kind of data, global or of an instance; large ones in part, so that all fit the room.

    With a ``display``, for a planner: with the references by which a Call gets what is shown in part, and the schemas
    of what is written.
    """
    log = Log(data)
    view = log.view_of(instance if instance in log.own else None)
    read = {path: view.read(path, START) for path in map(Path, view.kinds())}
    values = {path: with_files(value, path if display else None) for path, value in read.items() if value is not ABSENT}
    schemas = {m.kind: m.schema for m in data if m.schema is not None} if display else {}
    whole = {m.kind for m in data if display is None or display.shows_whole(m)}
    for path, value in [*values.items()]:
        # Each of its values, as when it was written
        if isinstance(value, dict) and not isinstance(value, File) and path.kind not in whole:
            values[path] = {k: in_part(v, Path(path.kind, (k,)), SHOWN_VALUE_BYTES) for k, v in value.items()}
    limit = find_limit(map(json_size, values.values()), room)
    return [
        _data_part(
            f"path={data_json(str(path))}", in_part(value, path if display else None, limit), schemas.get(path.kind)
        )
        for path, value in values.items()
    ]


def _outcome_parts(turn: Turn, after: Sequence[Message], room: _DisplayRoom) -> Iterator[PromptPart]:
    """What came of an answer: changes by a person, outcomes, other data, problems."""
    written = _WrittenValues(after, room)
    calls = _answered_calls(turn, after)
    lines = [f"A person changed the plan; these calls took its place: {data_json(calls)}"] if turn.changed else []
    outcomes = [written.add_to(outcome, calls) for outcome in turn.outcomes]
    lines += map(data_json, outcomes)
    if lines:
        yield PromptPart("outcomes", "\n".join(["<outcomes>", *lines, "</outcomes>"]), tuple(files_of(outcomes)))
    yield from _message_parts((m for m in after if written.is_beside(m)), room)
    if turn.problems:
        listed = "\n".join(data_json(problem) for problem in turn.problems)
        yield PromptPart("outcomes", f"<problems>\n{listed}\n</problems>")


class _WrittenValues:
    """The messages after an answer; those that its Calls wrote are found by instance, path and Call."""

    def __init__(self, messages: Sequence[Message], room: _DisplayRoom) -> None:
        self._room = room
        self._by_place: dict[tuple[str | None, str], deque[Data]] = {}
        self._consumed: set[int] = set()
        for message in messages:
            if isinstance(message, Data) and isinstance(message.raw.get("_call"), dict) and message.path is not None:
                self._by_place.setdefault((message.instance, str(message.path)), deque()).append(message)

    def is_beside(self, message: Message) -> bool:
        """True for a message that no outcome shows. What an instance wrote beyond the examples is left out."""
        is_counted = isinstance(message, Data) and message.instance is not None and "_call" in message.raw
        is_hidden = is_counted or isinstance(message, (PlanMessage, ErrorMessage))
        return message.index not in self._consumed and not is_hidden

    def add_to(self, outcome: Mapping[str, Any], calls: Sequence[Json]) -> dict[str, Any]:
        """The outcome with the values that its Call wrote in place of the path."""
        out = {k: v for k, v in outcome.items() if k != "path"}
        text = outcome.get("path")
        if text is None:
            return out
        if "instances" in outcome:
            values = {id_: self._take(text, id_, None) for id_ in outcome.get("examples", ())}
            return {**out, "examples": {id_: self._values(values_of) for id_, values_of in values.items() if values_of}}
        messages = self._take(text, outcome.get("_instance"), _call_of_outcome(outcome.get("call"), calls))
        if outcome["outcome"] == FAILED:
            return {**out, "errorPath": text}
        return {**out, **self._values(messages)} if messages else {**out, "wrote": text}

    def _take(self, text: str, instance: str | None, call: Json) -> list[Data]:
        out = []
        for path in paths(parse(text)):
            waiting = self._by_place.get((instance, str(path)))
            if not waiting:
                continue
            own = next((m for m in waiting if m.raw["_call"] == call), waiting[0])
            waiting.remove(own)
            self._consumed.add(own.index)
            out.append(own)
        return out

    def _values(self, messages: Iterable[Data]) -> dict[str, dict[str, Json]]:
        """``{"wrote": {path: value}}`` of what one Call wrote, or with the verb of its method."""
        out: dict[str, dict[str, Json]] = {}
        for message in messages:
            at = Path(message.kind) if message.path is None else message.path
            whole = None if message.method in GROWING_METHODS else at
            value = in_part(get(message.payload, at.names), whole, self._room.bytes_of(message))
            out.setdefault(_VERBS[message.method], {})[str(at)] = value
        return out


def _call_of_outcome(id_: Any, calls: Sequence[Json]) -> Json:
    """The Call of an answer that an outcome is about, by its id; None if it is about no Call."""
    number = str(id_).partition(":")[0]
    index = int(number) - 1 if number.isdecimal() else -1
    return calls[index] if 0 <= index < len(calls) else None


# -- a conversation that outgrows its room -------------------------------------------


def _find_cut(
    first_bytes: int, exchanges: Sequence[_Exchange], room: float, messages: Sequence[Message],
    begin: Sequence[Message], display: _DisplayRoom,
) -> tuple[int, bool]:  # fmt: skip
    """The index of the first exchange that is shown, and whether the turn before it is in short."""
    start, is_short = 0, first_bytes > room
    total = _short_turn(messages, begin, [], room, display).bytes if is_short else first_bytes
    sizes = [e.answer.bytes + e.outcome.bytes for e in exchanges]
    for index, size in enumerate(sizes):
        total += size
        last_start = index + 1 - KEPT_TURNS
        if total <= room or last_start <= start:
            continue
        tail_bytes = sum(sizes[start : index + 1])
        while start < last_start and tail_bytes > room * _TAIL_SHARE:
            tail_bytes -= sizes[start]
            start += 1
        total, is_short = _short_turn(messages, begin, exchanges[:start], room, display).bytes + tail_bytes, True
    return start, is_short


def _short_turn(
    messages: Sequence[Message], begin: Sequence[Message], left_out: Sequence[_Exchange], room: float,
    display: _DisplayRoom,
) -> PromptTurn:  # fmt: skip
    """The first turn in short: all words, the current values, and what the calls of the answers left out did."""
    until = messages[: left_out[-1].end] if left_out else begin
    words = [part for m in until if isinstance(m, Instruction) for part in _text_parts(m)]
    plans = [_proposed_plan(m) for m in begin if isinstance(m, PlanMessage) and m.calls][:1]
    data = [m for m in until if isinstance(m, Data)]
    values = _current_values([m for m in data if m.instance is None], room * _DATA_SHARE, display=display)
    names = list(dict.fromkeys(m.instance for m in data if m.instance is not None))
    if names:
        text = f"(there are {len(names):,} instances: {', '.join(names[:3])} …; their data is not shown)"
        values.append(PromptPart("data", text))
    effects = [_effects_part(messages, left_out, room * _EFFECTS_SHARE)] if left_out else []
    return PromptTurn("user", (*words, *plans, *values, *effects))


def _effects_part(messages: Sequence[Message], left_out: Sequence[_Exchange], room: float) -> PromptPart:
    """What the calls of these answers did, without what they wrote."""
    effects = [e for number, own in enumerate(left_out, 1) for e in _read_effects(messages, number, own)]
    lines = [data_json(effect) for effect in effects]
    counted, size = 0, sum(len(line.encode()) + 1 for line in lines)
    while size > room and counted < len(lines):
        size -= len(lines[counted].encode()) + 1
        counted += 1
    counts = Counter(
        f"{did.get('_tool') if isinstance(did := effect['did'], dict) else str(did).rpartition(':')[2]} "
        f"{effect['outcome']}"
        for effect in effects[:counted]
    )
    listed = ", ".join(f"{text} {count:,} times" for text, count in counts.items())
    notes = [f"(the first {counted:,} of them in short: {listed})"] if counted else []
    head = (
        f"Your answers 1 to {len(left_out)} are left out here, to save room; the data above is what they came to. "
        "Of their calls these ran:"
    )
    return PromptPart("outcomes", "\n".join(["<earlier>", head, *notes, *lines[counted:], "</earlier>"]))


def _read_effects(messages: Sequence[Message], number: int, exchange: _Exchange) -> Iterator[dict[str, Json]]:
    """``{answer, did: Call, outcome, …}`` for each Call of an answer that may have had an effect."""
    calls = _answered_calls(exchange.turn, messages[exchange.turn.at : exchange.end])
    for outcome in exchange.turn.outcomes:
        if outcome.get("outcome") not in (COMPLETED, FAILED, STARTED):
            continue
        for id_ in outcome.get("calls") or [outcome.get("call")]:
            fields = {k: v for k, v in outcome.items() if k in ("outcome", "_instance", "instances")}
            code = {"code": outcome["error"]["code"]} if "error" in outcome else {}
            did = in_part(_call_of_outcome(id_, calls) or id_, None, _MAX_CALL_BYTES)
            yield {"answer": number, "did": did, **fields, **code}
