"""Ids of workflows below a run, built in one place. Temporal's limit for ids is 1,000 bytes."""

from __future__ import annotations

import hashlib
from typing import Final

# The rest is room for suffixes
MAX_ID_BYTES: Final = 900


def short_id(text: str) -> str:
    """An id that Temporal accepts: one of over 900 bytes ends in a hash of itself."""
    data = text.encode()
    if len(data) <= MAX_ID_BYTES:
        return text
    return data[: MAX_ID_BYTES - 33].decode(errors="ignore") + "-" + hashlib.sha256(data).hexdigest()[:32]


def child_id(parent: str, name: str) -> str:
    """The id of a child: ``<parent>/<name>``."""
    return short_id(f"{parent}/{name}")


def spare_child_id(parent: str, name: str, run_id: str) -> str:
    """The id that a child gets where its first one is in use: with the start of the parent's run id behind it."""
    return short_id(f"{child_id(parent, name)}~{run_id[:8]}")


def plan_child_id(parent: str, tick: int) -> str:
    """The id of the run that walks the plan of a tick."""
    return child_id(parent, f"plan-{tick}")
