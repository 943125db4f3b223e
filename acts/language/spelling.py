"""How people write what begins with ``†``: the plain spelling that files may have, and what a typo was meant to be.

``<+>`` stands for ``†`` in the files that people write, and nowhere else: each reader of such files replaces it as soon
as the file is parsed, so no Request, history or message has it. It counts where ``†`` would: at the beginning of a
string, in a condition, and before the ``{`` of a template; in any other text it is text.

A proposal is a guess for a person to confirm. Nothing is ever corrected by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Any, Final

from acts.language.errors import ExpressionError, did_you_mean, truncate
from acts.language.references import MARK, OPENING
from acts.language.values import Json

PLAIN: Final = "<+>"
# A proposal costs time linear in the text; whoever writes more in one string has no typo in it
MAX_PROPOSED: Final = 2_000

_SPELT: Final = re.compile(r"<\+>(?=(?:<\+>)?[\w{-])")
_SPELT_TEMPLATE: Final = re.compile(r"(?:<\+>)+\{[^{}]*")
_BEGINS: Final = re.compile(r"[!(\s]*<\+>(?:<\+>)?[\w-]")
_CONDITIONS: Final = ("_when", "when", "until")

_PATH: Final = r"[A-Za-z_][\w-]*(?:\.[\w-]+|\[[0-9]+\])+"
_WHOLE: Final = re.compile(rf"\s*(?:\{{\{{?\s*|\$\{{\s*|\$\.?)?({_PATH})(?:\s*\}}\}}?)?\s*")
_IN_BRACES: Final = re.compile(rf"\{{\{{\s*{MARK}?({_PATH})\s*\}}\}}|\$\{{\s*{MARK}?({_PATH})\s*\}}")
_FILE_NAME: Final = re.compile(r".*\.(?:csv|gz|html?|jsonl?|log|md|pdf|png|py|txt|xml|ya?ml)")
# What stands in an expression: a JSON string, a path as it should be, words
_TOKEN: Final = re.compile(
    rf'"(?:[^"\\]|\\.)*"|{MARK}[^\s&|()=!<>]*|(?:\$\.?)?([A-Za-z_][\w-]*(?:\.[\w-]+|\[[0-9]+\])*)|(?<![=!<>])=(?!=)'
)
_KINDS: Final = ("state", "input", "data", "item", "index")
_WORDS: Final = {"and": "&&", "or": "||", "not": "!", "True": "true", "False": "false", "None": "null"}


def read_plain(value: Json) -> Json:
    """The value of a parsed file, with ``†`` for each ``<+>`` that stands for it. Lists and objects change in place."""
    holder: list[Json] = [value]
    stack: list[Any] = [holder]
    while stack:
        part = stack.pop()
        for key, child in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(child, (dict, list)):
                stack.append(child)
            elif isinstance(child, str) and PLAIN in child:
                part[key] = _read_text(child, is_condition=key in _CONDITIONS)
    return holder[0]


def _read_text(text: str, *, is_condition: bool) -> str:
    if is_condition or _BEGINS.match(text):
        return _SPELT.sub(MARK, text)
    return _SPELT_TEMPLATE.sub(lambda match: _SPELT.sub(MARK, match[0]), text)


def propose_text(text: str, kinds: Container[str]) -> tuple[str, bool] | None:
    """What a string without references was probably meant to be, or None; and whether braces show that it was.

    ``{{ input.email }}`` and ``${input.email}`` become a reference, or inside a text a template; ``input.email`` alone
    may also be what it says. Only paths of these ``kinds`` count.
    """
    if len(text) > MAX_PROPOSED or ("." not in text and "[" not in text):
        return None
    if (whole := _WHOLE.fullmatch(text)) is not None:
        is_braced = text.lstrip()[0] in "{$"
        is_meant = _kind_of(whole[1]) in kinds and (is_braced or not _FILE_NAME.fullmatch(text))
        return (MARK + whole[1], is_braced) if is_meant else None
    paths = [path for match in _IN_BRACES.finditer(text) if _kind_of(path := match[1] or match[2]) in kinds]
    if not paths:
        return None

    def correct(match: re.Match[str]) -> str:
        path = match[1] or match[2]
        return f"{OPENING}{path}}}" if path in paths else match[0]

    return _IN_BRACES.sub(correct, text), True


def _kind_of(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def expression_hint(text: str, parse: Callable[[str], Any]) -> str | None:
    """A hint at what a malformed expression was probably meant to be, if ``parse`` reads that.

    ``state.x``, ``{{ state.x }}`` and ``$.state.x`` become ``†state.x``, a single word a path of the state, and
    ``and``, ``or``, ``not`` and a single ``=`` what they are here.
    """

    def correct(match: re.Match[str]) -> str:
        word = match[1]
        if word is None:
            return "==" if match[0] == "=" else match[0]
        if word in ("true", "false", "null"):
            return word
        is_path = _kind_of(word) != word or word in _KINDS
        return _WORDS.get(word) or f"{MARK}{'' if is_path else 'state.'}{word}"

    if len(text) > MAX_PROPOSED:
        return None
    bare = _IN_BRACES.sub(lambda match: f"{MARK}{match[1] or match[2]}", text.strip())
    proposal = re.sub(r"!\s+", "!", _TOKEN.sub(correct, bare))
    with suppress(ExpressionError):
        parse(proposal)
        return did_you_mean(truncate(proposal, 200))
    return None
