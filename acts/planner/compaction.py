"""How a conversation that outgrows its room is made shorter: by rule, without a model, alike on every worker.

What goes first: the answers and outcomes of old ticks, and values that later ones replaced. What stays: everything that
the developer and the user said, the last ticks as they were, the values as they are now (large ones in part), and one
line for each Call that may have had an effect, so that none is repeated. The conversation says what was left out.

The rule looks at one turn after the other, as they came, and cuts only when they outgrow ``high`` bytes, back to
``low``. So between two cuts a conversation begins with all of the one before, and what was cut once stays cut.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from acts.language.messages import Data, Instruction, PlanMessage
from acts.language.references import Path
from acts.language.values import ABSENT, Json
from acts.plan.context_log import START, Log
from acts.planner.conversation import (
    DisplayRoom,
    Exchange,
    PromptPart,
    PromptTurn,
    answered_calls,
    first_turn,
    proposed_plan,
    read_exchanges,
    text_parts,
)
from acts.planner.shown_values import LARGE_VALUE_BYTES, data_json, in_part
from acts.planner.turns import COMPLETED, FAILED, STARTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acts.language.messages import Message
    from acts.planner.turns import Turn

# Of the room, the part at which a conversation is cut, and to which: half of the cache survives every cut
HIGH: Final = 1.0
LOW: Final = 0.5
# The last ticks stay as they were, whatever their size
KEPT_TURNS: Final = 2
# Parts of ``low``: for the current values, and for the lines of Calls
_DATA_SHARE: Final = 0.5
_EFFECTS_SHARE: Final = 0.25
# A value that would take more than this part of the room is large, however small the model's window
_VALUE_SHARE: Final = 0.125
# Where all data together outgrows its room, values are shown in part above these sizes: the largest at which it fits
_LIMITS: Final = (LARGE_VALUE_BYTES, 16_384, 4096, 1024, 256)
# Bytes of a Call in a line: its parameters say which effect it had
_MAX_CALL_BYTES: Final = 400
_EFFECTS: Final = (COMPLETED, FAILED, STARTED)


def build_conversation(
    messages: Sequence[Message], turns: Sequence[Turn], room: float | None = None
) -> tuple[PromptTurn, ...]:
    """The turns that a planner is shown, the user's first and last; ``room`` is in bytes, None: without a limit."""
    limit = LARGE_VALUE_BYTES if room is None else min(LARGE_VALUE_BYTES, int(room * _VALUE_SHARE))
    display = DisplayRoom(limit)
    first_end = turns[0].at if turns else len(messages)
    whole = first_turn(messages[:first_end], display)
    exchanges = list(read_exchanges(messages, turns, display))
    if room is None:
        return (whole, *(turn for e in exchanges for turn in (e.answer, e.outcome)))
    start, first = _Cutter(messages, exchanges, whole, first_end, room).cut()
    return (first, *(turn for e in exchanges[start:] for turn in (e.answer, e.outcome)))


