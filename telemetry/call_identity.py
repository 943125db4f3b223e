"""Who runs: the Call behind an Activity, for log lines and spans.

Laws of this file: no parameter of a Call and no result leaves it, only names and ids. It reads what the SDK knows of
an Activity and the first argument, which is the Call (or the request of the model Activity).
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from acts.language.wire import INSTANCE, MODEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from temporalio.activity import Info

# The model Activity of a tick asks for no Tool
PLANNER: Final = "planner"


@dataclass(frozen=True, slots=True)
class CallIdentity:
    """The ids of a Call that runs. ``call`` is its key in the plan, ``run`` the workflow id; None: unknown."""

    run: str | None
    run_id: str | None
    call: str | None
    tool: str | None
    instance: str | None
    attempt: int
    activity: str

    def to_fields(self) -> dict[str, str | int]:
        """What is known, by the name it has in a log line."""
        fields: dict[str, str | int | None] = {
            "run": self.run, "runId": self.run_id, "call": self.call, "instance": self.instance, "tool": self.tool,
        }  # fmt: skip
        known: dict[str, str | int] = {name: value for name, value in fields.items() if value is not None}
        return known | ({"attempt": self.attempt} if self.attempt > 1 else {})


current_call: Final[ContextVar[CallIdentity | None]] = ContextVar("acts_call", default=None)


def identify(info: Info, args: Sequence[Any] = ()) -> CallIdentity:
    """The Call of an Activity."""
    first = args[0] if args and isinstance(args[0], dict) else {}
    if info.activity_type == MODEL:
        tool: str | None = _name(first.get("tool")) or PLANNER
        call = first.get("call")
        instance = _name(call.get("_instance")) if isinstance(call, dict) else None
    else:
        tool, instance = _name(first.get("_tool")), _name(first.get("_instance"))
    if instance is None and info.workflow_type == INSTANCE and info.workflow_id:
        instance = info.workflow_id.rpartition("/")[2]
    return CallIdentity(
        run=info.workflow_id, run_id=info.workflow_run_id, call=info.activity_id if tool else None, tool=tool,
        instance=instance, attempt=info.attempt, activity=info.activity_type,
    )  # fmt: skip


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
