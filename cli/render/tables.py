"""Runs and their calls as tables and lines for a terminal. Everything shown is clean text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate
from cli.command_errors import MessageBlock
from cli.console import clean, console, lines
from cli.runs.pending_view import print_decisions, verdict
from cli.runs.run_outcome import Outcome

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

# mark and style of a call's state
STATES: Final[dict[str, tuple[str, str]]] = {
    "running": ("▶", "bold cyan"), "awaiting": ("?", "bold magenta"), "ready": ("·", "cyan"), "pending": ("·", "dim"),
    "completed": ("✓", "green"), "detached": ("↗", "green"), "skipped": ("–", "dim"),
    "failed": ("✗", "bold red"), "rejected": ("✗", "bold red"), "cancelled": ("⊘", "yellow"),
}  # fmt: skip
# and of a run's
RUNS: Final[dict[str, tuple[str, str]]] = {
    **STATES, "partial": ("✗", "bold yellow"), "terminated": ("✗", "bold red"), "timedOut": ("✗", "bold red"),
    "planning": ("▶", "cyan"), "paused": ("⏸", "bold yellow"), "continued": ("↗", "cyan"),
}  # fmt: skip
# What matters most when not all rows fit
_FIRST: Final = (
    "awaiting",
    "running",
    "failed",
    "rejected",
    "ready",
    "cancelled",
    "detached",
    "completed",
    "skipped",
    "pending",
)
MAX_NOTE: Final = 200
MAX_FAILURES: Final = 20  # told in full; more of them are mostly alike
MAX_ROWS: Final = 200  # of a table or a value: more is not read, and --json has all of it


def calls_table(calls: Sequence[Mapping[str, Any]], limit: int | None = None) -> Table:
    """A row per call; where they do not fit, what needs attention comes first."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    ticks = ("tick",) if any(call.get("tick") for call in calls) else ()
    for title in (*ticks, "", "call", "state", "writes", "note"):
        table.add_column(title, overflow="fold", no_wrap=title in ("", "tick", "state"))
    shown, left = _chosen(calls, limit)
    tick = None
    for call in shown:
        state = str(call.get("state", ""))
        mark, style = STATES.get(state, ("?", ""))
        name = clean(call.get("id", ""), 100) + (f" [{clean(call['instance'], 60)}]" if call.get("instance") else "")
        path = clean(call.get("outputPath") or "", 100)
        own = [Text("" if call.get("tick") == tick else clean(call.get("tick") or ""), "dim")] if ticks else []
        tick = call.get("tick")
        table.add_row(*own, Text(mark, style), Text(name), Text(clean(state), style), Text(path), Text(note(call)))
    if left:
        table.add_row(*("" for _ in ticks), "", Text(f"… and {sum(left.values())} more: {counts_text(left)}", "dim"))
    return table


def note(call: Mapping[str, Any]) -> str:
    """What is to be said of a call beside its state."""
    error = call.get("error")
    if isinstance(error, Mapping):
        return clean(f"{error.get('code')}: {error.get('message')}", MAX_NOTE)
    if isinstance(error, str):
        return clean(error, MAX_NOTE)
    waits = call.get("waitsFor")
    if isinstance(waits, list):
        return clean(f"waits for {', '.join(map(str, waits))}", MAX_NOTE)
    return "waits for a decision" if call.get("state") == "awaiting" else ""


def _chosen(calls: Sequence[Mapping[str, Any]], limit: int | None) -> tuple[list[Mapping[str, Any]], Counter[str]]:
    """The calls to show, in the order of the plan, and how many of each state are left out."""
    if limit is None or len(calls) <= limit:
        return list(calls), Counter()
    rank = {state: i for i, state in enumerate(_FIRST)}
    order = sorted(range(len(calls)), key=lambda i: rank.get(str(calls[i].get("state")), len(rank)))
    keep = set(order[: max(limit - 1, 1)])
    left = Counter(str(c.get("state")) for i, c in enumerate(calls) if i not in keep)
    return [c for i, c in enumerate(calls) if i in keep], left


def counts_text(counts: Mapping[str, int]) -> str:
    """``3 completed, 1 running``"""
    return ", ".join(f"{counts[s]} {s}" for s in STATES if counts.get(s))


def headline(status: str, run: str, *facts: str) -> Text:
    """``✓ completed  weather-1a2b  Plan  1.2 s``"""
    from rich.text import Text

    mark, style = RUNS.get(status, ("·", ""))
    text = Text()
    text.append(f"{mark} {clean(status)}", style)
    text.append(f"  {clean(run)}", "bold")
    for fact in facts:
        if fact:
            text.append(f"  {clean(fact)}", "dim")
    return text


