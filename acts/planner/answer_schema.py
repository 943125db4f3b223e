"""JSON Schemas of what a model may answer, composed from the Tools of a run.

* A *Solution* is ``{calls, output}``; each of its Calls fits one Tool. What a Tool fixes or decides by itself
  (constants, ``_activity``, ``_options``) is left out of the schema, so no answer can set it.
* A *latent Call* is answered with its ``_output``, or with ``{output, path}`` where the model also picks the outcome.

Each Tool is one definition under ``$defs``, in the order of their names: the same Tools give the same bytes, which
providers cache. This file knows no provider: ``activities/models/schema.py`` lowers it for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import count
from typing import Any, Final

from acts.language.schemas import DEFS, subschemas, with_null
from acts.language.tools import META, OPTIONAL, TOOL_ONLY, Tool, without_secrets
from acts.language.values import Json

# Definitions of our own, by name. Each appears once, however many Tools refer to it
REFERENCE: Final = "reference"
TEXT: Final = "text"
CONDITION: Final = "condition"
LIST: Final = "list"
INSTANCE: Final = "instance"
_SHARED: Final = {
    TEXT: {"type": "string", "pattern": "†", "description": "like †state.name, or Dear †{state.name}"},
    CONDITION: {"type": "string", "pattern": "†"},
    LIST: {"anyOf": [
        {"type": "string", "pattern": "^†"},
        {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}},
        {"type": "object", "properties": {"of": {"type": "string"}, "size": {"type": "integer"}},
         "required": ["of", "size"], "additionalProperties": False},
    ]},
    REFERENCE: {"type": "string", "pattern": "^†", "description": "like †state.name"},
}  # fmt: skip
# Properties that every Call may have, unless its Tool declares them itself, or false
_CONTROL: Final = {"_when": CONDITION, "_each": LIST}
# Keywords through which a Tool may declare parameters outside ``properties``
_INDIRECT: Final = ("allOf", "anyOf", "oneOf", "$ref", "if", "patternProperties", "dependentSchemas")
# Characters of a definition's name; OpenAI counts names against a limit of 120,000 characters per schema
MAX_DEFINITION_NAME: Final = 60
# Instances that a schema lists: OpenAI takes 15,000 characters of them, where an enum has more than 250 values
MAX_INSTANCE_CHOICES: Final = 250
MAX_INSTANCE_CHARACTERS: Final = 15_000
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")


def compose_solution_schema(
    tools: Mapping[str, Tool], output: Json, *, mode: str = "eager", instances: Sequence[str] = (),
    may_search: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The schema of a Solution. ``output`` is the schema of its output (None: any JSON); ``mode`` is eager or lazy.

    ``may_search``: it may ask for the schemas of more Tools than these.
    """
    definitions = _Definitions()
    calls = [definitions.add_tool(tools[name], mode, has_instances=bool(instances)) for name in sorted(tools)]
    items: Json = {"anyOf": calls} if calls else {"type": "object", "properties": {}, "additionalProperties": False}
    array = {"type": "array", "items": items} if calls else {"type": "array", "maxItems": 0, "items": items}
    value = definitions.hoist_defs(with_null(output), "output") if output is not None else {}
    nullable = {"anyOf": [allow_references(value), {"type": "null"}]} if isinstance(value, dict) and value else {}
    is_short = len(instances) <= MAX_INSTANCE_CHOICES and sum(map(len, instances)) <= MAX_INSTANCE_CHARACTERS
    # Of very many instances only that it is one, and the check of the plan decides
    about = {"description": f"the id of one of the {len(instances):,} instances"}
    choice = {"enum": list(instances)} if is_short else about
    shared = {INSTANCE: {"type": "string", **choice}, **_SHARED}
    used = {part.get("$ref") for part in subschemas({"$defs": definitions.by_name, "anyOf": [nullable]})}
    search = {"tools": {"type": "array", "items": {"type": "string"}}} if may_search else {}
    return {
        "type": "object",
        "properties": {**search, "calls": array, "output": nullable},
        "required": ["calls", "output"],
        "additionalProperties": False,
        "$defs": {
            **definitions.by_name,
            **{name: schema for name, schema in shared.items() if name == REFERENCE or DEFS + name in used},
        },
    }


def compose_latent_schema(tool: Tool, paths: Sequence[str]) -> tuple[Json, bool]:
    """The schema of a latent Call's answer; ``paths`` are the outcomes the model may choose.

    The flag is True for the form ``{output, path}``, False where the answer is the output itself: an object with
    one outcome.
    """
    output = _without(with_null(tool.output), "$id", "$schema") if tool.output is not None else {}
    definitions: dict[str, Any] = with_null({"$defs": tool.schema["$defs"]}) if "$defs" in tool.schema else {}
    if isinstance(output, dict) and "$defs" in output:
        definitions = {"$defs": output["$defs"]}
    if len(paths) == 1 and isinstance(output, dict) and output.get("type") == "object":
        return {**output, **definitions}, False
    return {
        "type": "object",
        "properties": {"output": _without(output, "$defs"), "path": {"type": "string", "enum": list(paths)}},
        "required": ["output", "path"],
        "additionalProperties": False,
        **definitions,
    }, True


def _without(schema: Json, *keywords: str) -> Json:
    """The schema less some keywords. With an ``$id`` of its own, its local references would lead elsewhere."""
    return {k: v for k, v in schema.items() if k not in keywords} if isinstance(schema, dict) else schema


