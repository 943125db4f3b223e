"""What the engine runs as Activities. ``acts.activities(module)`` calls this room: ``registry.activities``."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    def __call__(self, *modules: Any) -> list[Any]:
        from acts.activities.registry import activities

        return activities(*modules)


sys.modules[__name__].__class__ = _Room
