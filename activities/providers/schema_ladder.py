"""The form in which a schema is sent: the strictest that fits the provider's limits and that it has not rejected.

Theory of operation. A schema has up to five forms, each easier to compile than the one before:

1. ``strict``: all of it, enforced.
2. ``loosened``: enforced, but the largest Tools share one alternative, ``{_tool, _more}``: their Calls have all other
   properties as JSON text in ``_more``. As few Tools as the limits demand; in words the model gets what they take.
3. … all Tools, where that is rejected too.
4. ``unenforced``: the whole schema, not strict. OpenAI's APIs only.
5. ``words``: the schema is text, and the provider enforces only that the answer is JSON, or nothing.

``choose`` measures and never tries what cannot fit. A rejection for its size leads to the next form, one for its kind
to a form without enforcement, and one of enforcement itself to the last form. It is remembered for the endpoint, the
model and the schema, so for its set of Tools, as long as the worker lives. An answer comes back in the form of the
original schema whatever the form.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, Literal

from activities.providers.interface import ModelError
from activities.providers.provider_keywords import Dialect, compact_json
from activities.providers.ref_normalizer import DEFS
from activities.providers.schema_bridge import Wire, to_wire
from activities.providers.schema_size import LIMITS, SchemaSize, find_excess, measure_schema
from acts.language.errors import TooComplex
from acts.language.schema_forms import subschemas
from acts.language.values import Json
from acts.language.wire import TOO_COMPLEX

Form = Literal["strict", "loosened", "unenforced", "words"]

ONLY_JSON: Final = "Answer with one JSON value and nothing else. It must fit this JSON Schema:\n"
_MORE: Final = "more_tools"
_MORE_WORDS: Final = (
    "Calls of these Tools have all properties but _tool in _more, as the JSON text of one object. "
    "With the properties of that object, each Call fits its JSON Schema here:\n"
)
_ABOUT_SIZE: Final = re.compile(
    r"complex|grammar|too (many|large|long|big|deep)|exceed|nest|compil|simplify|internal|time", re.IGNORECASE
)
_UNSUPPORTED: Final = re.compile(r"support|permitted|allowed|unknown|unrecogni[sz]ed|extra|json_object", re.IGNORECASE)
_STRICT, _LOOSENED, _ALL_LOOSENED, _UNENFORCED, _WORDS = range(5)
_FIRST_RUNGS: Final[dict[Form, int]] = {
    "strict": _STRICT, "loosened": _LOOSENED, "unenforced": _UNENFORCED, "words": _WORDS
}  # fmt: skip
# Schemas whose form is remembered: those of runs in flight
_MAX_SCHEMAS: Final = 1_000


@dataclass(frozen=True, slots=True)
class SentSchema:
    """A schema in one form. ``words`` is what the model must read beside it; ``reason`` is why it is not strict."""

    form: Form
    wire: Wire
    words: str = ""
    reason: str = ""
    rung: int = _STRICT

    @property
    def is_enforced(self) -> bool:
        """True when the provider enforces the schema."""
        return self.form in ("strict", "loosened")


class SchemaLadder:
    """The forms that the endpoints of one adapter take. ``has_unenforced``: its APIs take a schema that is not strict.

    ``first`` is the first form that is tried. ``endpoint`` is anything that identifies the server and the model.
    """

    def __init__(self, dialect: Dialect, *, has_unenforced: bool, first: Form = "strict") -> None:
        self._first = _FIRST_RUNGS[first]
        self._dialect: Dialect = dialect
        self._has_unenforced = has_unenforced
        self._lowest: OrderedDict[tuple[Any, bytes], tuple[int, str]] = OrderedDict()
        self._built: OrderedDict[tuple[bytes, int, bool], SentSchema] = OrderedDict()

    def choose(self, endpoint: Any, schema: Json) -> SentSchema:
        """The strictest form that fits and was not rejected by the endpoint.

        Raises:
            ModelError: ``tooComplex``, no answer could be checked with the schema.
        """
        digest = _digest(schema)
        lowest, reason = self._lowest.get((endpoint, digest), (self._first, ""))
        key = (digest, lowest, bool(reason))
        sent = self._built.get(key)
        if sent is None:
            try:
                sent = self._built[key] = self._build(schema, lowest, reason)
            except TooComplex as error:
                text = f"what the model is asked for: {error}: give it fewer tools, or smaller ones"
                raise ModelError(TOO_COMPLEX, text, retryable=False) from error
            _trim(self._built)
        return sent

    def reject(self, endpoint: Any, schema: Json, sent: SentSchema, reason: str) -> bool:
        """Note that the endpoint rejected a form, for a ``reason`` in its own words; False: there is none below it."""
        if sent.rung == _WORDS:
            return False
        rung = sent.rung + 1
        if not _ABOUT_SIZE.search(reason):
            rung = max(rung, _WORDS if _UNSUPPORTED.search(reason) else _UNENFORCED)
        self._lowest[endpoint, _digest(schema)] = (rung, reason)
        _trim(self._lowest)
        return True

    def _build(self, schema: Json, rung: int, reason: str) -> SentSchema:
        limits = LIMITS[self._dialect]
        strict = to_wire(schema, self._dialect)
        size = measure_schema(strict.schema)
        if rung in (_UNENFORCED, _WORDS):
            return self._unenforced(schema, strict, rung, reason)
        if rung == _STRICT:
            excess = find_excess(size, limits)
            if excess is None:
                return SentSchema("strict", strict)
            rung, reason = _LOOSENED, excess
        elif rung == _LOOSENED:
            # It was within the limits, and still too large
            limits = SchemaSize(grammar=size.grammar // 2)
        tools = call_definitions(schema)
        if rung == _LOOSENED and (loosened := self._loosen(schema, tools, limits, reason)) is not None:
            return loosened
        if rung <= _ALL_LOOSENED and tools:
            loosened = self._loosened(schema, tools, reason, _ALL_LOOSENED)
            if find_excess(measure_schema(loosened.wire.schema), LIMITS[self._dialect]) is None:
                return loosened
        return self._unenforced(schema, strict, _UNENFORCED, reason)

    def _unenforced(self, schema: Json, strict: Wire, rung: int, reason: str) -> SentSchema:
        if rung == _UNENFORCED and self._has_unenforced:
            return SentSchema("unenforced", strict, "", reason, _UNENFORCED)
        wire = to_wire(schema, "unenforced")
        return SentSchema("words", wire, ONLY_JSON + compact_json(wire.schema), reason, _WORDS)

    def _loosen(self, schema: Json, tools: list[str], limits: SchemaSize, reason: str) -> SentSchema | None:
        """As few Tools loosened as make it fit, the largest first; None where all of them would have to be."""
        definitions = schema["$defs"] if tools else {}
        by_size = sorted(tools, key=lambda name: -len(compact_json(definitions[name])))
        low, high = 1, len(by_size)
        while low < high:
            middle = (low + high) // 2
            sent = self._loosened(schema, by_size[:middle], reason, _LOOSENED)
            if find_excess(measure_schema(sent.wire.schema), limits) is None:
                high = middle
            else:
                low = middle + 1
        return self._loosened(schema, by_size[:low], reason, _LOOSENED) if 0 < low < len(by_size) else None

    def _loosened(self, schema: Json, names: list[str], reason: str, rung: int) -> SentSchema:
        used = {name: schema["$defs"][name] for name in sorted(names)}
        rest = {k: v for k, v in used_definitions(schema, list(used)).items() if k not in used}
        words = _MORE_WORDS + compact_json({**used, **({"$defs": rest} if rest else {})})
        wire = to_wire(loosen_tools(schema, names), self._dialect)
        return SentSchema("loosened", wire, words, reason, rung)


def call_definitions(schema: Json) -> list[str]:
    """The names of the definitions that the Calls of a Solution fit; none where the schema is not a Solution's."""
    try:
        options = schema["properties"]["calls"]["items"]["anyOf"]
        names = [option["$ref"].removeprefix(DEFS) for option in options]
        return [name for name in names if isinstance(schema["$defs"][name]["properties"]["_tool"]["const"], str)]
    except (KeyError, TypeError, AttributeError):
        return []


