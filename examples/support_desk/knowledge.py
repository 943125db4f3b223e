"""The knowledge base of the desk: an MCP server over standard streams, which the worker starts (mcp.json)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

_ARTICLES: Final = Path(__file__).with_name("knowledge.md").read_text("utf-8").split("\n## ")[1:]
server: Final = MCPServer("knowledge")


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def search(words: str) -> str:
    """Returns the article of the knowledge base that has most of these words."""
    wanted = set(words.lower().split())
    return max(_ARTICLES, key=lambda article: len(wanted & set(article.lower().split())))


if __name__ == "__main__":
    server.run()
