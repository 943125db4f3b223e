"""What a drawing of a plan shows: its Calls, their states, and the reads that connect them. Pure.

Laws
----
* No output format is known here: ``mermaid`` writes a flowchart, the CLI draws ``draw_waves`` in a terminal.
* A drawing is bounded and says what it omits. Of the writers of one path a reader is connected to those that
  none of its other writers there depends on: the others are implied.
* A Call of a template (one that runs for each instance) is drawn once, with the number of instances in each state.
* The same plan in the same states gives the same drawing.

The states of the Calls come from a ``report``, in the form of a result: ``{calls: [{id, state}], instances?: {id:
{status, calls}}}``. If an instance reports no Calls, they have its status, or ``open`` until it ends.
"""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import truncate
from acts.plan.graph import paths_read
from acts.plan.validate import is_template
from acts.simulation.critical_path import Depths
from acts.views.set_counts import named_instances

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from acts.language.references import Path
    from acts.plan.graph import WriterChain
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan

    Report = Mapping[str, Any]
    # How many instances have which state
    StateCounts = dict[str, int]

# A reader cannot follow more edges than this
MAX_EDGES: Final = 2_000
# A terminal shows some fifty lines at once: one wave fits, the whole drawing takes a few pages
MAX_WAVES: Final = 60
MAX_WAVE_CALLS: Final = 40
MAX_READS: Final = 4  # of one Call in a terminal
MAX_TEXT: Final = 400  # characters of one name or path

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
    pairs = [(c["id"], c["state"]) for c in report.get("calls") or ()]
    ids = _ids_by_instance(prepared)
    alike: Counter[tuple[Sequence[str], str]] = Counter()  # the instances of a template have the same Calls
    for instance, item in named_instances(report).items():
        if item.get("calls"):
            pairs += [(c["id"], c["state"]) for c in item["calls"]]
        else:
            alike[ids.get(instance, ()), "open" if item["status"] in _UNFINISHED else item["status"]] += 1
    counts: dict[str, StateCounts] = {}
    for call, state in pairs:
        by_state = counts.setdefault(call, {})
        by_state[state] = by_state.get(state, 0) + 1
    for (calls, state), times in alike.items():
        for call in calls:
            by_state = counts.setdefault(call, {})
            by_state[state] = by_state.get(state, 0) + times
    return counts


def _ids_by_instance(prepared: ValidatedPlan) -> Mapping[str, Sequence[str]]:
    nodes = [prepared.nodes[rank] for rank in drawn_ranks(prepared)]
    if is_template(prepared.request, nodes):
        return dict.fromkeys(prepared.request.instances(), tuple(n.id for n in nodes))
    ids: dict[str, list[str]] = {}
    for node in nodes:
        if node.instance is not None:
            ids.setdefault(node.instance, []).append(node.id)
    return {instance: tuple(own) for instance, own in ids.items()}


def worst_state(counts: StateCounts) -> str:
    """The state that needs attention most."""
    return next((s for s in _WORST_FIRST if s in counts), next(iter(counts), "pending"))


def mixed_states(counts: StateCounts) -> str:
    """``99 completed, 1 failed`` if the instances differ, else nothing."""
    if len(counts) < 2:  # noqa: PLR2004 - two states differ
        return ""
    return ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items(), key=lambda t: (-t[1], t[0])))


def condition_text(node: PlannedCall) -> str:
    """``when …``, or nothing for a Call without ``_when``."""
    return "" if node.condition is None else f"when {node.condition.text}"


def elements_text(node: PlannedCall) -> str:
    """``each …``: the list whose elements a Call is made for; nothing without ``_each``."""
    if not node.is_each:
        return ""
    each = node.call["_each"]
    return f"each of {len(each):,} values" if isinstance(each, list) else f"each {each}"


def outcomes_text(node: PlannedCall) -> str:
    """Where a Call writes: its alternatives, an error path of its own last."""
    return " || ".join(" && ".join(str(p) for p in outcome) for outcome in node.outcomes)


# -- edges ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edge:
    """``reader`` reads ``label`` of what ``writer`` writes at ``path``; both are ranks."""

    writer: int
    reader: int
    label: str
    path: Path


def find_edges(prepared: ValidatedPlan, limit: int = MAX_EDGES) -> tuple[list[Edge], bool]:
    """The edges, readers in plan order, and whether there are more than ``limit``."""
    implied = _ImpliedWriters()
    edges: dict[tuple[int, int, str], Edge] = {}
    for rank in sorted(drawn_ranks(prepared)):
        for edge in _edges_into(prepared, prepared.nodes[rank], rank, implied):
            edges.setdefault((edge.writer, edge.reader, edge.label), edge)
            if len(edges) > limit:
                return list(edges.values())[:limit], True
    return list(edges.values()), False


