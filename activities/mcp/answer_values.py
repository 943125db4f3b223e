"""What a tool of an MCP server answered, as the value of a Call or as its failure. Pure.

* ``structuredContent`` is the value, where there is any; else text alone is one string (blocks joined by newlines);
  anything else is the list of blocks in their order, images and resources with their data in base64.
* ``isError`` is a failure with the text of the answer; the blocks are its details.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from acts.language.errors import truncate

# Characters of the text of a failure; the same bound as for any other Activity
MAX_ERROR: Final = 10_000
# Keys of a block that a plan can use; annotations and _meta are for user interfaces
_KEPT: Final = ("type", "text", "data", "mimeType", "uri", "name", "title", "description", "size")


@dataclass(frozen=True)
class ToolFailure:
    """The tool says that it failed: its text, and its answer as a value."""

    message: str
    details: Any


def read_answer(answer: Mapping[str, Any]) -> Any | ToolFailure:
    """The value of an answer (JSON as ``tools/call`` has it), or a ToolFailure."""
    content = answer.get("content")
    blocks = [_read_block(block) for block in content or () if isinstance(block, dict)]
    value = answer["structuredContent"] if "structuredContent" in answer else _value_of(blocks)
    if answer.get("isError") is not True:
        return value
    text = "\n".join(b["text"] for b in blocks if b.get("type") == "text" and isinstance(b.get("text"), str))
    message = truncate(text, MAX_ERROR) if text.strip() else "the tool failed and says no more"
    return ToolFailure(message, value)


def _value_of(blocks: list[dict[str, Any]]) -> Any:
    if all(block.get("type") == "text" for block in blocks):
        return "\n".join(str(block.get("text", "")) for block in blocks)
    return blocks


def _read_block(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block; the content of an embedded resource is beside its type: ``{type, uri, mimeType, text | data}``."""
    resource = block.get("resource")
    if block.get("type") == "resource" and isinstance(resource, dict):
        data = {"data": resource["blob"]} if "blob" in resource else {}
        return {"type": "resource", **{k: resource[k] for k in _KEPT if k in resource}, **data}
    return {key: block[key] for key in _KEPT if key in block}
