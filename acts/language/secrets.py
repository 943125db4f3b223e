"""Secrets: named in the fixed parameters of Tools, and masked in what leaves an Activity.

A Tool fixes a parameter to ``{"$secret": "name"}``, or to a value that contains this, and its worker has the value.
Such a parameter belongs to the Tool: no Call may have it, no model is shown it, and no run knows its value. The worker
puts it into the Call that the Activity gets. Anywhere else, ``{"$secret": …}`` is data like any other.

Results, failures, heartbeats and log lines are masked. A secret is found as it is and in the forms that libraries
print: quoted in JSON, a URL or by ``repr``, in base64 (also as a part, as in ``Authorization: Basic``), and each long
line of several. What is hashed, encrypted, split or otherwise changed is not found, and neither is a secret of fewer
than ``MIN_LENGTH`` characters, which would match everywhere.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus

from acts.language.errors import Problem
from acts.language.messages import ToolMessage
from acts.language.values import Json, pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from acts.language.messages import Request

KEY: Final = "$secret"
MASK: Final = "[secret]"
# A shorter text is part of too many others
MIN_LENGTH: Final = 6
# Lines of a key in PEM have 64 characters; shorter lines of a text are words
MIN_LINE_LENGTH: Final = 16


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
        if len(value) == 1 and isinstance(value.get(KEY), str):
            return secrets[value[KEY]]
        return {key: put_secrets(part, secrets) for key, part in value.items()}
    if isinstance(value, list):
        return [put_secrets(part, secrets) for part in value]
    return value


def without_secrets(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a Tool as a model is shown it: without its secret parameters."""
    secret = secret_parameters(schema)
    if not secret:
        return schema
    out = {**schema, "properties": {key: part for key, part in schema["properties"].items() if key not in secret}}
    if isinstance(schema.get("required"), list):
        out["required"] = [name for name in schema["required"] if name not in secret]
    return out


def inline_secret_problems(request: Request) -> list[Problem]:
    """The Tools of a Request that name a secret: its author would choose to which Activity, so where, it is sent."""
    problems, hint = [], "load the tool with ACTS_ACTIVITIES or ACTS_TOOLS, and use it by its name"
    for message in request.context:
        tool = message.tool if isinstance(message, ToolMessage) and isinstance(message.tool, dict) else {}
        for schema in (tool, *tool.values()):
            fixed = secret_parameters(schema).values()
            for name in dict.fromkeys(name for value in fixed for name in secret_names(value)):
                text = f'a tool of this Request names the secret "{name}"; only one that a worker has loaded may'
                place = pointer("context", message.index, "tool")
                problems.append(Problem("secretNotAllowed", text, place, hint=hint))
    return problems


def printed_forms(secret: str) -> set[str]:
    """The texts as which a secret may be printed."""
    texts = {secret, secret.strip()}
    texts |= {line.strip() for line in secret.splitlines() if len(line.strip()) >= MIN_LINE_LENGTH}
    forms: set[str] = set()
    for text in texts:
        if len(text) < MIN_LENGTH:
            continue
        forms |= {
            text, quote(text), quote(text, safe=""), quote_plus(text), repr(text)[1:-1], json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
        }  # fmt: skip
        forms.update(_base64_forms(text.encode()))
    return forms


def _base64_forms(data: bytes) -> Iterable[str]:
    """The characters of base64 that depend on the secret alone, wherever it begins in the encoded bytes."""
    for before in range(3):
        text = base64.b64encode(bytes(before) + data).decode()
        begin, end = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        part = text[begin:end]
        if len(part) >= MIN_LENGTH:
            yield part
            yield part.replace("+", "-").replace("/", "_")


class SecretMasks:
    """The masks of some secrets. To find that there is none takes a search of the text for each printed form."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in printed_forms(secret)}
        # In JSON, backslashes and quotes of a form are escaped once more, and other characters may be
        in_json = {json.dumps(form, ensure_ascii=is_ascii)[1:-1] for form in forms for is_ascii in (True, False)}
        self._texts = sorted(forms, key=lambda form: (-len(form), form))
        self._bytes = sorted({form.encode() for form in forms | in_json}, key=lambda form: (-len(form), form))

    def is_in_text(self, text: str) -> bool:
        """True when a secret is in the text."""
        return any(form in text for form in self._texts)

    def is_in_bytes(self, data: bytes) -> bool:
        """True when a secret is in the bytes of a text or of JSON."""
        return any(form in data for form in self._bytes)

    def mask_text(self, text: str) -> str:
        """The text with ``MASK`` for each secret."""
        for form in self._texts:
            text = text.replace(form, MASK)
        return text

    def mask_bytes(self, data: bytes) -> bytes:
        """The same for bytes that are no JSON."""
        for form in self._bytes:
            data = data.replace(form, MASK.encode())
        return data

    def mask_value(self, value: Json) -> Json:
        """JSON with masks in its strings and keys; a number that is a secret becomes a mask."""
        if isinstance(value, str):
            return self.mask_text(value)
        if isinstance(value, dict):
            return {self.mask_text(str(key)): self.mask_value(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.mask_value(part) for part in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool) and self.is_in_text(str(value)):
            return MASK
        return value
