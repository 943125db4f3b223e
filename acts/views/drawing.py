"""A plan drawn: its Calls, their states, and the reads that connect them, as Mermaid or as lines for a terminal.

* A drawing is bounded and says what it omits.
* A Call of a template (one that runs for each instance) is drawn once, with the number of instances in each state.
* The same plan in the same states gives the same drawing.
* Text from a Request (tool names, paths, instances) is shown and never interpreted: it cannot end a label, start
  markup, or hold a control character.

The states of the Calls come from a ``report``, in the form of a result: ``{calls: [{id, state}], instances?: {id:
{status, calls}}}``. If an instance reports no Calls, they have its status, or ``open`` until it ends.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from textwrap import wrap
from typing import Any, Final, NamedTuple

from acts.language.errors import truncate, visible
from acts.plan.calls import PlannedCall
from acts.plan.graph import paths_read
from acts.plan.validate import ValidatedPlan, is_template
from acts.simulation.simulate import find_waves
from acts.views.text import STATE_MARKS, UNKNOWN_MARK, fit, named_instances

Report = Mapping[str, Any]
StateCounts = dict[str, int]


# A reader cannot follow more reads than this, nor more lines of a drawing; Mermaid's own ``maxEdges`` is 500
MAX_READS: Final = 2_000
MAX_LINES: Final = 1_000
MAX_READS_OF_CALL: Final = 4  # in a terminal
WIDTH: Final = 80  # columns of a terminal
MAX_TEXT: Final = 400  # characters of one name or path
MAX_TOOLS: Final = 5  # named of a plan inside a Call
_RULE: Final = "─" * 60

_WORST_FIRST: Final = (
    "failed", "rejected", "cancelled", "awaiting", "running", "open", "ready", "pending", "detached", "completed",
    "skipped",
)  # fmt: skip
_UNFINISHED: Final = ("ready", "running", "awaiting")


# -- Calls and their states ------------------------------------------------------


def drawn_ranks(prepared: ValidatedPlan) -> list[int]:
    """The rank of each Call in the order of the plan; of one that runs for several instances, the first one's."""
    first = next(iter(prepared.request.instances()), None)
    ranks: dict[int, int] = {}
    for rank, node in enumerate(prepared.nodes):
        if node.index not in ranks or node.instance == first:
            ranks[node.index] = rank
    return [ranks[index] for index in sorted(ranks)]


def count_states(prepared: ValidatedPlan, report: Report) -> dict[str, StateCounts]:
    """By Call id: how many instances have which state."""
    nodes = [prepared.nodes[rank] for rank in drawn_ranks(prepared)]
    template = is_template(prepared.request, nodes)
    pairs = Counter((call["id"], call["state"]) for call in report.get("calls") or ())
    alike: Counter[tuple[str | None, str]] = Counter()  # the instances of a template have the same Calls
    for instance, item in named_instances(report).items():
        if item.get("calls"):
            pairs.update((call["id"], call["state"]) for call in item["calls"])
        else:
            state = "open" if item["status"] in _UNFINISHED else item["status"]
            alike[None if template else instance, state] += 1
    for (name, state), times in alike.items():
        pairs.update({(n.id, state): times for n in nodes if template or n.instance == name})
    counts: dict[str, StateCounts] = {}
    for (call, state), times in pairs.items():
        counts.setdefault(call, {})[state] = times
    return counts


def worst_state(counts: StateCounts) -> str:
    return next((s for s in _WORST_FIRST if s in counts), next(iter(counts), "pending"))


def call_facts(node: PlannedCall, counts: StateCounts) -> Iterator[str]:
    """What a drawing says of a Call after its id: its instance, list, condition, differing states, and outcomes."""
    if node.planned.get("_instance") is not None:
        yield f"@{node.instance}"
    if node.is_each:
        each = node.call["_each"]
        group = ""
        if isinstance(each, dict):
            group, each = f"group of {each['size']:,} of ", each["of"]
        yield f"each {group or 'of '}{len(each):,} values" if isinstance(each, list) else f"each {group}{each}"
    if node.condition is not None:
        yield f"when {node.condition.text}"
    if node.is_wait:
        yield f"for {node.call['for']}" if "for" in node.call else f"until {node.call.get('until')}"
    if node.walks_plan:
        yield from _inner_facts(node.call)
    if len(counts) > 1:
        by_number = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        yield f"[{', '.join(f'{count:,} {state}' for state, count in by_number)}]"
    if node.outcomes:
        yield "→ " + " || ".join(" && ".join(map(str, outcome)) for outcome in node.outcomes)


