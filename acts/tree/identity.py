"""Names of runs and Calls: the workflow ids of children, what every ``_id`` derives from, the token of a tree.

Laws
----
* The workflow id of a child is ``<parent>/<name>``, so that a person can type it. One that is too long ends in a hash
  of itself: it is still unique, but no longer readable.
* A run's identity is a text that a reset, a retry and continue-as-new keep, and that a new start, by a person,
  a schedule or a cron, does not. The root makes its own; every other run gets its identity in its input record,
  because its run id changes when a run above it is reset.
* A delegate's identity is the ``_id`` of the Call that it answers; the plan of an agent's tick has one by its
  name. The runs that walk instances keep the identity of the plan that they walk a part of, so an ``_id`` does
  not depend on how instances are grouped into runs.
* Everything here is a pure function of its arguments.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from typing import Final

_CALLS: Final = uuid.uuid5(uuid.NAMESPACE_URL, "urn:acts:call")
_RUNS: Final = uuid.uuid5(uuid.NAMESPACE_URL, "urn:acts:run")
# 128 bits: nobody guesses one
_TOKEN_CHARACTERS: Final = 32
# What the server allows (limit.maxIDLength): a command with a longer id fails its workflow task on every retry
SERVER_ID_BYTES: Final = 1_000
# Ours are shorter: the rest is room for a suffix
MAX_ID_BYTES: Final = 900
_HASH_CHARACTERS: Final = 32


def root_identity(workflow_id: str, origin: str) -> str:
    """The identity of a root; ``origin`` is the id of the run that a person, a schedule or a cron started.

    Run ids are unique on their own. The namespace is no part of it: a replay elsewhere must come to the same.
    """
    return f"{workflow_id}/{origin}"


def part_identity(identity: str, name: str) -> str:
    """The identity of the run that does a part of another's work: the plan of a tick, by its name."""
    return str(uuid.uuid5(_RUNS, f"{identity}/{name}"))


def call_identity(identity: str, instance: str | None, call: str) -> str:
    """The ``_id`` of a Call, its idempotency key: a UUID, the same for every attempt of every run of it.

    ``identity`` is that of the run whose plan has the Call, ``call`` the Call's id (``2:refund``).
    """
    escaped = (instance or "").replace("%", "%25").replace("/", "%2F")  # an instance may be named like a path
    return str(uuid.uuid5(_CALLS, f"{identity}/{escaped}/{call}"))


def tree_token(identity: str, start: bytes) -> str:
    """The secret that runs of one tree prove themselves by; ``start`` is what the root was started with, as bytes.

    It is the same after a reset, and cannot be computed without the Request: who reads a run's history knows it,
    who may only signal the run does not.
    """
    return hmac.new(start, identity.encode(), hashlib.sha256).hexdigest()[:_TOKEN_CHARACTERS]


# -- workflow ids --------------------------------------------------------------------


def child_id(parent: str, name: str) -> str:
    """The workflow id of a child: ``<parent>/<name>``.

    The name is a Call's key (``2:shorten``), an instance (of several, the first), or ``plan-<tick>``.
    """
    return short_id(f"{parent}/{name}")


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
