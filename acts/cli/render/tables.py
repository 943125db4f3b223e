"""Runs, calls, instances, errors, approvals, decisions and plans as tables and lines for a terminal.

Text of people is only text: clean, on one line, never interpreted. A command that is shown names exactly one approval,
and the version that is shown with it. The end of a run is awaited, never polled; its progress is polled, less often
while nothing changes. A query without an answer (no worker, or the moment between two runs of a chain) is no failure:
the view keeps the last known progress.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from acts.cli.console import MessageBlock, clean, clean_lines, console, count_text, list_names, message, shell
from acts.cli.text.preflight import Preflight
from acts.client.run_reader import EDITABLE, WITH, RunReader, RunResult, read_progress, wait_for_outcome
from acts.language.errors import truncate
from acts.language.strict_json import json_size
from acts.language.values import Json
from acts.language.wire import APPROVE, EDIT, REJECT
from acts.plan.validate import validate_request
from acts.tree.decisions import MESSAGE, SHORT_SUBJECT, SIGN, PendingApproval
from acts.views import text as words
from acts.views.drawing import draw_mermaid, draw_text

MAX_ROWS: Final = 200  # of a table or a value; --json has all of them
MAX_SHOWN: Final = 20  # instances, approvals, decisions, failures; --json lists all
MAX_NOTE: Final = 300
MAX_NAME: Final = 100
MAX_VALUE: Final = 10_000  # characters of one part of what is decided
MAX_INLINE: Final = 80  # … of one that is on the line of its name
_PAST: Final = {APPROVE: "approved", REJECT: "rejected", EDIT: "edited"}
STATE_STYLES: Final = {
    "running": "bold cyan", "awaiting": "bold magenta", "ready": "cyan", "pending": "dim", "completed": "green",
    "detached": "green", "skipped": "dim", "failed": "bold red", "rejected": "bold red", "cancelled": "yellow",
    "partial": "bold yellow", "terminated": "bold red", "timedOut": "bold red", "planning": "cyan",
    "paused": "bold yellow", "continued": "cyan",
}  # fmt: skip


def new_table(*titles: str, **options: Any) -> Table:
    table = Table(box=None, header_style="dim", **({"pad_edge": False} | options))
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title in ("", "tick", "state", "phase"))
    return table


def text_table(titles: Sequence[str], rows: Sequence[Sequence[object]], limit: int = MAX_NOTE, **options: Any) -> Table:
    table = new_table(*titles, **options)
    for row in rows:
        table.add_row(*(Text(clean(cell, limit)) for cell in row))
    return table


def decision_command(word: str, run: str, approval: PendingApproval) -> str:
    """The command that decides this one of a run's approvals, in the version and about the subject that are shown."""
    parts: list[object] = ["acts", word, run, *([] if approval.call is None else ["--call", approval.call])]
    parts += [] if approval.workflow_id == run else ["--workflow-id", approval.workflow_id]
    parts += [] if approval.instance is None else ["--instance", approval.instance]
    parts += ["--version", approval.version]
    parts += [] if approval.subject is None else ["--subject", approval.subject[:SHORT_SUBJECT]]
    signed = " --key FILE" if SIGN in approval.about else ""
    return shell(*parts) + signed + (' --reason "…"' if word == REJECT else "")


def approval_lines(run: str, approvals: Sequence[PendingApproval]) -> Iterator[str]:
    """A run's approvals, each with its parameters and the commands that decide it."""
    for approval in approvals[:MAX_SHOWN]:
        until = f", until {approval.deadline}" if approval.deadline else ""
        verb = "wait" if approval.what == "scopes" else "waits"
        count = approval.about.get("elements")
        subject = f"{approval} for each of {count:,} elements" if isinstance(count, int) else str(approval)
        subject += f"{hints_text(approval)} (version {approval.version})"
        yield clean(f"{words.STATE_MARKS['awaiting']} {subject} {verb} for a decision since {approval.since}{until}")
        rows, is_whole = subject_lines(approval, MAX_ROWS, MAX_VALUE)
        yield from (f"    {row}" for row in rows)
        is_editable = approval.what != MESSAGE and approval.about.get(EDITABLE, True)
        decisions = (APPROVE, REJECT, EDIT) if is_editable else (APPROVE, REJECT)
        yield from (f"    {decision_command(word, run, approval)}" for word in decisions if is_whole)
        if not is_whole:
            yield f"    nobody decides about what is cut: {shell('acts', 'pending', run)} --json prints all of it"
    if len(approvals) > MAX_SHOWN:
        yield f"… and {len(approvals) - MAX_SHOWN} more: {shell('acts', 'pending', run)} --json"
    if any(a.what == "plan" for a in approvals[:MAX_SHOWN]):
        name = shell(run)
        yield f"  acts graph {name} draws the plan, acts diff {name} shows its changes"


