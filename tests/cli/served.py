"""An Activity without a Tool of its own, as it was before there were typed ones: it takes what a Call has."""

from __future__ import annotations

from typing import Any

from temporalio import activity


@activity.defn(name="compareLanguage")
def compare_language(call: dict[str, Any], _tool: dict[str, Any], _context: list[Any]) -> bool:
    return bool(call["language"] == "en")
