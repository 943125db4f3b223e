"""The ``$ref``s of a schema: all of them redirected to ``$defs``, and which definitions are recursive. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from acts.language.schemas import subschemas
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


def reachable_definitions(schema: Json, definitions: dict[str, Json]) -> dict[str, Json]:
    """The definitions that a schema uses, directly or through others."""
    out: dict[str, Json] = {}
    pending = [schema]
    while pending:
        for name in _ref_names(pending.pop()):
            if name in definitions and name not in out:
                out[name] = definitions[name]
                pending.append(definitions[name])
    return out


def _ref_names(schema: Json) -> Iterator[str]:
    for part in subschemas(schema):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].removeprefix(DEFS)


def recursive_definitions(definitions: dict[str, Json]) -> frozenset[str]:
    """The names of the definitions that use themselves, directly or through others."""
    return frozenset(n for n in definitions if n in reachable_definitions(definitions[n], definitions))


def without_keyword(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    """The schema less one keyword."""
    return {k: v for k, v in schema.items() if k != keyword}
