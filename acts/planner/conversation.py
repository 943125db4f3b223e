"""The conversation with a planner: what the user said, the data, each answer, and after it what came of its calls.

Theory of operation. The messages of a context and the turns of an agent are one story: a turn says how many messages
there were when it was requested, so the messages from there to the next turn are what came of it. The first user turn
holds the messages before the first turn; then each answer is an assistant turn, and the user turn after it holds the
outcomes of its calls with what they wrote, other data that came meanwhile, and the problems.

Laws of this file:
- both lists only grow, and what is shown of a message or a turn depends on nothing after it: each conversation begins
  with all of the one before, byte by byte, and a provider's prompt cache hits;
- the user's words, data and outcomes stand between tags of their own, and none of them can hold a tag of ours
  (``notation.py``);
- provenance (which Call wrote a message, and when) is not shown; the outcome of the Call says it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from acts.language.messages import Data, ErrorMessage, Instruction, PlanMessage
from acts.language.references import Path, parse, paths
from acts.language.strict_json import json_size
from acts.language.values import ABSENT, Json, get
from acts.plan.context_log import START, Log
from acts.planner.notation import LARGE_VALUE_BYTES, data_json, escape_text, find_limit, in_part
from acts.planner.turns import FAILED
from acts.tree.records import Turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from acts.language.messages import Message

# Data of instances that is shown, in bytes of JSON (about 10,000 tokens). One plan serves all of them, so their data is
# an example; what is beyond is counted
MAX_INSTANCE_DATA_BYTES: Final = 32 * 1024
# How a value was added, in the past tense
_VERBS: Final = {"set": "wrote", "merge": "merged", "assign": "assigned", "push": "pushed", "concat": "concatenated"}
# These add to a list or a text: what they wrote has no reference of its own
_GROWING: Final = ("push", "concat")


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A piece of a prompt. ``kind`` says what it is, for estimates: rules, tools, text, data, outcomes …"""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class PromptTurn:
    """One turn of a conversation. ``role`` is ``user`` or ``assistant``."""

    role: str
    parts: tuple[PromptPart, ...]

    @property
    def text(self) -> str:
        """The turn as text."""
        return "\n".join(part.text for part in self.parts)


@dataclass(frozen=True, slots=True)
class Exchange:
    """An answer and what came of it. ``end`` is the number of messages when the next answer was requested."""

    turn: Turn
    answer: PromptTurn
    outcome: PromptTurn
    end: int


@dataclass(slots=True)
class DisplayRoom:
    """How much of the data is shown: of a value up to ``value_bytes``, of instances what is left of a sum.

    ``left_out`` are the instances without room in the present turn.
    """

    value_bytes: int = LARGE_VALUE_BYTES
    bytes_left: int = MAX_INSTANCE_DATA_BYTES
    left_out: dict[str, None] = field(default_factory=dict)

    def takes(self, message: Data) -> bool:
        """True for a message that is to be shown."""
        if message.instance is None:
            return True
        self.bytes_left -= json_size(message.payload)
        if self.bytes_left < 0:
            self.left_out[message.instance] = None
        return self.bytes_left >= 0

    def note(self) -> str:
        """What was left out since the last note; empty: nothing."""
        names, self.left_out = list(self.left_out), {}
        some = ", ".join(names[:3])
        return f"(data of {len(names):,} more instances is not shown: {some} …)" if names else ""


def first_turn(messages: Sequence[Message], room: DisplayRoom) -> PromptTurn:
    """The user turn before the first answer: everything that the Request says."""
    return PromptTurn("user", tuple(_message_parts(messages, room)))


def read_exchanges(messages: Sequence[Message], turns: Sequence[Turn], room: DisplayRoom) -> Iterator[Exchange]:
    """Each answer with what came of it; ``room`` is that of the first turn."""
    for index, turn in enumerate(turns):
        end = turns[index + 1].at if index + 1 < len(turns) else len(messages)
        after = messages[turn.at : end]
        answer = PromptTurn("assistant", (PromptPart("answers", answer_text(turn, after)),))
        outcome = PromptTurn("user", tuple(_outcome_parts(turn, after, room)))
        yield Exchange(turn, answer, outcome, end)