def loosen_tools(schema: Json, names: list[str]) -> dict[str, Any]:
    """The schema of a Solution in which the Calls of some definitions are any object with one of their names."""
    definitions = schema["$defs"]
    more = next(n for n in (_MORE, *(f"{_MORE}_{i}" for i in range(len(definitions) + 1))) if n not in definitions)
    tools = sorted(definitions[name]["properties"]["_tool"]["const"] for name in names)
    calls = schema["properties"]["calls"]
    own_options = [option for option in calls["items"]["anyOf"] if option["$ref"].removeprefix(DEFS) not in names]
    definition = {
        "type": "object",
        "description": "a call; _more is the JSON text of all its properties but _tool",
        "properties": {"_tool": {"type": "string", "enum": tools}},
        "required": ["_tool"],
        "additionalProperties": True,
    }
    items = {**calls["items"], "anyOf": [*own_options, {"$ref": DEFS + more}]}
    return {
        **schema,
        "properties": {**schema["properties"], "calls": {**calls, "items": items}},
        "$defs": {**{k: v for k, v in definitions.items() if k not in names}, more: definition},
    }


def used_definitions(schema: Json, names: list[str]) -> dict[str, Json]:
    """The definitions of these names, and all that they refer to."""
    definitions, out = schema["$defs"], dict[str, Json]()
    pending = list(reversed(names))
    while pending:
        name = pending.pop()
        if name in out or name not in definitions:
            continue
        out[name] = definitions[name]
        targets = (part.get("$ref") for part in subschemas(out[name]))
        pending += [target.removeprefix(DEFS) for target in targets if isinstance(target, str)]
    return out


def _digest(schema: Json) -> bytes:
    return hashlib.sha256(compact_json(schema).encode()).digest()


def _trim(cache: OrderedDict[Any, Any]) -> None:
    while len(cache) > _MAX_SCHEMAS:
        cache.popitem(last=False)
