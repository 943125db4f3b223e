"""How a conversation that outgrows its room is made shorter: by rule, without a model, alike on every worker.

What goes first: the answers and outcomes of old ticks, and values that later ones replaced. What stays: everything that
the developer and the user said, the last ticks as they were, the values as they are now (large ones in part), and one
line for each Call that may have had an effect, so that none is repeated. The conversation says what was left out.

The rule looks at one turn after the other, as they came, and cuts only when they outgrow the room, back to half of it.
So between two cuts a conversation begins with all of the one before, and what was cut once stays cut.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from acts.language.messages import Data, Instruction, PlanMessage
from acts.language.values import Json
from acts.planner.conversation import (
    DisplayRoom,
    Exchange,
    PromptPart,
    PromptTurn,
    answered_calls,
    call_of_outcome,
    current_values,
    first_turn,
    proposed_plan,
    read_exchanges,
    text_parts,
)
from acts.planner.notation import LARGE_VALUE_BYTES, data_json, in_part
from acts.planner.turns import COMPLETED, FAILED, STARTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from acts.language.messages import Message
    from acts.tree.records import Turn

# The last ticks stay as they were, whatever their size
KEPT_TURNS: Final = 2
# Parts of the room after a cut: for the last ticks, for the current values, and for the lines of Calls
_TAIL_SHARE: Final = 0.25
_DATA_SHARE: Final = 0.25
_EFFECTS_SHARE: Final = 0.125
# A value that would take more than this part of the room is large, however small the model's window
_VALUE_SHARE: Final = 0.125
# Bytes of a Call in a line: its parameters say which effect it had
_MAX_CALL_BYTES: Final = 400
_EFFECTS: Final = (COMPLETED, FAILED, STARTED)


def build_conversation(
    messages: Sequence[Message], turns: Sequence[Turn], room: float | None = None
) -> tuple[PromptTurn, ...]:
    """The turns that a planner is shown, the user's first and last; ``room`` is in bytes, None: without a limit."""
    limit = LARGE_VALUE_BYTES if room is None else min(LARGE_VALUE_BYTES, int(room * _VALUE_SHARE))
    display = DisplayRoom(limit)
    begin = messages[: turns[0].at] if turns else messages
    first = first_turn(begin, display)
    exchanges = list(read_exchanges(messages, turns, display))
    start = 0
    if room is not None:
        start, is_short = _find_cut(_bytes(first), exchanges, room, messages, begin)
        first = _short_turn(messages, begin, exchanges[:start], room) if is_short else first
    return (first, *(turn for e in exchanges[start:] for turn in (e.answer, e.outcome)))


def _find_cut(
    first_bytes: int, exchanges: Sequence[Exchange], room: float, messages: Sequence[Message], begin: Sequence[Message]
) -> tuple[int, bool]:
    """The index of the first exchange that is shown, and whether the turn before it is in short."""
    start, is_short = 0, first_bytes > room
    total = _bytes(_short_turn(messages, begin, [], room)) if is_short else first_bytes
    sizes = [_bytes(e.answer) + _bytes(e.outcome) for e in exchanges]
    for index, size in enumerate(sizes):
        total += size
        last_start = index + 1 - KEPT_TURNS
        if total <= room or last_start <= start:
            continue
        tail_bytes = sum(sizes[start : index + 1])
        while start < last_start and tail_bytes > room * _TAIL_SHARE:
            tail_bytes -= sizes[start]
            start += 1
        total, is_short = _bytes(_short_turn(messages, begin, exchanges[:start], room)) + tail_bytes, True
    return start, is_short


def _short_turn(
    messages: Sequence[Message], begin: Sequence[Message], left_out: Sequence[Exchange], room: float
) -> PromptTurn:
    """The first turn in short: all words, the current values, and what the calls of the answers left out did."""
    until = messages[: left_out[-1].end] if left_out else begin
    words = [part for m in until if isinstance(m, Instruction) for part in text_parts(m)]
    plan = next((proposed_plan(m) for m in begin if isinstance(m, PlanMessage) and m.calls), None)
    data = [m for m in until if isinstance(m, Data)]
    values = current_values([m for m in data if m.instance is None], room * _DATA_SHARE, for_planner=True)
    names = list(dict.fromkeys(m.instance for m in data if m.instance is not None))
    if names:
        text = f"(there are {len(names):,} instances: {', '.join(names[:3])} …; their data is not shown)"
        values.append(PromptPart("data", text))
    effects = [_effects_part(messages, left_out, room * _EFFECTS_SHARE)] if left_out else []
    return PromptTurn("user", (*words, *([] if plan is None else [plan]), *values, *effects))


def _effects_part(messages: Sequence[Message], left_out: Sequence[Exchange], room: float) -> PromptPart:
    """What the calls of these answers did, without what they wrote."""
    effects = [e for number, own in enumerate(left_out, 1) for e in _read_effects(messages, number, own)]
    lines = [data_json(effect) for effect in effects]
    counted, size = 0, sum(len(line.encode()) + 1 for line in lines)
    while size > room and counted < len(lines):
        size -= len(lines[counted].encode()) + 1
        counted += 1
    counts = Counter(f"{_tool_of(effect['did'])} {effect['outcome']}" for effect in effects[:counted])
    listed = ", ".join(f"{text} {count:,} times" for text, count in counts.items())
    notes = [f"(the first {counted:,} of them in short: {listed})"] if counted else []
    head = (
        f"Your answers 1 to {len(left_out)} are left out here, to save room; the data above is what they came to. "
        "Of their calls these ran:"
    )
    return PromptPart("outcomes", "\n".join(["<earlier>", head, *notes, *lines[counted:], "</earlier>"]))


def _read_effects(messages: Sequence[Message], number: int, exchange: Exchange) -> Iterator[dict[str, Json]]:
    """``{answer, did: Call, outcome, …}`` for each Call of an answer that may have had an effect."""
    calls = answered_calls(exchange.turn, messages[exchange.turn.at : exchange.end])
    for outcome in exchange.turn.outcomes:
        if outcome.get("outcome") not in _EFFECTS:
            continue
        for id_ in outcome.get("calls") or [outcome.get("call")]:
            fields = {k: v for k, v in outcome.items() if k in ("outcome", "_instance", "instances")}
            code = {"code": outcome["error"]["code"]} if "error" in outcome else {}
            did = in_part(call_of_outcome(id_, calls) or id_, None, _MAX_CALL_BYTES)
            yield {"answer": number, "did": did, **fields, **code}


def _tool_of(call: Json) -> str:
    return str(call.get("_tool")) if isinstance(call, dict) else str(call).rpartition(":")[2]


def _bytes(turn: PromptTurn) -> int:
    return len(turn.text.encode())
