"""``acts init``: a folder with a plan, its tools and its tests, which runs at once.

Laws of this file: nothing that exists is overwritten, and either all files are written or none.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from cli.command_errors import EXIT_DONE, command_error
from cli.console import clean, console, print_json

STARTER: Final = Path(__file__).resolve().parent.parent / "starter"
# File of the starter -> its name in the folder
FILES: Final = {
    "plan.yaml": "plan.yaml", "order_tools.py": "order_tools.py", "plan.test.yaml": "plan.test.yaml",
    "acts.toml": "acts.toml", "README.md": "README.md", "gitignore": ".gitignore",
}  # fmt: skip


def init(folder: Path, *, as_json: bool) -> int:
    """Write the files.

    Raises:
        CommandError: one of them exists, or the folder cannot be written.
    """
    existing = [name for name in FILES.values() if (folder / name).exists()]
    if existing:
        text = (
            f"{', '.join(existing)} {'is' if len(existing) == 1 else 'are'} already there, and nothing is overwritten"
        )
        raise command_error(text, where=clean(folder), hint="name another folder: acts init my-plans")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, name in FILES.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write((STARTER / source).read_text("utf-8"))
    except OSError as error:
        raise command_error(f"it cannot be written: {error.strerror or error}", where=clean(folder)) from None
    if as_json:
        print_json({"folder": str(folder), "files": [*FILES.values()]})
        return EXIT_DONE
    screen = console()
    screen.print(f"{clean(folder)}: {', '.join(FILES.values())}", style="green")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    for command, effect in (("acts test", "run its tests"), ("acts dev", "start a server and a worker"),
                            ("acts run plan.yaml", "run it, in another terminal")):  # fmt: skip
        screen.print(f"  {(enter + command).ljust(len(enter) + 20)}{effect}")
    return EXIT_DONE
