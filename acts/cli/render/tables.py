"""Runs, calls, instances, errors, approvals, decisions and plans as tables and lines for a terminal.

Text of people is only text: clean, on one line, never interpreted. A command that is shown names exactly one approval,
and the version that is shown with it.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from acts.cli.console import (
    MessageBlock,
    clean,
    clean_lines,
    compact_json,
    console,
    count_text,
    list_names,
    message,
    print_out,
)
from acts.cli.runs.run_reader import EDITABLE, WITH, Outcome
from acts.cli.text.preflight import Preflight
from acts.language.errors import truncate
from acts.language.tools import META
from acts.language.values import Json
from acts.language.wire import APPROVE, EDIT, REJECT
from acts.plan.validate import validate_request
from acts.tree.decisions import SIGN, PendingApproval
from acts.views.drawing import draw_mermaid, draw_text
from acts.views.text import (
    CALL_STATES,
    STATE_MARKS,
    UNKNOWN_MARK,
    describe_call,
    forecast_text,
    how_text,
    named_instances,
    set_counts,
    usage_text,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_ROWS: Final = 200  # of a table or a value; --json has all of them
MAX_SHOWN: Final = 20  # instances, approvals, decisions, failures; --json lists all
MAX_NOTE: Final = 300
MAX_NAME: Final = 100
MAX_VALUE: Final = 2_000  # characters of one parameter
MAX_CUTS: Final = 5  # commands that are shown, of the largest parts; the JSON has more
# Meta-properties that say what would be called, and with what
_SHOWN_META: Final = ("_scopes", "_each")
_PAST: Final = {APPROVE: "approved", REJECT: "rejected", EDIT: "edited"}
STATE_STYLES: Final = {
    "running": "bold cyan", "awaiting": "bold magenta", "ready": "cyan", "pending": "dim", "completed": "green",
    "detached": "green", "skipped": "dim", "failed": "bold red", "rejected": "bold red", "cancelled": "yellow",
    "partial": "bold yellow", "terminated": "bold red", "timedOut": "bold red", "planning": "cyan",
    "paused": "bold yellow", "continued": "cyan",
}  # fmt: skip


def new_table(*titles: str, **options: Any) -> Table:
    """An empty table without borders; long cells are folded."""
    table = Table(box=None, header_style="dim", **({"pad_edge": False} | options))
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title in ("", "tick", "state", "phase"))
    return table


def text_table(titles: Sequence[str], rows: Sequence[Sequence[object]], limit: int = MAX_NOTE, **options: Any) -> Table:
    """A table of clean texts of at most ``limit`` characters."""
    table = new_table(*titles, **options)
    for row in rows:
        table.add_row(*(Text(clean(cell, limit)) for cell in row))
    return table


# -- approvals and decisions -------------------------------------------------------------------------------------------


def decision_command(word: str, run: str, approval: PendingApproval) -> str:
    """The command that decides this one of a run's approvals, in the version that is shown."""
    parts = ["acts", word, run, *([] if approval.call is None else ["--call", approval.call])]
    parts += [] if approval.workflow_id == run else ["--workflow-id", approval.workflow_id]
    parts += [] if approval.instance is None else ["--instance", approval.instance]
    parts += [] if word == EDIT else ["--version", str(approval.version)]
    signed = " --key FILE" if SIGN in approval.about else ""
    return " ".join(shlex.quote(clean(p)) for p in parts) + signed + (' --reason "…"' if word == REJECT else "")


