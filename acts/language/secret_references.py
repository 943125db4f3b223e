"""Secrets by reference: a Tool fixes a parameter to ``{"$secret": "name"}``, and its worker has the value.

    "apiKey":  {"const": {"$secret": "stripe-key"}}
    "headers": {"const": {"Authorization": {"$secret": "crm-token"}, "Accept": "application/json"}}

Such a parameter belongs to the Tool: no Call may have it, no model is shown it, and no run knows its value. The worker
puts it into the Call that the Activity gets. Anywhere else, ``{"$secret": …}`` is data like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import Problem
from acts.language.messages import ToolMessage
from acts.language.values import Json, pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from acts.language.messages import Request

KEY: Final = "$secret"
NOT_ALLOWED: Final = "secretNotAllowed"


def secret_parameters(schema: Json) -> dict[str, Json]:
    """The parameters of a Tool that hold secrets, with what the Tool fixes them to."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    fixed = {name: declared["const"] for name, declared in properties.items()
             if isinstance(declared, dict) and isinstance(declared.get("const"), (dict, list))}  # fmt: skip
    return {name: value for name, value in fixed.items() if next(secret_names(value), None) is not None}


def secret_names(value: Json) -> Iterator[str]:
    """The names of the secrets in a fixed value."""
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            if len(part) == 1 and isinstance(part.get(KEY), str):
                yield part[KEY]
            else:
                stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)


def put_secrets(value: Json, secrets: Mapping[str, str]) -> Json:
    """A fixed value with the secrets in the places of their names."""
    if isinstance(value, dict):
        name = value.get(KEY)
        if len(value) == 1 and isinstance(name, str):
            return secrets[name]
        return {key: put_secrets(part, secrets) for key, part in value.items()}
    if isinstance(value, list):
        return [put_secrets(part, secrets) for part in value]
    return value


def forbid_secrets(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a Tool by which no Call may have its secret parameters, and none needs them."""
    secret = secret_parameters(schema)
    return _with_parameters(schema, secret, dict.fromkeys(secret, False)) if secret else schema


def without_secrets(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a Tool as a model is shown it: without its secret parameters."""
    secret = secret_parameters(schema)
    return _with_parameters(schema, secret, {}) if secret else schema


def _with_parameters(schema: dict[str, Any], secret: Mapping[str, Json], instead: dict[str, Json]) -> dict[str, Any]:
    properties = {key: part for key, part in schema["properties"].items() if key not in secret} | instead
    required = schema.get("required")
    kept = {"required": [name for name in required if name not in secret]} if isinstance(required, list) else {}
    return {**schema, "properties": properties, **kept}


def inline_secret_problems(request: Request) -> list[Problem]:
    """The Tools of a Request that name a secret: only those that a worker has loaded may.

    Else the author of a Request would choose to which Activity, and so where, a secret is sent.
    """
    return [
        Problem(
            NOT_ALLOWED, f'a tool of this Request names the secret "{name}"; only one that a worker has loaded may',
            pointer("context", message.index, "tool"),
            hint="load the tool with ACTS_ACTIVITIES or ACTS_TOOLS, and use it by its name",
        )
        for message in request.context
        if isinstance(message, ToolMessage) and isinstance(message.tool, dict)
        for schema in (message.tool, *(v for v in message.tool.values() if isinstance(v, dict)))
        for value in secret_parameters(schema).values()
        for name in dict.fromkeys(secret_names(value))
    ]  # fmt: skip
