"""Expressions: their trees, what they yield, and where parameters contain them."""

from __future__ import annotations

import json
import re
from typing import Any


class ABSENT:
    """The key does not exist."""


class Malformed(Exception):
    """Not an expression."""


PATH = re.compile(r"""†[\w-]+(\.[^.\[\]()|&"\s]+|\[[0-9]+\]|\["([^"\\]|\\.)*"\])*""")
STEP = re.compile(r"""\.([^.\[\]()|&"\s]+)|\[([0-9]+)\]|\[("([^"\\]|\\.)*")\]""")

Where = tuple[str, ...]  # (kind, name, name, …)


def parse(text: str) -> Any:
    """``("path", where)``, ``("or", [trees])`` or ``("and", [trees])``."""
    for sign, word in (("||", "or"), ("&&", "and")):
        parts = split(text, sign)
        if len(parts) > 1:
            return (word, [parse(part) for part in parts])
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        return parse(text[1:-1])
    if not PATH.fullmatch(text):
        raise Malformed(text)
    kind = re.match(r"†([\w-]+)", text)
    assert kind
    where = [kind.group(1)]
    for name, digits, quoted, _ in STEP.findall(text[kind.end() :]):
        try:
            where.append(name or (str(int(digits)) if digits else json.loads(quoted)))
        except ValueError:
            raise Malformed(text) from None
    return ("path", tuple(where))


def split(text: str, sign: str) -> list[str]:
    """``text`` split at each ``sign`` outside of parentheses and quoted names."""
    parts, depth, at, start = [], 0, 0, 0
    while at < len(text):
        if text[at] == '"':
            at += 1
            while at < len(text) and text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        elif text[at] in "()":
            depth += 1 if text[at] == "(" else -1
            if depth < 0:
                raise Malformed(text)
        elif depth == 0 and text.startswith(sign, at):
            parts.append(text[start:at])
            at += 1
            start = at + 1
        at += 1
    if depth:
        raise Malformed(text)
    return [*parts, text[start:]]


def evaluate(tree: Any, read: Any) -> Any:
    word, rest = tree
    if word == "path":
        return read(rest)
    results = [evaluate(part, read) for part in rest]
    values = [v for v in results if v is not ABSENT and v is not None]
    if word == "or":
        return values[0] if values else None if any(v is None for v in results) else ABSENT
    if len(values) == len(results):
        return values[-1]
    return ABSENT if any(v is ABSENT for v in results) else None


def paths(tree: Any) -> list[Where]:
    word, rest = tree
    return [rest] if word == "path" else [p for part in rest for p in paths(part)]


def alternatives(tree: Any) -> list[list[Where]]:
    word, rest = tree
    if word == "path":
        return [[rest]]
    if word == "or":
        return [option for part in rest for option in alternatives(part)]
    out: list[list[Where]] = [[]]
    for part in rest:
        out = [left + [p for p in right if p not in left] for left in out for right in alternatives(part)]
    return out


def render(where: Where) -> str:
    """Only for names that need no brackets."""
    return "†" + ".".join(where)


def is_expression(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("†") and not value.startswith("††")


def expressions(value: Any) -> list[str]:
    """Every expression in a parameter, at any depth."""
    if is_expression(value):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for child in inner for text in expressions(child)]


def resolve(value: Any, read: Any) -> Any:
    """Raises KeyError for an expression that is absent."""
    if is_expression(value):
        result = evaluate(parse(value), read)
        if result is ABSENT:
            raise KeyError(value)
        return result
    if isinstance(value, str) and value.startswith("††"):
        return value[1:]
    if isinstance(value, dict):
        return {k: resolve(v, read) for k, v in value.items()}
    return [resolve(v, read) for v in value] if isinstance(value, list) else value
