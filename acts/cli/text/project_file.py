"""``acts.toml``: the settings of one folder, for every command that is started in it.

``[environment]`` holds variables ``ACTS_*``. One that is set in the environment comes first; the worker of ``acts dev``
inherits them all. ``python -m acts.worker`` reads the environment alone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from acts.cli.console import command_error

FILE: Final = "acts.toml"
_VARIABLE: Final = re.compile(r"ACTS_[A-Z0-9_]+")


def load_project_file() -> None:
    """Set the variables of ``acts.toml`` in the working directory, if it is there.

    Raises:
        CommandError: it cannot be read, or sets something else.
    """
    path = Path(FILE)
    if not path.is_file():
        return
    import tomllib

    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise command_error(f"it is not readable TOML: {error}", where=FILE) from None
    variables = content.pop("environment", {})
    wrong = [*content] if isinstance(variables, dict) else ["environment"]
    wrong = wrong or [n for n, v in variables.items() if not _VARIABLE.fullmatch(n) or not isinstance(v, str)]
    if wrong:
        hint = '[environment]\nACTS_ACTIVITIES = "my_tools"; docs/deploy.md lists the variables'
        raise command_error(f"{wrong[0]} is no variable ACTS_… with a string in [environment]", where=FILE, hint=hint)
    for name, value in variables.items():
        os.environ.setdefault(name, value)