def hints_text(approval: PendingApproval) -> str:
    hints = approval.about.get("hints")
    return f" ({', '.join(clean(hint, 30) for hint in hints[:4])})" if isinstance(hints, list) and hints else ""


def subject_lines(approval: PendingApproval, rows: int, width: int) -> tuple[list[str], bool]:
    """How a wait has changed, and all that is decided, a line each; False where some of it is missing here."""
    changes = [f"changed: {line}" for line in words.change_lines(approval.about.get("changes"))]
    changes += words.tool_change_lines(approval.about)
    if approval.content is None:
        lost = "what is decided is not known here: its run does not answer, or it is too long"
        return [clean(line, width) for line in (*changes, lost)], False
    lines = []
    for name, part in approval.content.items():
        items = part.items() if isinstance(part, dict) else enumerate(part, 1) if isinstance(part, list) else ()
        if name != WITH and json_size(part) <= MAX_INLINE:
            lines.append(f"{name}  {json.dumps(part, ensure_ascii=False)}")
        else:
            lines.append("would be called with" if name == WITH else name)
            lines += [f"  {key}  {json.dumps(value, ensure_ascii=False)}" for key, value in items]
    answers = approval.content.get("answeredBy") if approval.call is None else {}
    by_model = [id_ for id_, answer in answers.items() if "model" in answer] if isinstance(answers, dict) else []
    marks = [f"{words.BY_MODEL}: {', '.join(by_model)}"] if by_model else []
    whole = [clean(line) for line in (*changes, *marks, *lines)]
    shown = [clean(line, width) for line in whole[:rows]]
    return shown, shown == whole


def _decision_lines(report: Mapping[str, Any]) -> Iterator[Text]:
    """Who decided what, when and why: ``2026-01-01T10:00:00.000Z  Ada rejected 2:pay (version 1): not this one``"""
    records = [r for r in report.get("decisions") or () if isinstance(r, dict)]
    if records:
        yield Text("\ndecisions", "bold")
    if len(records) > MAX_SHOWN:
        yield Text(f"  … {len(records) - MAX_SHOWN} earlier ones; --json lists all", "dim")
    for record in records[-MAX_SHOWN:]:
        tick = f"tick {record['tick']}  " if record.get("tick") else ""
        word, signed = str(record.get("decision")), record.get("signed")
        subject = words.decided_name(record) + (f" [{record['instance']}]" if record.get("instance") else "")
        proof = f", signed with {signed.get('key')}" if isinstance(signed, dict) else ""
        by, reason = clean(record.get("by") or "somebody", 100), record.get("reason")
        text = f"{record.get('date')}  {tick}{by} {_PAST.get(word, word)} {subject}"
        text = clean(f"{text} (version {record.get('version')}){proof}")
        text += f": {clean(reason, MAX_NOTE)}" if reason else ""
        yield Text(f"  {text}", "red" if word == REJECT else "")


