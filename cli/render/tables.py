"""Runs, calls, instances and errors as tables and lines for a terminal. Everything shown is clean text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from acts.language.errors import truncate
from acts.views.set_counts import named_instances, set_counts
from acts.views.state_marks import CALL_STATES, STATE_MARKS, UNKNOWN_MARK, element_counts_text
from cli.command_errors import MessageBlock, message
from cli.console import clean, clean_lines, console, count_text
from cli.render.pending_view import print_decisions, rejection_text
from cli.render.set_progress_view import outcome_lines
from cli.runs.run_outcome import Outcome

STATE_STYLES: Final = {
    "running": "bold cyan", "awaiting": "bold magenta", "ready": "cyan", "pending": "dim", "completed": "green",
    "detached": "green", "skipped": "dim", "failed": "bold red", "rejected": "bold red", "cancelled": "yellow",
    "partial": "bold yellow", "terminated": "bold red", "timedOut": "bold red", "planning": "cyan",
    "paused": "bold yellow", "continued": "cyan",
}  # fmt: skip
# The rows that are kept if not all of them fit
_IMPORTANT_FIRST: Final = (
    "awaiting", "running", "failed", "rejected", "ready", "cancelled", "detached", "completed", "skipped", "pending",
)  # fmt: skip
MAX_NOTE: Final = 200
MAX_NAME: Final = 100
MAX_FAILURES: Final = 20  # printed in full; more of them are mostly alike
MAX_ROWS: Final = 200  # of a table or a value; --json has all of them
MAX_INSTANCES: Final = 20  # those that failed, wait or run come first; the others are counted


def new_table(*titles: str, **options: Any) -> Table:
    """An empty table without borders; long cells are folded."""
    table = Table(box=None, header_style="dim", **({"pad_edge": False} | options))
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title in ("", "tick", "state"))
    return table


def calls_table(calls: Sequence[Mapping[str, Any]], limit: int | None = None) -> Table:
    """A row per call; if there are more than ``limit``, the important ones."""
    ticks = ("tick",) if any(call.get("tick") for call in calls) else ()
    table = new_table(*ticks, "", "call", "state", "writes", "note")
    selection, omitted = _select_rows(calls, limit)
    tick = None
    for call in selection:
        state = str(call.get("state", ""))
        own = [Text("" if call.get("tick") == tick else clean(call.get("tick") or ""), "dim")] if ticks else []
        tick = call.get("tick")
        cells = (call_name(call), clean(call.get("outputPath") or "", MAX_NAME), describe_call(call))
        name, path, note = map(Text, cells)
        table.add_row(*own, _mark(state), name, Text(clean(state), STATE_STYLES.get(state, "")), path, note)
    if omitted:
        table.add_row(*("" for _ in ticks), "", _omitted_text(omitted))
    return table


def _mark(state: str) -> Text:
    return Text(STATE_MARKS.get(state, UNKNOWN_MARK), STATE_STYLES.get(state, ""))


def call_name(call: Mapping[str, Any], key: str = "id") -> str:
    """``2:pay [c1]``"""
    return clean(call.get(key) or "", MAX_NAME) + (f" [{clean(call['instance'], 60)}]" if call.get("instance") else "")


def describe_call(call: Mapping[str, Any]) -> str:
    """The error of a call, why it was skipped, what it waits for, its elements, or which attempt of it runs."""
    error = call.get("error")
    if isinstance(error, Mapping):
        return clean(f"{error.get('code')}: {error.get('message')}", MAX_NOTE)
    if isinstance(error, str):
        return clean(error, MAX_NOTE)
    if isinstance(call.get("reason"), str):
        return clean(call["reason"], MAX_NOTE)
    if isinstance(call.get("waitsFor"), list):
        return clean(f"waits for {', '.join(map(str, call['waitsFor']))}", MAX_NOTE)
    if call.get("taskQueue"):
        return clean(f'waits for a worker of the task queue "{call["taskQueue"]}"', MAX_NOTE)
    if call.get("attempt"):
        return clean(f"attempt {call['attempt']}, after: {call.get('lastFailure') or 'a failure'}", MAX_NOTE)
    if call.get("state") == "awaiting":
        return "waits for a decision"
    return element_counts_text(call.get("elements"))


def _select_rows(rows: Sequence[Mapping[str, Any]], limit: int | None) -> tuple[list[Mapping[str, Any]], Counter[str]]:
    """The rows to show, in their order, and how many of each state are omitted."""
    if limit is None or len(rows) <= limit:
        return list(rows), Counter()
    rank = {state: i for i, state in enumerate(_IMPORTANT_FIRST)}
    order = sorted(range(len(rows)), key=lambda i: rank.get(str(rows[i].get("state")), len(rank)))
    indices = set(order[: max(limit - 1, 1)])
    omitted = Counter(str(row.get("state")) for i, row in enumerate(rows) if i not in indices)
    return [row for i, row in enumerate(rows) if i in indices], omitted


def _omitted_text(omitted: Mapping[str, int]) -> Text:
    return Text(f"… and {sum(omitted.values())} more: {counts_text(omitted)}", "dim")


def counts_text(counts: Mapping[str, int]) -> str:
    """``1 running, 3 completed``"""
    return ", ".join(f"{counts[s]} {s}" for s in CALL_STATES if counts.get(s))


def headline(status: str, run: str, *facts: str) -> Text:
    """``✓ completed  weather-1a2b  Plan  1.2 s``"""
    text = Text()
    text.append(f"{STATE_MARKS.get(status, '·')} {clean(status)}", STATE_STYLES.get(status, ""))
    text.append(f"  {clean(run)}", "bold")
    for fact in facts:
        if fact:
            text.append(f"  {clean(fact)}", "dim")
    return text


def print_outcome(outcome: Outcome, run: str, *facts: str, rows: int = MAX_ROWS) -> None:
    """Print a run that has ended."""
    screen = console()
    result = outcome.result
    ticks = result.get("ticks") if isinstance(result, dict) else None
    screen.print(headline(outcome.status, run, *facts, count_text(ticks, "tick") if ticks else ""))
    if isinstance(result, dict):
        if taken := taken_over_text(result.get("resumedFrom")):
            screen.print(taken, style="dim")
        if rejection := rejection_text(result):
            screen.print(rejection, style="bold red")
        _print_result(result, rows)
        print_decisions(result.get("decisions"))
    elif result is not None:
        screen.print(value_text(result, rows))
    if outcome.error is not None and not outcome.problems:
        text = "\n  ".join(clean_lines(str(outcome.error.get("message"))))
        screen.print(f"{clean(outcome.error.get('type'))}: {text}")


def taken_over_text(resumed: Any) -> str:
    """``12 calls and 3 instances taken over from order-7``; empty for a run that resumed none.

    Of a set: ``54 rows taken over from order-7``.
    """
    if not isinstance(resumed, dict):
        return ""
    earlier = clean(resumed.get("workflowId"), 200)
    rows = (resumed.get("instances") or {}).get("takenOver")
    if isinstance(rows, int):
        return f"{count_text(rows, 'row')} taken over from {earlier}"
    counts = [count_text(len(resumed.get("calls") or ()), "call")]
    if instances := resumed.get("instances"):
        counts.append(f"calls of {count_text(len(instances), 'instance')}")
    return f"{' and '.join(counts)} taken over from {earlier}"


def print_tables(report: Mapping[str, Any], rows: int = MAX_ROWS) -> None:
    """Print the calls and the instances of a result or status."""
    calls, instances = report.get("calls"), named_instances(report)
    if isinstance(calls, list) and calls:
        console().print(calls_table(calls, rows))
    if instances:
        console().print(instances_table(instances, min(rows, MAX_INSTANCES)))
    for line in outcome_lines(report) if set_counts(report) is not None else ():
        console().print(line)


def _print_result(result: Mapping[str, Any], rows: int) -> None:
    screen = console()
    print_tables(result, rows)
    reported = [e for e in result.get("errors") or () if isinstance(e, dict) and e.get("tick")]
    if reported:
        screen.print("\nerrors reported to the model", style="bold")
        screen.print(_errors_table(reported[:rows]))
    for name in ("output", "state"):
        if result.get(name) not in (None, {}):
            screen.print(f"\n{name}", style="bold")
            screen.print(value_text(result[name], rows))
    usage = result.get("usage")
    if isinstance(usage, dict) and usage.get("requests"):
        screen.print(f"\nusage  {clean(usage_text(usage))}", style="dim")


def usage_text(usage: Mapping[str, Any]) -> str:
    """The requests, tokens and US dollars that a run spent on models."""
    requests, cost = usage.get("requests", 0), usage.get("cost")
    cached = f" ({usage['cachedTokens']:,} cached)" if usage.get("cachedTokens") else ""
    price = ", price unknown" if cost is None else f", {cost:.4f} USD" if cost else ""
    return (
        f"{count_text(requests, 'request')}, {usage.get('inputTokens', 0):,} tokens in{cached}, "
        f"{usage.get('outputTokens', 0):,} out{price}"
    )


def _errors_table(errors: Sequence[Mapping[str, Any]]) -> Table:
    """The errors that an agent's model received, tick by tick."""
    table = new_table("tick", "call", "error")
    for error in errors:
        text = clean(f"{error.get('code')}: {error.get('message')}", MAX_NOTE)
        table.add_row(*map(Text, (clean(error["tick"]), call_name(error, "call"), text)))
    return table