class _Definitions:
    def __init__(self) -> None:
        self.by_name: dict[str, Json] = {}

    def add_tool(self, tool: Tool, mode: str, *, has_instances: bool) -> dict[str, str]:
        """Add a definition of the Tool's Calls; returns a ``$ref`` to it."""
        name = self._reserve_name(tool.name)
        own = without_secrets(tool.schema)
        full = with_null({**own, "properties": {**tool.meta, **own["properties"]}})
        schema: dict[str, Any] = self.hoist_defs(full, name)
        properties, required = schema["properties"], schema.get("required", [])
        call: dict[str, Json] = {"_tool": {"const": tool.name}}
        call.update({k: allow_references(v) for k, v in properties.items() if k not in META})
        for key in author_choices(tool, mode):
            call[key] = properties[key] if key in tool.meta else {"$ref": DEFS + _CONTROL[key]}
        if has_instances:
            call["_instance"] = {"$ref": DEFS + INSTANCE}
        call.update({k: {} for k in required if k not in META and k not in call})
        description = {"description": schema["description"]} if isinstance(schema.get("description"), str) else {}
        other = schema.get("additionalProperties", any(k in schema for k in _INDIRECT))
        self.by_name[name] = {
            "type": "object",
            **description,
            "properties": call,
            "required": ["_tool", *(k for k in required if k in call and k not in OPTIONAL)],
            "additionalProperties": allow_references(other),
        }
        return {"$ref": DEFS + name}

    def hoist_defs(self, schema: Json, prefix: str) -> Json:
        """The schema with its own ``$defs`` moved here, under names that begin with ``prefix``.

        A reference to anything but ``#/$defs/…`` cannot be moved; such a place allows any value, and the Tool's own
        check decides.
        """
        if not isinstance(schema, dict):
            return schema
        inner: dict[str, Json] = schema["$defs"] if isinstance(schema.get("$defs"), dict) else {}
        names = {key: self._reserve_name(f"{prefix}_{key}") for key in inner}
        for key, name in names.items():
            self.by_name[name] = allow_references(_rename_refs(with_null(inner[key]), names), at_root=False)
        return _rename_refs(_without(schema, "$defs", "$id", "$schema"), names)

    def _reserve_name(self, text: str) -> str:
        """A free name of safe characters, held by an empty definition until the real one is stored."""
        name = _UNSAFE.sub("_", text)[:MAX_DEFINITION_NAME]
        names = {*self.by_name, *_SHARED, INSTANCE}
        if name in names:
            start = name[: MAX_DEFINITION_NAME - len(str(len(names))) - 1]
            name = next(c for c in (f"{start}_{i}" for i in count(2)) if c not in names)
        self.by_name[name] = {}
        return name


def author_choices(tool: Tool, mode: str) -> list[str]:
    declared = [key for key in tool.meta if tool.meta[key] is not False and is_author_choice(tool, key, mode)]
    return [*declared, *(key for key in _CONTROL if key not in tool.meta and key not in tool.consts)]


def is_author_choice(tool: Tool, key: str, mode: str) -> bool:
    if key in ("_tool", "_instance", *TOOL_ONLY) or key in tool.consts:
        return False
    is_latent = tool.call_kind(tool.consts.get("_delegate")) == "latent" and "_delegate" not in tool.meta
    return key != "_output" or (mode == "eager" and is_latent)


def _rename_refs(schema: Json, names: Mapping[str, str]) -> Json:
    """The schema with its references to ``$defs`` renamed; any other reference becomes a place for any value."""
    if not isinstance(schema, dict):
        return schema
    copy: dict[str, Any] = deepcopy(schema)
    for part in list(subschemas(copy)):
        target = part.get("$ref")
        if isinstance(target, str):
            name = target.removeprefix(DEFS) if target.startswith(DEFS) else ""
            if name in names:
                part["$ref"] = DEFS + names[name]
            else:
                part.clear()
        part.pop("$dynamicRef", None)
    return copy


def allow_references(schema: Json, *, at_root: bool = True) -> Json:
    """The schema, with a reference allowed in place of each value in it; ``at_root``: also in place of all of it."""
    if not isinstance(schema, dict) or not schema:
        return schema
    out = dict(schema)
    if isinstance(out.get("oneOf"), list) and "anyOf" not in out:
        out["anyOf"] = out.pop("oneOf")  # a reference may fit several alternatives
    for key, part in out.items():
        if key in ("properties", "patternProperties") and isinstance(part, dict):
            out[key] = {name: allow_references(inner) for name, inner in part.items()}
        elif key in ("items", "additionalProperties", "contains") and isinstance(part, dict):
            out[key] = allow_references(part)
        elif key in ("prefixItems", "anyOf", "oneOf", "allOf") and isinstance(part, list):
            out[key] = [allow_references(inner, at_root=key == "prefixItems") for inner in part]
    out.pop("uniqueItems", None)  # two equal references may lead to different values
    type_, keywords = out.get("type"), set(out)
    types = set(type_) if isinstance(type_, list) else {type_}
    has_limits = bool(keywords - {"type", "title", "description", "default", "examples"})
    if not at_root or (not has_limits and types & {None, "string"}):
        return out
    # Where only texts fit, and not a few of them, a text with references in it may come out as one that fits
    is_text = "string" in types and types <= {"string", "null"} and not {"enum", "const"} & keywords
    return {"anyOf": [out, {"$ref": DEFS + (TEXT if is_text else REFERENCE)}]}
