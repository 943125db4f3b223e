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

from acts.cli.console import (
    MessageBlock,
    clean,
    clean_lines,
    console,
    count_text,
    is_one_place,
    list_names,
    message,
    print_err,
    shell,
)
from acts.cli.text.preflight import Preflight, request_cost
from acts.client import run_reader
from acts.language.errors import truncate
from acts.language.strict_json import json_size
from acts.language.values import Json
from acts.language.wire import ANSWER, APPROVE, EDIT, REJECT, REVOKE, UNDO
from acts.plan.validate import ValidatedPlan, validate_request
from acts.simulation.simulate import sample
from acts.tree.decisions import FORM, MESSAGE, SHORT_SUBJECT, SIGN, PendingApproval
from acts.views import text as words
from acts.views.drawing import draw_mermaid, draw_text
from acts.views.plan_svg import as_file, plan_svg

MAX_ROWS: Final = 200  # of a table or a value; --json has all of them
MAX_SHOWN: Final = 20  # instances, approvals, decisions, failures; --json lists all
MAX_NOTE: Final = 300
MAX_SEEN: Final = 200  # characters of a message that a note has whole beside its code
MAX_MERGED: Final = 5  # names of calls in one row
MAX_NAME: Final = 100
MAX_VALUE: Final = 10_000  # characters of one part of what is decided
MAX_INLINE: Final = 80  # … of one that is on the line of its name
_PAST: Final = {APPROVE: "approved", REVOKE: "revoked", UNDO: "had undone"}  # the others: edited, failed …
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
    named = [] if approval.call is None else [*(["--call"] if word != ANSWER else []), approval.call]
    parts: list[object] = ["acts", word, run, *named]
    parts += [] if approval.workflow_id == run else ["--workflow-id", approval.workflow_id]
    parts += [] if approval.instance is None else ["--instance", approval.instance]
    parts += ["--version", approval.version]
    parts += [] if approval.subject is None else ["--subject", approval.subject[:SHORT_SUBJECT]]
    signed = " --key FILE" if SIGN in approval.about else ""
    form = (approval.content or approval.about).get(FORM)
    output = f" --output {shell(json.dumps(sample(form), ensure_ascii=False))}" if word == ANSWER else ""
    return shell(*parts) + signed + output + (' --reason "…"' if word == REJECT else "")


def approval_lines(
    run: str, approvals: Sequence[PendingApproval], rows: int = MAX_ROWS, width: int = MAX_VALUE, most: int = MAX_SHOWN,
    columns: int | None = None,
) -> Iterator[str]:  # fmt: skip
    """A run's approvals, each with all that is decided and the commands that decide it, each on a line of its own. A
    view with so many ``columns`` breaks longer lines, so nobody could copy them: it names the command that lists them.
    """
    for approval in approvals[:most]:
        until = f", until {approval.deadline}" if approval.deadline else ""
        verb = "wait" if approval.what == "scopes" else "waits"
        count = approval.about.get("elements")
        subject = f"{approval} for each of {count:,} elements" if isinstance(count, int) else str(approval)
        subject += f"{hints_text(approval)} (version {approval.version})"
        what = "an answer" if approval.what == ANSWER else "a decision"
        yield clean(f"{words.STATE_MARKS['awaiting']} {subject} {verb} for {what} since {approval.since}{until}")
        yield from (clean(f"    {text}") for text in [words.who_text(approval.about)] if text)
        lines, is_whole = subject_lines(approval, rows, width)
        yield from (f"    {line}" for line in lines)
        is_editable = approval.what != MESSAGE and approval.about.get(run_reader.EDITABLE, True)
        confirms = ANSWER if approval.what == ANSWER else APPROVE
        decisions = (confirms, REJECT, EDIT) if is_editable else (confirms, REJECT)
        commands = [decision_command(word, run, approval) for word in decisions if is_whole]
        if columns is not None and any(len(command) > columns - 4 for command in commands):
            commands = [shell("acts", "pending", run)]
        yield from (f"    {command}" for command in commands)
        if not is_whole:
            command = shell("acts", "show", run) if rows < MAX_ROWS else f"{shell('acts', 'pending', run)} --json"
            yield f"    nobody decides about what is cut: {command} prints all of it"
    if len(approvals) > most:
        yield f"… and {len(approvals) - most} more: {shell('acts', 'pending', run)} --json"
    if any(a.what == "plan" for a in approvals[:most]):
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
    lines = plan_lines(approval)
    parts = {k: v for k, v in approval.content.items() if not (lines and k in ("plan", "answeredBy"))}
    for name, part in parts.items():
        items = part.items() if isinstance(part, dict) else enumerate(part, 1) if isinstance(part, list) else ()
        if name != run_reader.WITH and (not isinstance(part, (dict, list)) or json_size(part) <= MAX_INLINE):
            lines.append(f"{name}  {json.dumps(part, ensure_ascii=False)}")
        else:
            lines.append("would be called with" if name == run_reader.WITH else name)
            lines += [f"  {key}  {json.dumps(value, ensure_ascii=False)}" for key, value in items]
    answers = approval.content.get("answeredBy") if approval.call is None else {}
    by_model = [id_ for id_, answer in answers.items() if "model" in answer] if isinstance(answers, dict) else []
    marks = [f"{words.BY_MODEL}: {', '.join(by_model)}"] if by_model else []
    whole = [clean(line) for line in (*changes, *marks, *lines)]
    visible_lines = [clean(line, width) for line in whole[:rows]]
    return visible_lines, visible_lines == whole


