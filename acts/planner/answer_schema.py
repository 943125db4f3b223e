"""The schema of what a model may answer, composed from what a run has.

* Of a *Solution*, ``{calls, output}``: each Call fits one Tool. What a Tool fixes or
  decides by itself (constants, ``_activity``, ``_options``) is not there to be chosen,
  and what is not there cannot be answered.
* Of a *latent Call*: its ``_output``, or that and the outcome it takes.

Each Tool is a definition of its own under ``$defs``, in the order of their names: the
same Tools give the same bytes, and providers count and cache a schema by its parts.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from acts.language.schemas import subschemas, with_null
from acts.language.tools import META, OPTIONAL, TOOL_ONLY
from acts.language.values import Json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from acts.language.tools import Tool

REFERENCE: Final = "reference"
# The names of the instances stand in the schema once, however many Tools there are
INSTANCE: Final = "instance"
_REFERENCE: Final = {"type": "string", "pattern": "^†", "description": "a reference to a value, like †state.name"}
# What of a Tool may speak of parameters beside ``properties``
_ELSEWHERE: Final = ("allOf", "anyOf", "oneOf", "$ref", "if", "patternProperties", "dependentSchemas")
MAX_DEFINITION: Final = 60
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_LOCAL: Final = "#/$defs/"


def solution_schema(
    tools: Mapping[str, Tool], output: Json, *, mode: str = "eager", instances: Sequence[str] = ()
) -> dict[str, Any]:
    """The schema of a Solution. ``output`` is the schema of the output (None: any JSON)."""
    parts = _Parts()
    calls = [parts.tool(tools[name], mode, instances) for name in sorted(tools)]
    items: Json = {"anyOf": calls} if calls else {"type": "object", "properties": {}, "additionalProperties": False}
    array = {"type": "array", "items": items} if calls else {"type": "array", "maxItems": 0, "items": items}
    wanted = parts.own(with_null(output), "output") if output is not None else {}
    final = {"anyOf": [allow_references(wanted), {"type": "null"}]} if isinstance(wanted, dict) and wanted else {}
    return {
        "type": "object",
        "properties": {"calls": array, "output": final},
        "required": ["calls", "output"],
        "additionalProperties": False,
        "$defs": {**parts.defs, REFERENCE: _REFERENCE},
    }


def answer_schema(tool: Tool, paths: Sequence[str]) -> tuple[Json, bool]:
    """The schema of a latent Call's answer, and whether that is ``{output, path}``; ``paths`` are the open outcomes."""
    output = _bare(with_null(tool.output)) if tool.output is not None else {}
    if len(paths) == 1 and isinstance(output, dict) and output.get("type") == "object":
        return _with_defs(output, tool.schema), False
    return {
        "type": "object",
        "properties": {"output": _without_defs(output), "path": {"type": "string", "enum": list(paths)}},
        "required": ["output", "path"],
        "additionalProperties": False,
        **({"$defs": _null_defs(tool.schema)} if "$defs" in tool.schema else {}),
        **({"$defs": output["$defs"]} if isinstance(output, dict) and "$defs" in output else {}),
    }, True


def _with_defs(part: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**part, "$defs": _null_defs(schema)} if "$defs" in schema and "$defs" not in part else part


def _null_defs(schema: Mapping[str, Any]) -> Json:
    whole = with_null({"$defs": schema["$defs"]})
    return whole["$defs"] if isinstance(whole, dict) else {}


def _bare(schema: Json) -> Json:
    """Without a name of its own, which would make its references lead elsewhere."""
    return {k: v for k, v in schema.items() if k not in ("$id", "$schema")} if isinstance(schema, dict) else schema


def _without_defs(schema: Json) -> Json:
    return {k: v for k, v in schema.items() if k != "$defs"} if isinstance(schema, dict) else schema


