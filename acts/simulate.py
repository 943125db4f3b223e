"""A plan walked without running anything: waves, outcomes, misfits, a forecast.

Laws
----
* What happens is decided by dry walks (``trials``), what fits by schemas (``producers``);
  here both are told. Nothing is guessed: an error is a proof, a warning a possibility.
* The work is bounded. Where combinations of outcomes were left out (``truncated``), the
  forecast holds for them too.
* Only what a run does by itself is counted: what delegates do inside is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from acts.advice import advice
from acts.approvals import Share, share
from acts.decisions import asked_about
from acts.errors import MAX_PROBLEMS_REPORTED, Problem
from acts.forecast import TASK_BYTES, Sizes, lookup_bytes
from acts.producers import Misfit, misfits
from acts.references import conjunction
from acts.schemas import sample
from acts.tools import registered_names, undecided_names
from acts.trials import Trial, choices, explore
from acts.validate import Prepared, prepare
from acts.values import UNKNOWN, Json

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from acts.calls import Node
    from acts.graph import Graph

# Events in a run's history, as Temporal counts them: an activity is scheduled, started
# and completed; a child workflow is initiated, started and completed, and its start is a
# workflow task of its own. One that is not waited for has the first two, and the third with
# a task if it ends while the run goes on. A local activity leaves one marker.
_EVENTS: Final = {"activity": 3.0, "latent": 3.0, "delegate": 6.0, "background": 2.0, "local": 1.0}
_LATE_EVENTS: Final = 1.0
# A workflow task is scheduled, started and completed. A chain needs one per Call. Results of
# parallel Calls share them, as it happens: 1 to 7 tasks were measured for 12 Calls side by
# side, 7 for 100, 75 for 1,000. Local activities run within the task that starts them.
_TASK_EVENTS: Final = 3.0
_FEWEST_TASKS: Final = (1.0, 0.05)
_MOST_TASKS: Final = (6.0, 0.07)
# Start and end of the run with its first task, and the marker of the look-up of what is served
_RUN_EVENTS: Final = 5.0
_LOOKUP_EVENTS: Final = 1.0

# Calls weighed in all combinations together, at some 0.05 ms each
MAX_WEIGHED: Final = 2_000

Price = Callable[[str], float | None]
"""The estimated US dollars of one request to a model, or None where nobody knows."""


def simulate(
    raw: Json, registry: Mapping[str, Json] | None = None, served: Iterable[str] = (), price: Price | None = None
) -> dict[str, Any]:
    """What a Request's plan would do, as JSON; see ``simulate_prepared``.

    Raises:
        InvalidRequest: the Request does not validate.
    """
    return simulate_prepared(prepare(raw, registry, served), price)


def simulate_prepared(prepared: Prepared, price: Price | None = None, handed: int | None = None) -> dict[str, Any]:
    """What a plan would do::

        {waves: [[call id]], criticalPath: [call id],
         calls: [{id, tool, how, activity?, taskQueue?, delegate?, given?, reads, writes,
                  scopes, instance?, approval, background}],
         outcomes: {combinations: [{choices: {call id: path}, run: [call id], skipped: [call id],
                                    failed?: [call id], waiting?: [call id]}], truncated},
         samples: {tool: example of its _output, null where it says nothing},
         outside: [call id],
         requests: {min, max}, delegates: {min, max}, cost: {min, max} | null, tokens: {min, max},
         events: {min, max}, bytes: {min, max},
         problems: [{code, message, pointer, severity?, call?, hint?, …}], instances?}

    ``outside`` are the Calls that may change something in the world: those with an Activity, fire-and-forget ones
    and what delegates do; a latent Call only reads. ``tokens`` and ``bytes`` (of history) are estimates; how they
    are made is said in ``forecast``. ``waiting`` are Calls that need what only ``provide`` can bring. ``price``
    tells the estimated US dollars of one request to a model, or None. ``handed`` are the bytes that an agent hands to
    the run that walks its plan; None is a run by itself. A template is walked for its first
    instance: ``requests``, ``delegates``, ``cost`` and ``tokens`` are those of all ``instances``
    together, ``events`` and ``bytes`` those of one's own history.
    """
    shape = Shape(prepared.graph)
    found = misfits(prepared)
    trials, truncated = explore(prepared, {m.rank for m in found if m.certain})
    ids = [n.id for n in prepared.nodes]
    asked = [_asks(prepared, rank) for rank in range(len(ids))]
    template = _template(prepared)
    used = {n.tool.name: n.tool for n in prepared.nodes}
    return {
        "waves": [[ids[rank] for rank in wave] for wave in shape.waves()],
        "criticalPath": [ids[rank] for rank in shape.critical()],
        "calls": [_call(prepared, rank, asked[rank], template) for rank in _as_listed(prepared)],
        "outside": [ids[rank] for rank in _as_listed(prepared) if rank not in prepared.given and _acts(prepared, rank)],
        "outcomes": {"combinations": [t.to_json(ids) for t in trials], "truncated": truncated},
        "samples": {name: _plain(sample(tool.output)) for name, tool in used.items() if tool.output is not None},
        **_forecast(prepared, shape, trials, price, asked=asked, truncated=truncated, handed=handed),
        "problems": _problems(prepared, found, trials, truncated=truncated),
        **({"instances": len(prepared.request.instances())} if template else {}),
    }


# -- the shape of the graph ----------------------------------------------------


class Shape:
    """How deep each Call lies. Linear in the Calls: a running maximum per chain.

    ``level[r]`` counts from 0, ``before[r]`` is the deepest Call that r waits for, and
    ``sure[r]`` says that no branching Call stands before r.
    """

    def __init__(self, graph: Graph) -> None:
        self.level: list[int] = []
        self.before: list[int | None] = []
        self.sure: list[bool] = []
        done: dict[int, tuple[int, int | None, bool]] = {}  # by chain: entries seen, the deepest, all sure
        for rank in range(len(graph.order)):
            deepest: int | None = None
            sure = True
            for chain, count in graph.waits[rank]:
                at, top, all_sure = done.get(id(chain), (0, None, True))
                for entry in chain.entries[at:count]:
                    all_sure = all_sure and self.sure[entry] and len(graph.order[entry].outcomes) < 2  # noqa: PLR2004
                    if top is None or self.level[entry] > self.level[top]:
                        top = entry
                done[id(chain)] = (max(at, count), top, all_sure)
                sure = sure and all_sure
                if top is not None and (deepest is None or self.level[top] > self.level[deepest]):
                    deepest = top
            self.level.append(0 if deepest is None else self.level[deepest] + 1)
            self.before.append(deepest)
            self.sure.append(sure)

    def waves(self) -> list[list[int]]:
        """The Calls that run side by side, as ranks, wave after wave."""
        out: list[list[int]] = [[] for _ in range(max(self.level, default=-1) + 1)]
        for rank, level in enumerate(self.level):
            out[level].append(rank)
        return out

    def critical(self) -> list[int]:
        """The longest chain of Calls that wait for each other."""
        at = max(range(len(self.level)), key=self.level.__getitem__, default=None)
        out: list[int] = []
        while at is not None:
            out.append(at)
            at = self.before[at]
        return out[::-1]


# -- calls and the forecast ----------------------------------------------------


def _template(prepared: Prepared) -> bool:
    """True when the plan is run once for each instance."""
    return bool(prepared.request.instances()) and not any(n.planned.get("_instance") for n in prepared.nodes)


def _as_listed(prepared: Prepared) -> list[int]:
    return sorted(range(len(prepared.nodes)), key=lambda rank: prepared.nodes[rank].index)


def _asks(prepared: Prepared, rank: int) -> bool:
    """True when a human confirms the Call."""
    node, approve = prepared.nodes[rank], prepared.request.config.approve
    if rank in prepared.given or (node.how == "latent" and not node.outcomes):
        return False
    return asked_about(node, approve) is not None


def _acts(prepared: Prepared, rank: int) -> bool:
    """True when a Call may change something outside of the run."""
    return prepared.nodes[rank].how != "latent"


def _call(prepared: Prepared, rank: int, asks: bool, template: bool) -> dict[str, Any]:  # noqa: FBT001
    node = prepared.nodes[rank]
    out: dict[str, Any] = {"id": node.id, "tool": node.tool.name, "how": node.how}
    if node.how == "activity":
        out["activity"] = node.tool.activity
        if node.tool.options.taskQueue is not None:
            out["taskQueue"] = node.tool.options.taskQueue
    if node.how == "delegate":
        out["delegate"] = node.delegate
    if rank in prepared.given:
        out["given"] = True
    out["reads"] = list(dict.fromkeys(str(p) for read in node.reads for p in read.paths))
    out["writes"] = [str(p) for p in node.writes]
    out["scopes"] = [str(p) for p in node.scopes]
    if node.instance is not None and not template:
        out["instance"] = node.instance
    return {**out, "approval": asks, "background": node.detached}


def _forecast(
    prepared: Prepared,
    shape: Shape,
    trials: Sequence[Trial],
    price: Price | None,
    *,
    asked: Sequence[bool],
    truncated: bool,
    handed: int | None,
) -> dict[str, Any]:
    walks: list[_Walked] = [(t.started, _failing(prepared, t)) for t in trials]
    waiting = [(t, t.states["waiting"]) for t in trials if t.states.get("waiting")]
    walks += [((*t.started, *more), _failing(prepared, t)) for t, more in waiting]  # all that is lacking is provided
    if truncated:  # between the Calls that no outcome decides about, and all of them
        able = [r for r, n in enumerate(prepared.nodes) if r not in prepared.given and (n.outcomes or n.detached)]
        walks += [([r for r in able if shape.sure[r]], ()), (able, ())]
    times = len(prepared.request.instances()) if _template(prepared) else 1
    how = [n.how for n in prepared.nodes]
    requests = _range(times * sum(how[r] == "latent" for r in walk) for walk, _ in walks)
    delegates = _range(times * sum(how[r] == "delegate" for r in walk) for walk, _ in walks)
    model = prepared.request.config.model
    each = 0.0 if not requests["max"] else price(model) if price and model else None
    cost = None if each is None else {k: round(n * each, 6) for k, n in requests.items()}
    looked_up = handed is None and bool(registered_names(prepared.request) or undecided_names(prepared.request))
    own, sizes = _LOOKUP_EVENTS * looked_up, Sizes(prepared, handed)
    shares = [_share(prepared, shape, walk, asked, below=handed is not None) for walk, _ in walks]
    pairs = list(zip(walks, shares, strict=True))
    events = _range(round(own + n) for (walk, _), part in pairs for n in _events(prepared, shape, walk, part))
    weights = [w for walk, part in _weighed(pairs) for w in _weights(prepared, sizes, shape, walk, part)]
    tokens = _range(times * w[1] for w in weights)
    names = dict.fromkeys(registered_names(prepared.request))
    more = lookup_bytes({n: prepared.tools[n].schema for n in names if n in prepared.tools}) if looked_up else 0
    bytes_ = _range(w[0] + more for w in weights)
    return {
        "requests": requests, "delegates": delegates, "cost": cost, "tokens": tokens, "events": events, "bytes": bytes_,
    }  # fmt: skip


# What a combination starts, and which of that fails
_Walked = tuple["Sequence[int]", "Sequence[int]"]


def _failing(prepared: Prepared, trial: Trial) -> tuple[int, ...]:
    """The started Calls of a combination that end with an error."""
    out = []
    for rank in trial.started:
        node = prepared.nodes[rank]
        path = None if node.error is None else conjunction(node.outcomes[node.error])
        if rank in trial.errors or (path is not None and trial.choices.get(rank) == path):
            out.append(rank)
    return tuple(out)


def _weighed(walks: Sequence[tuple[_Walked, Share]]) -> list[tuple[_Walked, Share]]:
    """What is weighed: every combination of a small plan; of a large one, those with the fewest and most Calls."""
    if sum(len(started) for (started, _), _ in walks) <= MAX_WEIGHED:
        return list(walks)
    by_size = sorted(walks, key=lambda w: len(w[0][0]))
    return [by_size[0], by_size[-1]]


def _range(numbers: Iterable[int]) -> dict[str, int]:
    found = list(numbers)
    return {"min": min(found), "max": max(found)}


def _kind(node: Node) -> str:
    if node.detached:
        return "background"
    return "local" if node.how == "activity" and node.tool.options.local else node.how


def _tasks(prepared: Prepared, shape: Shape, started: Sequence[int], decisions: Share) -> tuple[float, float]:
    """Workflow tasks beside the first one: the fewest and the most."""
    wide = [0] * (max(shape.level, default=-1) + 1)
    for rank in started:
        wide[shape.level[rank]] += _kind(prepared.nodes[rank]) != "local"
    low, high = (sum(min(float(n), base + each * n) for n in wide) for base, each in (_FEWEST_TASKS, _MOST_TASKS))
    if decisions.tasks[1] > 1:  # what is decided one by one ends one by one
        high = max(high, min(float(sum(wide)), float(decisions.tasks[1])))
    high += _unwaited(prepared, started)
    return decisions.tasks[0] + low, decisions.tasks[1] + high


def _unwaited(prepared: Prepared, started: Sequence[int]) -> int:
    return sum(prepared.nodes[rank].detached for rank in started)


def _share(prepared: Prepared, shape: Shape, started: Sequence[int], asked: Sequence[bool], *, below: bool) -> Share:
    """What the decisions of people add to a walk."""
    plan, approve = prepared.request.plan, prepared.request.config.approve
    whole = plan is not None and (plan.mode == "lazy" if approve.plan is None else approve.plan)
    waves = [0] * (max(shape.level, default=-1) + 1)
    for rank in started:
        waves[shape.level[rank]] += asked[rank]
    return share(
        waves, len(prepared.nodes), whole=whole and not below, limited=approve.timeout is not None, below=below
    )


def _events(prepared: Prepared, shape: Shape, started: Sequence[int], decisions: Share) -> tuple[float, float]:
    total = _RUN_EVENTS + sum(_EVENTS[_kind(prepared.nodes[rank])] for rank in started)
    low, high = _tasks(prepared, shape, started, decisions)
    late = _LATE_EVENTS * _unwaited(prepared, started)
    return total + decisions.events[0] + _TASK_EVENTS * low, total + decisions.events[1] + late + _TASK_EVENTS * high


def _weights(prepared: Prepared, sizes: Sizes, shape: Shape, walk: _Walked, decisions: Share) -> list[tuple[int, int]]:
    """Bytes and tokens, with the fewest and the most workflow tasks and words of people."""
    bytes_, tokens = sizes.of(walk[0], walk[1])
    tasks = _tasks(prepared, shape, walk[0], decisions)
    both = zip(tasks, decisions.bytes, strict=True)
    return [(round(bytes_ + more + TASK_BYTES * (1 + n)), tokens) for n, more in both]


# -- problems ------------------------------------------------------------------


def _problems(
    prepared: Prepared, found: Sequence[Misfit], trials: Sequence[Trial], *, truncated: bool
) -> list[dict[str, Any]]:
    """All findings, errors first, at most MAX_PROBLEMS_REPORTED of them."""
    warned = [
        *prepared.warnings,
        *advice(prepared.graph, prepared.log()),
        *(p for node in prepared.nodes for p in _untold(node)),
    ]
    known = {p.call for p in warned if p.code in ("unreachable", "thought")}
    listed = [p.to_json() for p in warned] + [m.to_json() for m in found]
    listed += [p.to_json() for p in _never(prepared, trials, known, truncated=truncated)]
    listed.sort(key=lambda p: p.get("severity") == "warning")
    more = len(listed) - MAX_PROBLEMS_REPORTED
    if more > 0:
        note = Problem("moreProblems", f"… and {more} more problems", severity="warning")
        listed[MAX_PROBLEMS_REPORTED:] = [note.to_json()]
    return listed


def _untold(node: Node) -> Iterable[Problem]:
    """Outcomes that no result can choose."""
    taken = choices(node)
    for i, outcome in enumerate(node.outcomes):
        if i not in taken:
            text = f"no result can choose {conjunction(outcome)}: it overlaps another alternative"
            hint = "give each alternative a path that no other one holds or lies below"
            yield Problem("unreachableOutcome", text, f"{node.pointer}/_outputPath", node.id, hint, "warning")


def _never(
    prepared: Prepared, trials: Sequence[Trial], known: Container[str | None], *, truncated: bool
) -> Iterable[Problem]:
    """Calls that fail, and Calls that never get to run and are not ``known`` for it."""
    ran, other = ({r for t in trials for r in t.states.get(s, ())} for s in ("run", "failed"))
    other |= {r for t in trials for r in t.states.get("waiting", ())}
    errors: dict[int, str] = {}
    for trial in trials:
        errors = {**trial.errors, **errors}
    for rank, node in enumerate(prepared.nodes):
        if rank in errors:
            always = rank not in ran and not truncated
            text = errors[rank] if always else f"for some outcomes: {errors[rank]}"
            yield Problem("willFail", text, node.pointer, node.id, severity="error" if always else "warning")
        elif not truncated and rank not in ran and rank not in other and node.id not in known:
            text = "this call is skipped whatever the outcomes are"
            yield Problem("unreachable", text, node.pointer, node.id, severity="warning")


def _plain(value: Json) -> Json:
    """A sample as JSON: null for what is not known."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return None if value is UNKNOWN else value
