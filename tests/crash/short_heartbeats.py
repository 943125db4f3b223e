"""Loaded by the engine's worker of crash tests: a worker that died during a request, or with a file, is missed after
5 s, not after 15. The rhythm of the heartbeats stays a fifth of that.
"""

from __future__ import annotations

from typing import Final

from acts.activities import engine_activities
from acts.language import tools
from acts.workflows import engine_calls

TIMEOUT_SECONDS: Final = 5.0

for module, name, seconds in (
    (engine_activities, "HEARTBEAT_SECONDS", TIMEOUT_SECONDS / 5),
    (engine_calls, "HEARTBEAT_SECONDS", TIMEOUT_SECONDS),
    (tools, "HEARTBEAT_SECONDS", TIMEOUT_SECONDS / 5),
):
    assert hasattr(module, name)
    setattr(module, name, seconds)
