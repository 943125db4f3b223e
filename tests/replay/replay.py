"""Replays histories: ``python -m tests.replay.replay FILE…`` prints ``{file: error or null}``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from temporalio.client import WorkflowHistory

from acts.worker.plugin import build_replayer


async def replay(files: list[Path]) -> dict[str, str | None]:
    replayer = build_replayer()
    out = {}
    for file in files:
        text = file.read_text("utf-8")
        begun = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
        history = WorkflowHistory.from_json(begun["workflowId"], text)  # children are called after their parent
        found = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        out[str(file)] = None if found.replay_failure is None else str(found.replay_failure)
    return out


if __name__ == "__main__":
    # The SDK's threads may end the process with an abort while the interpreter shuts down: leave without that
    sys.stdout.write("\n" + json.dumps(asyncio.run(replay([Path(p) for p in sys.argv[1:]]))))
    sys.stdout.flush()
    os._exit(0)
