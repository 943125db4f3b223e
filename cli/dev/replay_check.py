"""Replays a history with the workflows of the worker that is installed here.

Laws of this file: it imports the worker, which takes a second; a command imports it when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from temporalio import workflow

from worker import WORKFLOWS
from worker_runtime.replays import replay

if TYPE_CHECKING:
    from temporalio.client import WorkflowHistory
    from temporalio.converter import DataConverter

WORKFLOW_NAMES: Final[tuple[str, ...]] = tuple(
    str(workflow._Definition.must_from_class(type_).name)  # noqa: SLF001 - the SDK has no public way to a type's name
    for type_ in WORKFLOWS
)


async def replay_failure(history: WorkflowHistory, converter: DataConverter) -> str | None:
    """Why the history does not replay; None if it does."""
    return (await replay(history, WORKFLOWS, converter)).failure