def answered_calls(turn: Turn, after: Iterable[Message]) -> list[Json]:
    """The Calls that outcomes of a turn are about: as answered, or as a person changed them."""
    if turn.hasPlan:
        plan = next((m for m in after if isinstance(m, PlanMessage)), None)
        return list(plan.calls) if plan is not None else []
    calls = turn.changed or (turn.answer.get("calls") if isinstance(turn.answer, dict) else None)
    return list(calls) if isinstance(calls, (list, tuple)) else []


def answer_text(turn: Turn, after: Iterable[Message]) -> str:
    """An answer as the planner wrote it."""
    if turn.text is not None:
        return turn.text or "(nothing)"
    answer = {"calls": answered_calls(turn, after), **turn.answer} if turn.hasPlan else turn.answer
    return data_json(answer)


# -- messages ------------------------------------------------------------------


def _message_parts(messages: Iterable[Message], room: DisplayRoom) -> Iterator[PromptPart]:
    """Messages that no outcome is about, in their order."""
    for message in messages:
        if isinstance(message, Instruction):
            yield from text_parts(message)
        elif isinstance(message, Data):
            if room.takes(message):
                yield PromptPart("data", render_data(message, room.value_bytes))
        elif isinstance(message, PlanMessage) and message.calls:
            yield proposed_plan(message)
        elif isinstance(message, ErrorMessage):
            yield PromptPart("data", f"<error>\n{data_json(in_part(message.data, None, room.value_bytes))}\n</error>")
    if note := room.note():
        yield PromptPart("data", note)


def proposed_plan(message: PlanMessage) -> PromptPart:
    """A plan that the Request proposes to its planner."""
    head = "A plan that the request proposes; nothing of it has run:"
    return PromptPart("data", f"<plan>\n{head}\n{data_json(list(message.calls))}\n</plan>")


def text_parts(message: Instruction) -> Iterator[PromptPart]:
    """The words of a user, or of someone else in the user's conversation; not those of the developer."""
    if message.type == "system":
        return
    role = message.raw.get("role")
    name = f" from={data_json(role)}" if isinstance(role, str) and role != "user" else ""
    yield PromptPart("text", f"<text{name}>\n{escape_text(message.text)}\n</text>")


def developer_texts(messages: Iterable[Message]) -> list[str]:
    """What the developer says, in order: it goes into the provider's system channel."""
    return [m.text for m in messages if isinstance(m, Instruction) and m.type == "system"]


def render_data(message: Data, limit: int) -> str:
    """A data-like message: the value it adds, and how it is added."""
    at = Path(message.kind) if message.path is None else message.path
    value = message.payload if message.path is None or message.payload is ABSENT else get(message.payload, at.names)
    verb = "" if message.path is None or message.method == "set" else f" {message.method}={data_json(str(at))}"
    notes = [verb or f" path={data_json(str(at))}"]
    if message.instance is not None:
        notes.append(f" instance={data_json(message.instance)}")
    lines = [f"<data{''.join(notes)}>"]
    if isinstance(message.raw.get("description"), str):
        lines.append(f"description: {data_json(in_part(message.raw['description'], None, limit))}")
    if message.schema is not None:
        lines.append(f"what is written here must fit: {data_json(in_part(message.schema, None, limit))}")
    if value is not ABSENT:
        lines.append(data_json(in_part(value, None if message.method in _GROWING else at, limit)))
    return "\n".join([*lines, "</data>"])


def current_values(
    data: Sequence[Data], room: float, instance: str | None = None, *, for_planner: bool = False
) -> list[PromptPart]:
    """The present value of each kind of data, global or of an instance; large ones in part, so that all fit the room.

    ``for_planner``: with the references by which a Call gets what is shown in part, and the schemas of what is written.
    """
    log = Log(data)
    view = log.view_of(instance if instance in log.own else None)
    values = [(path, view.read(path, START)) for path in map(Path, view.kinds())]
    schemas = {m.kind: m.schema for m in data if m.schema is not None} if for_planner else {}
    limit = find_limit((json_size(value) for _, value in values if value is not ABSENT), room)
    return [
        value_part(path, in_part(value, path if for_planner else None, limit), schemas.get(path.kind), limit)
        for path, value in values
        if value is not ABSENT
    ]