def approval_lines(run: str, approvals: Sequence[PendingApproval]) -> Iterator[str]:
    """A run's approvals, each with its parameters and the commands that decide it."""
    for approval in approvals[:MAX_SHOWN]:
        until = f", until {approval.deadline}" if approval.deadline else ""
        verb = "wait" if approval.what == "scopes" else "waits"
        count = approval.about.get("elements")
        subject = f"{approval} for each of {count:,} elements" if isinstance(count, int) else str(approval)
        subject += f"{hints_text(approval)} (version {approval.version})"
        yield clean(f"{STATE_MARKS['awaiting']} {subject} {verb} for a decision since {approval.since}{until}")
        if approval.call is not None:
            rows = parameter_lines(approval, MAX_VALUE)
            yield "    would be called with" if rows else "    its parameters are unknown: its run does not answer"
            yield from (f"      {row}" for row in rows)
        words = (APPROVE, REJECT, EDIT) if approval.about.get(EDITABLE, True) else (APPROVE, REJECT)
        yield from (f"    {decision_command(word, run, approval)}" for word in words)
    if len(approvals) > MAX_SHOWN:
        yield f"… and {len(approvals) - MAX_SHOWN} more: acts pending"
    if any(a.what == "plan" for a in approvals[:MAX_SHOWN]):
        name = shlex.quote(clean(run))
        yield f"  acts graph {name} draws the plan, acts diff {name} shows its changes"


def hints_text(approval: PendingApproval) -> str:
    """The hints of a pending Call's Tool: `` (destructive)``"""
    hints = approval.about.get("hints")
    return f" ({', '.join(clean(hint, 30) for hint in hints[:4])})" if isinstance(hints, list) and hints else ""


def parameter_lines(approval: PendingApproval, limit: int) -> list[str]:
    """The parameters, list and scopes of a pending Call, a line each of at most ``limit`` characters of JSON."""
    call = approval.about.get(WITH)
    if approval.call is None or not isinstance(call, Mapping):
        return []
    parameters = {k: v for k, v in call.items() if k not in META or k in _SHOWN_META}
    rows = [f"{clean(k, 60)}  {clean(truncate(compact_json(v), limit))}" for k, v in parameters.items()]
    return rows or ["no parameters"]


def decision_line(record: Mapping[str, Any]) -> str:
    """``2026-01-01T10:00:00.000Z  Ada rejected 2:pay (version 1): not this one``"""
    tick = f"tick {record['tick']}  " if record.get("tick") else ""
    word, signed = str(record.get("decision")), record.get("signed")
    subject = str(record.get("call") or "the plan") + (f" [{record['instance']}]" if record.get("instance") else "")
    proof = f", signed with {signed.get('key')}" if isinstance(signed, dict) else ""
    by, reason = clean(record.get("by") or "somebody", 100), record.get("reason")
    text = (
        f"{record.get('date')}  {tick}{by} {_PAST.get(word, word)} {subject} (version {record.get('version')}){proof}"
    )
    return clean(text) + (f": {clean(reason, MAX_NOTE)}" if reason else "")


def _decision_lines(report: Mapping[str, Any]) -> Iterator[Text]:
    """Who decided what, when and why."""
    records = [r for r in report.get("decisions") or () if isinstance(r, dict)]
    if records:
        yield Text("\ndecisions", "bold")
    if len(records) > MAX_SHOWN:
        yield Text(f"  … {len(records) - MAX_SHOWN} earlier ones; --json lists all", "dim")
    for record in records[-MAX_SHOWN:]:
        yield Text(f"  {decision_line(record)}", "red" if record.get("decision") == REJECT else "")


# -- calls and instances -----------------------------------------------------------------------------------------------


def calls_table(calls: Sequence[Mapping[str, Any]], limit: int = MAX_ROWS, title: str = "call") -> Table:
    """A row for each of the first calls; the others are counted by state."""
    ticks = ("tick",) if any(call.get("tick") for call in calls) else ()
    table = new_table(*ticks, "", title, "state", "writes", "note")
    tick = None
    for call in calls[:limit]:
        own = [Text("" if call.get("tick") == tick else clean(call.get("tick") or ""), "dim")] if ticks else []
        tick, state = call.get("tick"), str(call.get("state"))
        style, path = STATE_STYLES.get(state, ""), clean(call.get("outputPath") or "", MAX_NAME)
        cells = Text(call_name(call)), Text(clean(state), style), Text(path), Text(describe(call))
        table.add_row(*own, Text(STATE_MARKS.get(state, UNKNOWN_MARK), style), *cells)
    if states := Counter(str(call.get("state")) for call in calls[limit:]):
        text = f"… and {states.total()} more: {counts_text(states)}"
        table.add_row(*("" for _ in ticks), "", Text(text, "dim"))
    return table


