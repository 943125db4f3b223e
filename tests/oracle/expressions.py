"""Expressions, conditions and templates: their trees, what they yield, and where parameters contain them."""

from __future__ import annotations

import json
import re
from typing import Any


class ABSENT:
    """The key does not exist."""


class Malformed(Exception):
    """Not an expression."""


OPERATORS = ("==", "!=", "<=", ">=", "<", ">")
BRACKETS = r"""\[[0-9]+\]|\[\*\]|\[†index\]|\["([^"\\]|\\.)*"\]"""
# How a path is written: in a value, in a condition, and between braces, where its mark may be missing
PATHS = {
    "value": re.compile(rf"""†[\w-]+(\.[^.\[\]()|&"\s]+|{BRACKETS})*"""),
    "condition": re.compile(rf"""†[\w-]+(\.[^.\[\]()|&"\s=!<>{{}}]+|{BRACKETS})*"""),
    "braces": re.compile(rf"""†?[\w-]+(\.[^.\[\]()|&"\s=!<>{{}}]+|{BRACKETS})*"""),
}
STEP = re.compile(r"""\.([^.\[\]()|&"\s]+)|\[([0-9]+)\]|\[("([^"\\]|\\.)*")\]|\[(\*|†index)\]""")
SIGNS = ("||", "&&", *OPERATORS, "!", "?", ":", "(", ")")
LITERAL_IN_BRACES = re.compile(r"(-?\d+(\.\d+)?([eE][+-]?\d+)?|true|false|null)(?![\w.\[-])")

Where = tuple[str, ...]  # (kind, name, name, …)


def parse(text: str, where: str = "value") -> Any:
    """``("path", where)``, ``("json", value)``, ``("or", [trees])``, ``("and", …)``, ``("not", …)``, ``("==", …)`` …,
    ``("choice", [condition, then, otherwise])``, ``("part", (where, steps))``.
    """
    tokens, rest = tokenize(text, where)
    if rest:
        raise Malformed(text)
    tree = choice(tokens)
    if tokens:
        raise Malformed(text)
    return tree


def parse_condition(text: str) -> Any:
    return parse(text, "condition")


def tokenize(text: str, where: str) -> tuple[list[Any], str]:
    """Trees and signs, up to the end or, between braces, to the one that closes; and the text that is left."""
    out: list[Any] = []
    while text := text.lstrip():
        path = PATHS[where].match(text)
        literal = LITERAL_IN_BRACES.match(text) if where == "braces" else re.match(r"(true|false|null)\b", text)
        sign = next((s for s in SIGNS if text.startswith(s)), None)
        if literal:
            out.append(("json", json.loads(literal[0])))
            text = text[literal.end() :]
        elif path:
            out.append(tree_of_path(path[0]))
            text = text[path.end() :]
        elif sign:
            out.append(sign)
            text = text[len(sign) :]
        elif where == "braces" and text.startswith("}"):
            return out, text
        else:
            try:
                value, end = json.JSONDecoder().raw_decode(text)
            except ValueError:
                raise Malformed(text) from None
            out.append(("json", value))
            text = text[end:]
    return out, text


def tree_of_path(text: str) -> Any:
    kind = re.match(r"†?([\w-]+)", text)
    assert kind
    names: list[Any] = [kind[1]]
    for name, digits, quoted, _, step in STEP.findall(text[kind.end() :]):
        try:
            names.append([step] if step else name or (str(int(digits)) if digits else json.loads(quoted)))
        except ValueError:
            raise Malformed(text) from None
    first = next((at for at, name in enumerate(names) if isinstance(name, list)), len(names))
    whole = ("path", tuple(names[:first]))
    return whole if first == len(names) else ("part", (tuple(names[:first]), names[first:]))


def choice(tokens: list[Any]) -> Any:
    condition = joined(tokens, ("||", "or"), ("&&", "and"))
    if tokens[:1] != ["?"]:
        return condition
    tokens.pop(0)
    then = choice(tokens)
    if tokens[:1] != [":"]:
        raise Malformed("no colon")
    tokens.pop(0)
    return ("choice", [condition, then, choice(tokens)])


def joined(tokens: list[Any], *signs: tuple[str, str]) -> Any:
    if not signs:
        if tokens[:1] == ["!"]:
            tokens.pop(0)
            return ("not", [joined(tokens)])
        left = term(tokens)
        if tokens[:1] and tokens[0] in OPERATORS:
            return (tokens.pop(0), [left, term(tokens)])
        return left
    (sign, word), *inner = signs
    parts = [joined(tokens, *inner)]
    while tokens[:1] == [sign]:
        tokens.pop(0)
        parts.append(joined(tokens, *inner))
    return parts[0] if len(parts) == 1 else (word, parts)