class _Parts:
    """The definitions of a composed schema."""

    def __init__(self) -> None:
        self.defs: dict[str, Json] = {}

    def tool(self, tool: Tool, mode: str, instances: Sequence[str]) -> dict[str, str]:
        """A Tool's Calls as a definition; the reference to it."""
        name = self._name(f"tool_{tool.name}")
        self.defs[name] = {}  # taken
        found = tool.schema.get("properties")
        everything = {**tool.meta, **(found if isinstance(found, dict) else {})}
        own = self.own(with_null({**tool.schema, "properties": everything}), name)
        schema: dict[str, Any] = own if isinstance(own, dict) else {}
        properties = schema.get("properties") if isinstance(schema.get("properties"), dict) else {}
        call: dict[str, Json] = {"_tool": {"const": tool.name}}
        call.update({k: allow_references(v) for k, v in (properties or {}).items() if k not in META})
        call.update({k: (properties or {}).get(k, v) for k, v in tool.meta.items() if _open(tool, k, mode)})
        if instances:
            self.defs.setdefault(INSTANCE, {"type": "string", "enum": list(instances)})
            call["_instance"] = {"$ref": _LOCAL + INSTANCE}
        listed = schema.get("required")
        call.update({k: {} for k in (listed if isinstance(listed, list) else []) if k not in META and k not in call})
        required = [k for k in (listed if isinstance(listed, list) else []) if k in call and k not in OPTIONAL]
        rest = allow_references(schema.get("additionalProperties", any(k in schema for k in _ELSEWHERE)))
        described = {"description": schema["description"]} if isinstance(schema.get("description"), str) else {}
        self.defs[name] = {
            "type": "object", **described, "properties": call, "required": ["_tool", *required],
            "additionalProperties": rest,
        }  # fmt: skip
        return {"$ref": _LOCAL + name}

    def own(self, schema: Json, name: str) -> Json:
        """A schema without its own ``$defs``: they become ours, under names that begin with ``name``.

        What refers to anything but ``#/$defs/…`` cannot be taken apart; such a place is
        left open, and the Tool's own check decides.
        """
        if not isinstance(schema, dict):
            return schema
        found = schema.get("$defs")
        inner: dict[str, Json] = found if isinstance(found, dict) else {}
        names: dict[str, str] = {}
        for key in inner:
            names[key] = self._name(f"{name}_{key}")
            self.defs[names[key]] = {}  # taken
        for key, new in names.items():
            self.defs[new] = allow_references(_renamed(with_null(inner[key]), names), whole=False)
        return _renamed({k: v for k, v in schema.items() if k not in ("$defs", "$id", "$schema")}, names)

    def _name(self, text: str) -> str:
        name = _UNSAFE.sub("_", text)[:MAX_DEFINITION]
        if name in self.defs or name in (REFERENCE, INSTANCE):
            ends = (f"_{i}" for i in range(2, len(self.defs) + 3))
            tries = (name[: MAX_DEFINITION - len(end)] + end for end in ends)
            name = next(n for n in tries if n not in self.defs)
        return name


def _open(tool: Tool, key: str, mode: str) -> bool:
    """True for a meta-property that the author of a Call chooses."""
    if key in ("_tool", "_instance", *TOOL_ONLY) or key in tool.consts:
        return False
    if key == "_output":
        return mode == "eager" and tool.runs(tool.consts.get("_delegate")) == "latent" and "_delegate" not in tool.meta
    return True


def _renamed(schema: Json, names: Mapping[str, str]) -> Json:
    """The schema with its references to ``$defs`` renamed; any other reference allows anything."""
    if not isinstance(schema, dict):
        return schema
    text = json.dumps(schema, ensure_ascii=False)
    if '"$ref"' not in text and '"$dynamicRef"' not in text:
        return schema
    out: dict[str, Any] = json.loads(text)
    for part in list(subschemas(out)):
        target = part.get("$ref")
        if isinstance(target, str):
            name = target.removeprefix(_LOCAL)
            if target.startswith(_LOCAL) and name in names:
                part["$ref"] = _LOCAL + names[name]
            else:
                part.clear()
        part.pop("$dynamicRef", None)
    return out


def allow_references(schema: Json, *, whole: bool = True) -> Json:
    """The schema, a reference being allowed wherever a value is; ``whole``: in place of all of it too."""
    if not isinstance(schema, dict) or not schema:
        return schema
    out = dict(schema)
    if isinstance(out.get("properties"), dict):
        out["properties"] = {k: allow_references(v) for k, v in out["properties"].items()}
    for key in ("items", "additionalProperties", "contains"):
        if isinstance(out.get(key), dict):
            out[key] = allow_references(out[key])
    if isinstance(out.get("patternProperties"), dict):
        out["patternProperties"] = {k: allow_references(v) for k, v in out["patternProperties"].items()}
    if isinstance(out.get("prefixItems"), list):
        out["prefixItems"] = [allow_references(v) for v in out["prefixItems"]]
    if isinstance(out.get("oneOf"), list) and "anyOf" not in out:
        out["anyOf"] = out.pop("oneOf")  # a reference may fit several
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(out.get(key), list):
            out[key] = [allow_references(v, whole=False) for v in out[key]]
    out.pop("uniqueItems", None)  # two references may be alike and lead to different values
    if not whole or _any_string(out):
        return out
    return {"anyOf": [out, {"$ref": _LOCAL + REFERENCE}]}


def _any_string(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    plain = not (set(schema) - {"type", "title", "description", "default", "examples"})
    return plain and ("type" not in schema or "string" in kinds)