def call_name(call: Mapping[str, Any]) -> str:
    """``2:pay [c1]``"""
    return clean(call.get("id") or "", MAX_NAME) + (f" [{clean(call['instance'], 60)}]" if call.get("instance") else "")


def describe(call: Mapping[str, Any]) -> str:
    """What is to be said of a call beside its state."""
    return clean(describe_call(call) or ("waits for a decision" if call.get("state") == "awaiting" else ""), MAX_NOTE)


def counts_text(counts: Mapping[str, int]) -> str:
    """``1 running, 3 completed``"""
    return ", ".join(f"{counts[s]} {s}" for s in CALL_STATES if counts.get(s))


def _instance_row(name: str, item: Any) -> dict[str, Any]:
    """An instance of a batch, of its result or its status alone, as a row of a table of calls."""
    if not isinstance(item, dict):
        return {"id": name, "state": item}
    errors = [e for e in item.get("errors") or () if isinstance(e, dict)]  # one of the whole instance has no call
    texts = [f"{e['call']}: {e.get('message')}" if e.get("call") else str(e.get("message")) for e in errors]
    return {"id": name, "state": item.get("status"), "reason": "; ".join(texts)}


def set_text(report: Mapping[str, Any]) -> str:
    """``100,000 rows: 12,000 completed, 500 failed, 200 running; results: out.jsonl``; empty for any other run."""
    counts = set_counts(report)
    if counts is None:
        return ""
    total = "rows not counted yet" if counts.get("total") is None else f"{counts['total']:,} rows"
    parts = [f"{counts['completed']:,} completed", f"{counts['failed']:,} failed"]
    parts += [f"{counts['running']:,} running"] if counts.get("running") else []
    results = f"; results: {report['results']}" if report.get("results") else ""
    return clean(f"{total}: {', '.join(parts)}{results}", MAX_NOTE)


def report_parts(report: Mapping[str, Any], rows: int = MAX_ROWS) -> Iterator[RenderableType]:
    """The calls and the instances of a result or a status."""
    if isinstance(calls := report.get("calls"), list) and calls:
        yield calls_table(calls, rows)
    if instances := named_instances(report):
        yield calls_table([_instance_row(*pair) for pair in instances.items()], min(rows, MAX_SHOWN), "instance")
    if text := set_text(report):
        yield Text(text)


# -- runs --------------------------------------------------------------------------------------------------------------


def headline(status: str, run: str, *facts: str) -> Text:
    """``✓ completed  weather-1a2b  Plan  1.2 s``"""
    text = Text()
    text.append(f"{STATE_MARKS.get(status, '·')} {clean(status)}", STATE_STYLES.get(status, ""))
    text.append(f"  {clean(run)}", "bold")
    for fact in filter(None, facts):
        text.append(f"  {clean(fact)}", "dim")
    return text


def progress_parts(run: str, status: Mapping[str, Any], rows: int = MAX_ROWS) -> Iterator[RenderableType]:
    """A run that has not ended: its calls, what it spent, its notes, what waits and how to answer, the decisions."""
    yield from report_parts(status, rows)
    if names := list(named_instances(status)):
        yield Text(f"one of them: {show_command(run, names[0])}", "dim")
    if (status.get("usage") or {}).get("requests"):
        yield Text(f"usage  {clean(usage_text(status['usage']))}", "dim")
    for note in status.get("notes") or ():
        yield Text(f"note: {clean(note)}", "dim")
    if any(call.get("waitsFor") for call in status.get("calls") or ()):
        message_ = '\'{"type":"input","input":{…}}\''
        yield Text(f"waits for a message: acts provide {clean(run)} {message_}", "magenta")
    approvals = [PendingApproval.model_validate(item) for item in status.get("pending") or ()]
    yield from (Text(line, "magenta") for line in approval_lines(run, approvals))
    yield from _decision_lines(status)


