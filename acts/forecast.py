"""What a run of a plan is expected to weigh, in bytes of history and in tokens, and how that came out.

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
from typing import TYPE_CHECKING, Any, Final

from acts.compose import offered
from acts.context import START
from acts.prompt import call_prompt
from acts.references import Path, alternatives
from acts.report import summary
from acts.schemas import sample
from acts.values import ABSENT, UNKNOWN, Json, get, nest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from acts.calls import Node, Read
    from acts.validate import Prepared

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
# A larger result is trimmed to this
_MAX_RESULT: Final = 1_572_864

FIGURES: Final = ("calls", "requests", "tokens", "cost", "events", "bytes")
# … and about as many bytes are their ranges
RANGES_BYTES: Final = 250
# The states of Calls that count as made
_MADE: Final = ("completed", "detached", "failed", "running")


def json_size(value: Json) -> int:
    """Bytes of a value as compact JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode())


def ranges(simulation: Mapping[str, Any], *, children: bool = False) -> dict[str, Any]:
    """What ``simulate`` expects of a run: ``{calls, requests, tokens, cost, events, bytes: {min, max} | None}``.

    None is what it does not foresee: what delegates spend, and the history of a run whose instances are walked by
    ``children`` (of a template they always are: what is foreseen there is the history of each of them).
    """
    started = []
    for found in simulation["outcomes"]["combinations"]:
        sure = len(found["run"]) + len(found.get("failed", ()))
        started += [sure, sure + len(found.get("waiting", ()))]  # of what waits, all may come to run
    calls = {"min": min(started, default=0), "max": max(started, default=0)}
    if simulation["outcomes"]["truncated"]:
        calls = {"min": 0, "max": len(simulation["calls"])}
    times = simulation.get("instances", 1)
    expected = {**simulation, "calls": {k: n * times for k, n in calls.items()}}
    unknown = ["requests", "tokens", "cost"] if simulation["delegates"]["max"] else []
    if children or "instances" in simulation:
        unknown += ["events", "bytes"]
    return {name: None if name in unknown else expected.get(name) for name in FIGURES}


def compare(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, Any]:
    """Side by side: ``{calls, requests, …: {expected: {min, max} | None, actual}}``.

    ``expected`` are ``ranges``; ``actual`` are a run's figures by the same names. What is not known is None.
    """
    return {name: {"expected": expected.get(name), "actual": actual.get(name)} for name in FIGURES}


def figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a run came to, as far as the result of a plan tells it."""
    usage = result.get("usage") or {}
    return {
        "calls": _made(result),
        "requests": usage.get("requests"),
        "tokens": usage.get("inputTokens", 0) + usage.get("outputTokens", 0),
        "cost": usage.get("cost"),
    }


def _made(result: Mapping[str, Any]) -> int | None:
    """How many Calls were made, those of instances among them; None where the result had no room for them."""
    parts = [result, *(result.get("instances") or {}).values()]
    listed = [part.get("calls") if isinstance(part, dict) else None for part in parts]
    if "omitted" in result or not all(isinstance(calls, list) for calls in listed):
        return None
    return sum(call.get("state") in _MADE for calls in listed for call in calls or ())


def foreseen(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in a result: each figure that the forecast names, beside what came of it."""
    table = compare(expected, actual)
    return {name: row for name, row in table.items() if None not in row.values()}


