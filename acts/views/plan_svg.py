"""A plan as a picture: an SVG that a page holds inline, or a file.

* The layout is from the waves alone: a row for each, wide ones folded. A read that others imply is not drawn
  (transitive reduction), unless an outcome decides it: its line is dashed.
* A state is a colour, a mark and a word. Colours are translucent and texts have that of the page around them, so one
  picture is right on light and on dark; there is no script, style or address in it, so a strict page takes it.
* Text from a Request is shown and never interpreted, by XML, HTML or Markdown; what is cut is whole in a tooltip.
* A picture is bounded and says what it omits. The same plan in the same states gives the same picture.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from acts.language.errors import truncate, visible
from acts.plan.calls import PlannedCall, find_rule
from acts.plan.validate import ValidatedPlan
from acts.simulation.simulate import find_waves
from acts.views.drawing import (
    MAX_TEXT,
    Read,
    Report,
    StateCounts,
    call_facts,
    count_states,
    drawn_ranks,
    find_reads,
    worst_state,
)
from acts.views.text import STATE_MARKS, UNKNOWN_MARK, describe_call, element_counts_text

MAX_BOXES: Final = 300  # nobody finds a Call among more
MAX_CHARS: Final = 400_000  # of up to 4 bytes: the answer to a query has 2 MiB
_PER_ROW: Final = 5  # boxes side by side: names are readable at half the width of a window
# Pixels; a lane is where a line passes a row
_WIDTH, _HEIGHT, _GAP, _RISE, _LANE, _MARGIN = 190, 44, 16, 40, 12, 8
_MAX_FIXED: Final = 640  # pixels; a wider picture takes the width of its page
_MAX_LANES: Final = 20  # rows that one line passes between boxes; a longer one goes straight
_NAME_UNITS, _FACT_UNITS = 22, 29  # characters of a line in a box, wide ones count twice
_COLORS: Final = {
    "ready": "#5b8def", "awaiting": "#c99700", "running": "#0d6efd", "open": "#0d6efd", "completed": "#198754",
    "detached": "#198754", "failed": "#dc3545", "rejected": "#dc3545", "partial": "#dc3545",
}  # fmt: skip
_GREY: Final = "#888888"
_DASHED: Final = ("open", "detached", "rejected", "skipped", "cancelled")
_FILE_STYLE: Final = (
    "<style>svg{max-width:1400px;color:#222;background:#fff}"
    "@media(prefers-color-scheme:dark){svg{color:#ddd;background:#181818}}</style>"
)


# -- what all pictures have in common ----------------------------------------------


def svg_text(text: object, units: int = MAX_TEXT) -> str:
    """Text of at most so many columns, as characters that are no markup of XML, HTML, Markdown or the Web UI."""
    line, room = visible(truncate(str(text), MAX_TEXT)), units
    for at, char in enumerate(line):
        room -= 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if room < 0:
            line = f"{line[: at - 1]}…"
            break
    return "".join(c if c.isalnum() or c in " .,:→†…" else f"&#{ord(c)};" for c in line)


def state_color(state: str) -> str:
    return _COLORS.get(state, _GREY)


def svg_picture(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    """The whole picture, on one line: in Markdown, an empty line would end it."""
    size = f'width="{width:g}" height="{height:g}"' if width <= _MAX_FIXED else 'width="100%"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:g} {height:g}" aria-label="{label}"'
    return "".join((f'{head} font-family="system-ui,sans-serif" fill="none">', *parts, "</svg>"))


def as_file(svg: str) -> str:
    """A picture with colours of its own, light or dark: no page is around it."""
    head, _, rest = svg.partition(">")
    return f"{head}>{_FILE_STYLE}{rest}\n"


def write(x: float, y: float, text: str, *, size: float = 0.8, more: str = "") -> str:
    """A text that is escaped already, at a part of the size of the page's own: the Web UI takes no other size."""
    return f'<text transform="translate({x:g} {y:g})scale({size:g})" fill="currentColor"{more}>{text}</text>'


# -- the plan ------------------------------------------------------------------------


class Place(NamedTuple):
    """Where the box of a Call is: its upper left corner, and the number of its row."""

    x: float
    y: float
    row: int


