"""Workflow ids of the runs below a run: one builder for each kind of child.

Laws
----
* An id is ``<parent>/<name>``, so that a person can type it.
* An id that is too long ends in a hash of itself: it is still unique, but no longer readable.
* Nothing here asks whether such a run exists.
"""

from __future__ import annotations

import hashlib
from typing import Final

# What the server allows (limit.maxIDLength): a command with a longer id fails its workflow task on every retry
SERVER_ID_BYTES: Final = 1_000
# Ours are shorter: the rest is room for a suffix
MAX_ID_BYTES: Final = 900
_HASH_CHARACTERS: Final = 32


def plan_child_id(parent: str, tick: int) -> str:
    """The id of the run that executes the plan of an agent's tick: ``<parent>/plan-<tick>``."""
    return short_id(f"{parent}/plan-{tick}")


def call_child_id(parent: str, key: str) -> str:
    """The id of the run behind a Call: ``<parent>/<key>``; ``key`` is unique within the plan, like ``2:shorten``."""
    return short_id(f"{parent}/{key}")


def instance_child_id(parent: str, instance: str) -> str:
    """The id of the run that executes a batch's instance, or several of which ``instance`` is the first."""
    return short_id(f"{parent}/{instance}")


def short_id(text: str) -> str:
    """An id of at most ``MAX_ID_BYTES`` bytes of UTF-8."""
    data = text.encode()
    if len(data) <= MAX_ID_BYTES:
        return text
    start = data[: MAX_ID_BYTES - _HASH_CHARACTERS - 1].decode(errors="ignore")
    return f"{start}-{hashlib.sha256(data).hexdigest()[:_HASH_CHARACTERS]}"


def spare_child_id(id_: str, run_id: str) -> str:
    """The id that a child gets where ``id_`` is in use: with the start of its parent's run id behind it."""
    return short_id(f"{id_}~{run_id[:8]}")


def is_workflow_id(text: str) -> bool:
    """True for a text that the server takes as a workflow id."""
    try:
        return 0 < len(text.encode()) <= SERVER_ID_BYTES
    except UnicodeEncodeError:  # a lone surrogate
        return False