def show_command(run: str, instance: str) -> str:
    """The command that shows an instance."""
    return shlex.join(["acts", "show", clean(run), "--instance", clean(instance)])


def print_outcome(outcome: Outcome, run: str, *facts: str, rows: int = MAX_ROWS) -> None:
    """Print a run that has ended."""
    screen, result = console(), outcome.result
    ticks = result.get("ticks") if isinstance(result, dict) else None
    screen.print(headline(outcome.status, run, *facts, count_text(ticks, "tick") if ticks else ""))
    if isinstance(result, dict):
        for part in _result_parts(result, rows):
            screen.print(part)
    elif result is not None:
        screen.print(value_text(result, rows))
    if outcome.error is not None and not outcome.problems:
        text = "\n  ".join(clean_lines(str(outcome.error.get("message"))))
        screen.print(f"{clean(outcome.error.get('type'))}: {text}")


def _result_parts(result: Mapping[str, Any], rows: int) -> Iterator[RenderableType]:
    if taken := _taken_over_text(result.get("resumedFrom")):
        yield Text(taken, "dim")
    yield from report_parts(result, rows)
    for name in ("output", "state"):
        if result.get(name) not in (None, {}):
            yield Text(f"\n{name}", "bold")
            yield Text(value_text(result[name], rows))
    if (result.get("usage") or {}).get("requests"):
        yield Text(f"\nusage  {clean(usage_text(result['usage']))}", "dim")
    yield from _decision_lines(result)


def _taken_over_text(resumed: Any) -> str:
    """``12 calls taken over from order-7``, of a set its rows; empty for a run that resumed none."""
    if not isinstance(resumed, dict):
        return ""
    rows, calls = (resumed.get("instances") or {}).get("takenOver"), len(resumed.get("calls") or ())
    count = count_text(rows, "row") if isinstance(rows, int) else count_text(calls, "call")
    return f"{count} taken over from {clean(resumed.get('workflowId'), 200)}"


def value_text(value: Any, limit: int = MAX_ROWS) -> str:
    """A value as clean, indented JSON of at most ``limit`` lines."""
    rows = json.dumps(value, indent=2, ensure_ascii=False).splitlines()
    more = [f"… {len(rows) - limit} more lines; --json prints all"] if len(rows) > limit else []
    return "\n".join([clean(truncate(row, 1000)) for row in rows[:limit]] + more)


def cut_lines(run: str, result: Any) -> Iterator[str]:
    """A line per part that was cut, its size, and how to read it."""
    omitted = result.get("omitted") if isinstance(result, Mapping) else None
    if not isinstance(omitted, Mapping):
        return
    parts = ", ".join(f"{clean(k)} ({n:,} bytes)" for k, n in omitted["bytes"].items())
    yield f"left out of the result, which was too large to be recorded: {parts}"
    for cut in omitted["cut"][:MAX_CUTS]:
        words = ["temporal", "workflow", "query", "--workflow-id", run, "--type", str(cut.get("query"))]
        words += ["--input", json.dumps(cut["argument"], ensure_ascii=False)] if "argument" in cut else []
        yield f"  {clean(cut['at'])} ({cut['bytes']:,} bytes)" + (
            f": {clean(shlex.join(words))}" if "query" in cut else ""
        )
    if (more := len(omitted["cut"]) - MAX_CUTS + int(omitted.get("more", 0))) > 0:
        yield f"  … and {more:,} more; --json lists the largest"


