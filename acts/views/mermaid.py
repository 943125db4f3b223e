"""A plan as a Mermaid flowchart, and the answer of the query ``graph``. Pure.

Laws
----
* Text from a Request (tool names, paths, instances) is shown and never interpreted: it cannot end a label, start
  markup, or hold a control character.
* A flowchart stays within what Mermaid draws without being configured, and says what it omits.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate
from acts.views.plan_drawing import (
    condition_text,
    count_states,
    draw_waves,
    drawn_ranks,
    edge_condition,
    elements_text,
    find_edges,
    mixed_states,
    outcomes_text,
    worst_state,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.language.values import Json
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan
    from acts.views.plan_drawing import Edge, Report, StateCounts

# Mermaid's defaults: ``maxEdges`` 500, ``maxTextSize`` 50,000
MAX_MERMAID_EDGES: Final = 500
MAX_MERMAID_TEXT: Final = 50_000
_MAX_NODES_TEXT: Final = 25_000  # half of it for the Calls, half for the edges
_NOTES_TEXT: Final = 200  # the two notes and the first line
_MAX_LABEL: Final = 60

_SHAPES: Final = {
    "activity": ("[", "]"), "latent": ("([", "])"), "delegate": ("[[", "]]"), "background": (">", "]"),
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


def render_graph(prepared: ValidatedPlan, report: Report, options: Json) -> Any:
    """The answer of the query ``graph``: Mermaid text, or with ``{"format": "json"}`` the waves as JSON."""
    as_json = isinstance(options, dict) and options.get("format") == "json"
    return draw_waves(prepared, report) if as_json else mermaid(prepared, report)


def mermaid(prepared: ValidatedPlan, report: Report | None = None) -> str:
    """The plan as a Mermaid flowchart; with a ``report``, coloured by the states of the Calls.

    Rounded: answered by a model; double sides: a delegate; a flag: fire-and-forget.
    Dotted lines are taken for some outcomes only.
    """
    lines, size = ["flowchart TD"], 0
    counts = count_states(prepared, report or {})
    nodes = [prepared.nodes[rank] for rank in drawn_ranks(prepared)]
    drawn: dict[int, None] = {}
    for node in nodes:
        line = _box(node, counts.get(node.id, {}))
        if size + len(line) > _MAX_NODES_TEXT:
            break
        drawn[node.index] = None
        size += len(line) + 1
        lines.append(line)
    if len(drawn) < len(nodes):
        lines.append(f'  note1["{len(nodes) - len(drawn):,} more calls are not drawn"]')
    tail = _classes(nodes[: len(drawn)], counts)
    size += sum(len(line) + 1 for line in tail) + _NOTES_TEXT
    edges, more = find_edges(prepared)
    shown = 0
    for edge in edges:
        if prepared.nodes[edge.writer].index not in drawn or prepared.nodes[edge.reader].index not in drawn:
            continue
        line = _arrow(prepared, edge)
        if shown == MAX_MERMAID_EDGES or size + len(line) > MAX_MERMAID_TEXT:
            more = True
            break
        lines.append(line)
        size += len(line) + 1
        shown += 1
    if more:
        lines.append(f'  note2["only {shown:,} of the lines are drawn"]')
    return "\n".join([*lines, *tail]) + "\n"


def _box(node: PlannedCall, counts: StateCounts) -> str:
    left, right = _SHAPES["background" if node.is_detached else node.kind]
    parts = [_label(node.id)]
    if node.planned.get("_instance") is not None:
        parts.append(_label(f"instance {node.instance}"))
    parts += [_label(text) for text in (elements_text(node), condition_text(node)) if text]
    if node.outcomes:
        parts.append(_label(f"→ {outcomes_text(node)}"))
    if mixed := mixed_states(counts):
        parts.append(_label(mixed))
    return f'  c{node.index + 1}{left}"{"<br/>".join(parts)}"{right}'


def _arrow(prepared: ValidatedPlan, edge: Edge) -> str:
    writer, reader = prepared.nodes[edge.writer], prepared.nodes[edge.reader]
    condition = edge_condition(prepared, edge)
    line = "-.->" if condition else "-->"
    return f'  c{writer.index + 1} {line}|"{_label(condition + edge.label)}"| c{reader.index + 1}'


def _classes(nodes: Sequence[PlannedCall], counts: Mapping[str, StateCounts]) -> list[str]:
    lines = []
    for state, style in _STYLES.items():
        members = [f"c{n.index + 1}" for n in nodes if n.id in counts and worst_state(counts[n.id]) == state]
        if members:
            lines += [f"  classDef {state} {style}", f"  class {','.join(members)} {state}"]
    return lines


def _label(text: str) -> str:
    """Text inside quotes: all but letters, digits and harmless characters become ``#code;``."""
    return "".join(
        c if c in _SAFE or (c.isalnum() and ord(c) < 1 << 16) else f"#{ord(c)};"
        for c in _printable(truncate(text, _MAX_LABEL))
    )


def _printable(text: str) -> str:
    """Text without control and format characters (escapes, line ends, direction marks)."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c)[0] in "CZ" and c != " " else c for c in text)
