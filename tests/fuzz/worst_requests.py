"""Ten Requests below 2 MiB that would each take a worker's minutes or gigabytes, and what each ends with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from acts.language.admission import MAX_ALTERNATIVES

Json = Any

_META: dict[str, Json] = {key: {} for key in ("_outputPath", "_errorPath", "_scopes")}
_TOOL = {"type": "object", "properties": {**_META, "x": {}}, "_activity": "t"}
_OBJECT = {f"k{i}": [i] for i in range(20_000)}  # 270 kB


def _request(calls: list[Json], tool: Json = _TOOL, **state: Json) -> Json:
    return {
        "config": {},
        "context": [
            {"type": "state", "state": {"n": 1, **state}},
            {"type": "tool", "tool": {"t": tool}},
            {"type": "plan", "plan": calls},
        ],
    }


def _calls(count: int, **more: Json) -> list[Json]:
    return [{"_tool": "t", "x": 1, "_outputPath": f"†state.c{i}", **more} for i in range(count)]


def _with_constants(**constants: Json) -> Json:
    fixed = {key: {"const": value} for key, value in constants.items()}
    return {"type": "object", "properties": {"x": {}, **fixed}, "_activity": "t"}


def _doubling() -> Json:
    defs: dict[str, Json] = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
    return {**_TOOL, "properties": {**_META, "x": {"$ref": "#/$defs/d0"}}, "$defs": {**defs, "d40": {}}}


_OUTCOMES = " || ".join(f"†state.o{i}" for i in range(MAX_ALTERNATIVES))
_PAIRS = " && ".join(f"(†state.n || †state.p{i})" for i in range(6))
_PRODUCT = f"{' && '.join(f'†state.q{i}' for i in range(200))} && {_PAIRS}"

_COMPARISONS = " && ".join([f"†state.{a} == †state.{b}" for a, b in itertools.combinations("klmn", 2)] * 8)

# By name: the Request, the type of the failure that it ends with, and a word of what the failure says
WORST: dict[str, tuple[Callable[[], Json], str, str]] = {
    "a text of 27 GB": (
        lambda: _request(_calls(1, x="†{state.b}" * 100_000), b=_OBJECT), "PlanFailed", "the text of a template"),
    "comparisons of 11,000,000 parts": (
        lambda: _request(_calls(1, _when=_COMPARISONS), **{name: [1] * 230_000 for name in "klmn"}),
        "PlanFailed", "evaluating the values"),
    "a value in 100,000 places": (
        lambda: _request(_calls(1, x=["†state.b"] * 100_000), b=_OBJECT), "PlanFailed", "repeats the values"),
    "20,000 calls of 64 alternatives": (
        lambda: _request([{"_tool": "t"}] * 20_000, _with_constants(_outputPath=_OUTCOMES)),
        "InvalidRequest", "reading the calls of the plan"),
    "64 alternatives of 206 paths, 400 times": (
        lambda: _request([{"_tool": "t", "x": _PRODUCT, "_outputPath": "†state.r"}] * 400),
        "InvalidRequest", "reading the calls of the plan"),
    "100,000 references to nothing": (
        lambda: _request(_calls(1, x="".join(f"†{{state.m{i}}}" for i in range(100_000)))),
        "InvalidRequest", "provides †state.m0"),
    "10,000 expressions for each of 10,000 elements": (
        lambda: _request(_calls(1, _each=[0] * 10_000, x="†{item}" * 10_000)), "InvalidRequest", "at most 256"),
    "a schema that doubles 40 times": (lambda: _request(_calls(1), _doubling()), "InvalidRequest", "subschemas"),
    "20,000 calls that wait for each other": (
        lambda: _request([
            {"_tool": "t", "x": f"†out.c{(i + 1) % 20_000}", "_outputPath": f"†out.c{i}"} for i in range(20_000)
        ]), "InvalidRequest", "wait for each other"),
    "conditions 120 deep": (
        lambda: _request(_calls(4_000, _when="!" * 60 + "(" * 60 + "†state.n" + ")" * 60)),
        "InvalidRequest", "nest deeper"),
}  # fmt: skip
