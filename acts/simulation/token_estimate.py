"""The tokens that the latent Calls of a plan are expected to take.

A request is known in form: the prompt, the Call with its references replaced, what its scopes show,
the answer. How large values are is a guess: a result is as large as the sample of its Tool's
``_output``, with ``WORD_BYTES`` for a string, ``UNKNOWN_BYTES`` where no schema says anything, and
``ITEMS`` items in a list; a reference is as large as the data at its path, in the context or as
earlier Calls write it. Repair turns and a model's reasoning are not foreseen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from acts.language.references import Path, alternatives
from acts.language.sampling import sample
from acts.language.strict_json import json_size
from acts.language.values import ABSENT, UNKNOWN, Json, get
from acts.plan.context_log import START
from acts.planner.prompt import render_latent_prompt

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from acts.language.messages import Message
    from acts.language.reference_uses import ReferenceUse
    from acts.language.references import Expression
    from acts.plan.planned_call import PlannedCall
    from acts.plan.validate import ValidatedPlan

WORD_BYTES: Final = 24
UNKNOWN_BYTES: Final = 20
ITEMS: Final = 3
# Lists inside lists that have so many items: below them one is enough, or a deep schema would have millions
MAX_LISTS: Final = 3
BYTES_PER_TOKEN: Final = 4
# JSON around a name in an object, around a scope in a prompt, and around an answer
_NAME_BYTES: Final = 5
_SCOPE_BYTES: Final = 40
_ANSWER_BYTES: Final = 20
_NULL_BYTES: Final = 4
# What an error path takes
_FAILURE: Final = {"code": "x" * 12, "message": "x" * 60}


@dataclass(slots=True)
class _Written:
    """What Calls write at a path: the bytes there and below it, and the last value at the path itself."""

    bytes: int = 0
    value: Json = ABSENT
    below: dict[str, _Written] = field(default_factory=dict)


_View = dict[str, _Written]
"""What Calls of one instance (None: the global ones) write, by kind."""


class TokenEstimator:
    """Estimates for one plan. ``estimate`` is called once for each combination of outcomes."""

    def __init__(self, prepared: ValidatedPlan) -> None:
        self._prepared = prepared
        self._context = prepared.initial_log.view_of(None)
        tools = {n.tool.name: n.tool for n in prepared.nodes}
        self._outputs = {name: _typical_value(sample(tool.output)) for name, tool in tools.items()}
        self._value_bytes: dict[int, int] = {}  # by the id of a part of an output, or of the error
        self._parameter_bytes: dict[int, int] = {}  # by rank: all but what references yield
        self._context_bytes: dict[Path, int | None] = {}
        self._tool_bytes: dict[str, int] = {}
        self._shared_bytes: dict[bool, int] = {}  # by whether a Call has scopes
        self._last = max((r for r, n in enumerate(prepared.nodes) if n.kind == "latent"), default=-1)

    def estimate(self, started: Iterable[int], failed: Container[int], counts: Mapping[int, int] | None = None) -> int:
        """Tokens of a run that starts these Calls, those in ``counts`` so often; some end with an error."""
        tokens = 0
        views: dict[str | None, _View] = {None: {}}
        for rank in sorted(rank for rank in started if rank <= self._last):
            node = self._prepared.nodes[rank]
            own = views.setdefault(node.instance, {})
            value: Json = _FAILURE if rank in failed else self._outputs[node.tool.name]
            times, size = (counts or {}).get(rank, 1), self._bytes_of(value)
            if node.kind == "latent":
                tokens += times * self._request_tokens(rank, (own, views[None]), size)
            outcome = (node.error or 0) if rank in failed else 0
            if node.is_each and rank not in failed:
                value, size = ABSENT, times * size
            for path in node.outcomes[outcome] if node.outcomes else ():
                _write(own, path, value, size)
        return tokens

    def _bytes_of(self, value: Json) -> int:
        """Bytes of a value of ``_outputs`` or a part of one, which live as long as this object."""
        if id(value) not in self._value_bytes:
            self._value_bytes[id(value)] = json_size(value)
        return self._value_bytes[id(value)]

    def _request_tokens(self, rank: int, views: Sequence[_View], answer_bytes: int) -> int:
        node = self._prepared.nodes[rank]
        prompt_bytes = self._bytes_of_prompt(node) + self._bytes_of_parameters(rank, views)
        prompt_bytes += sum((self._bytes_at(path, views) or 0) + _SCOPE_BYTES for path in node.scopes)
        return -(-prompt_bytes // BYTES_PER_TOKEN) + -(-(answer_bytes + _ANSWER_BYTES) // BYTES_PER_TOKEN)

    def _bytes_of_prompt(self, node: PlannedCall) -> int:
        """All of the prompt but parameters and scopes: the context once for all Tools, and the part of the Tool."""
        own, has_scopes = self._bytes_of_rendering(node, (), has_scopes=True), bool(node.scopes)
        if has_scopes not in self._shared_bytes:
            messages = self._prepared.request.context
            self._shared_bytes[has_scopes] = self._bytes_of_rendering(node, messages, has_scopes=has_scopes) - own
        return own + self._shared_bytes[has_scopes]

    def _bytes_of_rendering(self, node: PlannedCall, messages: Sequence[Message], *, has_scopes: bool) -> int:
        if messages or node.tool.name not in self._tool_bytes:
            prompt = render_latent_prompt(messages, node.tool, {}, node.outcome_texts, () if has_scopes else None)
            size = len(prompt.text.encode())
            if messages:
                return size
            self._tool_bytes[node.tool.name] = size
        return self._tool_bytes[node.tool.name]

    def _bytes_of_parameters(self, rank: int, views: Sequence[_View]) -> int:
        """The parameters with their references replaced."""
        node = self._prepared.nodes[rank]
        reads = node.parameter_uses
        if rank not in self._parameter_bytes:
            self._parameter_bytes[rank] = json_size(node.parameters) - sum(json_size(read.text) for read in reads)
        trees = [(read, tree) for read in reads for tree in read.expressions]
        return max(0, self._parameter_bytes[rank] + sum(self._bytes_of_read(*pair, views) for pair in trees))

    def _bytes_of_read(self, read: ReferenceUse, tree: Expression, views: Sequence[_View]) -> int:
        for paths in alternatives(tree):
            sizes = [self._bytes_at(path, views) if path in read.paths else UNKNOWN_BYTES for path in paths]
            if all(size is not None for size in sizes):
                return sizes[-1] or 0
        return _NULL_BYTES

    def _bytes_at(self, path: Path, views: Sequence[_View]) -> int | None:
        """Bytes of the value at a path; None when there is none."""
        written = next((size for view in views if (size := self._bytes_written(view, path)) is not None), None)
        if path not in self._context_bytes:
            value = self._context.read(path, START)
            self._context_bytes[path] = None if value is ABSENT else json_size(value)
        held = self._context_bytes[path]
        return held if written is None else written + (held or 0)

    def _bytes_written(self, view: _View, path: Path) -> int | None:
        node = view.get(path.kind)
        for at, name in enumerate(path.names):
            if node is None:
                return None
            if node.value is not ABSENT and name not in node.below:
                value = get(node.value, path.names[at:])
                return UNKNOWN_BYTES if value is ABSENT or value is UNKNOWN else self._bytes_of(value)
            node = node.below.get(name)
        return None if node is None else node.bytes


def _write(view: _View, path: Path, value: Json, size: int) -> None:
    rest = size + sum(len(name.encode()) + _NAME_BYTES for name in path.names)
    node = view.setdefault(path.kind, _Written())
    node.bytes += rest
    for name in path.names:
        node = node.below.setdefault(name, _Written())
        rest -= len(name.encode()) + _NAME_BYTES
        node.bytes += rest
    node.value = value


def _typical_value(value: Json, lists: int = 0) -> Json:
    """A sample as large as a real value may be; ``lists`` is how many lists are around it."""
    if isinstance(value, dict):
        return {k: _typical_value(v, lists) for k, v in value.items()}
    if isinstance(value, list):
        times = ITEMS if len(value) == 1 and lists < MAX_LISTS else 1
        return [_typical_value(v, lists + 1) for v in value] * times
    if value is UNKNOWN:
        return "x" * (UNKNOWN_BYTES - 2)
    return "x" * (WORD_BYTES - 2) if value == "sample" else value
