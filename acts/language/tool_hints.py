"""What the schema of a Tool says about the Tool beside its parameters: annotations that no check reads.

``x-mcp``: the Tool is one of an MCP server (``{"server", "tool", "digest"}``). ``x-hints``: what people should know
before they approve a Call (``{"readOnly", "destructive", "idempotent", "openWorld"}``, each true or false). Any Tool
may have hints; those of an MCP server are what the server says of itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVER_TOOL: Final = "x-mcp"
HINTS: Final = "x-hints"

_WORDS: Final = {
    ("readOnly", True): "read-only", ("destructive", True): "destructive", ("idempotent", True): "idempotent",
    ("openWorld", True): "open world",
}  # fmt: skip


def is_server_tool(schema: Mapping[str, Any]) -> bool:
    """True for a Tool of an MCP server: its results are values, never Messages."""
    return isinstance(schema.get(SERVER_TOOL), dict)


def hint_words(schema: Mapping[str, Any]) -> list[str]:
    """The hints of a Tool that are true, as words; what is read-only is idempotent anyway."""
    hints = schema.get(HINTS)
    if not isinstance(hints, dict):
        return []
    return [
        word
        for (key, value), word in _WORDS.items()
        if hints.get(key) is value and not (key == "idempotent" and hints.get("readOnly") is True)
    ]
