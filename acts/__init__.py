"""The engine under one importable name: durable plans of tool calls on Temporal.

``acts.Plugin`` adds it to a worker; ``acts.tool`` makes a function a Tool, and ``acts.activities(module)`` has those of
a module for any worker. All is imported when it is asked for: the pure core (``acts.language`` and the rooms above it)
needs no Temporal.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from acts.activities.registry import activities
    from acts.client.typed_tools import Call, Failure, tool
    from acts.worker.plugin import Plugin

__all__ = ["Call", "Failure", "Plugin", "activities", "tool"]

_HOMES: Final = {
    **dict.fromkeys(("Call", "Failure", "tool"), "acts.client.typed_tools"), "Plugin": "acts.worker.plugin",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "activities":  # the room itself, which may be called
        return import_module("acts.activities")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