def _edges_into(prepared: ValidatedPlan, node: PlannedCall, rank: int, implied: _ImpliedWriters) -> Iterator[Edge]:
    waits: list[tuple[WriterChain, int]] = []
    for path in dict.fromkeys(paths_read(node)):
        for chain in prepared.graph.writers.overlapping(path, node.instance):
            count = bisect.bisect_left(chain.entries, rank)
            for writer in chain.entries[implied.count(chain, count) : count]:
                for written in prepared.nodes[writer].writes:
                    if written.overlaps(path):
                        deeper = written if path.holds(written) else path
                        yield Edge(writer, rank, str(deeper), written)
            waits.append((chain, count))
    for chain, count in waits:
        implied.add(chain, rank, count)


class _ImpliedWriters:
    """How many first entries of a chain a later entry of it depends on. Takes linear time in all."""

    def __init__(self) -> None:
        self._own: dict[tuple[int, int], int] = {}
        self._seen: dict[int, tuple[int, int]] = {}

    def add(self, chain: WriterChain, rank: int, count: int) -> None:
        """The Call of ``rank`` depends on the first ``count`` entries."""
        self._own[id(chain), rank] = count

    def count(self, chain: WriterChain, count: int) -> int:
        """How many of the first ``count`` entries are implied by another one of them."""
        at, most = self._seen.get(id(chain), (0, 0))
        for entry in chain.entries[at:count]:
            most = max(most, self._own.get((id(chain), entry), 0))
        self._seen[id(chain)] = (max(at, count), most)
        return most


def edge_condition(prepared: ValidatedPlan, edge: Edge) -> str:
    """``if `` or ``on error `` if the writer may end without writing at the edge's path."""
    node = prepared.nodes[edge.writer]
    writing = [i for i, outcome in enumerate(node.outcomes) if edge.path in outcome]
    if edge.writer in prepared.literal_outputs or len(writing) == len(node.outcomes):
        return ""
    return "on error " if writing == [node.error] else "if "


# -- waves -----------------------------------------------------------------------


def draw_waves(prepared: ValidatedPlan, report: Report | None = None) -> dict[str, Any]:
    """A plan wave by wave, as JSON for a terminal::

        {calls, waveCount, instances?, moreReads: bool,
         waves: [{calls, first: [{id, kind, instance?, background?, each?, when?, states?: {state: count}, writes?,
                                  reads: ["<position of the writer> <condition><path>"], readCount}]}]}

    ``calls`` and ``waveCount`` count everything; ``waves`` and ``first`` are the first ones, see ``MAX_WAVES``.
    """
    counts = None if report is None else count_states(prepared, report)
    edges, more = find_edges(prepared)
    reads: dict[int, list[str]] = {}
    for edge in edges:
        position = prepared.nodes[edge.writer].index + 1
        reads.setdefault(edge.reader, []).append(f"{position} {edge_condition(prepared, edge)}{edge.label}")
    waves = _waves(prepared)
    drawing: dict[str, Any] = {"calls": sum(map(len, waves)), "waveCount": len(waves), "moreReads": more, "waves": []}
    instances = len(prepared.request.instances())
    if instances > 1 and is_template(prepared.request, prepared.nodes):
        drawing["instances"] = instances
    for wave in waves[:MAX_WAVES]:
        first = [_draw_call(prepared.nodes[rank], reads.get(rank, []), counts) for rank in wave[:MAX_WAVE_CALLS]]
        drawing["waves"].append({"calls": len(wave), "first": first})
    return drawing


def _waves(prepared: ValidatedPlan) -> list[Sequence[int]]:
    drawn = frozenset(drawn_ranks(prepared))
    waves = ([rank for rank in wave if rank in drawn] for wave in Depths(prepared.graph).waves())
    return [wave for wave in waves if wave]


def _draw_call(node: PlannedCall, reads: Sequence[str], counts: Mapping[str, StateCounts] | None) -> dict[str, Any]:
    call: dict[str, Any] = {"id": truncate(node.id, MAX_TEXT), "kind": node.kind, "readCount": len(reads)}
    call["reads"] = [truncate(text, MAX_TEXT) for text in reads[:MAX_READS]]
    if node.planned.get("_instance") is not None:
        call["instance"] = truncate(str(node.instance), MAX_TEXT)
    if node.is_detached:
        call["background"] = True
    if text := elements_text(node):
        call["each"] = truncate(text.removeprefix("each "), MAX_TEXT)
    if node.condition is not None:
        call["when"] = truncate(node.condition.text, MAX_TEXT)
    if counts is not None:
        call["states"] = counts.get(node.id, {})
    if node.outcomes:
        call["writes"] = truncate(outcomes_text(node), MAX_TEXT)
    return call
