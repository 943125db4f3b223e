"""Masks secrets in what leaves an Activity: results, failures, heartbeats, log lines.

A secret is found as it is and in the forms that libraries print: quoted in JSON, a URL or by ``repr``, in base64 (also
as a part, as in ``Authorization: Basic``), and each long line of several. What is hashed, encrypted, split or otherwise
changed is not found, and neither is a secret of fewer than ``MIN_LENGTH`` characters, which would match everywhere.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

from acts.language.values import Json

MASK: Final = "[secret]"
# A shorter text is part of too many others
MIN_LENGTH: Final = 6
# Lines of a key in PEM have 64 characters; shorter lines of a text are words
MIN_LINE_LENGTH: Final = 16


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
