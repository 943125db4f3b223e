"""``acts.toml``: the settings of one folder, for every command that is started in it.

``[environment]`` holds variables ``ACTS_*``. One that is set in the environment comes first; the worker of ``acts dev``
inherits them all. ``python -m worker`` reads the environment alone.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from cli.command_errors import command_error

FILE: Final = "acts.toml"
_TABLE: Final = "environment"
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
    table = content.get(_TABLE, {})
    unknown = [key for key in content if key != _TABLE]
    if unknown or not isinstance(table, dict):
        wrong = unknown[0] if unknown else _TABLE
        hint = f'[{_TABLE}]\nACTS_ACTIVITIES = "my_tools"'
        raise command_error(f'"{wrong}" is not a table of settings', where=FILE, hint=hint)
    for name, value in table.items():
        if not _VARIABLE.fullmatch(name) or not isinstance(value, str):
            text = f"{name} is no variable ACTS_… with a string"
            raise command_error(text, where=FILE, hint="docs/deploy.md lists the variables")
        os.environ.setdefault(name, value)
