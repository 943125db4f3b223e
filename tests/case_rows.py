"""Builders of the rows of the case table (``tests.cases``): Tools, Calls, Messages."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

TEXT = {"type": "string"}
META = {
    "_outputPath": TEXT,
    "_errorPath": TEXT,
    "_outputMethod": TEXT,
    "_scopes": {"type": "array"},
    "_output": True,
}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    """A Tool with an Activity, whose Calls may carry every meta-property."""
    return {
        "type": "object",
        "properties": {"_tool": {"const": name}, "_activity": {"const": f"row.{name}"}, **META, **properties},
    }


def thought(name: str) -> dict[str, Any]:
    """A latent Tool."""
    return {"type": "object", "properties": {"_tool": {"const": name}, "_activity": {"const": ""}, **META}}


def fails(type_: str = "card_declined", message: str = "no") -> dict[str, Any]:
    return {"$fail": {"type": type_, "message": message}}


def row(name: str, plan: list[dict[str, Any]], *, context: Any = (), results: Any = None, **expect: Any) -> Row:
    """A row whose results and expectations are given by Tool. Its Tools are defined here; ``think…`` is latent."""
    tools = {
        call["_tool"]: thought(call["_tool"]) if call["_tool"].startswith("think") else tool(call["_tool"])
        for call in plan
    }
    ids = {call["_tool"]: f"{position}:{call['_tool']}" for position, call in enumerate(plan, 1)}
    for key in ("states", "errors", "started", "sees"):
        if key in expect:
            expect[key] = {ids[name]: value for name, value in expect[key].items()}
    return {
        "name": name,
        "request": {"context": [{"type": "tool", "tool": tools}, *context, {"type": "plan", "plan": plan}]},
        "results": {ids[name]: value for name, value in (results or {}).items()},
        "expect": {"status": "completed", "errors": {}, **expect},
    }


def call(name: str, path: str | None = None, method: str | None = None, **more: Any) -> dict[str, Any]:
    out = {"_tool": name, **more}
    if path is not None:
        out["_outputPath"] = path
    if method is not None:
        out["_outputMethod"] = method
    return out


def state(**payload: Any) -> dict[str, Any]:
    return {"type": "state", "state": payload}


def own(instance: str, **payload: Any) -> dict[str, Any]:
    return {"type": "state", "state": payload, "_instance": instance}


DONE = "completed"
