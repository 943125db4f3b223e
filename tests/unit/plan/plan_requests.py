"""Requests around a plan, for tests of validation."""

from __future__ import annotations

from typing import Any

from acts.language.errors import Problem
from acts.plan.validate import validate
from tests.cases import tool


def request(*plan: Any, context: Any = (), config: Any = None, **tools: Any) -> dict[str, Any]:
    named = {
        c["_tool"]: tool(c["_tool"]) for c in plan if isinstance(c, dict) and isinstance(c.get("_tool"), str)
    } | tools
    out: dict[str, Any] = {
        "context": [{"type": "tool", "tool": named or {"t": {}}}, *context, {"type": "plan", "plan": list(plan)}]
    }
    return out if config is None else {**out, "config": config}


def fatal(raw: Any) -> list[Problem]:
    return [p for p in validate(raw) if p.fatal]
