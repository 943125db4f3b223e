"""What a run of a plan is expected to weigh, in bytes of history and in tokens.

How it is estimated. What a run records is known in form: its Request, for each Call the
Call with its references replaced, the Tool, what its scopes show, the result; at the end
the result of the run, in which each Call's output stands in the context and in the state.
What is not known is how large results are. A result is taken to be as large as the sample
of its Tool's ``_output``, each word of it ``WORD_BYTES``, what nothing is said of
``UNKNOWN_BYTES``, a list of one sample ``ITEMS`` of them; a reference is as large as what
it leads to: data of the context as it stands, else what Calls before it write there, else
nothing. A failure is as large as one with a Python traceback. What Temporal adds per event
was measured on a real server.

Tokens are those of the prompts of latent Calls and of their sample answers, four bytes to
one; a second turn, and a model's reasoning, are not foreseen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from acts.language.references import Path, alternatives
from acts.language.sampling import sample
from acts.language.values import ABSENT, UNKNOWN, Json, get, nest
from acts.plan.context_log import START
from acts.plan.validate import ValidatedPlan, is_template
from acts.planner.prompt import call_prompt
from acts.tree.batches import Batch, group_instances, needs_children, slim

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from acts.language.references import ReferenceUse
    from acts.plan.context_log import Log
    from acts.plan.planned_call import PlannedCall

# What stands for a string, and for a value of which no schema says anything
WORD_BYTES: Final = 24
UNKNOWN_BYTES: Final = 20
# A list of which one item is known has so many
ITEMS: Final = 3
BYTES_PER_TOKEN: Final = 4

# Measured, per event or group of events, beside the payloads in them
_STARTED: Final = 225  # the run's first event, beside the Request
_ENDED: Final = 65
TASK_BYTES: Final = 276  # a workflow task: scheduled, started, completed
_ACTIVITY: Final = 620  # scheduled, started, completed
_MODEL: Final = 1050  # … with what a model activity is told and answers beside the Call and the output
_FAILURE: Final = 1600
_LOCAL: Final = 440
_CHILD: Final = 850
_LOOKUP: Final = 560
_BELOW: Final = 160  # what the first event of a run below another says of that one
# The result of a run beside its Calls, and of a Call beside its values
_RESULT: Final = 130
_ENTRY: Final = 110
# A larger result is trimmed to this; of a batch's, the instances are
_MAX_RESULT: Final = 1_572_864
_MAX_BATCH_RESULT: Final = 1_048_576
# A child for instances: initiated, started, completed; and what it is told of where it stands
_UNIT: Final = 600
_SOURCE: Final = {"workflowId": "w" * 16, "runId": "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "upto": 10}
# So many children are weighed, of more
_SAMPLES: Final = 50


def json_size(value: Json) -> int:
    """Bytes of a value as compact JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode())


class _Place:
    """What is written at a path: the bytes there and below, and the sample of the last value at itself."""

    __slots__ = ("below", "bytes", "value")

    def __init__(self) -> None:
        self.bytes, self.value = 0, ABSENT
        self.below: dict[str, _Place] = {}


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """Bytes of a run's history beside workflow tasks and decisions, tokens; ``each``: of a child for an instance."""

    bytes: int
    tokens: int
    each: int = 0


@dataclass(slots=True)
class _Part:
    """What some Calls leave in a history, in the values of a result, and in the Messages that it appends."""

    recorded: int = 0
    values: int = 0
    messages: int = 0
    entries: int = 0
    tokens: int = 0


