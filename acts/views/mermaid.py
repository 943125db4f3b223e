"""A plan as a picture: Mermaid for a browser, lines of text for a terminal.

Laws
----
* Text from a Request (tool names, paths, instances) is shown and never obeyed: nothing
  of it can end a label, start markup, or reach the terminal as a control character.
* A picture is bounded, and says what it leaves out. Edges that others imply are not
  drawn: of the writers of one place a reader is joined to those that none of its other
  writers there has waited for.
* A Call that runs once for each of many instances is drawn once. Where they differ it says
  how many are in which state, and has the mark of the worst.
* The same plan in the same states gives the same text.

How far the Calls are is ``told`` as results tell it: ``{calls: [{id, state}], instances?: {id: {status,
calls}}}``. The Calls of an instance that tells none have its status, and are ``open`` while it goes on.
"""

from __future__ import annotations

import bisect
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate
from acts.plan.graph import paths_read
from acts.plan.validate import is_template
from acts.simulation.critical_path import Depths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from acts.language.references import Path
    from acts.language.values import Json
    from acts.plan.graph import WriterChain
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan

    Told = Mapping[str, Any]
    Tally = dict[str, int]

# More lines than this between boxes nobody follows with the eye
MAX_EDGES: Final = 2_000
# What Mermaid draws without being configured: ``maxEdges`` 500, ``maxTextSize`` 50,000
MERMAID_EDGES: Final = 500
MERMAID_TEXT: Final = 50_000
_NODES_TEXT: Final = 25_000  # half for the Calls, half for what joins them
# A page of a terminal is some fifty lines: a few of them for a wave, a hundred for the whole
WAVES_SHOWN: Final = 60
CALLS_SHOWN: Final = 40
MAX_WIDTH: Final = 500
_LABEL: Final = 60
_READS_SHOWN: Final = 4

