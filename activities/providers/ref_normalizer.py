"""The ``$ref``s of a schema: all of them redirected to ``$defs``, and which definitions are recursive. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from acts.language.schema_forms import subschemas
from acts.language.values import Json

DEFS: Final = "#/$defs/"


def normalize_refs(root: Json) -> tuple[Json, dict[str, Json]]:
    """The schema with all its references leading to definitions, and these by name. Changes ``root`` in place.

    A reference that leads nowhere is removed: its place allows any value.
    """
    if not isinstance(root, dict):
        return root, {}
    own = root.get("$defs")
    definitions: dict[str, Json] = dict(own) if isinstance(own, dict) else {}
    for part in list(subschemas(root)):
        pointer = part.get("$ref")
        if pointer is None and "$dynamicRef" not in part:
            continue
        name = str(pointer).removeprefix(DEFS)
        if str(pointer).startswith(DEFS) and name in definitions:
            continue
        target = _resolve_pointer(root, pointer)
        part.pop("$dynamicRef", None)
        if target is None:
            part.pop("$ref", None)
            continue
        name = "root" if pointer == "#" else str(pointer).strip("#/").replace("/", "_").replace("$", "")
        while name in definitions and definitions[name] is not target:
            name += "_"
        definitions[name] = target
        part["$ref"] = DEFS + name
    return root, {k: without_keyword(v, "$defs") if isinstance(v, dict) else v for k, v in definitions.items()}


def _resolve_pointer(root: dict[str, Any], pointer: Json) -> Json | None:
    """The schema at a local JSON pointer, or None."""
    if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
        return None
    target: Json = root
    for token in pointer[2:].split("/") if pointer != "#" else ():
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and key in target:
            target = target[key]
        elif isinstance(target, list) and key.isdigit() and int(key) < len(target):
            target = target[int(key)]
        else:
            return None
    return target if isinstance(target, (dict, bool)) else None


def _ref_names(schema: Json) -> Iterator[str]:
    for part in subschemas(schema):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].removeprefix(DEFS)


def recursive_definitions(definitions: dict[str, Json]) -> frozenset[str]:
    """The names of the definitions that use themselves, directly or through others. Linear in the definitions."""
    import networkx as nx

    uses = {name: {n for n in _ref_names(part) if n in definitions} for name, part in definitions.items()}
    graph: Any = nx.DiGraph((name, used) for name, names in uses.items() for used in names)
    circles = (group for group in nx.strongly_connected_components(graph) if len(group) > 1)
    return frozenset(name for group in circles for name in group) | {n for n, names in uses.items() if n in names}


def without_keyword(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    """The schema less one keyword."""
    return {k: v for k, v in schema.items() if k != keyword}
