"""States, counts and text from outside, as people read them: marks, phrases, and Markdown for the Web UI.

* Text from outside (names, messages, reasons) is in code spans, which render it literally: no markup, scripts, links
  or typographic quotes. (Character references would escape marks but not quotes, and would make the raw page hard to
  read.)
* A page is bounded, and cut between lines. The Web UI requests the page with the text in the URL, which may have 1
  MiB; one character takes up to 12 bytes there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from acts.language.errors import format_choices, one_line, truncate, visible
from acts.language.values import ABSENT, Json, is_equal
from acts.language.wire import INNER_PLAN, WAIT
from acts.tree.decisions import TOOL_CHANGES

# The states of a Call, in the order in which counts list them
CALL_STATES: Final = (
    "running", "awaiting", "ready", "pending", "completed", "detached", "skipped", "failed", "rejected", "cancelled",
)  # fmt: skip
_COUNTS: Final = ("total", "completed", "failed", "running")
STATE_MARKS: Final[dict[str, str]] = {
    "running": "▶", "awaiting": "⏸", "ready": "·", "pending": "·", "completed": "✓", "detached": "↗", "skipped": "–",
    "failed": "✗", "rejected": "✗", "cancelled": "⊘",
    # of the Calls of an instance that has not ended and reports none of them
    "open": "▶",
    # of runs alone
    "planning": "▶", "paused": "⏸", "partial": "✗", "terminated": "✗", "timedOut": "✗", "continued": "↗",
}  # fmt: skip
UNKNOWN_MARK: Final = "?"
# … and of the instances of a batch that have ended, in a bar
BAR_MARKS: Final = {"failed": "✗", "rejected": "✗", "partial": "✗", "cancelled": "⊘", "completed": "█"}
_MAX_CAUSE_TEXT: Final = 200  # characters of a message by which causes are told apart, and that is shown


# -- reports -------------------------------------------------------------------


def set_counts(report: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """``{total, completed, failed, running}`` of a run over a set; None for any other report."""
    instances = (report or {}).get("instances")
    if not isinstance(instances, dict) or not isinstance(instances.get("completed"), int):
        return None
    return instances


def named_instances(report: Mapping[str, Any] | None) -> Mapping[str, Any]:
    instances = (report or {}).get("instances")
    return instances if isinstance(instances, dict) and set_counts(report) is None else {}


def element_counts_text(counts: Any) -> str:
    """``3 of 10 elements done, 1 failed, 2 running``, or nothing where a report has no such counts."""
    if not isinstance(counts, Mapping) or not all(isinstance(counts.get(k, 0), int) for k in _COUNTS):
        return ""
    more = [f"{counts[k]:,} {k}" for k in ("failed", "running") if counts.get(k)]
    return ", ".join([f"{counts.get('completed', 0):,} of {counts.get('total', 0):,} elements done", *more])


_MAX_CAUSES: Final = 20  # causes of failures that are told apart, the most frequent ones
_MAX_EXAMPLES: Final = 5  # instances of one cause


def find_causes(errors: Iterable[Mapping[str, Any]], instances: Container[str] = ()) -> list[dict[str, Any]]:
    """``[{call?, code, message, count, instances: the first}]`` of failures, the most frequent first: those of one Call
    and code whose messages differ in numbers alone have one cause, with the message of the first. What names one of
    the ``instances`` in place of a Call is the failure of its whole run.
    """
    causes: dict[tuple[str, str, str], dict[str, Any]] = {}
    for error in errors:
        call, code, message = (str(error.get(key) or "") for key in ("call", "code", "message"))
        instance, call = (call, "") if call in instances else (error.get("instance"), call)
        key = call, code, re.sub(r"\d+", "#", message[:_MAX_CAUSE_TEXT])
        cause = causes.setdefault(
            key, {**({"call": call} if call else {}), "code": code, "message": message, "count": 0, "instances": []}
        )
        cause["count"] += 1
        if instance and len(cause["instances"]) < _MAX_EXAMPLES:
            cause["instances"].append(str(instance))
    return sorted(causes.values(), key=lambda cause: -cause["count"])[:_MAX_CAUSES]


def failure_cause_text(cause: Mapping[str, Any]) -> str:
    """``12 × 2:pay [declined] the card has expired: c1, c2, …``"""
    names, count = cause["instances"], cause["count"]
    more = ", …" if len(names) < count else ""
    listed = f": {', '.join(names)}{more}" if names else ""
    call = f"{cause['call']} " if cause.get("call") else ""
    return f"{count:,} × {call}[{cause['code']}] {truncate(one_line(cause['message']), _MAX_CAUSE_TEXT)}{listed}"


def progress_bar(states: Mapping[str, int], cells: int = 30) -> str:
    """``███████✗✗░░░ 70 completed, 20 failed, 30 running``; what is there at all has a cell."""
    total, names = max(sum(states.values()), 1), [state for state in BAR_MARKS if states.get(state)]
    bar = "".join(BAR_MARKS[state] * max(1, states[state] * cells // total) for state in names)[:cells]
    listed = [*names, *(state for state in states if states[state] and state not in BAR_MARKS)]
    return f"{bar:░<{cells}} {', '.join(f'{states[state]:,} {state}' for state in listed)}"


# What people are told of a Call that no Activity, delegate or person answers
BY_MODEL: Final = "answered by a model"


def describe_call(call: Mapping[str, Any]) -> str:
    """That a model or a person answers a call, and how it is with it."""
    who = f"answered by a {call['answeredBy']}" if "answeredBy" in call else ""
    return "; ".join(filter(None, (who, _describe_state(call))))


def _describe_state(call: Mapping[str, Any]) -> str:
    """The error of a call, why it was skipped, what it waits for, its elements, or which attempt of it runs."""
    error = call.get("error")
    if isinstance(error, Mapping):
        return f"{error.get('code')}: {error.get('message')}" + (f" (at {call['place']})" if call.get("place") else "")
    if isinstance(call.get("reason"), str):
        return str(call["reason"])
    if call.get("waitsUntil"):
        return f"waits until {call['waitsUntil']}"
    if isinstance(call.get("waitsFor"), list):
        return f"waits for {format_choices(call['waitsFor'])}"
    if call.get("taskQueue"):
        return f'waits for a worker of the task queue "{call["taskQueue"]}"'
    worker = f", at {call['worker']}" if call.get("worker") else ""
    if call.get("attempt"):
        after = f", after: {call.get('lastFailure') or 'a failure'}"  # of another worker than that of a next attempt
        state = f", next try at {call['nextTry'][11:19]} UTC{after}{worker}" if call.get("nextTry") else worker + after
        return f"attempt {call['attempt']}{state}"
    if call.get("seconds"):
        return f"runs for {call['seconds']:,} s{worker}"
    return element_counts_text(call.get("elements"))


def cause_text(cause: Mapping[str, Any]) -> str:
    """What became of the Call for which others were skipped: ``1:pay failed``."""
    path = f" ({cause['outputPath']})" if cause.get("outputPath") else ""
    if cause.get("state") != "completed":
        return f"{cause.get('id')} {cause.get('state')}"
    return f"{cause.get('id')} took {'its error path' if cause.get('error') else 'another outcome'}{path}"


def usage_text(usage: Mapping[str, Any]) -> str:
    requests, cost = usage.get("requests", 0), usage.get("cost")
    cached = f" ({usage['cachedTokens']:,} cached)" if usage.get("cachedTokens") else ""
    price = ", price unknown" if cost is None else f", {cost:.4f} USD" if cost else ""
    return (
        f"{requests:,} request{'' if requests == 1 else 's'}, {usage.get('inputTokens', 0):,} tokens in{cached}, "
        f"{usage.get('outputTokens', 0):,} out{price}"
    )


def decided_name(item: Mapping[str, Any]) -> str:
    """``2:pay``, ``the plan`` or ``a message``: what a wait, or the record of a decision, is about."""
    return str(item.get("call") or ("a message" if item.get("what") == "message" else "the plan"))


def who_text(item: Mapping[str, Any]) -> str:
    """Who decides about a wait, and who has: ``for finance; 1 of 2 have approved: Ada``; empty where anybody does."""
    who, of, names = item.get("who"), item.get("of"), item.get("approvals")
    parts = [f"for {', '.join(map(str, who))}"] if isinstance(who, list) and who else []
    if isinstance(of, int) and of > 1:
        own = [str(name) for name in names] if isinstance(names, list) else []
        parts.append(f"{len(own)} of {of} have approved" + (f": {', '.join(own)}" if own else ""))
    return "; ".join(parts)


def change_lines(changes: Any) -> Iterator[str]:
    """``call 2 amount: 50 → 5000, by Ada, 2026-…``: how something that waits has changed, a line each."""
    for change in changes if isinstance(changes, list) else ():
        name = f"call {change['call']}" if "call" in change else str(change.get("part"))
        who = "".join(f", {word}{change[key]}" for key, word in (("by", "by "), ("date", "")) if key in change)
        old, new = (change.get(key, ABSENT) for key in ("from", "to"))
        sides = {name: (old, new)}
        if isinstance(old, dict) and isinstance(new, dict):
            sides = {f"{name} {k}": (old.get(k, ABSENT), new.get(k, ABSENT)) for k in dict.fromkeys((*old, *new))}
        for part, (one, other) in sides.items():
            if one is ABSENT or other is ABSENT or not is_equal(one, other):
                values = "" if one is other else f": {_json_text(one)} → {_json_text(other)}"
                yield f"{part}{values}{who}"


def tool_change_lines(report: Mapping[str, Any]) -> list[str]:
    """How the Tools of what waits have changed; a run below may report anything."""
    texts = report.get(TOOL_CHANGES)
    return [str(text) for text in texts[:MAX_ROWS]] if isinstance(texts, list) else []


def _json_text(value: Json) -> str:
    return "nothing" if value is ABSENT else json.dumps(value, ensure_ascii=False)


# -- simulations ---------------------------------------------------------------


def forecast_text(simulation: Mapping[str, Any]) -> str:
    """``2 model requests, about 0.01 to 0.02 USD``; ``at least`` so much where delegates add to it."""
    requests, cost, delegates = simulation["requests"], simulation.get("cost"), simulation["delegates"]
    noun = f"model request{'' if requests['min'] == requests['max'] == 1 else 's'}"
    if delegates["max"]:
        least = f", at least {cost['min']:,} USD" if cost and cost["max"] else ""
        parts = [f"at least {requests['min']:,} {noun}{least}"]
    else:
        parts = [f"{range_text(requests)} {noun}", *([f"about {range_text(cost)} USD"] if cost and cost["max"] else [])]
    parts += ["cost unknown"] if requests["max"] and cost is None else []
    more = f"{range_text(delegates)} delegates, whose requests are not counted"
    return ", ".join([*parts, *([more] if delegates["max"] else [])])


def range_text(span: Mapping[str, float]) -> str:
    """``3``, or ``3 to 5``."""
    low, high = span["min"], span["max"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def how_text(call: Mapping[str, Any]) -> str:
    """How a call of a simulation runs: ``delegate moderate, in the background, after approval (destructive)``."""
    target = call.get("activity") or call.get("delegate")
    how = f"{call['how']} {target}" if target and target != call["tool"] else str(call["how"])
    how = {INNER_PLAN: "a plan of its own", WAIT: "a timer"}.get(str(target), how)
    how = BY_MODEL if call["how"] == "latent" else how
    how = f"answered by {', '.join(call.get('who', ['a person']))}" if call["how"] == "person" else how
    how = "answered in the plan" if call.get("given") else how
    how += f" on {call['taskQueue']}" if call.get("taskQueue") else ""
    how += f" for each of {range_text(call['elements'])} elements" if "elements" in call else ""
    how += f" when {call['when']}" if "when" in call else ""
    how += ", in the background" if call.get("background") else ""
    how += ", after approval" if call.get("approval") else ""
    how += f", undone by {call['undo']['_tool']}" if call.get("undo") else ""
    return how + (f" ({', '.join(call['hints'])})" if call.get("hints") else "")


# -- Markdown ------------------------------------------------------------------

# Characters of one section, and of what waits. A page has at most eight, and notes: 83,000 characters, 996,000 bytes
MAX_SECTION: Final = 8_000
MAX_WAITS: Final = 18_000
MAX_ROWS: Final = 100  # lines of one section: nobody reads more in a browser
# What a code span cannot contain: backticks, the cell separator of tables, and the placeholders of the Web UI
_UNSAFE: Final = re.compile(r"([`|]+|\{(?=(?:namespace|workflowId|runId)\}))")


def code_span(text: Any, limit: int = 120) -> str:
    """Text from outside as code, on one line, truncated to ``limit`` characters."""
    out = ""
    for i, part in enumerate(_UNSAFE.split(truncate(one_line(str(text)), limit))):
        inner = part.strip()
        if i % 2:
            out += "".join(f"&#{ord(c)};" for c in part)
        elif inner:  # surrounding spaces go outside, because Markdown strips them inside
            before, _, after = part.partition(inner)
            out += f"{before}`{inner}`{after}"
        else:
            out += part
    return out


def fence(value: Any, indent: int | None = 2) -> str:
    """JSON in a code block, on one line without an indent, escaped so that no text in it can close the block."""
    text = visible(json.dumps(value, ensure_ascii=False, indent=indent).replace("`", "\\u0060"), "\n")
    text = _UNSAFE.sub(lambda match: match[0].replace("{", "\\u007b"), text)
    return f"```json\n{text}\n```"


def fold(title: str, text: str) -> str:
    """Markdown behind a title that one clicks to see it; nothing for nothing."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>" if text else ""


def table(heads: Sequence[str], rows: Sequence[str]) -> str:
    return "\n".join([row(*heads), "|" + "-|" * len(heads), *rows]) if rows else ""


def row(*cells: str) -> str:
    """One row of a table. Text from outside must be in code spans.

    The Web UI renders cells without padding, so each cell ends with a no-break space.
    """
    return "| " + "\u00a0 | ".join(cells) + " |"


def fit(lines: Iterable[str], room: int, most: int) -> list[str]:
    """The first lines, at most ``most``, that have so many characters together."""
    out: list[str] = []
    for line in islice(lines, most):
        room -= len(line) + 1
        if room < 0:
            break
        out.append(line)
    return out


def fit_lines(lines: Iterable[str], count: int, rest: str, most: int = MAX_ROWS, room: int = MAX_SECTION) -> list[str]:
    """The first lines that fit a section; then how many of ``count`` are missing, and where the ``rest`` is."""
    out = fit(lines, room, most)
    return [*out, f"\n… and {count - len(out):,} more: {rest}"] if len(out) < count else out