def _inner_facts(call: Mapping[str, Any]) -> Iterator[str]:
    plan, repeat = call.get("plan"), call.get("repeat")
    tools = [str(inner.get("_tool")) for inner in plan if isinstance(inner, dict)] if isinstance(plan, list) else []
    yield f"({', '.join(tools[:MAX_TOOLS])}{', …' * (len(tools) > MAX_TOOLS)})" if tools else f"the plan {plan}"
    if "until" in call:
        times = f" at most {repeat.get('max')} times" if isinstance(repeat, dict) else ""
        yield f"until {call['until']}{times}"


class Read(NamedTuple):
    """What one Call reads of what another writes; both are their numbers in the plan."""

    writer: int
    reader: int
    label: str  # the path; after ``if`` or ``on error`` where the writer may end without writing it
    is_sure: bool


def find_reads(prepared: ValidatedPlan) -> tuple[list[Read], bool]:
    reads = list(dict.fromkeys(islice(_reads(prepared), MAX_READS + 1)))
    return reads[:MAX_READS], len(reads) > MAX_READS


def _reads(prepared: ValidatedPlan) -> Iterator[Read]:
    for rank in sorted(drawn_ranks(prepared)):
        for path in paths_read(prepared.nodes[rank]):
            for chain in prepared.graph.writers.overlapping(path, prepared.nodes[rank].instance):
                for writer in chain.entries[: bisect.bisect_left(chain.entries, rank)]:
                    node = prepared.nodes[writer]
                    for written in filter(path.overlaps, node.writes):
                        writing = [i for i, outcome in enumerate(node.outcomes) if written in outcome]
                        is_sure = writer in prepared.literal_outputs or len(writing) == len(node.outcomes)
                        when = "" if is_sure else "on error " if writing == [node.error] else "if "
                        numbers = node.index + 1, prepared.nodes[rank].index + 1
                        yield Read(*numbers, f"{when}{written if path.holds(written) else path}", is_sure)


def draw_text(prepared: ValidatedPlan, report: Report | None = None) -> str:
    """A plan wave by wave, a line per Call; without a ``report``, without states."""
    counts = None if report is None else count_states(prepared, report)
    every_read, has_more = find_reads(prepared)
    reads: dict[int, list[str]] = {}
    for read in every_read:
        reads.setdefault(read.reader, []).append(f"{read.writer} {read.label}")
    drawn = frozenset(drawn_ranks(prepared))
    waves = [wave for ranks in find_waves(prepared.graph) if (wave := [rank for rank in ranks if rank in drawn])]
    counted = [f"{n:,} {noun}{'' if n == 1 else 's'}" for n, noun in ((len(drawn), "call"), (len(waves), "wave"))]
    head = " in ".join(counted)
    instances = len(prepared.request.instances())
    if instances > 1 and is_template(prepared.request, prepared.nodes):
        head += f", for each of {instances:,} instances"
    lines = [head]
    for number, wave in enumerate(waves, 1):
        lines.append(f"{'┌' if number == 1 else '├'}─ {number} {_RULE}")
        nodes = [prepared.nodes[rank] for rank in wave[: MAX_LINES - len(lines)]]
        lines += [line for node in nodes for line in _call_lines(node, reads.get(node.index + 1, []), counts)]
        if len(lines) >= MAX_LINES:
            return "\n".join([*lines[:MAX_LINES], "… and more, which are not drawn"])
    lines += [f"└───{_RULE}"] if waves else []
    return "\n".join([*lines, *([f"only the first {MAX_READS:,} reads are drawn"] if has_more else [])])


def _call_lines(node: PlannedCall, reads: Sequence[str], counts: Mapping[str, StateCounts] | None) -> list[str]:
    """``│ ✓ 2:bookHotel [delegate] → †state.hotel ← 1 †state.city``, in lines of a terminal."""
    own = {} if counts is None else counts.get(node.id, {})
    mark = "•" if counts is None else STATE_MARKS.get(worst_state(own), UNKNOWN_MARK)
    kind = [] if node.kind == "activity" else [f"[{node.kind}]"]
    words = [node.id, *kind, *(["[background]"] if node.is_detached else []), *call_facts(node, own)]
    if reads:
        more = f", … ({len(reads)} in all)" if len(reads) > MAX_READS_OF_CALL else ""
        words.append(f"← {', '.join(reads[:MAX_READS_OF_CALL])}{more}")
    text = f"{mark} {' '.join(visible(truncate(word, MAX_TEXT)) for word in words)}"
    return wrap(text, WIDTH, initial_indent="│ ", subsequent_indent="│     ", break_on_hyphens=False)


