"""The part of the context that a Call may see: what its scopes name, and nothing beside it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from acts.language.messages import scoped_context
from acts.language.references import Path, parse
from acts.language.values import ABSENT, get

CONTEXT: dict[str, Any] = {
    "state": {
        "user": {"name": "Ada", "age": 36, "card": {"number": "secret"}},
        "list": [{"n": 1, "secret": 1}, {"n": 2, "secret": 2}, {"n": 3, "secret": 3}],
        "map": {"0": {"n": 0}, "1": {"n": 1}},
        "null": None,
        "empty": {},
    },
    "input": {"q": 1},
    "limits": [500],
    "plainly": "text",
}

# scopes, the messages
SCOPED: list[tuple[list[str], list[dict[str, Any]]]] = [
    ([], []),
    (["†state"], [{"type": "state", "state": CONTEXT["state"]}]),
    (["†limits"], [{"type": "data", "kind": "limits", "data": [500]}]),
    (["†state.nothing", "†nothing"], []),
    (["†state.user.name.first"], []),
    (["†state.user.name"], [{"type": "state", "state": {"user": {"name": "Ada"}}}]),
    (
        ["†state.user.name", "†input", "†state.user.age"],
        [{"type": "state", "state": {"user": {"name": "Ada", "age": 36}}}, {"type": "input", "input": {"q": 1}}],
    ),
    (["†state.user", "†state.user.name"], [{"type": "state", "state": {"user": CONTEXT["state"]["user"]}}]),
    (["†state.user.name", "†state"], [{"type": "state", "state": CONTEXT["state"]}]),
    (["†state.null", "†state.empty"], [{"type": "state", "state": {"null": None, "empty": {}}}]),
    (["†state.list.1.n"], [{"type": "state", "state": {"list": [None, {"n": 2}]}}]),
    (["†state.list[2].n", "†state.list[0].n"], [{"type": "state", "state": {"list": [{"n": 1}, None, {"n": 3}]}}]),
    (["†state.list[1].n", "†state.list"], [{"type": "state", "state": {"list": CONTEXT["state"]["list"]}}]),
    (["†state.list[999999999]"], []),
    (["†state.map.1", "†state.map.0"], [{"type": "state", "state": {"map": {"1": {"n": 1}, "0": {"n": 0}}}}]),
    (["†limits[0]"], [{"type": "data", "kind": "limits", "data": [500]}]),
]


def read(path: Path) -> Any:
    return get(CONTEXT.get(path.kind, ABSENT), path.names)


def paths(scopes: list[str]) -> list[Path]:
    parsed = [parse(s) for s in scopes]
    assert all(isinstance(p, Path) for p in parsed)
    return parsed  # type: ignore[return-value]


@pytest.mark.parametrize(("scopes", "messages"), SCOPED, ids=lambda x: str(x)[:60])
def test_a_call_sees_what_its_scopes_name(scopes: list[str], messages: list[dict[str, Any]]) -> None:
    assert scoped_context(paths(scopes), read) == messages


def test_each_of_many_scopes_is_placed_once() -> None:
    count = 2_000
    context = {"list": list(range(count)), "map": {f"k{i}": i for i in range(count)}}
    calls = [0]

    def count_call(_frame: object, event: str, _argument: object) -> None:
        calls[0] += event == "call"

    scopes = [Path(kind, (name,)) for i in range(count) for kind, name in (("list", str(i)), ("map", f"k{i}"))]
    sys.setprofile(count_call)
    try:
        messages = scoped_context(scopes, lambda path: get(context[path.kind], path.names))
    finally:
        sys.setprofile(None)
    assert [m["data"] for m in messages] == [context["list"], context["map"]]
    assert calls[0] < 50 * count
