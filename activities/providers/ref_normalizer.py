"""The ``$ref``s of a schema, all of them made to lead to ``$defs``, and which of these have no end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from acts.language.schemas import subschemas
from acts.language.values import Json

DEFS: Final = "#/$defs/"


def normal(root: Json) -> tuple[Json, dict[str, Json]]:
    """The schema with all its references being to ``$defs``, and these. What leads nowhere allows anything."""
    if not isinstance(root, dict):
        return root, {}
    found = root.get("$defs")
    defs: dict[str, Json] = dict(found) if isinstance(found, dict) else {}
    for part in list(subschemas(root)):
        target = part.get("$ref")
        if target is None and "$dynamicRef" not in part:
            continue
        name = str(target).removeprefix(DEFS)
        if str(target).startswith(DEFS) and name in defs:
            continue
        place = _pointed(root, target)
        part.pop("$dynamicRef", None)
        if place is None:
            part.pop("$ref", None)
            continue
        name = "root" if target == "#" else str(target).strip("#/").replace("/", "_").replace("$", "")
        while name in defs and defs[name] is not place:
            name += "_"
        defs[name] = place
        part["$ref"] = DEFS + name
    return root, {k: without(v, "$defs") if isinstance(v, dict) else v for k, v in defs.items()}


def _pointed(root: dict[str, Any], target: Json) -> Json | None:
    """What a local JSON pointer leads to, or None."""
    if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
        return None
    place: Json = root
    for token in target[2:].split("/") if target != "#" else ():
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and key in place:
            place = place[key]
        elif isinstance(place, list) and key.isdigit() and int(key) < len(place):
            place = place[int(key)]
        else:
            return None
    return place if isinstance(place, (dict, bool)) else None


def needed(schema: Json, defs: dict[str, Json]) -> dict[str, Json]:
    """The definitions that a schema can reach."""
    out: dict[str, Json] = {}
    pending = [schema]
    while pending:
        for name in _targets(pending.pop()):
            if name in defs and name not in out:
                out[name] = defs[name]
                pending.append(defs[name])
    return out


def _targets(schema: Json) -> Iterator[str]:
    for part in subschemas(schema):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].removeprefix(DEFS)


def cyclic(defs: dict[str, Json]) -> frozenset[str]:
    """The definitions that can reach themselves."""
    return frozenset(name for name in defs if name in needed(defs[name], defs))


def without(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """The schema less one keyword."""
    return {k: v for k, v in schema.items() if k != key}