def calls_table(calls: Sequence[Mapping[str, Any]], limit: int = MAX_ROWS, title: str = "call") -> Table:
    ticks = ("tick",) if any(call.get("tick") for call in calls) else ()
    table = new_table(*ticks, "", title, "state", "writes", "note")
    tick = None
    for call in calls[:limit]:
        own = [Text("" if call.get("tick") == tick else clean(call.get("tick") or ""), "dim")] if ticks else []
        tick, state = call.get("tick"), str(call.get("state"))
        style, path = STATE_STYLES.get(state, ""), clean(call.get("outputPath") or "", MAX_NAME)
        cells = Text(call_name(call)), Text(clean(state), style), Text(path), Text(describe(call))
        table.add_row(*own, Text(words.STATE_MARKS.get(state, words.UNKNOWN_MARK), style), *cells)
    if len(calls) > limit:
        text = f"… and {len(calls) - limit} more: {counts_text(calls[limit:])}"
        table.add_row(*("" for _ in ticks), "", Text(text, "dim"))
    return table


def call_name(call: Mapping[str, Any]) -> str:
    """``2:pay [c1]``"""
    return clean(call.get("id") or "", MAX_NAME) + (f" [{clean(call['instance'], 60)}]" if call.get("instance") else "")


def describe(call: Mapping[str, Any]) -> str:
    state = "waits for a decision" if call.get("state") == "awaiting" else ""
    return clean(words.describe_call(call) or state, MAX_NOTE)


def counts_text(calls: Sequence[Mapping[str, Any]]) -> str:
    """``1 running, 3 completed``"""
    counts = Counter(str(call.get("state")) for call in calls)
    return ", ".join(f"{counts[s]} {s}" for s in words.CALL_STATES if counts.get(s))


def set_text(report: Mapping[str, Any]) -> str:
    """``100,000 rows: 12,000 completed, 500 failed, 200 running; results: out.jsonl``; empty for any other run."""
    counts = words.set_counts(report)
    if counts is None:
        return ""
    total = "rows not counted yet" if counts.get("total") is None else f"{counts['total']:,} rows"
    parts = [f"{counts['completed']:,} completed", f"{counts['failed']:,} failed"]
    parts += [f"{counts['running']:,} running"] if counts.get("running") else []
    results = f"; results: {report['results']}" if report.get("results") else ""
    return clean(f"{total}: {', '.join(parts)}{results}", MAX_NOTE)


def headline(status: str, run: str, *facts: str) -> Text:
    """``✓ completed  weather-1a2b  Plan  1.2 s``"""
    mark = (f"{words.STATE_MARKS.get(status, '·')} {clean(status)}", STATE_STYLES.get(status, ""))
    return Text.assemble(mark, (f"  {clean(run)}", "bold"), *((f"  {clean(fact)}", "dim") for fact in facts if fact))


def report_parts(run: str, report: Mapping[str, Any], rows: int = MAX_ROWS) -> Iterator[RenderableType]:
    """What the status of a run, its result, or one of its instances holds."""
    if isinstance(calls := report.get("calls"), list) and calls:
        yield calls_table(calls, rows)
    instances = []
    for name, item in words.named_instances(report).items():  # of a status, the state alone
        row = item if isinstance(item, dict) else {"status": item}
        errors = [e for e in row.get("errors") or () if isinstance(e, dict)]  # one of the whole instance has no call
        texts = [f"{e['call']}: {e.get('message')}" if e.get("call") else str(e.get("message")) for e in errors]
        instances.append({"id": name, "state": row.get("status"), "reason": "; ".join(texts)})
    if instances:
        yield calls_table(instances, min(rows, MAX_SHOWN), "instance")
        yield Text(f"one of them: {shell('acts', 'show', run, '--instance', instances[0]['id'])}", "dim")
    if text := set_text(report):
        yield Text(text)
    for name in ("output", "state"):
        if report.get(name) not in (None, {}):
            yield Text(f"\n{name}", "bold")
            yield Text(value_text(report[name]))
    if (report.get("usage") or {}).get("requests"):
        gap = "\n" if "state" in report else ""
        yield Text(f"{gap}usage  {clean(words.usage_text(report['usage']))}", "dim")
    for note in report.get("notes") or ():
        yield Text(f"note: {clean(note)}", "dim")
    if any(call.get("waitsFor") for call in calls or ()):
        message_ = '\'{"type":"input","input":{…}}\''
        yield Text(f"waits for a message: {shell('acts', 'provide', run)} {message_}", "magenta")
    approvals = [PendingApproval.model_validate(item) for item in report.get("pending") or ()]
    yield from (Text(line, "magenta") for line in approval_lines(run, approvals))
    yield from _decision_lines(report)


