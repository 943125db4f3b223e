"""The activity ``acts.tools``: everything that one worker serves, for people who ask before they write a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from temporalio import activity

from acts.language.strict_json import json_size
from acts.language.wire import LIST_TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable

    from activities.registry import Registry
    from activities.worker_versions import WorkerVersions

# Bytes of all schemas in one answer, half of what a payload may hold; beyond, they are left out, and null in the answer
MAX_BYTES: Final = 1024 * 1024


def tool_list(registry: Registry, versions: WorkerVersions) -> Callable[..., Any]:
    """The activity: ``{} → {version, worker, tools: {name: schema | null}, activities: [names]}``."""

    @activity.defn(name=LIST_TOOLS)
    async def list_tools(_request: dict[str, Any]) -> dict[str, Any]:
        tools: dict[str, Any] = {}
        room = MAX_BYTES
        for name, schema in sorted({**registry.servers.tools, **registry.tools}.items()):
            room -= json_size(schema)
            tools[name] = schema if room >= 0 else None
        return {
            "version": versions.version, "worker": versions.identity, "tools": tools,
            "activities": sorted(registry.names),
        }  # fmt: skip

    return list_tools
