"""The approvers of this worker, from the file that ``ACTS_APPROVERS`` names (its form: ``acts/tree/approvers.py``).

A root asks once, when it starts, and its history keeps the answer: those who are added or removed later decide, or no
longer decide, about later runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from acts.language.strict_json import read_json
from acts.language.wire import APPROVERS
from acts.tree.approvers import Approver, ApproversError, read_approvers

VARIABLE: Final = "ACTS_APPROVERS"
_MAX_BYTES: Final = 1024 * 1024


class ApproverFileError(Exception):
    """``ACTS_APPROVERS`` names no usable file."""


def approvers_from_environment() -> tuple[Approver, ...]:
    """The approvers; none where the variable is not set.

    Raises:
        ApproverFileError: the file cannot be used.
    """
    setting = os.environ.get(VARIABLE)
    if not setting:
        return ()
    try:
        with Path(setting).open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ApproverFileError(f"{VARIABLE} names {setting}, which has more than {_MAX_BYTES:,} bytes")
        return read_approvers(read_json(data, unique_keys=True))
    except ApproversError as error:
        raise ApproverFileError(f"{VARIABLE} names {setting}: {error}") from None
    except (OSError, ValueError) as error:
        raise ApproverFileError(f"{VARIABLE} names {setting}, which is not a readable JSON file: {error}") from None


@activity.defn(name=APPROVERS)
async def look_up_approvers() -> list[dict[str, Any]]:
    """The approvers, as records; retried until the file can be read."""
    try:
        return [approver.to_json() for approver in approvers_from_environment()]
    except ApproverFileError as error:
        raise ApplicationError(str(error), type="ApproversUnreadable") from None