def print_outcome(outcome: RunResult, run: str, *facts: str) -> None:
    screen, result = console(), outcome.raw
    ticks = result.get("ticks") if isinstance(result, dict) else None
    screen.print(headline(outcome.status, run, *facts, count_text(ticks, "tick") if ticks else ""))
    if isinstance(result, dict):
        if isinstance(resumed := result.get("resumedFrom"), dict):
            rows, calls = (resumed.get("instances") or {}).get("takenOver"), len(resumed.get("calls") or ())
            count = count_text(rows, "row") if isinstance(rows, int) else count_text(calls, "call")
            screen.print(f"{count} taken over from {clean(resumed.get('workflowId'), 200)}", style="dim")
        print_parts(run, result)
    elif result is not None:
        screen.print(value_text(result))
    if outcome.error is not None and not outcome.problems:
        text = "\n  ".join(clean_lines(str(outcome.error.get("message"))))
        screen.print(f"{clean(outcome.error.get('type'))}: {text}")


def print_parts(run: str, report: Mapping[str, Any]) -> None:
    for part in report_parts(run, report):
        console().print(part)


def value_text(value: Any) -> str:
    rows = json.dumps(value, indent=2, ensure_ascii=False).splitlines()
    more = [f"… {len(rows) - MAX_ROWS} more lines; --json prints all"] if len(rows) > MAX_ROWS else []
    return "\n".join([clean(truncate(row, 1000)) for row in rows[:MAX_ROWS]] + more)


def failure_blocks(outcome: RunResult) -> list[MessageBlock]:
    """The failures of a run, a message each, but those that the table of an agent's calls has already."""
    errors = outcome.raw.get("errors") if isinstance(outcome.raw, dict) else None
    blocks: list[MessageBlock] = []
    for error in errors if isinstance(errors, list) else ():
        where = [f"{key} {error[key]}" for key in ("call", "instance") if error.get(key)]
        if error.get("tick"):
            where = [] if error.get("call") else [f"tick {error['tick']}"]
        if where:
            place = f" at {error['place']}" if error.get("place") else ""
            blocks.append(message(f"{error.get('message')} [{error.get('code')}]{place}", where=" of ".join(where)))
    if (more := len(blocks) - MAX_SHOWN) > 0:
        blocks[MAX_SHOWN:] = [message(f"… and {more} more failures; --json has all", severity="note")]
    return blocks


# A query costs the worker a look at the run. Four per second look live; an unchanged run is polled once per second.
FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 3.0  # a worker that does not answer for so long is reported


async def watch_run(run: RunReader) -> RunResult:
    """Wait for a run and show its progress on stderr: a live table on a terminal, else each of its lines once."""
    began, screen, printed = time.monotonic(), console(stderr=True, wrap=True), set[str]()
    live = Live(console=screen, auto_refresh=False, transient=True) if screen.is_terminal else None
    screen.width = screen.width if live else 1_000

    def show(status: Mapping[str, Any], silence: str) -> None:
        """Show a status, and why the worker is silent; "" while it answers."""
        nonlocal printed
        seconds = time.monotonic() - began
        tick = f"tick {status['tick']}" if status.get("tick") else ""
        facts = (tick, counts_text(status.get("calls") or ()), f"{seconds:.1f} s") if live else (tick,)
        head = headline(str(status.get("phase") or "starting"), run.id, *facts)
        if live:
            parts = report_parts(run.id, status, max(screen.height - 6, 3))
            live.update(Group(head, *([Text(silence, "yellow")] if silence else []), *parts), refresh=True)
            return
        calls = [call for call in status.get("calls") or () if call.get("state") != "pending"]
        events = [f"{call_name(call)}  {call.get('state')}  {describe(call)}".strip() for call in calls]
        approvals = [PendingApproval.model_validate(item) for item in status.get("pending") or ()]
        lines = dict.fromkeys((head.plain, *events, set_text(status), *approval_lines(run.id, approvals), silence))
        for line in lines:
            if line and line not in printed:
                screen.print(f"{seconds:8.2f} s  {line}")
        printed = set(lines)

    with live or nullcontext():
        return await _follow(run, show)