def failure_blocks(outcome: Outcome) -> list[MessageBlock]:
    """The failures of a run, a message each, but those that the table of an agent's calls has already."""
    errors = outcome.result.get("errors") if isinstance(outcome.result, dict) else None
    blocks: list[MessageBlock] = []
    for error in errors if isinstance(errors, list) else ():
        where = [f"{key} {error[key]}" for key in ("call", "instance") if error.get(key)]
        if error.get("tick"):
            where = [] if error.get("call") else [f"tick {error['tick']}"]
        if where:
            blocks.append(message(f"{error.get('message')} [{error.get('code')}]", where=" of ".join(where)))
    if (more := len(blocks) - MAX_SHOWN) > 0:
        blocks[MAX_SHOWN:] = [message(f"… and {more} more failures; --json has all", severity="note")]
    return blocks


# -- plans -------------------------------------------------------------------------------------------------------------

_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}
MAX_COMBINATIONS: Final = 16
MAX_NAMES: Final = 20  # in one line
MAX_PATH: Final = 40  # calls of the critical path
_STYLES: Final = {"skipped": "dim", "failed": "red"}


def print_diff(rows: Sequence[str]) -> None:
    """Print a unified diff, coloured on a terminal."""
    for row in rows:
        style = "bold" if row[:3] in ("+++", "---") else _DIFF_STYLES.get(row[:1])
        console().print(row, style=style)


def print_plan(request: Json, preflight: Preflight, *, mermaid: bool) -> None:
    """Print the plan of a valid Request as a drawing."""
    prepared = validate_request(request, preflight.tools, preflight.served)
    if mermaid:
        print_out(draw_mermaid(prepared).rstrip("\n"))
    else:
        print_drawing(draw_text(prepared))


def print_drawing(drawing: str) -> None:
    """Print what ``draw_text`` returns, here or in a worker: each line is cut where the terminal ends."""
    screen = console(wrap=True)
    for line in drawing.splitlines():
        screen.print(Text(clean(line)), overflow="ellipsis", no_wrap=True)


def print_simulation(simulation: Mapping[str, Any]) -> None:
    """Print what ``simulate`` returns."""
    screen = console()
    screen.print("waves", style="bold")
    for number, wave in enumerate(simulation["waves"], 1):
        screen.print(f"  {number}  {list_names(wave, MAX_NAMES)}")
    screen.print("critical path", style="bold")
    screen.print("  " + " → ".join(clean(c) for c in simulation["criticalPath"][:MAX_PATH]))
    screen.print("calls", style="bold")
    _print_calls(simulation["calls"])
    if simulation["outside"]:
        screen.print("may change something outside", style="bold")
        screen.print(f"  {list_names(simulation['outside'], MAX_NAMES)}")
    _print_outcomes(simulation["outcomes"])
    screen.print("forecast", style="bold")
    screen.print(f"  {clean(forecast_text(simulation))}")


def _print_calls(calls: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (
            call_name(call), how_text(call), ", ".join([*call["reads"], *(f"{s} (scope)" for s in call["scopes"])]),
            ", ".join(call["writes"]),
        )
        for call in calls[:MAX_ROWS]
    ]  # fmt: skip
    table = text_table(("call", "how", "reads", "writes"), rows, pad_edge=True, padding=(0, 1, 0, 2))
    console().print(table)
    if len(calls) > MAX_ROWS:
        console().print(f"  … and {len(calls) - MAX_ROWS} more; --json lists all")


def _print_outcomes(outcomes: Mapping[str, Any]) -> None:
    combinations = [c for c in outcomes["combinations"] if c["choices"]]
    if not combinations:
        return
    screen = console()
    screen.print("outcomes", style="bold")
    for item in combinations[:MAX_COMBINATIONS]:
        screen.print("  if " + ", ".join(clean(f"{call} → {path}") for call, path in item["choices"].items()))
        for key in ("run", "skipped", "failed", "waiting"):
            if item.get(key):
                screen.print(f"    {key.ljust(8)} {list_names(item[key], MAX_NAMES)}", style=_STYLES.get(key))
    if len(combinations) > MAX_COMBINATIONS or outcomes["truncated"]:
        screen.print("  … and more; --json lists up to 64", style="dim")
