"""Equal parts of a schema written once: what several properties repeat becomes a definition that they refer to.

The Tools of a run mostly differ in their names and descriptions, and share the schemas of their properties (a reference
or a number, an optional text). A request pays for each of them, so the second copy is a ``$ref``. Only what is sent
changes: answers are read by nodes, which know nothing of it. Pure; the same schema gives the same bytes.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from activities.providers.provider_keywords import compact_json
from activities.providers.ref_normalizer import DEFS

# Bytes of a part from which a reference is shorter, and how often it must occur to pay for its definition
_LEAST_BYTES: Final = 40
_LEAST_COPIES: Final = 3


def share_repeated(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the repeated properties of its definitions as definitions of their own, before the others."""
    definitions: dict[str, Any] = schema["$defs"]
    counts: Counter[str] = Counter()
    for definition in definitions.values():
        for part in _properties(definition).values():
            text = compact_json(part)
            if len(text.encode()) >= _LEAST_BYTES:
                counts[text] += 1
    names: dict[str, str] = {}
    for text, count in counts.items():
        if count >= _LEAST_COPIES:
            names[text] = _free_name(len(names) + 1, definitions)
    if not names:
        return schema
    shared: dict[str, Any] = {}
    rest = {name: _with_refs(definition, names, shared) for name, definition in definitions.items()}
    return {**schema, "$defs": {**rest, **shared}}


def _properties(definition: Any) -> dict[str, Any]:
    properties = definition.get("properties") if isinstance(definition, dict) else None
    return properties if isinstance(properties, dict) else {}


def _free_name(number: int, definitions: dict[str, Any]) -> str:
    name = f"shared_{number}"
    while name in definitions:
        name += "_"
    return name


def _with_refs(definition: Any, names: dict[str, str], shared: dict[str, Any]) -> Any:
    """The definition with references in place of what is shared, which is added to ``shared``."""
    properties = _properties(definition)
    if not properties:
        return definition
    out = {}
    for key, part in properties.items():
        name = names.get(compact_json(part))
        if name is not None:
            shared.setdefault(name, part)
        out[key] = part if name is None else {"$ref": DEFS + name}
    return {**definition, "properties": out}
