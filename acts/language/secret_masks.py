"""Finds secrets in text in every form that libraries give them, and puts masks in their place.

A pattern spells each character in all known ways, so any mixture of escapes is found: JSON in JSON in a URL, HTML,
quoted-printable, shell, CSV. Beside it are hexadecimal, and base64 in both alphabets, wherever it begins and its lines
are wrapped. To find that there is none takes a search for a few words of each secret. What is hashed, encrypted, split
or otherwise changed is not found, and neither is a secret of fewer than ``MIN_LENGTH`` characters, which would match
everywhere.
"""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from html.entities import html5
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from acts.language.values import Json

MASK: Final = "[secret]"
# A shorter secret is part of too many other texts
MIN_LENGTH: Final = 6
# Lines of a key in PEM have 64 characters; shorter lines of a text are words
MIN_LINE_LENGTH: Final = 16
# Who shortens a text for an error leaves its beginning, or both its ends: of a secret of so many characters, parts are
# secrets. Keys of one kind begin alike
MIN_CUT_LENGTH: Final = 20
_BEGINNING: Final = 12
_END: Final = 8
_MAX_CUT: Final = 400
# Lines of base64 have 64 or 76: of so many characters in a row, one half has no line break in it
_UNWRAPPED: Final = 60
_WRAP: Final = r"(?:\s|\\{1,15}[rnt]|(?i:[%=](?:25){0,4}0[ad]|&\#x?(?:1[03]|[ad]);))*+"
# Quoted-printable breaks a line anywhere, with this at its end; also as JSON has it
_SOFT_BREAK: Final = re.compile(r"=(?:\r?\n|(?:\\{1,15}r)?\\{1,15}n)")
# A backslash, and those that four levels of JSON put before a character; a bound keeps a search linear
_SLASH: Final = r"(?:\\{1,15}(?i:u005c|x5c|134)|\\|(?i:[%=](?:25){0,4}5c|&(?:amp;){0,4}(?:\#92|\#x5c|bsol);))"
_SLASHES: Final = r"(?:\\(?i:u005c|x5c)?|(?i:%(?:25){0,4}5c)){0,15}+"
# Other ways to write a character: in JSON and programs, forms, shells, CSV and SQL
_OTHERS: Final = {
    "\n": ["n", r"\r\n"], "\r": ["r"], "\t": ["t"], "\b": ["b"], "\f": ["f"], "\v": ["v"], "\a": ["a"], "\0": ["0"],
    " ": [r"\+"], "'": [r"""'"'"'""", rf"'{_SLASHES}''", rf"'{_SLASHES}'"], '"': [rf'"{_SLASHES}"'],
}  # fmt: skip


@lru_cache(maxsize=4_096)
def _spell(character: str) -> str:
    """A pattern of all ways to write a character; letters and digits are written as they are."""
    if character.isascii() and character.isalnum():
        return character
    code, data, wide = ord(character), character.encode(), character.encode("utf-16-be")
    percent, html = "[%=](?:25){0,4}", "&(?:amp;){0,4}"
    ways = [
        "".join(f"{percent}{byte:02x}" for byte in data), "".join(f"{_SLASHES}x{byte:02x}" for byte in data),
        "".join(rf"{_SLASHES}{byte:03o}" for byte in data), f"x{code:02x}", f"u0{{0,6}}{code:x}", rf"u\{{0*{code:x}\}}",
        "".join(rf"{_SLASHES}u{wide[at : at + 2].hex()}" for at in range(0, len(wide), 2)),
        f"{html}#0*{code};", f"{html}#x0*{code:x};",
        *(html + name for name, text in html5.items() if text == character and name.endswith(";")),
    ]  # fmt: skip
    return f"{_SLASHES}(?:(?i:{'|'.join(ways)})|{'|'.join([*_OTHERS.get(character, ()), re.escape(character)])})"


@lru_cache(maxsize=4_096)
def _spell_text(text: str) -> re.Pattern[str]:
    runs = re.findall(r"\\+|[^\\]", text)
    return re.compile("".join(f"{_SLASH}{{{len(r)},{len(r) * 16}}}+" if r[0] == "\\" else _spell(r) for r in runs))


@lru_cache(maxsize=4_096)
def _spell_base64(text: str) -> re.Pattern[str]:
    spelled = {"+": f"(?:-|{_spell('+')})", "/": f"(?:_|{_spell('/')})"}
    return re.compile(_WRAP.join(spelled.get(character, character) for character in text))


@lru_cache(maxsize=4_096)
def _spell_hex(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


@lru_cache(maxsize=4_096)
def _spell_cut(text: str) -> re.Pattern[str]:
    first, last = (_spell_text(part).pattern for part in (text[:_BEGINNING], text[-_END:]))
    cut = rf".{{0,{_MAX_CUT}}}?(?:\.\.\.|{_spell('…')})"
    return re.compile(rf"{first}{cut}(?:.{{0,{_MAX_CUT}}}{last})?")


class _Form(NamedTuple):
    """One form of a secret; a text without any of the ``words`` does not have it."""

    text: str
    words: tuple[str, ...]
    spell: Callable[[str], re.Pattern[str]]


def _forms(secret: str) -> Iterator[_Form]:
    lines = {line.strip() for line in secret.splitlines() if len(line.strip()) >= MIN_LINE_LENGTH}
    for text in {secret, secret.strip(), *lines}:
        if len(text) < MIN_LENGTH:
            continue
        data = text.encode()
        yield _Form(text, (_longest_word(text),), _spell_text)
        if len(text) >= MIN_CUT_LENGTH:
            yield _Form(text, (_longest_word(text[:_BEGINNING]),), _spell_cut)
        yield _Form(data.hex(), (data.hex(), data.hex().upper()), _spell_hex)
        for before in range(3):  # the characters that depend on the secret alone, wherever it begins
            part = base64.b64encode(bytes(before) + data).decode()[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
            half = min(len(part), _UNWRAPPED) // 2
            if len(part) >= MIN_LENGTH:
                yield _Form(part, (_longest_word(part[:half]), _longest_word(part[half : 2 * half])), _spell_base64)


def _longest_word(text: str) -> str:
    """Letters and digits, which no library escapes."""
    words: list[str] = re.findall("[A-Za-z0-9]*", text)
    return max(words, key=len)


class SecretMasks:
    """The masks of some secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _forms(secret)}
        self._forms = sorted(forms, key=lambda form: (-len(form.text), form.text))

    def _patterns(self, text: str) -> Iterator[re.Pattern[str]]:
        return (form.spell(form.text) for form in self._forms if any(word in text for word in form.words))

    def is_in_text(self, text: str) -> bool:
        joined = _SOFT_BREAK.sub("", text)
        return any(pattern.search(form) for form in {text, joined} for pattern in self._patterns(form))

    def is_in_bytes(self, data: bytes) -> bool:
        return self.is_in_text(data.decode("utf-8", "surrogateescape"))

    def mask_text(self, text: str) -> str:
        for pattern in self._patterns(text):
            text = pattern.sub(MASK, text)
        joined = _SOFT_BREAK.sub("", text)
        return self.mask_text(joined) if joined != text and self.is_in_text(joined) else text

    def mask_bytes(self, data: bytes) -> bytes:
        return self.mask_text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

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
