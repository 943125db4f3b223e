"""Why a Call of an MCP server's tool has no answer."""

from __future__ import annotations


class McpCallError(Exception):
    """``code`` is one of ``wire.py``; ``is_final``: another attempt would meet the same."""

    def __init__(self, code: str, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.is_final = code, message, is_final
