"""Loaded by the engine's worker of crash tests: a worker that died during a request, or with a file, is missed after
5 s, not after 15. The rhythm of the heartbeats stays a fifth of that.
"""

from __future__ import annotations

from typing import Final

import activities.heartbeat
from workflows.runtime import model_calls, set_activities, startup

TIMEOUT_SECONDS: Final = 5.0

for module, name, seconds in (
    (activities.heartbeat, "HEARTBEAT_SECONDS", TIMEOUT_SECONDS / 5),
    (model_calls, "HEARTBEAT_SECONDS", TIMEOUT_SECONDS),
    (set_activities, "HEARTBEAT_SECONDS", TIMEOUT_SECONDS),
    (startup, "LOAD_HEARTBEAT_SECONDS", TIMEOUT_SECONDS),
):
    assert hasattr(module, name)
    setattr(module, name, seconds)
