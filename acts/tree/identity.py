"""Names of runs and Calls: the workflow ids of children, what every ``_id`` derives from, the token of a tree.

* The workflow id of a child is ``<parent>/<name>``, so that a person can type it. One that is too long ends in a hash
  of itself: it is still unique, but no longer readable.
* A run's identity is a text that a reset, a retry and continue-as-new keep, and that a new start, by a person,
  a schedule or a cron, does not. The root makes its own; every other run gets its identity in its input record,
  because its run id changes when a run above it is reset.
* A delegate's identity is the ``_id`` of the Call that it answers; the plan of an agent's tick has one by its
  name. The runs that walk instances keep the identity of the plan that they walk a part of, so an ``_id`` does
  not depend on how instances are grouped into runs.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from typing import Final

from acts.language.config import Config

_CALLS: Final = uuid.uuid5(uuid.NAMESPACE_URL, "urn:acts:call")
_RUNS: Final = uuid.uuid5(uuid.NAMESPACE_URL, "urn:acts:run")
# What the server allows (limit.maxIDLength): a command with a longer id fails its workflow task on every retry
SERVER_ID_BYTES: Final = 1_000
# Ours are shorter: the rest is room for a suffix
MAX_ID_BYTES: Final = 900
_HASH_CHARACTERS: Final = 32
MAX_FAIRNESS_KEY: Final = 64


def root_identity(workflow_id: str, origin: str) -> str:
    """The identity of a root; ``origin`` is the id of the run that a person, a schedule or a cron started."""
    return f"{workflow_id}/{origin}"  # without the namespace: a replay elsewhere must come to the same


def part_identity(identity: str, name: str) -> str:
    """The identity of the run that does a part of another's work: the plan of a tick, by its name."""
    return str(uuid.uuid5(_RUNS, f"{identity}/{name}"))


def call_identity(identity: str, instance: str | None, call: str) -> str:
    """The ``_id`` of a Call by its id and the identity of its run: the same UUID for every attempt of every run."""
    escaped = (instance or "").replace("%", "%25").replace("/", "%2F")  # an instance may be named like a path
    return str(uuid.uuid5(_CALLS, f"{identity}/{escaped}/{call}"))


def undo_identity(call: str) -> str:
    """The ``_id`` of the Call that undoes the one of this ``_id``: the same whoever undoes it, and however often."""
    return str(uuid.uuid5(_CALLS, f"undo/{call}"))


def tree_token(identity: str, start: bytes) -> str:
    """The secret that runs of one tree prove themselves by; ``start`` is what the root was started with.

    It is the same after a reset. Who reads a run's history knows it, who may only signal the run does not.
    """
    return hmac.new(start, identity.encode(), hashlib.sha256).hexdigest()[:32]  # 128 bits: nobody guesses one


def child_id(parent: str, name: str) -> str:
    """The workflow id of a child; its name is a Call's key, an instance (of several, the first), or ``plan-<tick>``."""
    return short_id(f"{parent}/{name}")


def short_id(text: str) -> str:
    data = text.encode()
    if len(data) <= MAX_ID_BYTES:
        return text
    start = data[: MAX_ID_BYTES - _HASH_CHARACTERS - 1].decode(errors="ignore")
    return f"{start}-{hashlib.sha256(data).hexdigest()[:_HASH_CHARACTERS]}"


def retry_id(workflow_id: str, run_id: str) -> str:
    """The workflow id of the retry of a run: it has one, however often it is retried, and is found by it."""
    return f"{workflow_id[:200]}-retry-{hashlib.sha256(f'{workflow_id}/{run_id}'.encode()).hexdigest()[:8]}"


def spare_child_id(id_: str, run_id: str) -> str:
    return short_id(f"{id_}~{run_id[:8]}")


def fairness_key(config: Config, workflow_id: str) -> str:
    """With whom a root shares its turns: all of the same value of a tag, or nobody. 64 bytes, as the server takes."""
    text = workflow_id if config.fairness is None else f"{config.fairness}={config.tags[config.fairness]}"
    return text if len(text.encode()) <= MAX_FAIRNESS_KEY else hashlib.sha256(text.encode()).hexdigest()


def is_workflow_id(text: str) -> bool:
    try:
        return 0 < len(text.encode()) <= SERVER_ID_BYTES
    except UnicodeEncodeError:  # a lone surrogate
        return False
