"""The words in which a planning task is written: its Request, and the worlds in which a plan for it is tried.

A *world* says what each Tool returns and which effects a right plan has there: which Tools were called with what, what
came before what, and what the output is. A plan is right when it has these effects in every world, however it is
written. Nothing here knows a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = Any
TEXT = {"type": "string"}
NUMBER = {"type": "number"}
WRITES = {"_outputPath": TEXT, "_errorPath": TEXT}


@dataclass(frozen=True)
class Fails:
    """A Call that fails."""

    code: str
    message: str


@dataclass(frozen=True)
class InTurn:
    """What a Tool returns one Call after another; the last one for all that follow."""

    results: tuple[Json | Fails, ...]


# A Call that does not end as long as anybody looks
NEVER = object()


@dataclass(frozen=True)
class Has:
    """A text that contains all of these, in any case."""

    parts: tuple[str, ...]

    def fits(self, value: Json) -> bool:
        return isinstance(value, str) and all(part.lower() in value.lower() for part in self.parts)


def has(*parts: str) -> Has:
    return Has(parts)


@dataclass(frozen=True)
class Effect:
    """A Call of ``tool`` whose parameters include these; a ``Has`` fits a text."""

    tool: str
    with_: dict[str, Json] = field(default_factory=dict)


def effect(name: str, /, **parameters: Json) -> Effect:
    return Effect(name, parameters)


@dataclass(frozen=True)
class World:
    """``results`` by Tool: a value, ``Fails``, ``NEVER``, ``InTurn``, or a function of the parameters that yields one.
    ``effects`` are all that must happen; a ``wait`` is one that has ended, with its ``seconds``.

    ``before``: no Call of the second Tool starts until one of the first has succeeded. ``output``: the output, or a
    predicate of it; it must hold after the first answer.
    """

    results: dict[str, Json | Fails | InTurn | Callable[[dict[str, Json]], Json]]
    effects: tuple[Effect, ...] = ()
    before: tuple[tuple[str, str], ...] = ()
    output: Json = None


@dataclass(frozen=True)
class Earlier:
    """An answer that was given before the one that is asked for, and what its Tools returned."""

    solution: Json
    results: dict[str, Json]


@dataclass(frozen=True)
class Task:
    """One task. ``watched`` are the Tools whose Calls count as effects (by default those that a world's effects name).

    ``rounds`` is the most rounds of Calls that a plan may need: a larger one waits without reason. ``wanted`` are Tools
    whose schemas the answer has to ask for, at least.
    """

    id: str
    kind: str
    words: str
    tools: tuple[Json, ...]
    worlds: tuple[World, ...]
    data: dict[str, Json] = field(default_factory=dict)
    earlier: tuple[Earlier, ...] = ()
    watched: tuple[str, ...] = ()
    instances: dict[str, dict[str, Json]] = field(default_factory=dict)
    mode: str = "eager"
    schema: Json = None
    rounds: int | None = None
    config: dict[str, Json] = field(default_factory=dict)
    wanted: tuple[str, ...] = ()

    @property
    def request(self) -> dict[str, Json]:
        """The Request of an agent."""
        context: list[Json] = [{"type": "tool", "tool": tool} for tool in self.tools]
        context.append({"role": "user", "content": self.words})
        context += [_data(kind, value) for kind, value in self.data.items()]
        context += [
            {**_data(kind, value), "_instance": id_}
            for id_, own in self.instances.items()
            for kind, value in own.items()
        ]
        if self.mode == "lazy":
            context.append({"type": "plan", "plan": [], "mode": "lazy"})
        config = {"model": "scripted:planning", "approve": {"plan": False}, **self.config}
        return {"config": config, "context": context, **({} if self.schema is None else {"schema": self.schema})}

    @property
    def effect_tools(self) -> set[str]:
        """The Tools whose Calls are compared with a world's effects."""
        return set(self.watched) | {e.tool for world in self.worlds for e in world.effects}


def _data(kind: str, value: Json) -> dict[str, Json]:
    return {"type": kind, kind: value} if kind in ("state", "input") else {"type": "data", "kind": kind, "data": value}


def tool(
    name: str, description: str, gives: Json = None, /, *, latent: bool = False, person: bool = False,
    fails: dict[str, str] | None = None, undo: Json = None, **parameters: Json,
) -> Json:  # fmt: skip
    """A Tool with an Activity, a latent one, or a person; its parameters are required, ``gives`` is the schema of its
    result. ``fails`` are the failures that it declares, ``undo`` is the Call that undoes one of it.
    """
    activity = {"_person": {}} if person else {"_activity": {"const": "" if latent else name}}
    activity |= {} if undo is None else {"_undo": undo}
    output = {} if gives is None else {"_output": gives}
    return {
        "type": "object", "description": description,
        "properties": {"_tool": {"const": name}, **activity, **WRITES, **output, **parameters},
        "required": list(parameters), "additionalProperties": False, **({"x-failures": fails} if fails else {}),
    }  # fmt: skip


def record(**properties: Json) -> Json:
    """The schema of an object of these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def listing(**properties: Json) -> Json:
    """The schema of a list of such objects."""
    return {"type": "array", "items": record(**properties)}