# -- Mermaid ---------------------------------------------------------------------

# Mermaid's defaults: ``maxEdges`` 500, ``maxTextSize`` 50,000
MAX_MERMAID_EDGES: Final = 500
MAX_MERMAID_TEXT: Final = 50_000
_MAX_NODES_TEXT: Final = 25_000  # half of it for the Calls, half for the reads
_NOTES_TEXT: Final = 200  # the two notes and the first line
_MAX_LABEL: Final = 60

_SHAPES: Final = {
    "activity": ("[", "]"), "latent": ("([", "])"), "delegate": ("[[", "]]"), "background": (">", "]"),
    "person": ("[/", "/]"),
}  # fmt: skip
_STYLES: Final = {
    "pending": "fill:#f6f6f6,stroke:#999,color:#333",
    "ready": "fill:#eef4ff,stroke:#5b8def,color:#123",
    "awaiting": "fill:#fff3cd,stroke:#c99700,color:#333",
    "running": "fill:#cfe2ff,stroke:#0d6efd,color:#123",
    "open": "fill:#cfe2ff,stroke:#0d6efd,color:#123,stroke-dasharray:4",
    "completed": "fill:#d1e7dd,stroke:#198754,color:#132",
    "detached": "fill:#d1e7dd,stroke:#198754,color:#132,stroke-dasharray:4",
    "failed": "fill:#f8d7da,stroke:#dc3545,color:#311",
    "rejected": "fill:#f8d7da,stroke:#dc3545,color:#311,stroke-dasharray:4",
    "skipped": "fill:#fff,stroke:#bbb,color:#888,stroke-dasharray:4",
    "cancelled": "fill:#eee,stroke:#777,color:#555,stroke-dasharray:4",
}
_SAFE: Final = frozenset(" -_.:,/†→")


def draw_mermaid(prepared: ValidatedPlan, report: Report | None = None) -> str:
    """The plan as a Mermaid flowchart; with a ``report``, coloured by the states of the Calls.

    Rounded: answered by a model; double sides: a delegate; a flag: fire-and-forget.
    Dotted lines are taken for some outcomes only.
    """
    counts = count_states(prepared, report or {})
    nodes = [prepared.nodes[rank] for rank in drawn_ranks(prepared)]
    lines = fit((_box(node, counts.get(node.id, {})) for node in nodes), _MAX_NODES_TEXT, len(nodes))
    drawn, tail = nodes[: len(lines)], list[str]()
    for state, style in _STYLES.items():
        members = [f"c{n.index + 1}" for n in drawn if n.id in counts and worst_state(counts[n.id]) == state]
        tail += [f"  classDef {state} {style}", f"  class {','.join(members)} {state}"] if members else []
    if len(drawn) < len(nodes):
        lines.append(f'  note1["{len(nodes) - len(drawn):,} more calls are not drawn"]')
    visible = {node.index + 1 for node in drawn}
    reads, has_more = find_reads(prepared)
    every = [
        f'  c{read.writer} {"-->" if read.is_sure else "-.->"}|"{_escape(read.label)}"| c{read.reader}'
        for read in reads
        if {read.writer, read.reader} <= visible
    ]
    room = MAX_MERMAID_TEXT - _NOTES_TEXT - sum(len(line) + 1 for line in (*lines, *tail))
    arrows = fit(every, room, MAX_MERMAID_EDGES)
    if has_more or len(arrows) < len(every):
        arrows.append(f'  note2["only {len(arrows):,} of the lines are drawn"]')
    return "\n".join(["flowchart TD", *lines, *arrows, *tail]) + "\n"


def _box(node: PlannedCall, counts: StateCounts) -> str:
    left, right = _SHAPES["background" if node.is_detached else node.kind]
    return f'  c{node.index + 1}{left}"{"<br/>".join(map(_escape, (node.id, *call_facts(node, counts))))}"{right}'


def _escape(text: str) -> str:
    """Text inside quotes: all but letters, digits and harmless characters become ``#code;``."""
    return "".join(
        c if c in _SAFE or (c.isalnum() and ord(c) < 1 << 16) else f"#{ord(c)};"
        for c in visible(truncate(text, _MAX_LABEL))
    )
