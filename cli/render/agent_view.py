"""The run of an agent, tick by tick: its task, each plan, what each call of it returned.

Laws of this file:
- it reads the Request and the result of a run, nothing else: a plan message is the plan of a tick, and the messages
  after it are what its calls wrote;
- everything shown is clean text, cut to a line each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from rich.text import Text

from acts.language.errors import ExpressionError
from acts.language.expression_parser import parse
from acts.language.messages import (
    DATA_TYPES,
    Data,
    Instruction,
    Request,
)
from acts.language.references import Path
from acts.language.tools import META
from acts.language.values import ABSENT, Json, get
from acts.views.state_marks import STATE_MARKS, UNKNOWN_MARK
from cli.console import clean, compact_json, console
from cli.render.tables import STATE_STYLES, describe_call

MAX_LINE: Final = 100
_LABEL_COLUMNS: Final = 9

Line = tuple[str, str]  # text, style


def print_ticks(request: Request, result: Mapping[str, Any]) -> None:
    """Print an agent's run."""
    for label, lines in [("task", list(_task_lines(request))), *_ticks(result)]:
        for number, (text, style) in enumerate(lines or [("nothing", "dim")]):
            _print_line(label if number == 0 else "", text, style)
    _print_line("output", compact_json(result.get("output")), "bold")


def _print_line(label: str, text: str, style: str) -> None:
    line = Text()
    line.append(f"  {label.ljust(_LABEL_COLUMNS)} ", "dim")
    line.append(clean(text, MAX_LINE), style)
    console().print(line)


def _task_lines(request: Request) -> Iterator[Line]:
    """The instructions and the data."""
    for message in request.context:
        if isinstance(message, Instruction):
            yield message.text, ""
        elif isinstance(message, Data) and message.payload is not ABSENT:
            yield f"{message.kind} {compact_json(message.payload)}", ""


def _ticks(result: Mapping[str, Any]) -> Iterator[tuple[str, list[Line]]]:
    """By label: the plan of each tick, then the outcome of its calls."""
    plans = _plans(result.get("context") or ())
    calls = {tick: list(group) for tick, group in groupby(result.get("calls") or (), lambda c: c.get("tick"))}
    for tick in range(1, int(result.get("ticks") or 0) + 1):
        errors = [(f"{e.get('code')}: {e.get('message')}", "red") for e in _other_errors(result, tick, calls)]
        if tick not in calls or not plans:
            yield f"tick {tick}", errors or [("no more calls: the answer", "")]
            continue
        planned, messages = plans.pop(0)
        yield f"tick {tick}", [(_planned_text(call), "") for call in planned]
        executed = {str(call.get("id")) for call in calls[tick]}
        ids = [f"{i}:{c.get('_tool')}" for i, c in enumerate(planned, 1) if isinstance(c, dict)]
        rest = [(f"· {id_} is not run in this tick", "dim") for id_ in ids if id_ not in executed]
        yield "", [*(_outcome_line(call, planned, messages) for call in calls[tick]), *rest, *errors]


def _plans(context: Sequence[Json]) -> list[tuple[list[Json], list[Json]]]:
    """Each plan, and the messages that follow it."""
    plans: list[tuple[list[Json], list[Json]]] = []
    for message in context:
        if isinstance(message, dict) and message.get("type") == "plan":
            plans.append((message.get("plan") or [], []))
        elif plans:
            plans[-1][1].append(message)
    return plans


def _other_errors(result: Mapping[str, Any], tick: int, calls: Mapping[int, list[Any]]) -> list[Mapping[str, Any]]:
    """The errors of a tick that are not shown with a call."""
    ids = {call.get("id") for call in calls.get(tick, ())}
    return [e for e in result.get("errors") or () if e.get("tick") == tick and e.get("call") not in ids]


def _planned_text(call: Json) -> str:
    """``plans  issueRefund(customerId: †input.customerId) → †state.refund``"""
    if not isinstance(call, dict):
        return compact_json(call)
    values = {k: v if isinstance(v, str) else compact_json(v) for k, v in call.items() if k not in META}
    listed = ", ".join(f"{k}: {v}" for k, v in values.items())
    path = f" → {call['_outputPath']}" if "_outputPath" in call else ""
    return f"plans  {call.get('_tool')}({listed}){path}"


def _outcome_line(call: Mapping[str, Any], planned: Sequence[Json], messages: Sequence[Json]) -> Line:
    """``✓ 1:issueRefund → †state.refund  {"confirmationId": "refund_1"}``"""
    state, path = str(call.get("state")), call.get("outputPath")
    text, style = f"{STATE_MARKS.get(state, UNKNOWN_MARK)} {call.get('id')}", STATE_STYLES.get(state, "")
    if not path:
        return f"{text} {state} {describe_call(call)}", style
    number = int(str(call.get("id")).partition(":")[0]) - 1
    own = planned[number] if 0 <= number < len(planned) else None
    values = (_written_value(m, path) for m in messages if isinstance(m, dict) and m.get("_call") == own)
    value = next((v for v in values if v is not ABSENT), ABSENT)
    return f"{text} → {path}" + ("" if value is ABSENT else f"  {compact_json(value)}"), style


def _written_value(message: Mapping[str, Any], text: str) -> Json:
    """The value at the path that a call's message was written to, or ABSENT."""
    try:
        path = parse(text)
    except ExpressionError:
        return ABSENT
    if not isinstance(path, Path) or message.get("_outputPath") != text or message.get("type") not in DATA_TYPES:
        return ABSENT
    return get(message.get(str(message["type"])), path.names)