def plan_lines(approval: PendingApproval) -> list[str]:
    """The Calls of a plan that is decided, two lines each: what answers it, and the Call; none where it has no such
    Calls. What the run says of how they run is beside it.
    """
    content, about = approval.content or {}, approval.about
    calls, answers = content.get("plan"), content.get("answeredBy")
    names = [f"{at}:{call['_tool']}" for at, call in enumerate(calls, 1)] if isinstance(calls, list) else []
    if not isinstance(answers, dict) or set(names) != set(answers):
        return []
    remarks = about[run_reader.CALLS] if isinstance(about.get(run_reader.CALLS), dict) else {}
    lines = [f"plan, {count_text(len(names), 'call')}{_forecast(about.get(run_reader.FORECAST))}"]
    for name, call in zip(names, calls or (), strict=True):
        remark = f"  ({', '.join(map(str, remarks[name]))})" if isinstance(remarks.get(name), list) else ""
        parts = {key: value for key, value in call.items() if key != "_tool"}
        lines.append(f"  {name}  {json.dumps(answers[name], ensure_ascii=False)}{remark}")
        lines.append(f"    {json.dumps(parts, ensure_ascii=False)}")
    return lines


def _forecast(figures: Any) -> str:
    """``: 1 model request, about 0.002 USD``, as a run foresees it, at prices that are known here."""
    if not isinstance(figures, dict):
        return ""
    prompt, requests = figures.get("prompt"), figures["requests"]
    if prompt and (each := request_cost(str(prompt["model"]), int(prompt["bytes"]))) is not None:
        figures = {**figures, "cost": {k: round(n * each * prompt.get("part", 1), 6) for k, n in requests.items()}}
    return f": {words.forecast_text(figures)}"


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
        text = f"{record.get('date')}  {tick}{by} {_PAST.get(word, f'{word}ed')} {subject}"
        text = clean(f"{text} (version {record.get('version')}){proof}")
        text += f": {clean(reason, MAX_NOTE)}" if reason else ""
        yield Text(f"  {text}", "red" if word == REJECT else "")


def remembered_lines(run: str, report: Mapping[str, Any]) -> Iterator[Text]:
    """The approvals that hold for like calls, each with the command that ends it."""
    for name, rule in (report.get("remembered") or {}).items():
        limits = [f"if {rule['when']}"] if "when" in rule else []
        limits += [f"{rule['count']:,} more"] if "count" in rule else []
        limits += [f"until {rule['until']}"] if "until" in rule else []
        text = f"{rule.get('by') or 'somebody'} approves calls like {rule.get('call')}: {', '.join(limits) or 'all'}"
        yield Text(clean(f"{text}; {shell('acts', 'revoke', run, name)} ends it"), "yellow")