def print_outcome(outcome: Outcome, run: str, *facts: str, rows: int = MAX_ROWS) -> None:
    """A finished run for a person, on stdout."""
    screen = console()
    result = outcome.result
    ticks = result.get("ticks") if isinstance(result, dict) else None
    screen.print(headline(outcome.status, run, *facts, f"{ticks} tick{'s' * (ticks != 1)}" if ticks else ""))
    if isinstance(result, dict):
        if why := verdict(result):
            screen.print(why, style="bold red")
        _print_result(result, rows)
        print_decisions(result.get("decisions"))
    elif result is not None:
        screen.print(value_text(result, rows))
    if outcome.error is not None and not outcome.problems:
        screen.print(f"{clean(outcome.error.get('type'))}: " + "\n  ".join(lines(str(outcome.error.get("message")))))


def _print_result(result: Mapping[str, Any], rows: int) -> None:
    screen = console()
    calls, instances = result.get("calls"), result.get("instances")
    if isinstance(calls, list) and calls:
        screen.print(calls_table(calls, rows))
    if isinstance(instances, dict) and instances:
        screen.print(instances_table(instances, rows))
    told = [e for e in result.get("errors") or () if isinstance(e, dict) and e.get("tick")]
    if told:
        screen.print("\ntold to the model", style="bold")
        screen.print(_errors_table(told[:rows]))
    for name in ("output", "state"):
        if result.get(name) not in (None, {}):
            screen.print(f"\n{name}", style="bold")
            screen.print(value_text(result[name], rows))
    usage = result.get("usage")
    if isinstance(usage, dict) and usage.get("requests"):
        screen.print(f"\nusage  {clean(usage_text(usage))}", style="dim")


def usage_text(usage: Mapping[str, Any]) -> str:
    """What a run spent on models."""
    requests, cost = usage.get("requests"), usage.get("cost")
    cached = f" ({usage['cachedTokens']:,} cached)" if usage.get("cachedTokens") else ""
    price = ", price unknown" if cost is None else f", {cost:.4f} USD" if cost else ""
    return (
        f"{requests} request{'s' * (requests != 1)}, {usage.get('inputTokens', 0):,} tokens in{cached}, "
        f"{usage.get('outputTokens', 0):,} out{price}"
    )


def _errors_table(errors: Sequence[Mapping[str, Any]]) -> Table:
    """What an agent's model was told that went wrong, tick by tick."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("tick", "call", "error"):
        table.add_column(title, overflow="fold")
    for error in errors:
        text = clean(f"{error.get('code')}: {error.get('message')}", MAX_NOTE)
        call = clean(error.get("call") or "", 100)
        call += f" [{clean(error['instance'], 60)}]" if error.get("instance") else ""
        table.add_row(Text(clean(error["tick"])), Text(call), Text(text))
    return table


def instances_table(instances: Mapping[str, Any], limit: int | None = None) -> Table:
    """A row per instance of a batch (its result, or its status alone); what needs attention is kept."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("", "instance", "status", "errors"):
        table.add_column(title, overflow="fold")
    items = [{"id": name, "state": _status(item), "item": item} for name, item in instances.items()]
    shown, left = _chosen(items, limit)
    for row in shown:
        mark, style = RUNS.get(row["state"], ("·", ""))
        errors = row["item"].get("errors") or [] if isinstance(row["item"], dict) else []
        text = "; ".join(clean(_short_error(e), 100) for e in errors if isinstance(e, dict))
        table.add_row(Text(mark, style), Text(clean(row["id"], 100)), Text(clean(row["state"]), style), Text(text))
    if left:
        table.add_row("", Text(f"… and {sum(left.values())} more: {counts_text(left)}", "dim"), "", "")
    return table


def _short_error(error: Mapping[str, Any]) -> str:
    """``2:pay: no funds``; one of the whole instance, as when its Request is refused, has no call."""
    return f"{error['call']}: {error.get('message')}" if error.get("call") else str(error.get("message"))


def _status(item: Any) -> str:
    return str(item.get("status") if isinstance(item, Mapping) else item)


def value_text(value: Any, limit: int = MAX_ROWS) -> str:
    """JSON for reading: clean, and cut where nobody reads on (``--json`` has all of it)."""
    rows = json.dumps(value, indent=2, ensure_ascii=False).splitlines()
    more = [f"… {len(rows) - limit} more lines; --json prints all"] if len(rows) > limit else []
    return "\n".join([clean(truncate(row, 1000)) for row in rows[:limit]] + more)


def failure_blocks(outcome: Outcome) -> list[MessageBlock]:
    """What failed in a run, each as a block; what an agent's model was told stands in its outcome already."""
    errors = outcome.result.get("errors") if isinstance(outcome.result, dict) else None
    found = [e for e in errors if isinstance(e, dict) and not e.get("tick")] if isinstance(errors, list) else []
    out = [MessageBlock(f"{e.get('message')} [{e.get('code')}]", _where(e)) for e in found if _where(e)]
    more = len(out) - MAX_FAILURES
    return [
        *out[:MAX_FAILURES],
        *([MessageBlock(f"… and {more} more failures; --json has all", severity="note")] * (more > 0)),
    ]


def _where(error: Mapping[str, Any]) -> str:
    """``call 2:pay of instance b``, ``instance b``, or nothing."""
    call, instance = error.get("call"), error.get("instance")
    return " of ".join([*([f"call {call}"] if call else []), *([f"instance {instance}"] if instance else [])])
