"""What an agent did, tick by tick, for reading: what was asked, what was planned, what came of it.

Laws of this file:
- it reads the Request and the result of a run, and nothing else: a plan message is what a
  tick planned, the messages that its Calls wrote follow it;
- everything shown is clean text, cut to a line each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from acts.language.errors import ExpressionError
from acts.language.messages import DATA_TYPES, Data, Instruction, Request
from acts.language.references import Path, parse
from acts.language.tools import META
from acts.language.values import ABSENT, Json, get
from cli.console import clean, console
from cli.render.tables import STATES, note

MAX_LINE: Final = 100
_WIDTH: Final = 9  # of the label before a line


def print_ticks(request: Request, result: Mapping[str, Any]) -> None:
    """An agent's run on stdout."""
    for label, lines in [("asked", list(_asked(request))), *_ticks(result)]:
        for number, (text, style) in enumerate(lines or [("nothing", "dim")]):
            _line(label if number == 0 else "", text, style)
    _line("output", _json(result.get("output")), "bold")


def _line(label: str, text: str, style: str) -> None:
    from rich.text import Text

    line = Text()
    line.append(f"  {label.ljust(_WIDTH)} ", "dim")
    line.append(clean(text, MAX_LINE), style)
    console().print(line)


Line = tuple[str, str]


def _asked(request: Request) -> Iterator[Line]:
    """The instructions, and what there is to work with."""
    for message in request.context:
        if isinstance(message, Instruction):
            yield message.text, ""
        elif isinstance(message, Data) and message.payload is not ABSENT:
            yield f"{message.kind} {_json(message.payload)}", ""


def _ticks(result: Mapping[str, Any]) -> Iterator[tuple[str, list[Line]]]:
    """A tick's plan and what came of it, each with its label."""
    parts = _plans(result.get("context") or ())
    walked = {tick: list(calls) for tick, calls in groupby(result.get("calls") or (), lambda c: c.get("tick"))}
    for tick in range(1, int(result.get("ticks") or 0) + 1):
        refused = [(f"{e.get('code')}: {e.get('message')}", "red") for e in _refusals(result, tick, walked)]
        if tick in walked and parts:
            planned, messages = parts.pop(0)
            yield f"tick {tick}", [(_call(call), "") for call in planned]
            ran = {str(call.get("id")) for call in walked[tick]}
            left = [f"{i}:{c.get('_tool')}" for i, c in enumerate(planned, 1) if isinstance(c, dict)]
            later = [(f"· {id_} is not run in this tick", "dim") for id_ in left if id_ not in ran]
            yield "", [*(_came(call, planned, messages) for call in walked[tick]), *later, *refused]
        else:
            yield f"tick {tick}", refused or [("no more calls: the answer", "")]


def _plans(context: Sequence[Json]) -> list[tuple[list[Json], list[Json]]]:
    """Each plan, and the messages that follow it."""
    out: list[tuple[list[Json], list[Json]]] = []
    for message in context:
        if isinstance(message, dict) and message.get("type") == "plan":
            out.append((message.get("plan") or [], []))
        elif out:
            out[-1][1].append(message)
    return out


def _refusals(result: Mapping[str, Any], tick: int, walked: Mapping[int, list[Any]]) -> list[Mapping[str, Any]]:
    """What the model was told in a tick that is not said with a call."""
    calls = {call.get("id") for call in walked.get(tick, ())}
    return [e for e in result.get("errors") or () if e.get("tick") == tick and e.get("call") not in calls]


def _call(call: Json) -> str:
    """``plans  issueRefund(customerId: †input.customerId) → †state.refund``"""
    if not isinstance(call, dict):
        return _json(call)
    given = ", ".join(f"{k}: {v if isinstance(v, str) else _json(v)}" for k, v in call.items() if k not in META)
    path = f" → {call['_outputPath']}" if "_outputPath" in call else ""
    return f"plans  {call.get('_tool')}({given}){path}"


def _came(call: Mapping[str, Any], planned: Sequence[Json], messages: Sequence[Json]) -> Line:
    """``✓ 1:issueRefund → †state.refund {"confirmationId": "refund_1"}``"""
    state, path = str(call.get("state")), call.get("outputPath")
    mark, style = STATES.get(state, ("?", ""))
    text = f"{mark} {call.get('id')}"
    if not path:
        return f"{text} {state} {note(call)}", style
    number = int(str(call.get("id")).partition(":")[0]) - 1
    own = planned[number] if 0 <= number < len(planned) else None
    written = (_value(m, path) for m in messages if isinstance(m, dict) and m.get("_call") == own)
    value = next((v for v in written if v is not ABSENT), ABSENT)
    return f"{text} → {path}" + ("" if value is ABSENT else f"  {_json(value)}"), style


def _value(message: Mapping[str, Any], text: str) -> Json:
    """What a message that a Call wrote holds at its path, or ABSENT."""
    try:
        path = parse(text)
    except ExpressionError:
        return ABSENT
    if not isinstance(path, Path) or message.get("_outputPath") != text or message.get("type") not in DATA_TYPES:
        return ABSENT
    return get(message.get(str(message["type"])), path.names)


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
