"""placeholder until the planner room is merged"""

from __future__ import annotations

from typing import Any

from acts.language.config import Config


def request_size(config: Config, price: tuple[float, float] | None, prompt_bytes: int) -> Any:
    raise NotImplementedError
