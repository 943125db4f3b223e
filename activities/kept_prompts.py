"""Requests and answers of models, kept as files for people: one file for each request, in ``ACTS_KEEP_PROMPTS``.

    FOLDER/RUN/tick-0003_attempt-01_request-1_0a1b2c3d.json
    FOLDER/RUN/call-2:translate_….json                      (a latent Call; hashed where the id has other characters)

RUN is the workflow id, hashed where it is no name of a folder; the last part belongs to the run id. A file is written
whole or not at all, and only its owner may read it (0600). Prompts never reach a history or a log: a failure to write
is logged without them, and fails no request. Nothing is ever deleted here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, Final

from activities.providers.interface import ModelError, ModelRequest, ModelResponse, TokenCounts
from acts.language.values import Json

VARIABLE: Final = "ACTS_KEEP_PROMPTS"
_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:=@+-]{0,99}")
_PRIVATE_FOLDER: Final = 0o700
# What a folder of a long run may hold; a person reads the latest
MAX_SHOWN: Final = 50
_Answer = ModelResponse | ModelError
_log: Final = logging.getLogger(__name__)


def folder_of_prompts() -> Path | None:
    """The folder that ``ACTS_KEEP_PROMPTS`` names; None: nothing is kept."""
    text = os.environ.get(VARIABLE)
    return Path(text).expanduser() if text else None


def check_folder() -> None:
    """Check, when a worker starts, that the folder can be written.

    Raises:
        OSError: it cannot.
    """
    folder = folder_of_prompts()
    if folder is not None:
        folder.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


@dataclasses.dataclass(frozen=True)
class PromptPlace:
    """Where a request belongs: the run whose context it shows, the tick or the latent Call, the activity's attempt."""

    workflowId: str
    runId: str
    subject: str
    attempt: int

    @classmethod
    def of(cls, request: dict[str, Any], activity_id: str, attempt: int) -> PromptPlace:
        """The place of an activity's request."""
        is_planning = request["ask"] == "solution"
        subject = tick_subject(request["tick"]) if is_planning else f"call-{safe_name(activity_id)}"
        source = request["source"]
        return cls(source["workflowId"], source["runId"], subject, attempt)

    def new_path(self, folder: Path) -> Path:
        """The file of the next request."""
        chain = hashlib.sha256(self.runId.encode()).hexdigest()[:8]
        parent, number = folder / safe_name(self.workflowId), 1
        while (path := parent / f"{self.subject}_attempt-{self.attempt:02}_request-{number}_{chain}.json").exists():
            number += 1
        return path


def tick_subject(tick: int) -> str:
    """The subject of a tick."""
    return f"tick-{tick:04}"


def safe_name(text: str) -> str:
    """A text as the name of a file; one with other characters, or that is too long, by its hash."""
    return text if _SAFE.fullmatch(text) else f"sha256-{hashlib.sha256(text.encode()).hexdigest()[:40]}"


async def keep(
    place: PromptPlace, request: ModelRequest, model: str, answer: Awaitable[ModelResponse]
) -> ModelResponse:
    """The answer to a request; where ``ACTS_KEEP_PROMPTS`` is set, both are written to a file before it is returned."""
    folder = folder_of_prompts()
    if folder is None:
        return await answer
    try:
        response = await answer
    except ModelError as error:
        if not error.details.get("queued"):  # it was never sent
            await asyncio.to_thread(keep_prompt, folder, place, model, request, error)
        raise
    await asyncio.to_thread(keep_prompt, folder, place, model, request, response)
    return response


def keep_prompt(folder: Path, place: PromptPlace, model: str, request: ModelRequest, answer: _Answer) -> None:
    """Write one request and its answer, or the error that came instead. Fails for no state of the disk."""
    record = {**dataclasses.asdict(place), "at": time.time(), "model": model, **_sent(request), **_answered(answer)}
    try:
        path = place.new_path(folder)
        path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        _write_whole(path, json.dumps(record, ensure_ascii=False, indent=1).encode(errors="replace"))
    except OSError as error:
        _log.warning("%s: a prompt was not kept in %s: %s", VARIABLE, folder, error.strerror)


def _write_whole(path: Path, data: bytes) -> None:
    """A file appears whole: it is written under another name, which its owner alone may read."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")  # mode 0600
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _sent(request: ModelRequest) -> dict[str, Json]:
    turns = [{"role": t.role, "text": _join(t.blocks)} for t in request.all_turns]
    settings = {name: getattr(request, name) for name in ("temperature", "maxOutputTokens", "effort", "topic")}
    return {**settings, "system": _join(request.system), "turns": turns, "schema": request.schema}


def _join(blocks: Sequence[Any]) -> str:
    return "\n\n".join(block.text for block in blocks)


def _answered(answer: _Answer) -> dict[str, Json]:
    if isinstance(answer, ModelResponse):
        kept = {name: getattr(answer, name) for name in ("text", "form", "requestId", "cost")}
        return {"answer": kept | {"notes": list(answer.notes), "tokens": _counts(answer.tokens)}}
    error = {"code": answer.code, "message": answer.message}
    return {"answer": {"text": answer.text, "error": error, "cost": answer.cost, "tokens": _counts(answer.tokens)}}


def _counts(tokens: TokenCounts | None) -> Json:
    return None if tokens is None else dataclasses.asdict(tokens)


def read_kept(folder: Path, workflow_id: str, tick: int | None) -> list[dict[str, Any]]:
    """The kept requests of a run, the latest ``MAX_SHOWN`` in order of time; with ``tick`` those of a planner's tick.

    Empty where nothing is kept, or nothing that may be read.
    """
    pattern = f"{'*' if tick is None else tick_subject(tick)}_attempt-*.json"
    out: list[dict[str, Any]] = []
    for path in sorted((folder / safe_name(workflow_id)).glob(pattern)):
        with contextlib.suppress(OSError, ValueError):
            record = json.loads(path.read_bytes())
            out.append({**record, "file": str(path)})
    out.sort(key=lambda record: (record.get("at") or 0.0, record["file"]))
    return out[-MAX_SHOWN:]