def added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Two plans of one agent together: the figures that are known of both."""
    out = {}
    for name in (n for n in FIGURES if n in one and n in other):
        a, b = one[name], other[name]
        span = {k: round(a["expected"][k] + b["expected"][k], 6) for k in ("min", "max")}
        out[name] = {"expected": span, "actual": round(a["actual"] + b["actual"], 9)}
    return out


def off_by(row: Mapping[str, Any]) -> float | None:
    """How far an actual figure lies outside of what was expected, as a part of it: 0.25 above, -0.25 below."""
    expected, actual = row["expected"], row["actual"]
    if expected is None or actual is None or expected["min"] <= actual <= expected["max"]:
        return None if expected is None or actual is None else 0.0
    bound = expected["max"] if actual > expected["max"] else expected["min"]
    return (actual - bound) / actual if actual else float("-inf")


class _Place:
    """What is written at a path: the bytes there and below, and the sample of the last value at itself."""

    __slots__ = ("below", "bytes", "value")

    def __init__(self) -> None:
        self.bytes, self.value = 0, ABSENT
        self.below: dict[str, _Place] = {}


class Sizes:
    """Estimates for one plan. ``of`` is asked once for each combination of outcomes."""

    def __init__(self, prepared: Prepared, handed: int | None = None) -> None:
        self._prepared, self._handed = prepared, handed
        self._layer = prepared.log().layer(None)
        tools = {n.tool.name: n.tool for n in prepared.nodes}
        self._outputs = {name: _stuffed(sample(tool.output)) for name, tool in tools.items()}
        self._tools = {name: json_size(tool.schema) for name, tool in tools.items()}
        self._planned = [json_size(n.planned) for n in prepared.nodes]
        self._held: dict[Path, int | None] = {}
        self._prompts: dict[tuple[str, bool], int] = {}

    def of(self, started: Sequence[int], failed: Iterable[int]) -> tuple[int, int]:
        """Bytes of history (beside workflow tasks and decisions) and tokens of a run that starts these Calls.

        ``failed`` are those that end with an error.
        """
        written: dict[str, _Place] = {}
        failing, tokens = set(failed), 0
        views = 2 if self._handed is None else 1  # in the context and the state; an agent has the state
        total = _STARTED + _ENDED + self._given()
        result = _RESULT + (self._context(Path("state")) or 0 if self._handed is None else 0)
        for rank in sorted(started):
            node = self._prepared.nodes[rank]
            value: Json = {"code": "x" * 12, "message": "x" * 60} if rank in failing else self._outputs[node.tool.name]
            call, scoped = self._call(node, written)
            total += self._recorded(node, call, scoped, json_size(value), failed=rank in failing)
            if node.how == "latent":
                tokens += self._tokens(node, call, scoped, json_size(value))
            paths = node.outcomes[node.error or 0] if rank in failing else node.outcomes[0] if node.outcomes else ()
            for path in paths:
                _write(written, path, value)
                result += views * json_size(nest(path.names, value))
                result += self._planned[rank] + len(str(path).encode()) + 70
            result += _ENTRY
        result += 70 * (len(self._prepared.nodes) - len(started))
        return round(total + min(result, _MAX_RESULT)), tokens

    def _call(self, node: Node, written: Mapping[str, _Place]) -> tuple[int, int]:
        """Bytes of a Call with its references replaced, and of what its scopes show."""
        bytes_ = json_size({k: v for k, v in node.call.items() if k != "_output"}) + 45
        for read in node.reads:
            if read.at and read.at[0] != "_scopes":
                bytes_ += self._read(read, written) - json_size(read.text)
        return bytes_, sum(self._at(path, written) or 0 for path in node.scopes) + 40 * len(node.scopes)

    def _read(self, read: Read, written: Mapping[str, _Place]) -> int:
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

    def _recorded(self, node: Node, call: int, scoped: int, result: int, *, failed: bool) -> int:
        """What a Call leaves in the history of its run."""
        outcome = _FAILURE if failed else result
        own = call + len(summary(node).encode()) + outcome
        if node.how == "latent":
            return own + scoped + _MODEL
        if node.detached:
            return own - outcome + self._tools[node.tool.name] + scoped + _CHILD - TASK_BYTES
        if node.how == "delegate":
            return own + scoped + _CHILD
        if node.tool.options.local:
            return outcome + _LOCAL  # its input is not recorded
        return own + self._tools[node.tool.name] + scoped + _ACTIVITY

    def _tokens(self, node: Node, call: int, scoped: int, result: int) -> int:
        """Of one request: the prompt, and the answer."""
        paths = offered(node)
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