_SHAPES: Final = {
    "activity": ("[", "]"), "latent": ("([", "])"), "delegate": ("[[", "]]"), "background": (">", "]"),
}  # fmt: skip
_COLOURS: Final = {
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
_MARKS: Final = {
    "pending": "·", "ready": "·", "awaiting": "⏸", "running": "…", "open": "…", "completed": "✓", "detached": "↗",
    "failed": "✗", "rejected": "✗", "skipped": "–", "cancelled": "⊘",
}  # fmt: skip
_WORST_FIRST: Final = (
    "failed", "rejected", "cancelled", "awaiting", "running", "open", "ready", "pending", "detached", "completed",
    "skipped",
)  # fmt: skip
_GOES_ON: Final = ("ready", "running", "awaiting")
_SAFE: Final = frozenset(" -_.:,/†→")


# -- what is drawn, and in which state -------------------------------------------


def _ranks(prepared: ValidatedPlan) -> list[int]:
    """Each Call of the plan once, as listed: of one that is walked for several instances, the first one's."""
    first = next(iter(prepared.request.instances()), None)
    out: dict[int, int] = {}
    for rank, node in enumerate(prepared.nodes):
        if node.index not in out or node.instance == first:
            out[node.index] = rank
    return [out[index] for index in sorted(out)]


def _tallies(prepared: ValidatedPlan, told: Told) -> dict[str, Tally]:
    """By the id of a Call: in how many instances it has which state."""
    pairs = [(c["id"], c["state"]) for c in told.get("calls") or ()]
    own = _ids(prepared)
    for id_, item in (told.get("instances") or {}).items():
        calls = [(c["id"], c["state"]) for c in item.get("calls") or ()]
        state = "open" if item["status"] in _GOES_ON else item["status"]
        pairs += calls or [(call, state) for call in own.get(id_, ())]
    out: dict[str, Tally] = {}
    for call, state in pairs:
        tally = out.setdefault(call, {})
        tally[state] = tally.get(state, 0) + 1
    return out


def _ids(prepared: ValidatedPlan) -> dict[str, list[str]]:
    """The ids of the Calls of each instance."""
    nodes = [prepared.nodes[rank] for rank in _ranks(prepared)]
    if is_template(prepared.request, nodes):
        ids = [n.id for n in nodes]
        return {instance: ids for instance in prepared.request.instances()}  # noqa: C420 - it is read only
    out: dict[str, list[str]] = {}
    for node in nodes:
        if node.instance is not None:
            out.setdefault(node.instance, []).append(node.id)
    return out


def _worst(tally: Tally) -> str:
    return next((s for s in _WORST_FIRST if s in tally), next(iter(tally), "pending"))


def _mixed(tally: Tally) -> str:
    """``99 completed, 1 failed`` where the instances differ, else nothing."""
    if len(tally) < 2:  # noqa: PLR2004 - they differ from two states on
        return ""
    return ", ".join(f"{count:,} {state}" for state, count in sorted(tally.items(), key=lambda t: (-t[1], t[0])))


def render_graph(prepared: ValidatedPlan, told: Told, asked: Json) -> str:
    """The plan as Mermaid; ``asked`` with ``{"width": columns}``, as text for a terminal."""
    width = asked.get("width") if isinstance(asked, dict) else None
    return terminal(prepared, told, min(width, MAX_WIDTH)) if isinstance(width, int) else mermaid(prepared, told)


# -- edges ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Edge:
    """``reader`` reads ``label`` of what ``writer`` writes at ``path``; both are ranks."""

    writer: int
    reader: int
    label: str
    path: Path


def graph_edges(prepared: ValidatedPlan) -> list[tuple[int, int, str]]:
    """``(writer rank, reader rank, path)``, readers in plan order; at most MAX_EDGES."""
    return [(e.writer, e.reader, e.label) for e in _edges(prepared, MAX_EDGES)[0]]


def _edges(prepared: ValidatedPlan, limit: int) -> tuple[list[_Edge], bool]:
    """The edges, and whether there are more of them."""
    implied = _Implied()
    out: dict[tuple[int, int, str], _Edge] = {}
    for rank in sorted(_ranks(prepared)):
        for edge in _into(prepared, prepared.nodes[rank], rank, implied):
            out.setdefault((edge.writer, edge.reader, edge.label), edge)
            if len(out) > limit:
                return list(out.values())[:limit], True
    return list(out.values()), False


def _into(prepared: ValidatedPlan, node: PlannedCall, rank: int, implied: _Implied) -> Iterator[_Edge]:
    waited: list[tuple[WriterChain, int]] = []
    for path in dict.fromkeys(paths_read(node)):
        for chain in prepared.graph.chains.overlapping(path, node.instance):
            count = bisect.bisect_left(chain.entries, rank)
            for writer in chain.entries[implied.upto(chain, count) : count]:
                for written in prepared.nodes[writer].writes:
                    if written.overlaps(path):
                        deeper = written if path.holds(written) else path
                        yield _Edge(writer, rank, str(deeper), written)
            waited.append((chain, count))
    for chain, count in waited:
        implied.waits(chain, rank, count)


class _Implied:
    """How many first entries of a chain a later entry of it has waited for. Linear."""

    def __init__(self) -> None:
        self._own: dict[tuple[int, int], int] = {}
        self._seen: dict[int, tuple[int, int]] = {}

    def waits(self, chain: WriterChain, rank: int, count: int) -> None:
        """The Call of ``rank`` waits for the first ``count`` entries."""
        self._own[id(chain), rank] = count

    def upto(self, chain: WriterChain, count: int) -> int:
        """How many of the first ``count`` entries another one of them stands for."""
        at, most = self._seen.get(id(chain), (0, 0))
        for entry in chain.entries[at:count]:
            most = max(most, self._own.get((id(chain), entry), 0))
        self._seen[id(chain)] = (max(at, count), most)
        return most


def _condition(node: PlannedCall, path: Path, *, given: bool) -> str:
    """``if`` or ``on error`` where the Call may end without writing there."""
    holding = [i for i, outcome in enumerate(node.outcomes) if path in outcome]
    if given or len(holding) == len(node.outcomes):
        return ""
    return "on error " if holding == [node.error] else "if "


# -- Mermaid -------------------------------------------------------------------


def mermaid(prepared: ValidatedPlan, told: Told | None = None) -> str:
    """The plan as a Mermaid flowchart, coloured by what is ``told`` of its Calls.

    Rounded: answered by a model; double sides: a delegate; a flag: fire-and-forget.
    Dotted lines are taken for some outcomes only.
    """
    lines, size = ["flowchart TD"], 0
    tallies = _tallies(prepared, told or {})
    nodes = [prepared.nodes[rank] for rank in _ranks(prepared)]
    drawn: dict[int, None] = {}
    for node in nodes:
        line = _box(node, tallies.get(node.id, {}))
        if size + len(line) > _NODES_TEXT:
            break
        drawn[node.index] = None
        size += len(line) + 1
        lines.append(line)
    if len(drawn) < len(nodes):
        lines.append(f'  note1["{len(nodes) - len(drawn):,} more calls are not drawn"]')
    tail = _classes(nodes[: len(drawn)], tallies)
    size += sum(len(line) + 1 for line in tail) + 200
    found, more = _edges(prepared, MAX_EDGES)
    shown = 0
    for edge in found:
        line = _arrow(prepared, edge)
        ends = (prepared.nodes[edge.writer].index, prepared.nodes[edge.reader].index)
        if ends[0] not in drawn or ends[1] not in drawn:
            continue
        if shown == MERMAID_EDGES or size + len(line) > MERMAID_TEXT:
            more = True
            break
        lines.append(line)
        size += len(line) + 1
        shown += 1
    if more:
        lines.append(f'  note2["only {shown:,} of the lines are drawn"]')
    return "\n".join([*lines, *tail]) + "\n"


def _box(node: PlannedCall, tally: Tally) -> str:
    left, right = _SHAPES["background" if node.detached else node.kind]
    parts = [_label(node.id)]
    if node.planned.get("_instance") is not None:
        parts.append(_label(f"instance {node.instance}"))
    if node.outcomes:
        parts.append(_label(f"→ {_target(node)}"))
    if mixed := _mixed(tally):
        parts.append(_label(mixed))
    return f'  c{node.index + 1}{left}"{"<br/>".join(parts)}"{right}'


def _arrow(prepared: ValidatedPlan, edge: _Edge) -> str:
    writer, reader = prepared.nodes[edge.writer], prepared.nodes[edge.reader]
    condition = _condition(writer, edge.path, given=edge.writer in prepared.given)
    line = "-.->" if condition else "-->"
    return f'  c{writer.index + 1} {line}|"{_label(condition + edge.label)}"| c{reader.index + 1}'


def _classes(nodes: Sequence[PlannedCall], tallies: Mapping[str, Tally]) -> list[str]:
    out = []
    for state, style in _COLOURS.items():
        members = [f"c{n.index + 1}" for n in nodes if n.id in tallies and _worst(tallies[n.id]) == state]
        if members:
            out += [f"  classDef {state} {style}", f"  class {','.join(members)} {state}"]
    return out


def _target(node: PlannedCall) -> str:
    """Where a Call writes: alternatives, an error path of its own last."""
    return " || ".join(" && ".join(str(p) for p in outcome) for outcome in node.outcomes)


def _label(text: str) -> str:
    """Text inside quotes: whatever is not a letter, a digit or harmless becomes ``#code;``."""
    return "".join(
        c if c in _SAFE or (c.isalnum() and ord(c) < 1 << 16) else f"#{ord(c)};" for c in _plain(truncate(text, _LABEL))
    )


def _plain(text: str) -> str:
    """Text without control and format characters (escapes, line ends, direction marks)."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c)[0] in "CZ" and c != " " else c for c in text)


# -- the terminal --------------------------------------------------------------


def terminal(prepared: ValidatedPlan, told: Told | None = None, width: int = 100) -> str:
    """The plan wave by wave, for a terminal ``width`` columns wide, with what is ``told`` of its Calls."""
    width = max(width, 20)
    tallies = None if told is None else _tallies(prepared, told)
    waves = _waves(prepared)
    sources, more = _sources(prepared)
    lines = [_head(prepared, waves)]
    for number, wave in enumerate(waves[:WAVES_SHOWN]):
        head = f"{'├' if number else '┌'}─ {number + 1} "
        lines.append(head + "─" * (width - len(head)))
        for rank in wave[:CALLS_SHOWN]:
            tally = None if tallies is None else tallies.get(prepared.nodes[rank].id, {})
            lines.append(_line(prepared, rank, sources.get(rank, []), tally))
        if len(wave) > CALLS_SHOWN:
            lines.append(f"│   and {_count(len(wave) - CALLS_SHOWN, 'more call')}")
    if len(waves) > WAVES_SHOWN:
        left = sum(len(w) for w in waves[WAVES_SHOWN:])
        lines.append(f"├─ and {_count(len(waves) - WAVES_SHOWN, 'more wave')} with {_count(left, 'call')}")
    if waves:
        lines.append("└" + "─" * (width - 1))
    if more:
        lines.append(f"only the first {MAX_EDGES:,} reads are shown")
    return "\n".join(_cut(line, width) for line in lines) + "\n"


def _waves(prepared: ValidatedPlan) -> list[list[int]]:
    """The ranks that are drawn, wave after wave."""
    drawn = frozenset(_ranks(prepared))
    waves = ([rank for rank in wave if rank in drawn] for wave in Depths(prepared.graph).waves())
    return [wave for wave in waves if wave]


def _head(prepared: ValidatedPlan, waves: Sequence[Sequence[int]]) -> str:
    head = f"{_count(sum(map(len, waves)), 'call')} in {_count(len(waves), 'wave')}"
    instances = len(prepared.request.instances())
    many = instances > 1 and is_template(prepared.request, prepared.nodes)
    return f"{head}, for each of {instances:,} instances" if many else head


def _line(prepared: ValidatedPlan, rank: int, sources: list[str], tally: Tally | None) -> str:
    node = prepared.nodes[rank]
    mark = "•" if tally is None else _MARKS.get(_worst(tally), "?")
    words = [node.id]
    if node.planned.get("_instance") is not None:
        words.append(f"@{node.instance}")
    if node.kind != "activity":
        words.append(f"[{node.kind}]")
    if node.detached:
        words.append("[background]")
    if tally is not None and (mixed := _mixed(tally)):
        words.append(f"[{mixed}]")
    if node.outcomes:
        words.append(f"→ {_target(node)}")
    if sources:
        rest = f", … ({len(sources)} in all)" if len(sources) > _READS_SHOWN else ""
        words.append(f"← {', '.join(sources[:_READS_SHOWN])}{rest}")
    return f"│ {mark} " + _plain(" ".join(truncate(w, 400) for w in words))


def _sources(prepared: ValidatedPlan) -> tuple[dict[int, list[str]], bool]:
    """By reader: ``<position of the writer> path``."""
    found, more = _edges(prepared, MAX_EDGES)
    out: dict[int, list[str]] = {}
    for edge in found:
        writer = prepared.nodes[edge.writer]
        condition = _condition(writer, edge.path, given=edge.writer in prepared.given)
        out.setdefault(edge.reader, []).append(f"{writer.index + 1} {condition}{edge.label}")
    return out, more


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _cut(line: str, width: int) -> str:
    """A line that takes at most ``width`` columns."""
    used, fits = 0, 0
    for at, c in enumerate(line):
        used += _columns(c)
        if used < width:
            fits = at + 1
    return line if used <= width else line[:fits] + "…"


def _columns(c: str) -> int:
    """How many columns a character takes: none where it goes on top of another, two where it is wide."""
    if unicodedata.category(c) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1
