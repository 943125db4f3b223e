"""Identities: what the ``_id`` of every Call derives from, and the token of a tree of runs.

Laws
----
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
_CALLS_HASH: Final = hashlib.sha1(_CALLS.bytes, usedforsecurity=False)
# The digit that has the two bits of the variant
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
# 128 bits: nobody guesses one
_TOKEN_CHARACTERS: Final = 32


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
    return _write_uuid5(f"{identity}/{escaped}/{call}")


def _write_uuid5(name: str) -> str:
    """``str(uuid.uuid5(_CALLS, name))``, in a fifth of the time: each Call needs one."""
    digest = _CALLS_HASH.copy()
    digest.update(name.encode())
    text = digest.hexdigest()
    variant = _VARIANTS[text[16]]
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"


def tree_token(identity: str, start: bytes) -> str:
    """The secret that runs of one tree prove themselves by; ``start`` is what the root was started with, as bytes.

    It is the same after a reset, and cannot be computed without the Request: who reads a run's history knows it,
    who may only signal the run does not.
    """
    return hmac.new(start, identity.encode(), hashlib.sha256).hexdigest()[:_TOKEN_CHARACTERS]