class _Cutter:
    """One conversation, and where it is cut."""

    def __init__(
        self, messages: Sequence[Message], exchanges: Sequence[Exchange], whole: PromptTurn, first_end: int, room: float
    ) -> None:
        self._messages, self._exchanges, self._whole, self._first_end = messages, exchanges, whole, first_end
        self._high, self._low = room * HIGH, room * LOW

    def cut(self) -> tuple[int, PromptTurn]:
        """The index of the first exchange that is shown, and the turn before it."""
        first, start = self._whole, 0
        if _bytes(first) > self._high:
            first = self._shortened_first(0)
        sizes = [_bytes(e.answer) + _bytes(e.outcome) for e in self._exchanges]
        total = _bytes(first)
        for index, size in enumerate(sizes):
            total += size
            last_start = index + 1 - KEPT_TURNS
            if total <= self._high or last_start <= start:
                continue
            tail_bytes = sum(sizes[start : index + 1])
            while start < last_start and tail_bytes > self._low / 2:
                tail_bytes -= sizes[start]
                start += 1
            first = self._shortened_first(start)
            total = _bytes(first) + tail_bytes
        return start, first

    def _shortened_first(self, start: int) -> PromptTurn:
        """The first turn in short: all words, the current values, and what the calls before ``start`` did."""
        end = self._exchanges[start - 1].end if start else self._first_end
        messages = self._messages[:end]
        words = [part for m in messages if isinstance(m, Instruction) for part in text_parts(m)]
        own_plan = next((m for m in self._messages[: self._first_end] if isinstance(m, PlanMessage) and m.calls), None)
        plan = [proposed_plan(own_plan)] if own_plan is not None else []
        data = _current_values([m for m in messages if isinstance(m, Data)], self._low * _DATA_SHARE)
        return PromptTurn("user", (*words, *plan, *data, *self._effects(start)))

    def _effects(self, start: int) -> list[PromptPart]:
        """What the calls of the first ``start`` answers did, without what they wrote."""
        if not start:
            return []
        effects = [e for number, own in enumerate(self._exchanges[:start], 1) for e in self._read_effects(number, own)]
        lines = [data_json(effect) for effect in effects]
        left_out, size = 0, sum(len(line.encode()) + 1 for line in lines)
        while size > self._low * _EFFECTS_SHARE and left_out < len(lines):
            size -= len(lines[left_out].encode()) + 1
            left_out += 1
        counts = Counter(f"{_tool_of(effect['did'])} {effect['outcome']}" for effect in effects[:left_out])
        listed = ", ".join(f"{text} {count:,} times" for text, count in counts.items())
        notes = [f"(the first {left_out:,} of them in short: {listed})"] if left_out else []
        head = (
            f"Your answers 1 to {start} are left out here, to save room; the data above is what they came to. "
            "Of their calls these ran:"
        )
        return [PromptPart("outcomes", "\n".join(["<earlier>", head, *notes, *lines[left_out:], "</earlier>"]))]

    def _read_effects(self, number: int, exchange: Exchange) -> Iterator[dict[str, Json]]:
        """``{answer, did: Call, outcome, …}`` for each Call of an answer that may have had an effect."""
        after = self._messages[exchange.turn.at : exchange.end]
        calls = answered_calls(exchange.turn, after)
        for outcome in exchange.turn.outcomes:
            if outcome.get("outcome") not in _EFFECTS:
                continue
            for id_ in outcome.get("calls") or [outcome.get("call")]:
                index = int(str(id_).partition(":")[0]) - 1 if id_ else -1
                call = calls[index] if 0 <= index < len(calls) else id_
                fields = {k: v for k, v in outcome.items() if k in ("outcome", "_instance", "instances")}
                code = {"code": outcome["error"]["code"]} if "error" in outcome else {}
                yield {"answer": number, "did": in_part(call, None, _MAX_CALL_BYTES), **fields, **code}


def _tool_of(call: Json) -> str:
    return str(call.get("_tool")) if isinstance(call, dict) else str(call).rpartition(":")[2]


def _current_values(data: Sequence[Data], room: float) -> list[PromptPart]:
    """The present value of each kind, large ones in part, and how many instances there are."""
    log = Log([m for m in data if m.instance is None])
    view = log.view_of(None)
    values: list[tuple[Path, Json]] = [(path, view.read(path, START)) for path in map(Path, view.kinds())]
    schemas = {m.kind: m.schema for m in data if m.schema is not None and m.instance is None}
    parts: list[PromptPart] = []
    for limit in _LIMITS:
        parts = [_value_part(path, v, schemas.get(path.kind), limit) for path, v in values if v is not ABSENT]
        if sum(len(part.text.encode()) for part in parts) <= room:
            break
    names = list(dict.fromkeys(m.instance for m in data if m.instance is not None))
    if names:
        listed = ", ".join(names[:3])
        text = f"(there are {len(names):,} instances: {listed} …; their data is not shown)"
        parts.append(PromptPart("data", text))
    return parts


def _value_part(path: Path, value: Json, schema: Json, limit: int) -> PromptPart:
    lines = [f"<data path={data_json(str(path))}>"]
    if schema is not None:
        lines.append(f"what is written here must fit: {data_json(in_part(schema, None, max(limit, 1024)))}")
    lines.append(data_json(in_part(value, path, limit)))
    return PromptPart("data", "\n".join([*lines, "</data>"]))


def _bytes(turn: PromptTurn) -> int:
    return len(turn.text.encode())
