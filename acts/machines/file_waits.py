"""Which files cannot be read or written now, by the run whose activity waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from acts.language.errors import truncate

if TYPE_CHECKING:
    from acts.tree.set_records import FileWait

# Files of which status tells
MAX_WAITS: Final = 3
# Characters of the reason of each
_MAX_REASON: Final = 200


class FileWaits:
    """Of a run over a set and its Batches."""

    def __init__(self) -> None:
        self._waits: dict[str, FileWait] = {}

    def record(self, record: FileWait) -> None:
        """A file is waited for, or is so no more."""
        self._waits.pop(record.workflowId, None)
        if record.reason:
            self._waits[record.workflowId] = record

    def forget(self, workflow_id: str) -> None:
        """This run waits for none."""
        self._waits.pop(workflow_id, None)

    def forget_batch(self, name: str) -> None:
        """The Batch of this name has ended; its workflow id may have an end of its own after a ``~``."""
        for id_ in [id_ for id_ in self._waits if id_.rpartition("/")[2].partition("~")[0] == name]:
            del self._waits[id_]

    def notes(self) -> list[str]:
        """What people should know."""
        return [
            f"waiting for a file: {truncate(wait.reason, _MAX_REASON)}, next try at {wait.nextTry[11:19]} UTC"
            for wait in list(self._waits.values())[:MAX_WAITS]
        ]