def instances_table(instances: Mapping[str, Any], limit: int | None = None) -> Table:
    """A row per instance of a batch, of its result or its status alone; if there are more, the important ones."""
    table = new_table("", "instance", "status", "errors")
    items = [{"id": name, "state": _status(item), "item": item} for name, item in instances.items()]
    selection, omitted = _select_rows(items, limit)
    for row in selection:
        state = row["state"]
        errors = row["item"].get("errors") or [] if isinstance(row["item"], dict) else []
        text = "; ".join(clean(_short_error(e), 100) for e in errors if isinstance(e, dict))
        status = Text(clean(state), STATE_STYLES.get(state, ""))
        table.add_row(_mark(state), Text(clean(row["id"], MAX_NAME)), status, Text(text))
    if omitted:
        table.add_row("", _omitted_text(omitted), "", "")
    return table


def _short_error(error: Mapping[str, Any]) -> str:
    """``2:pay: no funds``; an error of the whole instance, such as an invalid Request, has no call."""
    return f"{error['call']}: {error.get('message')}" if error.get("call") else str(error.get("message"))


def _status(item: Any) -> str:
    return str(item.get("status") if isinstance(item, Mapping) else item)


def value_text(value: Any, limit: int = MAX_ROWS) -> str:
    """A value as clean, indented JSON of at most ``limit`` lines."""
    rows = json.dumps(value, indent=2, ensure_ascii=False).splitlines()
    more = [f"… {len(rows) - limit} more lines; --json prints all"] if len(rows) > limit else []
    return "\n".join([clean(truncate(row, 1000)) for row in rows[:limit]] + more)


def failure_blocks(outcome: Outcome) -> list[MessageBlock]:
    """The failures of a run, a message each; those reported to an agent's model are in its tables already."""
    errors = outcome.result.get("errors") if isinstance(outcome.result, dict) else None
    items = [e for e in errors if isinstance(e, dict) and not e.get("tick")] if isinstance(errors, list) else []
    blocks = [message(f"{e.get('message')} [{e.get('code')}]", where=_where(e)) for e in items if _where(e)]
    if (more := len(blocks) - MAX_FAILURES) > 0:
        note = message(f"… and {more} more failures; --json has all", severity="note")
        return [*blocks[:MAX_FAILURES], note]
    return blocks


def _where(error: Mapping[str, Any]) -> str:
    """``call 2:pay of instance b``, ``instance b``, or nothing."""
    call, instance = error.get("call"), error.get("instance")
    return " of ".join([*([f"call {call}"] if call else []), *([f"instance {instance}"] if instance else [])])