def value_part(path: Path, value: Json, schema: Json = None, limit: float = LARGE_VALUE_BYTES) -> PromptPart:
    """A value at its path, and the schema that it is kept to."""
    lines = [f"<data path={data_json(str(path))}>"]
    if schema is not None:
        lines.append(f"what is written here must fit: {data_json(in_part(schema, None, max(limit, 1024)))}")
    return PromptPart("data", "\n".join([*lines, data_json(value), "</data>"]))


# -- outcomes ------------------------------------------------------------------


def _outcome_parts(turn: Turn, after: Sequence[Message], room: DisplayRoom) -> Iterator[PromptPart]:
    """What came of an answer: changes by a person, outcomes, other data, problems."""
    written = _WrittenValues(after, room.value_bytes)
    calls = answered_calls(turn, after)
    lines = [f"A person changed the plan; these calls took its place: {data_json(calls)}"] if turn.changed else []
    lines += [data_json(written.add_to(outcome, calls)) for outcome in turn.outcomes]
    if lines:
        yield PromptPart("outcomes", "\n".join(["<outcomes>", *lines, "</outcomes>"]))
    rest = [m for m in written.rest() if not isinstance(m, (PlanMessage, ErrorMessage))]
    yield from _message_parts(rest, room)
    if turn.problems:
        listed = "\n".join(data_json(problem) for problem in turn.problems)
        yield PromptPart("outcomes", f"<problems>\n{listed}\n</problems>")


class _WrittenValues:
    """The messages after an answer; those that its Calls wrote are found by instance, path and Call."""

    def __init__(self, messages: Sequence[Message], limit: int) -> None:
        self._messages, self._limit = messages, limit
        self._by_place: dict[tuple[str | None, str], deque[Data]] = {}
        self._consumed: set[int] = set()
        for message in messages:
            if isinstance(message, Data) and isinstance(message.raw.get("_call"), dict) and message.path is not None:
                self._by_place.setdefault((message.instance, str(message.path)), deque()).append(message)

    def rest(self) -> Iterator[Message]:
        """The messages that no outcome shows. What an instance wrote beyond the examples is left out."""
        for message in self._messages:
            is_counted = isinstance(message, Data) and message.instance is not None and "_call" in message.raw
            if message.index not in self._consumed and not is_counted:
                yield message

    def add_to(self, outcome: Mapping[str, Any], calls: Sequence[Json]) -> dict[str, Any]:
        """The outcome with the values that its Call wrote in place of the path."""
        out = {k: v for k, v in outcome.items() if k != "path"}
        text = outcome.get("path")
        if text is None:
            return out
        if "instances" in outcome:
            values = {id_: self._take(text, id_, None) for id_ in outcome.get("examples", ())}
            return {**out, "examples": {id_: self._values(taken) for id_, taken in values.items() if taken}}
        messages = self._take(text, outcome.get("_instance"), call_of_outcome(outcome.get("call"), calls))
        if outcome["outcome"] == FAILED:
            return {**out, "errorPath": text}
        return {**out, **self._values(messages)} if messages else {**out, "wrote": text}

    def _take(self, text: str, instance: str | None, call: Json) -> list[Data]:
        """The messages that a Call wrote, one for each path of ``text``."""
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
            whole = None if message.method in _GROWING else at
            value = in_part(get(message.payload, at.names), whole, self._limit)
            out.setdefault(_VERBS[message.method], {})[str(at)] = value
        return out


def call_of_outcome(id_: Any, calls: Sequence[Json]) -> Json:
    """The Call of an answer that an outcome is about, by its id; None where there is none."""
    number = str(id_).partition(":")[0]
    index = int(number) - 1 if number.isdecimal() else -1
    return calls[index] if 0 <= index < len(calls) else None


def with_note(turn: PromptTurn, note: str) -> PromptTurn:
    """The turn with a last line."""
    return replace(turn, parts=(*turn.parts, PromptPart("rules", note)))
