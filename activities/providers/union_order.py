"""The alternatives of a union begin with the property that tells them apart, as OpenAI asks for. Pure.

A model writes an object property by property. With the distinguishing constant first, an alternative is chosen before
anything else of it is written.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from activities.providers.ref_normalizer import DEFS
from activities.providers.schema_nodes import Node, ObjectNode
from acts.language.schema_forms import subschemas
from acts.language.values import Json


def order_alternatives(root: Json, definitions: dict[str, Json]) -> None:
    """Put the distinguishing property of each union's objects first. Changes the schemas in place."""
    for schema in (root, *definitions.values()):
        for part in list(subschemas(schema)):
            for key in ("anyOf", "oneOf"):
                if isinstance(part.get(key), list):
                    _order([o for o in (_resolve(option, definitions) for option in part[key]) if o is not None])


def _resolve(option: Json, definitions: dict[str, Json]) -> dict[str, Any] | None:
    """The schema of an object with properties that an alternative is or refers to."""
    visited = set[str]()
    while isinstance(option, dict) and isinstance(option.get("$ref"), str):
        name = option["$ref"].removeprefix(DEFS)
        if name in visited:
            return None
        visited.add(name)
        option = definitions.get(name)
    has_properties = isinstance(option, dict) and isinstance(option.get("properties"), dict) and option["properties"]
    return option if isinstance(option, dict) and has_properties else None


def _order(objects: list[dict[str, Any]]) -> None:
    """Move the first property that is another constant in each object to its beginning."""
    if len(objects) < 2 or len({id(o) for o in objects}) < len(objects):  # noqa: PLR2004 - one object needs no order
        return
    for key in objects[0]["properties"]:
        # Up to the first object without such a constant: linear in the text of the schemas
        constants = set(takewhile(lambda text: text is not None, (_constant(o, key) for o in objects)))
        if len(constants) == len(objects):
            for o in objects:
                o["properties"] = {key: o["properties"][key], **o["properties"]}
            return


def _constant(schema: dict[str, Any], key: str) -> str | None:
    """The one text that a required property may have."""
    part, required = schema["properties"].get(key), schema.get("required")
    if not isinstance(part, dict) or not isinstance(required, list) or key not in required:
        return None
    choices = [part["const"]] if "const" in part else part.get("enum")
    if not isinstance(choices, list) or len(choices) != 1:
        return None
    return choices[0] if isinstance(choices[0], str) else None


def share_first_property(nodes: list[Node]) -> bool:
    """True when two objects begin with the same property, and its constants do not tell them apart."""
    firsts: dict[str, list[frozenset[str]]] = {}
    for node in nodes:
        if isinstance(node, ObjectNode) and node.properties:
            key = next(iter(node.properties))
            firsts.setdefault(key, []).append(node.constants.get(key, frozenset()))
    return any(
        len(constants) > 1
        and (frozenset() in constants or len(frozenset().union(*constants)) < sum(map(len, constants)))
        for constants in firsts.values()
    )