def calls_table(calls: Sequence[Mapping[str, Any]], limit: int = MAX_ROWS, title: str = "call") -> Table:
    ticks = ("tick",) if any(call.get("tick") for call in calls) else ()
    table = new_table(*ticks, "", title, "state", "writes", "note")
    tick = None
    calls = merge_skipped(calls)
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


def name_causes(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The Calls; the reason of one that was skipped is what became of the Call to which that goes back."""
    by_name = {(call.get("id"), call.get("instance"), call.get("tick")): call for call in calls}
    out = []
    for call in calls:
        name, tick = call.get("cause"), call.get("tick")
        cause = by_name.get((name, call.get("instance"), tick)) or by_name.get((name, None, tick))
        out.append({**call, **({} if cause is None else {"reason": words.cause_text(cause)})})
    return out


def merge_skipped(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The Calls, those that were skipped for the same Call as one, in the place of the first."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for at, call in enumerate(name_causes(calls)):
        key = (call["reason"], call.get("instance"), call.get("tick")) if call.get("cause") else (at,)
        groups.setdefault(key, []).append(call)
    names = (list_names([call.get("id") for call in group], MAX_MERGED) for group in groups.values())
    return [group[0] | ({"id": name} if group[1:] else {}) for name, group in zip(names, groups.values(), strict=True)]


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


_MORE_COUNTS: Final = {"running": "running", "handled": "took an error path"}


def set_text(report: Mapping[str, Any]) -> str:
    """``100,000 rows: 12,000 completed, 500 failed, 200 running; results: out.jsonl``; empty for any other run."""
    counts = words.set_counts(report)
    if counts is None:
        return ""
    total = "rows not counted yet" if counts.get("total") is None else f"{counts['total']:,} rows"
    parts = [f"{counts['completed']:,} completed", f"{counts['failed']:,} failed"]
    parts += [f"{counts[key]:,} {text}" for key, text in _MORE_COUNTS.items() if counts.get(key)]
    results = f"; results: {report['results']}" if report.get("results") else ""
    return clean(f"{total}: {', '.join(parts)}{results}", MAX_NOTE)


def _set_parts(run: str, report: Mapping[str, Any]) -> Iterator[RenderableType]:
    if text := set_text(report):
        yield Text(text)
    if failures := report.get("failures"):
        yield Text(f"one that failed: {shell('acts', 'show', run, '--instance', failures[0])}", "dim")
    if (words.set_counts(report) or {}).get("handled") and "phase" not in report:
        command = shell("acts", "retry", run, "--only-errors")
        yield Text(f"what took an error path, and what failed, runs again with: {command}", "dim")


def headline(status: str, run: str, *facts: str) -> Text:
    """``✓ completed  weather-1a2b  Plan  1.2 s``"""
    mark = (f"{words.STATE_MARKS.get(status, '·')} {clean(status)}", STATE_STYLES.get(status, ""))
    return Text.assemble(mark, (f"  {clean(run)}", "bold"), *((f"  {clean(fact)}", "dim") for fact in facts if fact))


def report_parts(
    run: str, report: Mapping[str, Any], rows: int = MAX_ROWS, columns: int | None = None
) -> Iterator[RenderableType]:
    """What the status of a run, its result, or one of its instances holds; ``columns``: see ``approval_lines``."""
    if isinstance(calls := report.get("calls"), list) and calls:
        yield calls_table(calls, rows)
    instances = []
    for name, item in words.named_instances(report).items():  # of a status, the state alone
        row = item if isinstance(item, dict) else {"status": item}
        errors = [e for e in row.get("errors") or () if isinstance(e, dict)]  # one of the whole instance has no call
        texts = [f"{e['call']}: {e.get('message')}" if e.get("call") else str(e.get("message")) for e in errors]
        instances.append({"id": name, "state": row.get("status"), "reason": "; ".join(texts)})
    if instances:
        yield Text(words.progress_bar(Counter(str(row["state"]) for row in instances)))
        names = {str(row["id"]) for row in instances}
        errors = [e for e in report.get("errors") or () if e.get("instance") or e.get("call") in names]
        causes = report.get("causes") or words.find_causes(errors, names)
        yield from (Text(clean(f"✗ {words.failure_cause_text(cause)}", MAX_NOTE), "red") for cause in causes)
        instances.sort(key=lambda row: str(row["state"]) not in ("failed", "rejected", "partial"))
        yield calls_table(instances, min(rows, MAX_SHOWN), "instance")
        yield Text(f"one of them: {shell('acts', 'show', run, '--instance', instances[0]['id'])}", "dim")
    yield from _set_parts(run, report)
    for name in ("output", "state"):
        if report.get(name) not in (None, {}):
            yield Text(f"\n{name}", "bold")
            yield Text(value_text(report[name]))
    if (report.get("usage") or {}).get("requests"):
        gap = "\n" if "state" in report else ""
        yield Text(f"{gap}usage  {clean(words.usage_text(report['usage']))}", "dim")
    for retry in report.get("retries") or ():
        yield Text(f"{call_name(retry)}  {describe(retry)}", "yellow")
    yield from remembered_lines(run, report)
    for note in report.get("notes") or ():
        yield Text(f"note: {clean(note)}", "dim")
    if any(call.get("waitsFor") for call in calls or ()):
        message_ = '\'{"type":"input","input":{…}}\''
        yield Text(f"waits for a message: {shell('acts', 'provide', run)} {message_}", "magenta")
    approvals = [PendingApproval.model_validate(item) for item in report.get("pending") or ()]
    yield from (Text(line, "magenta") for line in approval_lines(run, approvals, columns=columns))
    yield from _decision_lines(report)


def print_outcome(outcome: run_reader.RunResult, run: str, *facts: str) -> None:
    screen, result = console(), outcome.raw
    ticks = result.get("ticks") if isinstance(result, dict) else None
    screen.print(headline(outcome.status, run, *facts, count_text(ticks, "tick") if ticks else ""))
    if isinstance(result, dict):
        if isinstance(undone := result.get("undone"), dict):
            errors = len(undone.get("errors") or ())
            more = f", {errors} not: {shell('acts', 'show', undone.get('workflowId') or run)}" if errors else ""
            screen.print(Text(clean(f"undone: {count_text(int(undone.get('calls', 0)), 'call')}{more}"), "yellow"))
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


def failure_blocks(outcome: run_reader.RunResult) -> list[MessageBlock]:
    """The failures of a run, a message each, but those that a table beside them has: that of an agent's calls, or any
    that has the message whole, where both are seen.
    """
    errors = outcome.raw.get("errors") if isinstance(outcome.raw, dict) else None
    blocks: list[MessageBlock] = []
    for error in errors if isinstance(errors, list) else ():
        where = [f"{key} {error[key]}" for key in ("call", "instance") if error.get(key)]
        if error.get("tick"):
            where = [] if error.get("call") else [f"tick {error['tick']}"]
        is_seen = is_one_place() and len(str(error.get("message"))) < MAX_SEEN and not error.get("place")
        if where and not is_seen:
            place = f" at {error['place']}" if error.get("place") else ""
            blocks.append(message(f"{error.get('message')} [{error.get('code')}]{place}", where=" of ".join(where)))
    if (more := len(blocks) - MAX_SHOWN) > 0:
        blocks[MAX_SHOWN:] = [message(f"… and {more} more failures; --json has all", severity="note")]
    return [*blocks, *error_path_blocks(outcome.raw if isinstance(outcome.raw, dict) else {})]


def error_path_blocks(report: Mapping[str, Any]) -> list[MessageBlock]:
    """A warning for each error path that was taken by a failure which no Tool declares: most likely a bug."""
    calls = [*(report.get("calls") or ())]
    for name, item in words.named_instances(report).items():
        calls += [{**call, "instance": name} for call in (item.get("calls") or () if isinstance(item, dict) else ())]
    texts = [f"{call_name(call)} {_WENT_DOWN}: {call['undeclared']}" for call in calls if call.get("undeclared")]
    rows = (words.set_counts(report) or {}).get("undeclared") or {}
    texts += [f"{count_text(count, 'call')} of rows {_WENT_DOWN}: {name}" for name, count in rows.items()]
    blocks = [message(clean(f"{text}, {_UNDECLARED}", MAX_NOTE), severity="warning") for text in texts[:MAX_SHOWN]]
    if more := len(texts) - len(blocks):
        blocks.append(message(f"… and {more} more; --json has all", severity="note"))
    return blocks


_WENT_DOWN: Final = "went down an error path"
_UNDECLARED: Final = "not one of its tool's declared failures"


# A query costs the worker a look at the run. Four per second look live; an unchanged run is polled once per second.
FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 1.0
# Who does not watch is told what the run waits for: a plan that takes a moment is never asked
FIRST_LOOK_SECONDS: Final = 1.5
MAX_LOOK_SECONDS: Final = 5.0
# DEC mode 2026: the terminal shows all in between at once, so nothing flickers; others ignore it
_BEGIN_DRAWING, _END_DRAWING = "\x1b[?2026h", "\x1b[?2026l"
SILENCE_SECONDS: Final = 3.0  # a worker that does not answer for so long is reported


async def watch_run(run: run_reader.RunReader, *, shows_end: bool = False) -> run_reader.RunResult:
    """Wait for a run and show its progress on stderr: a live table on a terminal, else each of its lines once. What is
    printed of its end says how it ended, unless ``shows_end``.
    """
    began, screen, printed = time.monotonic(), console(stderr=True, wrap=True), set[str]()
    drawn: tuple[Mapping[str, Any], str] | None = None
    live = Live(console=screen, auto_refresh=False, transient=True) if screen.is_terminal else None
    screen.width = screen.width if live else 1_000

    def show(status: Mapping[str, Any], silence: str) -> None:
        """Show a status, and why the worker is silent; "" while it answers."""
        nonlocal printed, drawn
        if live and drawn == (status, silence):
            return  # a view that nothing has changed is still while one reads it or copies from it
        drawn, seconds = (status, silence), time.monotonic() - began
        tick = f"tick {status['tick']}" if status.get("tick") else ""
        facts = (tick, counts_text(status.get("calls") or ()), f"{seconds:.1f} s") if live else (tick,)
        head = headline(str(status.get("phase") or "starting"), run.id, *facts)
        if live:
            parts = report_parts(run.id, status, max(screen.height - 6, 3), screen.width)
            screen.file.write(_BEGIN_DRAWING)
            live.update(Group(head, *([Text(silence, "yellow")] if silence else []), *parts), refresh=True)
            screen.file.write(_END_DRAWING)
            screen.file.flush()
            return
        calls = [call for call in name_causes(status.get("calls") or ()) if call.get("state") != "pending"]
        calls += status.get("retries") or ()
        events = [f"{call_name(call)}  {call.get('state')}  {describe(call)}".strip() for call in calls]
        approvals = [PendingApproval.model_validate(item) for item in status.get("pending") or ()]
        waits = ("\n".join(approval_lines(run.id, [approval])) for approval in approvals[:MAX_SHOWN])  # each as a whole
        entries = dict.fromkeys((head.plain, *events, set_text(status), *waits, silence))
        for line in (line for entry in entries if entry not in printed for line in entry.split("\n")):
            if line:
                screen.print(f"{seconds:8.2f} s  {line}")
        printed = set(entries)

    with live or nullcontext():
        outcome = await _follow(run, show)
    if shows_end and isinstance(outcome.raw, dict):
        show({**outcome.raw, "phase": outcome.status}, "")  # what happened since the last query
    return outcome


async def await_run(run: run_reader.RunReader) -> run_reader.RunResult:
    """Wait for a run, and say on stderr, once each, for whom or what it waits itself."""
    printed = set[str]()

    def show(status: Mapping[str, Any], silence: str) -> None:
        for line in (*waits_of(run.id, status), silence):
            if line and line not in printed:
                print_err(line, "magenta" if line.startswith(words.STATE_MARKS["awaiting"]) else "yellow")
                printed.add(line)

    return await _follow(run, show, FIRST_LOOK_SECONDS, MAX_LOOK_SECONDS)


def waits_of(run: str, status: Mapping[str, Any]) -> Iterator[str]:
    """What a run waits for that is not its own work: people, messages, workers, what is tried again."""
    approvals = [PendingApproval.model_validate(item) for item in status.get("pending") or ()]
    for approval in approvals[:MAX_SHOWN]:
        text = f"{words.STATE_MARKS['awaiting']} {approval} (version {approval.version}){hints_text(approval)}"
        yield clean(f"{text} waits for a person: {shell('acts', 'pending', run)}")
    for call in (*(status.get("calls") or ()), *(status.get("retries") or ())):
        if call.get("attempt"):
            yield clean(f"{call_name(call)} is tried again, after: {call.get('lastFailure')}", MAX_NOTE)
        elif call.get("seconds"):
            yield clean(f"{call_name(call)} runs for more than a minute at {call.get('worker')}", MAX_NOTE)
        elif call.get("taskQueue") or call.get("waitsUntil"):
            yield clean(f"{call_name(call)} {describe(call)}", MAX_NOTE)
        elif call.get("waitsFor"):
            yield clean(f"{call_name(call)} {describe(call)}: {shell('acts', 'provide', run)} MESSAGE", MAX_NOTE)


async def _follow(
    run: run_reader.RunReader, show: Callable[[Mapping[str, Any], str], None], first_look: float = 0.0,
    longest: float = LONGEST_PAUSE_SECONDS,
) -> run_reader.RunResult:  # fmt: skip
    last: Mapping[str, Any] = {}
    answered, pause = time.monotonic(), FIRST_PAUSE_SECONDS
    ending = asyncio.ensure_future(run_reader.wait_for_outcome(run.handle))
    try:
        await asyncio.wait([ending], timeout=first_look)
        while not ending.done():
            reader = run.fresh()
            progress = await run_reader.read_progress(reader, MAX_SHOWN)
            pause = FIRST_PAUSE_SECONDS if progress not in (None, last) else min(pause * 1.5, longest)
            if progress is not None:
                answered, last = time.monotonic(), progress
            is_silent = time.monotonic() - answered > SILENCE_SECONDS
            show(last, f"{await reader.silence()}: the run waits" if is_silent else "")
            await asyncio.wait([ending], timeout=pause)
        return await ending
    finally:
        ending.cancel()


MAX_NAMES: Final = 20  # in one line, and outcomes
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def print_diff(rows: Sequence[str]) -> None:
    for row in rows:
        console().print(row, style="bold" if row[:3] in ("+++", "---") else _DIFF_STYLES.get(row[:1]))


def print_plan(request: Json, preflight: Preflight, format_: str = "text") -> None:
    draw: dict[str, Callable[[ValidatedPlan], str]] = {"text": draw_text, "mermaid": draw_mermaid, "svg": plan_svg}
    print_drawing(draw[format_](validate_request(request, preflight.tools, preflight.served)), format_)


def print_drawing(drawing: str, format_: str) -> None:
    """Print a drawing to stdout: ``mermaid`` and ``svg`` as they are, for a file; ``text`` for a terminal."""
    if format_ != "text":
        print((as_file(drawing) if format_ == "svg" else drawing).rstrip("\n"))
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
    combinations = [c for c in outcomes["combinations"] if c["choices"] or "conditions" in c]
    if combinations:
        screen.print("outcomes", style="bold")
    for item in combinations[:MAX_NAMES]:
        choices = [f"{call} → {path}" for call, path in item["choices"].items()]
        choices += [
            f"{call} {'runs' if holds else 'does not run'}" for call, holds in item.get("conditions", {}).items()
        ]
        screen.print("  if " + clean(", ".join(choices)))
        for key, style in (("run", None), ("skipped", "dim"), ("failed", "red"), ("waiting", None)):
            if item.get(key):
                screen.print(f"    {key.ljust(8)} {list_names(item[key], MAX_NAMES)}", style=style)
    if combinations and (len(combinations) > MAX_NAMES or outcomes["truncated"]):
        screen.print("  … and more; --json lists up to 64", style="dim")
    screen.print("forecast", style="bold")
    screen.print(f"  {clean(words.forecast_text(simulation))}")
