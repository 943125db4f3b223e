"""The command ``acts``: the groups of its commands, in the order of its help.

Laws of this room: `entries` has commands and their help only; what a command does is imported when it runs, so that
``acts --help`` needs neither pydantic nor Temporal. A command, or the coroutine that it returns, returns an exit code
or raises a ``CommandError``, which `program.py` prints.
"""

from __future__ import annotations

# isort: off
from cli.entries import start  # noqa: F401 - each registers its commands
from cli.entries import testing  # noqa: F401
from cli.entries import read  # noqa: F401
from cli.entries import plans  # noqa: F401
from cli.entries import steering  # noqa: F401
from cli.entries import repair  # noqa: F401
from cli.entries import namespaces  # noqa: F401
from cli.entries import operations  # noqa: F401
from cli.entries import schedules  # noqa: F401
from cli.entries import stored  # noqa: F401
from cli.entries import security  # noqa: F401
from cli.program import app
# isort: on

__all__ = ["app"]

if __name__ == "__main__":
    app()