def term(tokens: list[Any]) -> Any:
    first = tokens.pop(0) if tokens else None
    if first == "!":
        return ("not", [term(tokens)])
    if first == "(":
        inner = choice(tokens)
        if tokens[:1] != [")"]:
            raise Malformed("no parenthesis")
        tokens.pop(0)
        return inner
    if not isinstance(first, tuple):
        raise Malformed(first)
    return first


ESCAPED_INSIDE = re.compile(r"††(?=[\w-])")


def parts_of_template(text: str) -> list[Any]:
    out: list[Any] = []
    if text.startswith("††") and not text.startswith("††{"):
        out, text = ["†"], text[2:]
    while text:
        if text.startswith("††{"):
            out, text = [*out, "†{"], text[3:]
        elif ESCAPED_INSIDE.match(text):
            out, text = [*out, "†"], text[2:]
        elif text.startswith("†{"):
            tokens, text = tokenize(text[2:], "braces")
            out.append(choice(tokens))
            if tokens or not text:
                raise Malformed(text)
            text = text[1:]
        else:
            out, text = [*out, text[0]], text[1:]
    return out


def is_template(value: Any) -> bool:
    return isinstance(value, str) and "†{" in value


def fill(text: str, read: Any) -> Any:
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
    if word == "choice":
        return holds(rest[1] if holds(rest[0], read) else rest[2], read)
    if word in ("or", "and"):
        return (any if word == "or" else all)(holds(part, read) for part in rest)
    if word in OPERATORS:
        return compares(word, *(evaluate(part, read) for part in rest), null=("json", None) in rest)
    value = evaluate(tree, read)
    return value is not ABSENT and value is not None and value is not False


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


def asks(tree: Any) -> bool:
    word, rest = tree
    return word == "not" or word in OPERATORS or (word in ("and", "or") and any(map(asks, rest)))


def evaluate(tree: Any, read: Any, *, asked: bool = False) -> Any:
    word, rest = tree
    if word == "path":
        return read(rest)
    if word == "json":
        return rest
    if word == "part":
        return project(read(rest[0]), rest[1], read)
    if word == "choice":
        return evaluate(rest[1] if holds(rest[0], read) else rest[2], read, asked=asked)
    if word == "not" or word in OPERATORS:
        return holds(tree, read)
    asked = asked or asks(tree)
    results = [evaluate(part, read, asked=asked) for part in rest]
    values = [v for v in results if not (v is ABSENT or v is None or (v is False and asked))]
    if word == "or" and values:
        return values[0]
    if word == "and" and len(values) == len(results):
        return values[-1]
    empty = [x for x in (ABSENT, None, False) if any(v is x for v in results)]
    return empty[-1 if word == "or" else 0]


def project(value: Any, steps: list[Any], read: Any) -> Any:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if step == ["*"]:
        if not isinstance(value, list):
            return ABSENT
        parts = [project(item, rest, read) for item in value]
        return [None if part is ABSENT else part for part in parts]
    name = str(read(("index",))) if isinstance(step, list) else step
    if isinstance(value, list):
        inner = (
            len(value)
            if name == "length"
            else value[int(name)]
            if name.isdigit() and int(name) < len(value)
            else ABSENT
        )
    else:
        inner = value.get(name, ABSENT) if isinstance(value, dict) else ABSENT
    return ABSENT if inner is ABSENT else project(inner, rest, read)


def paths(tree: Any) -> list[Where]:
    word, rest = tree
    if word == "part":
        return [rest[0], *([("index",)] if ["†index"] in rest[1] else [])]
    return [rest] if word == "path" else [] if word == "json" else [p for part in rest for p in paths(part)]


def alternatives(tree: Any) -> list[list[Where]]:
    word, rest = tree
    if word in ("path", "part"):
        return [paths(tree)]
    if word == "or":
        return [option for part in rest for option in alternatives(part)]
    if word == "choice":
        return [option for part in rest[1:] for option in alternatives(("and", [rest[0], part]))]
    out: list[list[Where]] = [[]]
    for part in () if word == "json" else rest:
        out = [left + [p for p in right if p not in left] for left in out for right in alternatives(part)]
    return out


def may_yield(tree: Any, possible: Any) -> bool:
    """Whether it could be anything but absent where ``possible`` says which paths could."""
    word, rest = tree
    if word in ("path", "part"):
        return all(possible(p) for p in paths(tree))
    if word in ("or", "choice"):
        return any(may_yield(part, possible) for part in (rest if word == "or" else rest[1:]))
    return word != "and" or all(may_yield(part, possible) for part in rest)


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
