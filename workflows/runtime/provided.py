"""Messages that people provide to a run: what they hold, and for which run below they are."""

from __future__ import annotations

from typing import Any

from acts.language.errors import InvalidRequest, Problem
from acts.language.messages import Data, SetData
from acts.language.request_reader import parse_message


def split_target(value: Any) -> tuple[str | None, Any]:
    """The run that a provided message names, and the message without that; its ``instance`` as ``_instance``.

    Only beside a payload in wrapped form: an inline payload may have fields of these names.
    """
    is_wrapped = isinstance(value, dict) and value.get("type") in value
    if not is_wrapped or not {"workflowId", "instance"} & set(value):
        return None, value
    message = {k: v for k, v in value.items() if k not in ("workflowId", "instance")}
    if isinstance(value.get("instance"), str):
        message["_instance"] = value["instance"]
    workflow_id = value.get("workflowId")
    return (workflow_id if isinstance(workflow_id, str) else None), message


def data_message(value: Any) -> Data:
    """A message that may be provided from outside.

    Raises:
        InvalidRequest: it is no data-like Message.
    """
    message = parse_message(value)
    if not isinstance(message, Data) or isinstance(message, SetData):
        text = f"a {message.type} message cannot be provided: only data, input, state"
        raise InvalidRequest([Problem("invalidMessage", text)])
    return message
