"""Requests and their Messages as typed records.

A Request is ``{config, context, schema}``; its context is a list of Messages. A record keeps the JSON that it was read
from (``raw``), and the problems of its shape. Only ``request_reader.py`` makes records of JSON. What a plan or a Tool
means is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from acts.language.config import Config
from acts.language.errors import Problem
from acts.language.references import Path
from acts.language.values import ABSENT, Json

DATA_TYPES: Final = ("data", "input", "state")
TYPES: Final = ("system", "text", *DATA_TYPES, "tool", "plan", "error")
# The key of a Message that names a set, the keys of its value, and the name that stands for the instances of a set
INSTANCES: Final = "_instances"
SET_KEYS: Final = ("source", "id")
EACH_ROW: Final = "each row"
PROVENANCE: Final = ("_call", "_date", "_outputPath", "_outputMethod")


@dataclass(frozen=True, slots=True)
class Message:
    """One element of a context. ``index`` is its position, from 0; ``type`` is as on the wire."""

    index: int
    type: str
    raw: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Instruction(Message):
    """``system`` or ``text``, or a chat message (``role`` and ``content``)."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class Data(Message):
    """A data-like Message. ``payload`` is ABSENT when the Message has only a schema.

    ``path`` and ``method`` are those of a Call's output. Without a path the payload deep-merges
    at the root of its kind.
    """

    kind: str = "data"
    payload: Json = ABSENT
    schema: Json = None
    instance: str | None = None
    path: Path | None = None
    method: str = "set"


@dataclass(frozen=True, slots=True)
class SetData(Data):
    """A Message that names a set: each row of ``source`` is the data of one instance.

    The id of an instance is the row's field ``id_field``; None: the row's number. The rows are not here, so the payload
    is UNKNOWN. The Message has an instance that stands for all of them, ``EACH_ROW``.
    """

    source: str = ""
    id_field: str | None = None


@dataclass(frozen=True, slots=True)
class ToolMessage(Message):
    """``tool`` is the name of a registered Tool, a schema, or a map of name to schema."""

    tool: Json = None


@dataclass(frozen=True, slots=True)
class PlanMessage(Message):
    """A list of Calls, as JSON. The latest plan message of a context is its plan."""

    calls: tuple[Json, ...] = ()
    mode: Literal["eager", "lazy"] = "eager"
    run: bool = False


@dataclass(frozen=True, slots=True)
class ErrorMessage(Message):
    """A failure or a refused Solution of an earlier tick."""

    data: Json = None


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed Request. ``schema`` is that of the output (None: any JSON).

    ``is_partial`` says that a message could not be read: it may define what seems to be missing.
    """

    config: Config
    context: tuple[Message, ...]
    schema: Json
    raw: dict[str, Any]
    problems: tuple[Problem, ...] = ()
    is_partial: bool = False

    @property
    def plan(self) -> PlanMessage | None:
        """The latest plan message."""
        return next((m for m in reversed(self.context) if isinstance(m, PlanMessage)), None)

    def data(self) -> tuple[Data, ...]:
        """The data-like messages, oldest first."""
        return tuple(m for m in self.context if isinstance(m, Data))

    @property
    def set(self) -> SetData | None:
        """The Message that names a set of instances."""
        return next((m for m in self.context if isinstance(m, SetData)), None)

    def instances(self) -> tuple[str, ...]:
        """The ids of the instances, in the order in which they appear."""
        return tuple(dict.fromkeys(m.instance for m in self.data() if m.instance is not None))

    def count_calls(self, plan: Sequence[Json]) -> int:
        """How many Calls ``plan`` makes in this context: a template makes its Calls once per instance."""
        is_template = not any(isinstance(call, dict) and call.get("_instance") is not None for call in plan)
        return len(plan) * max(1, len(self.instances()) if is_template else 1)


def output_schema(schema: Json) -> Json:
    """The schema of a Request's ``output``: its ``schema``, or ``properties.output`` of the long form."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not {"calls", "output"} <= set(properties):
        return schema
    output = properties["output"]
    return {**output, "$defs": schema["$defs"]} if isinstance(output, dict) and "$defs" in schema else output
