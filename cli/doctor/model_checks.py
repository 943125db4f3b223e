"""``acts doctor --ask MODEL``: one request of a few tokens to each model, as a worker makes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from activities.providers import select
from activities.providers.interface import ModelError, ModelRequest, ModelTurn, PromptBlock
from cli.console import clean
from cli.doctor.findings import Finding, fail, ok

_SECONDS: Final = 60.0  # a small answer takes about two; a reasoning model some ten
_SCHEMA: Final = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


async def check_asked(models: Sequence[str]) -> list[Finding]:
    """Whether each of the models answers."""
    return [await _ask(model) for model in models]


async def _ask(model: str) -> Finding:
    turn = ModelTurn("user", (PromptBlock('Answer with the object {"ok": true}.'),))
    request = ModelRequest(model, (PromptBlock("You answer a test of the connection."),), (turn,), _SCHEMA, "doctor")
    start = time.monotonic()
    try:
        async with asyncio.timeout(_SECONDS):
            await select.ask(model, request)
    except TimeoutError:
        return fail("models", f"{clean(model, 200)}: no answer within {_SECONDS:g} s")
    except ModelError as error:
        return fail("models", f"{clean(model, 200)}: {clean(error, 500)}", "docs/models.md")
    return ok("models", f"{clean(model, 200)} answers, in {time.monotonic() - start:.1f} s")
