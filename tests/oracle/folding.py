"""Folds: the value of a kind from all of its messages, from the first one every time."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from tests.oracle.expressions import ABSENT, Where, parse

DATA_LIKE = ("data", "input", "state")
BESIDE = {"kind", "schema", "description", "_instance", "_call", "_date", "_outputPath", "_outputMethod"}


class Refused(Exception):
    """A write that cannot be applied, or a result that fits no outcome."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def get(value: Any, names: Where) -> Any:
    for name in names:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and str(int(name)) == name and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, list) and name == "length":
            value = len(value)
        else:
            return ABSENT
    return value


def deep_merge(old: Any, new: Any) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{k: deep_merge(old[k], v) if k in old else v for k, v in new.items()}}
    return new


def combine(old: Any, method: str, new: Any) -> Any:
    """``old`` after ``method`` wrote ``new``. Raises Refused where the kinds do not fit."""
    if method == "set":
        return new
    if old is ABSENT or old is None:
        return [new] if method == "push" else new
    if method == "push" and isinstance(old, list):
        return [*old, new]
    for kind in {"concat": (list, str), "merge": (dict, list), "assign": (dict,)}.get(method, ()):
        if isinstance(old, kind) and isinstance(new, kind):
            if method == "concat":
                return old + new
            return deep_merge(old, new) if method == "merge" else {**old, **new}
    raise Refused("WrongKind")


def put(root: Any, names: Where, method: str, value: Any, *, strict: bool) -> Any:
    """``root`` after a write at ``names``. Strict: the Call is writing; else a message is read again."""
    if not names:
        try:
            return combine(root, method, value)
        except Refused:
            if strict:
                raise
            return combine(ABSENT, method, value)
    if isinstance(root, list) and strict:
        raise Refused("WrongKind")  # OPEN
    inner = root if isinstance(root, dict) else {}
    return {**inner, names[0]: put(inner.get(names[0], ABSENT), names[1:], method, value, strict=strict)}


@dataclass(frozen=True)
class Entry:
    """One data-like message. Without ``where`` it deep-merges at the root of its kind."""

    kind: str
    instance: str | None
    payload: Any
    names: Where | None = None
    method: str = "set"


def entry(raw: dict[str, Any]) -> Entry | None:
    """A data-like message, in either form; None for one that holds a schema alone."""
    type_ = raw["type"]
    kind = raw.get("kind", type_)
    payload = raw[type_] if type_ in raw else {k: v for k, v in raw.items() if k not in BESIDE and k != "type"}
    if type_ not in raw and not payload and "schema" in raw:
        return None
    if "_outputPath" not in raw:
        return Entry(kind, raw.get("_instance"), payload)
    where = parse(raw["_outputPath"])[1]
    value = get(payload, where[1:])
    return Entry(kind, raw.get("_instance"), value, where[1:], raw.get("_outputMethod", "set"))


def view(entries: list[Entry], kind: str, instance: str | None) -> Any:
    """The fold of the global messages, then of the instance's."""
    value: Any = ABSENT
    for owner in (None,) if instance is None else (None, instance):
        for item in entries:
            if item.kind != kind or item.instance != owner:
                continue
            if item.names is None:
                value = item.payload if value is ABSENT else deep_merge(value, item.payload)
            else:
                value = put(value, item.names, item.method, item.payload, strict=False)
    return copy.deepcopy(value)


def read_messages(context: list[dict[str, Any]]) -> list[Entry]:
    entries = [entry(m) for m in context if m.get("type") in DATA_LIKE]
    return [e for e in entries if e is not None]
