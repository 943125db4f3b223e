"""Builders of the rows of the case table (``tests.cases``): Tools, Calls, Messages."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

TEXT = {"type": "string"}
META = {"_outputPath": TEXT, "_errorPath": TEXT, "_outputMethod": TEXT, "_scopes": {"type": "array"}, "_output": True}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    """A Tool with an Activity, whose Calls may carry every meta-property."""
    return {
        "type": "object",
        "properties": {"_tool": {"const": name}, "_activity": {"const": f"row.{name}"}, **META, **properties},
    }


def thought(name: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"_tool": {"const": name}, "_activity": {"const": ""}, **META}}


def fails(type_: str = "card_declined", message: str = "no") -> dict[str, Any]:
    return {"$fail": {"type": type_, "message": message}}


def row(name: str, plan: list[dict[str, Any]], *, context: Any = (), results: Any = None, **expect: Any) -> Row:
    """A row whose results and expectations are given by Tool. Its Tools are defined here; ``think…`` is latent.

    ``refund[1]`` is an element of the Call of the Tool ``refund``. A Call whose state is not given has completed; a
    plan with a failed one has failed.
    """
    tools = {
        call["_tool"]: thought(call["_tool"]) if call["_tool"].startswith("think") else tool(call["_tool"])
        for call in plan
    }
    positions = {call["_tool"]: position for position, call in enumerate(plan, 1)}

    def by_id(by_name: dict[str, Any]) -> dict[str, Any]:
        return {f"{positions[name.partition('[')[0]]}:{name}": value for name, value in by_name.items()}

    expect["states"] = dict.fromkeys(positions, DONE) | expect.get("states", {})
    is_failed = "failed" in expect["states"].values()
    for key in ("states", "errors", "started", "sees"):
        if key in expect:
            expect[key] = by_id(expect[key])
    return {
        "name": name,
        "request": {"context": [{"type": "tool", "tool": tools}, *context, {"type": "plan", "plan": plan}]},
        "results": by_id(results or {}),
        "expect": {"status": "failed" if is_failed else "completed", "errors": {}, **expect},
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
