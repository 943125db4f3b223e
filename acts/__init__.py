"""The engine under one importable name: durable plans of tool calls on Temporal.

``acts.Plugin`` adds it to a worker, ``acts.Client`` starts and follows runs. Each is imported when it is asked for: the
pure core (``acts.language`` and the rooms above it) needs no Temporal.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from acts.client.child_plans import run_plan
    from acts.client.client import Client, Run, SyncClient, SyncRun
    from acts.client.client_errors import ClientError
    from acts.client.run_reader import RunNotCompletedError, RunResult
    from acts.worker.plugin import Plugin

__all__ = [
    "Client", "ClientError", "Plugin", "Run", "RunNotCompletedError", "RunResult", "SyncClient", "SyncRun", "run_plan",
]  # fmt: skip
_PLACES: Final = {
    **dict.fromkeys(("Client", "Run", "SyncClient", "SyncRun"), "acts.client.client"),
    "ClientError": "acts.client.client_errors",
    **dict.fromkeys(("RunNotCompletedError", "RunResult"), "acts.client.run_reader"),
    "run_plan": "acts.client.child_plans",
    "Plugin": "acts.worker.plugin",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from temporalio import workflow

    # Workflow code, too, may ask for it first: ours needs no copy in the sandbox, and its files may be read
    with workflow.unsafe.imports_passed_through(), workflow.unsafe.sandbox_unrestricted():
        return getattr(import_module(_PLACES[name]), name)