class SizeEstimator:
    """Estimates for one plan. ``of`` is asked once for each combination of outcomes.

    ``runs`` is how many children walk the instances, ``below`` are the Calls that they walk.
    """

    def __init__(self, prepared: ValidatedPlan, handed: int | None = None) -> None:
        self._prepared, self._handed = prepared, handed
        self._layer = prepared.start.layer(None)
        tools = {n.tool.name: n.tool for n in prepared.nodes}
        self._outputs = {name: _stuffed(sample(tool.output)) for name, tool in tools.items()}
        self._tools = {name: json_size(tool.schema) for name, tool in tools.items()}
        self._planned = [json_size(n.planned) for n in prepared.nodes]
        self._held: dict[Path, int | None] = {}
        self._prompts: dict[tuple[str, bool], int] = {}
        units = group_instances(prepared) if needs_children(prepared) else []
        self.runs = len(units)
        self.below = {r for r, n in enumerate(prepared.nodes) if n.instance is not None} if units else set()
        self._times = len(prepared.request.instances()) if is_template(prepared.request, prepared.nodes) else 1
        self._units, self._states = self._given_below(units)

    def of(self, started: Sequence[int], failed: Iterable[int]) -> SizeEstimate:
        """A run that starts these Calls, of which some end with an error."""
        failing = set(failed)
        views = 2 if self._handed is None else 1  # in the context and the state; an agent has the state
        here = self._part([r for r in started if r not in self.below], failing)
        total = _STARTED + _ENDED + self._given() + here.recorded
        result = _RESULT + (self._context(Path("state")) or 0 if self._handed is None else 0)
        result += here.entries + here.messages + views * here.values
        result += 70 * (len(self._prepared.nodes) - len(self.below) - sum(r not in self.below for r in started))
        if not self.runs:
            return SizeEstimate(round(total + min(result, _MAX_RESULT)), here.tokens)
        below = self._below(started, failing)
        told = self._states + self._times * (below.entries + below.values)
        total += self._units + self.runs * _UNIT + told
        more = told + self._times * (below.messages + below.values)
        count = len(self._prepared.request.instances())
        result += more if result + more <= _MAX_BATCH_RESULT else 30 * count
        each = (self._units + told + self._times * below.recorded) / self.runs + _STARTED + _ENDED + _BELOW
        tokens = here.tokens + below.tokens
        return SizeEstimate(round(total + min(result, _MAX_RESULT)), tokens, round(each))

    def _below(self, started: Iterable[int], failing: Container[int]) -> _Part:
        """What the children's Calls leave, each instance's in its own view."""
        groups: dict[str | None, list[int]] = {}
        for rank in started:
            if rank in self.below:
                groups.setdefault(self._prepared.nodes[rank].instance, []).append(rank)
        out = _Part(entries=70 * (len(self.below) - sum(map(len, groups.values()))))
        for ranks in groups.values():
            part = self._part(ranks, failing)
            out.recorded += part.recorded
            out.values += part.values
            out.messages += part.messages
            out.entries += part.entries
            out.tokens += part.tokens
        return out

    def _part(self, started: Iterable[int], failing: Container[int]) -> _Part:
        written: dict[str, _Place] = {}
        out = _Part()
        for rank in sorted(started):
            node = self._prepared.nodes[rank]
            value: Json = {"code": "x" * 12, "message": "x" * 60} if rank in failing else self._outputs[node.tool.name]
            call, scoped = self._call(node, written)
            out.recorded += self._recorded(node, call, scoped, json_size(value), failed=rank in failing)
            if node.kind == "latent":
                out.tokens += self._tokens(node, call, scoped, json_size(value))
            paths = node.outcomes[node.error or 0] if rank in failing else node.outcomes[0] if node.outcomes else ()
            for path in paths:
                _write(written, path, value)
                out.values += json_size(nest(path.names, value))
                out.messages += self._planned[rank] + len(str(path).encode()) + 70
            out.entries += _ENTRY
        return out

    def _given_below(self, units: Sequence[Sequence[str]]) -> tuple[int, int]:
        """Bytes of what all children are handed, and of the states that they begin with; a sample stands for many."""
        if not units:
            return 0, 0
        batch = Batch(self._prepared, self._prepared.request.raw.get("config") or {})
        log, some = self._prepared.start, units[:: max(1, len(units) // _SAMPLES)]
        beside = {"registry": {"tools": {}, "served": [], "pins": {}}, "source": _SOURCE, "tree": {}, "approve": None}
        handed = sum(json_size(slim({**batch.handed(unit), **beside})) for unit in some)
        states = sum(_state(log, instance) for unit in some for instance in unit)
        return round(handed * len(units) / len(some)), round(states * len(units) / len(some))

    def _call(self, node: PlannedCall, written: Mapping[str, _Place]) -> tuple[int, int]:
        """Bytes of a Call with its references replaced, and of what its scopes show."""
        bytes_ = json_size({k: v for k, v in node.call.items() if k != "_output"}) + 45
        for read in node.reads:
            if read.at and read.at[0] != "_scopes":
                bytes_ += self._read(read, written) - json_size(read.text)
        return bytes_, sum(self._at(path, written) or 0 for path in node.scopes) + 40 * len(node.scopes)

    def _read(self, read: ReferenceUse, written: Mapping[str, _Place]) -> int:
        for paths in alternatives(read.tree):
            sizes = [self._at(path, written) for path in paths]
            if all(s is not None for s in sizes):
                return sizes[-1] or 0
        return 4

    def _at(self, path: Path, written: Mapping[str, _Place]) -> int | None:
        """Bytes of what stands at a path; None when nothing does."""
        place = written.get(path.kind)
        for at, name in enumerate(path.names):
            if place is None:
                break
            if place.value is not ABSENT and name not in place.below:
                value = get(place.value, path.names[at:])
                return UNKNOWN_BYTES if value is ABSENT else json_size(value)
            place = place.below.get(name)
        own = self._context(path)
        return own if place is None else place.bytes + (own or 0)

    def _context(self, path: Path) -> int | None:
        if path not in self._held:
            value = self._layer.read(path, START)
            self._held[path] = None if value is ABSENT else json_size(value)
        return self._held[path]

    def _given(self) -> int:
        """What the run is started with."""
        return json_size(self._prepared.request.raw) if self._handed is None else self._handed + _BELOW

    def _recorded(self, node: PlannedCall, call: int, scoped: int, result: int, *, failed: bool) -> int:
        """What a Call leaves in the history of its run."""
        outcome = _FAILURE if failed else result
        own = call + len(node.label.encode()) + outcome
        if node.kind == "latent":
            return own + scoped + _MODEL
        if node.detached:
            return own - outcome + self._tools[node.tool.name] + scoped + _CHILD - TASK_BYTES
        if node.kind == "delegate":
            return own + scoped + _CHILD
        if node.tool.options.local:
            return outcome + _LOCAL  # its input is not recorded
        return own + self._tools[node.tool.name] + scoped + _ACTIVITY

    def _tokens(self, node: PlannedCall, call: int, scoped: int, result: int) -> int:
        """Of one request: the prompt, and the answer."""
        paths = node.outcome_texts
        key = (node.tool.name, bool(node.scopes))
        if key not in self._prompts:
            messages = self._prepared.request.context
            prompt = call_prompt(messages, node.tool, {}, paths, () if node.scopes else None)
            self._prompts[key] = len("".join((*prompt.system, *prompt.user)).encode())
        meta = sum(json_size(k) + json_size(v) + 2 for k, v in node.call.items() if k[:1] == "_" and k != "_tool")
        asked = self._prompts[key] + max(0, call - meta) + scoped
        return -(-asked // BYTES_PER_TOKEN) + -(-(result + 20) // BYTES_PER_TOKEN)


def lookup_bytes(registry: Mapping[str, Json]) -> int:
    """The record of what the worker serves, for Tools that the Request only names."""
    return _LOOKUP + json_size(registry)


def _state(log: Log, instance: str) -> int:
    value = log.layer(instance).read(Path("state"), START)
    return 0 if value is ABSENT else json_size(value)


def _write(written: dict[str, _Place], path: Path, value: Json) -> None:
    bytes_ = json_size(value)
    place = written.setdefault(path.kind, _Place())
    place.bytes += bytes_ + sum(len(n.encode()) + 5 for n in path.names)
    for at, name in enumerate(path.names):
        place = place.below.setdefault(name, _Place())
        place.bytes += bytes_ + sum(len(n.encode()) + 5 for n in path.names[at + 1 :])
    place.value = value


def _stuffed(value: Json) -> Json:
    """A sample as large as a real value may be."""
    if isinstance(value, dict):
        return {k: _stuffed(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_stuffed(v) for v in value] * (ITEMS if len(value) == 1 else 1)
    if value is UNKNOWN:
        return "x" * (UNKNOWN_BYTES - 2)
    return "x" * (WORD_BYTES - 2) if value == "sample" else value
