"""The engine under one importable name: durable plans of tool calls on Temporal.

``acts.tool`` makes a function a Tool, ``acts.activities(module)`` has those of a module for any worker, ``acts.Plugin``
adds the engine to a worker, and ``acts.Client`` starts and follows runs. All is imported when it is asked for: the pure
core (``acts.language`` and the rooms above it) needs no Temporal.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from acts.activities.registry import activities
    from acts.client.child_plans import run_plan
    from acts.client.client import Client, Run, SyncClient, SyncRun
    from acts.client.client_errors import ClientError
    from acts.client.run_reader import RunNotCompletedError, RunResult
    from acts.client.typed_tools import Call, Failure, tool
    from acts.worker.plugin import Plugin

__all__ = [
    "Call", "Client", "ClientError", "Failure", "Plugin", "Run", "RunNotCompletedError", "RunResult", "SyncClient",
    "SyncRun", "activities", "run_plan", "tool",
]  # fmt: skip
_PLACES: Final = {
    **dict.fromkeys(("Client", "Run", "SyncClient", "SyncRun"), "acts.client.client"),
    "ClientError": "acts.client.client_errors",
    **dict.fromkeys(("RunNotCompletedError", "RunResult"), "acts.client.run_reader"),
    "run_plan": "acts.client.child_plans",
    **dict.fromkeys(("Call", "Failure", "tool"), "acts.client.typed_tools"),
    "Plugin": "acts.worker.plugin",
}


def __getattr__(name: str) -> Any:
    if name == "activities":  # the room itself, which may be called
        return import_module("acts.activities")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from temporalio import workflow

    # Workflow code, too, may ask for it first: ours needs no copy in the sandbox, and its files may be read
    with workflow.unsafe.imports_passed_through(), workflow.unsafe.sandbox_unrestricted():
        return getattr(import_module(_PLACES[name]), name)