def plan_svg(
    prepared: ValidatedPlan, states: Report | None = None, *, links: str = "#call-", most: int = MAX_BOXES
) -> str:
    """The plan as an SVG, each Call a group ``id="box-<number>" data-call="<id>"`` in a link to ``<links><number>``,
    its number in the plan from 1; without a link where ``links`` is empty. ``states`` are those of a report, see
    ``drawing``; without them no Call has one. Of at most ``most`` Calls; of fewer where their texts are too long.
    """
    ranks = drawn_ranks(prepared)
    rows = list(_fold_waves(prepared, set(ranks[:most])))
    nodes = {prepared.nodes[rank].index + 1: prepared.nodes[rank] for row in rows for rank in row}
    every_read, has_more = find_reads(prepared)
    reads = [read for read in every_read if read.writer in nodes and read.reader in nodes]
    lines = _reduce(reads, [prepared.nodes[rank].index + 1 for row in rows for rank in row])
    places, lanes = _lay_out([[prepared.nodes[rank].index + 1 for rank in row] for row in rows], lines)
    counts = {} if states is None else count_states(prepared, states)
    items = {item["id"]: item for item in (states or {}).get("calls") or ()}
    skipped = {n for n, node in nodes.items() if node.id in counts and worst_state(counts[node.id]) == "skipped"}
    parts = [_line(read, places, lanes, is_taken=not {read.writer, read.reader} & skipped) for read in lines]
    approve = prepared.request.config.approve
    for number, node in nodes.items():
        of = [read for read in reads if read.reader == number]
        asks = find_rule(node, approve) is not None
        own = None if states is None else counts.get(node.id, {})
        box = _box(node, places[number], _describe(node, own, items.get(node.id, {}), of, asks=asks), own)
        parts.append(f'<a href="{svg_text(links)}{number}">{box}</a>' if links else box)
    right = max(
        [*(place.x + _WIDTH for place in places.values()), *(x + _LANE for x in lanes.values())], default=_WIDTH
    )
    height = len(rows) * (_HEIGHT + _RISE) - _RISE * bool(rows) + 2 * _MARGIN
    notes = [f"{len(ranks) - len(nodes):,} more calls are not drawn"] if len(ranks) > len(nodes) else []
    notes += ["no calls"] if not ranks else ["only some of the lines are drawn"] if has_more else []
    parts += [write(_MARGIN, height + 16 * at + 8, note) for at, note in enumerate(notes)]
    svg = svg_picture(right + _MARGIN, height + 16 * len(notes), f"a plan of {len(ranks):,} calls", parts)
    return svg if len(svg) <= MAX_CHARS or most == 1 else plan_svg(prepared, states, links=links, most=most // 2)


def _fold_waves(prepared: ValidatedPlan, drawn: set[int]) -> Iterator[list[int]]:
    for ranks in find_waves(prepared.graph):
        wave = [rank for rank in ranks if rank in drawn]
        folds = -(-len(wave) // _PER_ROW)
        for at in range(folds):
            yield wave[at * len(wave) // folds : (at + 1) * len(wave) // folds]


def _reduce(reads: Sequence[Read], order: Sequence[int]) -> list[Read]:
    """One read for each pair, without those that always hold and that others imply."""
    before: dict[int, dict[int, Read]] = {number: {} for number in order}
    for read in reads:
        label = before[read.reader].get(read.writer)
        before[read.reader][read.writer] = read if label is None or read.is_sure else label
    above: dict[int, int] = {}  # the bits of all Calls that come before one
    for number in order:
        above[number] = 0
        for writer in before[number]:
            above[number] |= above[writer] | 1 << writer
    return [
        read
        for number in order
        for writer, read in before[number].items()
        if not (read.is_sure and any(above[other] >> writer & 1 for other in before[number]))
    ]


def _lay_out(
    rows: Sequence[Sequence[int]], lines: Sequence[Read]
) -> tuple[dict[int, Place], dict[tuple[int, int], float]]:
    """The place of each Call, and where lines of one writer pass a row: by writer and row, the middle of their lane.

    Each row is in the order of what it reads above, and centred.
    """
    row_of = {number: at for at, row in enumerate(rows) for number in row}
    passing: list[set[int]] = [set() for _ in rows]
    writers: dict[int, list[int]] = {}
    for read in lines:
        writers.setdefault(read.reader, []).append(read.writer)
        span = range(row_of[read.writer] + 1, row_of[read.reader])
        for row in span if len(span) <= _MAX_LANES else ():
            passing[row].add(read.writer)
    middles: dict[int, float] = {}  # of each Call, or of its lane in the row above
    spans: list[tuple[int, int, float, bool]] = []
    for at, members in enumerate(rows):
        wanted = [(_mean([middles[w] for w in writers.get(n, ())]), i, n, False) for i, n in enumerate(members)]
        wanted += [(middles[writer], len(members), writer, True) for writer in sorted(passing[at])]
        x = -(sum(_LANE if is_lane else _WIDTH for *_, is_lane in wanted) + _GAP * (len(wanted) - 1)) / 2
        for *_, number, is_lane in sorted(wanted):
            width = _LANE if is_lane else _WIDTH
            middles[number] = x + width / 2
            spans.append((number, at, x, is_lane))
            x += width + _GAP
    left = min((x for *_, x, _ in spans), default=0.0) - _MARGIN
    tops = [_MARGIN + at * (_HEIGHT + _RISE) for at in range(len(rows))]
    places = {number: Place(x - left, tops[at], at) for number, at, x, is_lane in spans if not is_lane}
    return places, {(number, at): x - left + _LANE / 2 for number, at, x, is_lane in spans if is_lane}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _line(read: Read, places: Mapping[int, Place], lanes: Mapping[tuple[int, int], float], *, is_taken: bool) -> str:
    start, end = places[read.writer], places[read.reader]
    x, y = start.x + _WIDTH / 2, start.y + _HEIGHT
    d = f"M{x:g} {y:g}"
    for row in range(start.row + 1, end.row + 1):
        if row < end.row and (read.writer, row) not in lanes:
            continue
        to = end.x + _WIDTH / 2 if row == end.row else lanes[read.writer, row]
        top, bend = _MARGIN + row * (_HEIGHT + _RISE), _RISE / 2
        d += f"C{x:g} {y + bend:g} {to:g} {top - bend:g} {to:g} {top:g}" + (f"v{_HEIGHT}" if row < end.row else "")
        x, y = to, top + _HEIGHT
    dash = "" if read.is_sure else ' stroke-dasharray="5 3"'
    faint = "" if is_taken else ' stroke-opacity=".35"'
    head = "m-4 -6l4 6l4 -6"
    label = f"<title>{svg_text(read.label)}</title>"
    return f'<path d="{d}{head}" stroke="{_GREY}"{dash}{faint}>{label}</path>'


class _Words(NamedTuple):
    mark: str
    facts: str  # the second line of a box
    title: str


def _describe(
    node: PlannedCall, counts: StateCounts | None, item: Mapping[str, Any], reads: Sequence[Read], *, asks: bool
) -> _Words:
    state = None if counts is None else worst_state(counts)
    kinds = {"latent": "by a model", "activity": "", "delegate": "delegate"}
    tags = [
        kinds.get(node.kind, node.kind),
        "approval" if asks else "",
        "background" if node.is_detached else "",
        element_counts_text(item.get("elements")),
    ]
    ifs = [read.label for read in reads if not read.is_sure]
    facts = [fact for fact in (state or "", *tags, *call_facts(node, counts or {})) if fact]
    facts = [*facts[:-1], *ifs[:1], facts[-1]] if facts and node.outcomes else [*facts, *ifs[:1]]
    lines = [f"reads {read.label} of {read.writer}" for read in reads[:8]]
    title = [node.id, *facts, *lines, describe_call(item)]
    mark = "•" if state is None else STATE_MARKS.get(state, UNKNOWN_MARK)
    return _Words(mark, " · ".join(facts), "\n".join(filter(None, title)))


def _box(node: PlannedCall, at: Place, words: _Words, counts: StateCounts | None) -> str:
    state = None if counts is None else worst_state(counts)
    color = state_color(state or "")
    shape = f'stroke="{color}"' + (' stroke-dasharray="4 3"' if state in _DASHED else "")
    radius = {"latent": 20, "delegate": 0}.get(node.kind, 5)
    rect = f'width="{_WIDTH}" height="{_HEIGHT}" rx="{radius}"'
    is_stack = node.is_each or sum((counts or {}).values()) > 1
    stack = f'<path d="M{at.x + 8:g} {at.y + _HEIGHT + 4:g}h{_WIDTH - 4}v-{_HEIGHT - 4}" {shape}/>' if is_stack else ""
    inner = (
        f'<path d="M{at.x + 5:g} {at.y:g}v{_HEIGHT}M{at.x + _WIDTH - 5:g} {at.y:g}v{_HEIGHT}" {shape}/>'
        if node.kind == "delegate"
        else ""
    )
    faint = ' opacity=".55"' if state in ("skipped", "cancelled") else ""
    number, name = node.index + 1, svg_text(node.id)
    title = "&#10;".join(map(svg_text, words.title.split("\n")))
    return (
        f'<g id="box-{number}" data-call="{name}" data-state="{svg_text(state or "")}"{faint}><title>{title}</title>'
        f'{stack}<rect x="{at.x:g}" y="{at.y:g}" {rect} {shape} fill="{color}" fill-opacity=".14"/>{inner}'
        f"{write(at.x + 11, at.y + 18, words.mark)}{write(at.x + 28, at.y + 18, svg_text(node.id, _NAME_UNITS))}"
        f"{write(at.x + 11, at.y + 35, svg_text(words.facts, _FACT_UNITS), size=0.68)}</g>"
    )
