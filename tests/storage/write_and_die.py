"""Writers that are killed, each before another call of the operating system: ``FOLDER TEXT``.

Each writes into a folder of its own, ``FOLDER/1``, ``FOLDER/2``, … Printed are the calls, one a line, until a writer
came to its end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from acts.payloads.stores import FolderStore, sha256

CALLS = ("open", "fsync", "rename", "mkdir", "link", "unlink")
KILLED = 9


def kill_before(number: int) -> None:
    """Nothing of Python runs after it: no ``finally``, no ``except``."""
    left = number

    def guard(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.write(1, f"{name}\n".encode())
                os._exit(KILLED)
            return function(*args, **kwargs)

        return call

    for name in CALLS:
        setattr(os, name, guard(name, getattr(os, name)))


def main() -> None:
    folder, data, number = Path(sys.argv[1]), sys.argv[2].encode(), 0
    while True:
        number += 1
        child = os.fork()
        if child == 0:
            store = FolderStore(folder / str(number))
            kill_before(number)
            store.prepare(creates=True)
            store.put("default", sha256(data), data)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != KILLED:
            sys.exit(code)


if __name__ == "__main__":
    main()
