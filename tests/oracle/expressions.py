"""Expressions, conditions and templates: their trees, what they yield, and where parameters contain them."""

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


OPERATORS = ("==", "!=", "<=", ">=", "<", ">")
UNMARKED = re.compile(r"""†?[\w-]+(\.[^.\[\]()|&"\s{}]+|\[[0-9]+\]|\["([^"\\]|\\.)*"\])*""")


def parse_condition(text: str) -> Any:
    """A tree of ``parse``, or ``("not", [tree])``, ``("==", [left, right])`` …, ``("json", value)``."""
    for sign, word in (("||", "or"), ("&&", "and")):
        parts = split(text, sign)
        if len(parts) > 1:
            return (word, [parse_condition(part) for part in parts])
    for operator in OPERATORS:
        parts = split(text, operator)
        if len(parts) == 2:
            return (operator, [parse_side(part) for part in parts])
    return parse_side(text)


def parse_side(text: str) -> Any:
    """One side of a comparison, or a condition without one."""
    text = text.strip()
    if text.startswith("!"):
        return ("not", [parse_side(text[1:])])
    if text.startswith("(") and text.endswith(")"):
        return parse_condition(text[1:-1])
    try:
        return ("json", json.loads(text))
    except ValueError:
        return parse(text)


ESCAPED_INSIDE = re.compile(r"††(?=[\w-])")


def parts_of_template(text: str) -> list[Any]:
    """Texts and trees, in their order."""
    out: list[Any] = []
    if text.startswith("††") and not text.startswith("††{"):
        out, text = ["†"], text[2:]
    while text:
        if text.startswith("††{"):
            out, text = [*out, "†{"], text[3:]
        elif ESCAPED_INSIDE.match(text):
            out, text = [*out, "†"], text[2:]
        elif text.startswith("†{"):
            inside, text = expression_in_braces(text[2:])
            out.append(parse(inside))
        else:
            out, text = [*out, text[0]], text[1:]
    return out


def expression_in_braces(text: str) -> tuple[str, str]:
    """An expression with all of its marks, and the text after its brace."""
    out = ""
    while not text.startswith("}"):
        path = UNMARKED.match(text)
        sign = path or re.match(r"\|\||&&|[()\s]", text)
        if not sign:
            raise Malformed(text)
        token = sign.group()
        out += ("†" if path and not token.startswith("†") else "") + token
        text = text[len(token) :]
    return out, text[1:]


def is_template(value: Any) -> bool:
    return isinstance(value, str) and "†{" in value


def fill(text: str, read: Any) -> Any:
    """The text of a template, or ABSENT."""
    out = ""
    for part in parts_of_template(text):
        value = part if isinstance(part, str) else evaluate(part, read)
        if value is ABSENT:
            return ABSENT
        plain = "" if value is None else value
        out += (
            plain
            if isinstance(plain, str)
            else json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        )
    return out


def holds(tree: Any, read: Any) -> bool:
    """Whether a condition holds: it yields a value other than false."""
    word, rest = tree
    if word == "not":
        return not holds(rest[0], read)
    if word in ("or", "and"):
        return (any if word == "or" else all)(holds(part, read) for part in rest)
    if word in OPERATORS:
        return compares(word, *(side(part, read) for part in rest), null=("json", None) in rest)
    value = rest if word == "json" else read(rest)
    return value is not ABSENT and value is not None and value is not False


def side(tree: Any, read: Any) -> Any:
    word, rest = tree
    if word == "json":
        return rest
    is_plain = word == "path" or (word in ("or", "and") and all(p[0] not in ("not", *OPERATORS) for p in rest))
    return evaluate(tree, read) if is_plain else holds(tree, read)


def compares(operator: str, left: Any, right: Any, *, null: bool) -> bool:
    if operator == "==" and null:
        return left in (None, ABSENT) and right in (None, ABSENT)
    if ABSENT in (left, right):
        return False
    if operator in ("==", "!="):
        return same(left, right) is (operator == "==")
    numbers = all(type(v) in (int, float) for v in (left, right))
    if not numbers and not all(isinstance(v, str) for v in (left, right)):
        return False
    if operator in ("<", ">="):
        return (left < right) is (operator == "<")
    return (left > right) is (operator == ">")


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 is 1.0 and not true."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(same(one[k], other[k]) for k in one)
    return (type(one) is bool) == (type(other) is bool) and one == other


def evaluate(tree: Any, read: Any) -> Any:
    word, rest = tree
    if word == "path":
        return read(rest)
    if word == "json":
        return rest
    results = [evaluate(part, read) for part in rest]
    values = [v for v in results if v is not ABSENT and v is not None]
    if word == "or":
        return values[0] if values else None if any(v is None for v in results) else ABSENT
    if len(values) == len(results):
        return values[-1]
    return ABSENT if any(v is ABSENT for v in results) else None


def paths(tree: Any) -> list[Where]:
    word, rest = tree
    return [rest] if word == "path" else [] if word == "json" else [p for part in rest for p in paths(part)]


def alternatives(tree: Any) -> list[list[Where]]:
    word, rest = tree
    if word == "path":
        return [[rest]]
    if word == "or":
        return [option for part in rest for option in alternatives(part)]
    out: list[list[Where]] = [[]]
    for part in () if word == "json" else rest:
        out = [left + [p for p in right if p not in left] for left in out for right in alternatives(part)]
    return out


def render(where: Where) -> str:
    """Only for names that need no brackets."""
    return "†" + ".".join(where)


def is_expression(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("†") and not value.startswith("††") and not is_template(value)


def expressions(value: Any) -> list[str]:
    """Every expression and template in a parameter, at any depth."""
    if is_expression(value) or is_template(value):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for child in inner for text in expressions(child)]


def trees_of(text: str) -> list[Any]:
    """The trees of an expression, or of the expressions of a template."""
    return [p for p in parts_of_template(text) if not isinstance(p, str)] if is_template(text) else [parse(text)]


def yields(text: str, read: Any) -> Any:
    """What an expression or a template yields."""
    return fill(text, read) if is_template(text) else evaluate(parse(text), read)


def resolve(value: Any, read: Any) -> Any:
    """Raises KeyError for an expression that is absent."""
    if is_expression(value) or is_template(value):
        result = yields(value, read)
        if result is ABSENT:
            raise KeyError(value)
        return result
    if isinstance(value, str):
        at = 2 if value.startswith("††") else 0
        return value[: at // 2] + ESCAPED_INSIDE.sub("†", value[at:])
    if isinstance(value, dict):
        return {k: resolve(v, read) for k, v in value.items()}
    return [resolve(v, read) for v in value] if isinstance(value, list) else value