async def _follow(run: RunReader, show: Callable[[Mapping[str, Any], str], None]) -> RunResult:
    last: Mapping[str, Any] = {}
    answered, pause = time.monotonic(), FIRST_PAUSE_SECONDS
    ending = asyncio.ensure_future(wait_for_outcome(run.handle))
    try:
        while not ending.done():
            reader = run.fresh()
            progress = await read_progress(reader, MAX_SHOWN)
            pause = FIRST_PAUSE_SECONDS if progress not in (None, last) else min(pause * 1.5, LONGEST_PAUSE_SECONDS)
            if progress is not None:
                answered, last = time.monotonic(), progress
            is_silent = time.monotonic() - answered > SILENCE_SECONDS
            show(last, await reader.obstacle() or "no worker answers; is one running?" if is_silent else "")
            await asyncio.wait([ending], timeout=pause)
        outcome = await ending
    finally:
        ending.cancel()
    if isinstance(outcome.raw, dict):
        show({**outcome.raw, "phase": outcome.status}, "")  # what happened since the last query
    return outcome


MAX_NAMES: Final = 20  # in one line, and outcomes
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def print_diff(rows: Sequence[str]) -> None:
    for row in rows:
        console().print(row, style="bold" if row[:3] in ("+++", "---") else _DIFF_STYLES.get(row[:1]))


def print_plan(request: Json, preflight: Preflight, *, mermaid: bool = False) -> None:
    prepared = validate_request(request, preflight.tools, preflight.served)
    print_drawing(draw_mermaid(prepared) if mermaid else draw_text(prepared), mermaid=mermaid)


def print_drawing(drawing: str, *, mermaid: bool) -> None:
    if mermaid:
        print(drawing.rstrip("\n"))
        return
    screen = console(wrap=True)
    for line in drawing.splitlines():
        screen.print(Text(clean(line)), overflow="ellipsis", no_wrap=True)


def print_simulation(simulation: Mapping[str, Any]) -> None:
    screen, calls, outcomes = console(), simulation["calls"], simulation["outcomes"]
    screen.print("waves", style="bold")
    for number, wave in enumerate(simulation["waves"], 1):
        screen.print(f"  {number}  {list_names(wave, MAX_NAMES)}")
    screen.print("critical path", style="bold")
    screen.print("  " + " → ".join(clean(c) for c in simulation["criticalPath"][: 2 * MAX_NAMES]))
    screen.print("calls", style="bold")
    rows = []
    for call in calls[:MAX_ROWS]:
        reads = [*call["reads"], *(f"{scope} (scope)" for scope in call["scopes"])]
        rows.append((call_name(call), words.how_text(call), ", ".join(reads), ", ".join(call["writes"])))
    screen.print(text_table(("call", "how", "reads", "writes"), rows, pad_edge=True, padding=(0, 1, 0, 2)))
    if len(calls) > MAX_ROWS:
        screen.print(f"  … and {len(calls) - MAX_ROWS} more; --json lists all")
    if simulation["outside"]:
        screen.print("may change something outside", style="bold")
        screen.print(f"  {list_names(simulation['outside'], MAX_NAMES)}")
    combinations = [c for c in outcomes["combinations"] if c["choices"]]
    if combinations:
        screen.print("outcomes", style="bold")
    for item in combinations[:MAX_NAMES]:
        screen.print("  if " + ", ".join(clean(f"{call} → {path}") for call, path in item["choices"].items()))
        for key, style in (("run", None), ("skipped", "dim"), ("failed", "red"), ("waiting", None)):
            if item.get(key):
                screen.print(f"    {key.ljust(8)} {list_names(item[key], MAX_NAMES)}", style=style)
    if combinations and (len(combinations) > MAX_NAMES or outcomes["truncated"]):
        screen.print("  … and more; --json lists up to 64", style="dim")
    screen.print("forecast", style="bold")
    screen.print(f"  {clean(words.forecast_text(simulation))}")
