"""The engine under one importable name: durable plans of tool calls on Temporal.

``acts.Plugin`` adds it to a worker. It is imported when it is asked for: the pure core (``acts.language`` and the rooms
above it) needs no Temporal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acts.worker.plugin import Plugin

__all__ = ["Plugin"]


def __getattr__(name: str) -> Any:
    if name != "Plugin":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from acts.worker.plugin import Plugin

    return Plugin
