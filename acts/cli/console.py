"""What the commands share: how one is registered, its options, what it prints, and how it fails.

- Results go to stdout, everything else to stderr.
- Text from outside (tool names, messages, results) is only text: what nobody would see in it is printed as an escape,
  in JSON too, and markup in it is not interpreted.
- Colors only on a terminal (rich decides by the stream, NO_COLOR and TERM); printing never fails: a character that the
  terminal's encoding lacks is printed as its code.
- An error of a person, a server or an environment is a ``CommandError``, never a traceback. Every function of this room
  may raise one, so the docstrings do not repeat it.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import io
import json
import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from acts.client.client_errors import ClientError, explained
from acts.language.errors import clean as clean  # noqa: PLC0414 - commands have it from here
from acts.language.errors import shell as shell  # noqa: PLC0414 - as above
from acts.language.errors import visible

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1  # the run ended otherwise than completed: failed, partial, rejected, cancelled, …
EXIT_WRONG_INPUT: Final = 2  # typer exits with it too, for a wrong option
EXIT_NO_SERVER: Final = 3
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells report it
PROJECT_FILE: Final = "acts.toml"

_STYLES: Final = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}


@dataclass(frozen=True)
class MessageBlock:
    """One message: a sentence, where it applies, and ``facts``, labelled lines below it."""

    head: str
    where: str = ""
    facts: Sequence[tuple[str, str]] = ()
    severity: str = "error"

    def text(self) -> str:
        facts = "".join(f"\n  {label}: {fact}" for label, fact in self.facts)
        return f"{self.where}: {self.head}{facts}" if self.where else f"{self.head}{facts}"


class CommandError(Exception):
    """The command cannot do what was requested. ``blocks`` are printed, ``code`` is the exit code."""

    def __init__(self, *blocks: MessageBlock, code: int = EXIT_WRONG_INPUT) -> None:
        super().__init__("; ".join(b.head for b in blocks))
        self.blocks = blocks
        self.code = code


def message(head: str, *, where: str = "", hint: str = "", severity: str = "error") -> MessageBlock:
    return MessageBlock(head, where, (("hint", hint),) if hint else (), severity)


def command_error(head: str, *, where: str = "", hint: str = "", code: int = EXIT_WRONG_INPUT) -> CommandError:
    return CommandError(message(head, where=where, hint=hint), code=code)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; an error of the server, or of the external storage, becomes a ``CommandError``."""
    try:
        with explained():
            return asyncio.run(work)
    except ClientError as error:
        raise as_command_error(error) from None


def as_command_error(error: ClientError) -> CommandError:
    code = EXIT_NO_SERVER if error.is_unavailable else EXIT_WRONG_INPUT
    return command_error(error.head, where=error.where, hint=error.hint, code=code)


def console(*, stderr: bool = False, wrap: bool = False) -> Console:
    """A console without markup and highlighting. ``wrap`` breaks long lines here instead of in the terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else 120  # of a file or pipe, which has none of its own
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=not wrap, width=width)


def is_one_place() -> bool:
    """True where both outputs go to the same terminal, file or pipe: what one shows need not be on the other."""
    try:
        return os.path.samestat(os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno()))
    except (OSError, ValueError):  # one of them is no file
        return False


def print_rows(table: Any) -> None:
    """Print a table with one line per thing: a pipe has no edge, and `grep` wants whole lines."""
    screen = console()
    screen.width = screen.width if screen.is_terminal else 1_000
    screen.print(table)


def print_err(text: str = "", style: str = "") -> None:
    console(stderr=True).print(text, style=style or None)


def print_json(value: Any) -> int:
    """Print a value as JSON on stdout; the exit code of a command that has done so."""
    utf8 = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "") == "utf8"
    print(visible(json.dumps(value, indent=2, ensure_ascii=not utf8), "\n"))
    return EXIT_DONE


def print_message(head: str, *, where: str = "", hint: str = "", severity: str = "error") -> None:
    print_blocks([message(head, where=where, hint=hint, severity=severity)])


def print_blocks(blocks: Iterable[MessageBlock]) -> None:
    from rich.text import Text

    for block in blocks:
        where = f"{clean(block.where)}: " if block.where else ""
        head = "\n  ".join(clean_lines(block.head))
        text = Text.assemble((f"{block.severity}: ", _STYLES.get(block.severity, "")), (where, "bold"), head)
        width = max((len(label) for label, _ in block.facts), default=0)
        for label, fact in block.facts:
            text.append(f"\n  {label.ljust(width)}  ", "dim")
            text.append(f"\n  {' ' * width}  ".join(clean_lines(fact)))
        console(stderr=True).print(text)


def clean_lines(text: str) -> list[str]:
    return [clean(line) for line in text.replace("\r\n", "\n").removesuffix("\n").split("\n")]


def count_text(number: int, noun: str) -> str:
    """``1 call``, ``2,000 calls``"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def list_names(names: Sequence[Any], limit: int) -> str:
    """``a, b, … (200 in all)``"""
    more = f", … ({len(names)} in all)" if len(names) > limit else ""
    return ", ".join(clean(name, 80) for name in names[:limit]) + more if names else "none"


def option(names: str, text: str, **more: Any) -> Any:
    """An option of the command line, such as ``--input,-i KEY=JSON``, and its help."""
    words, _, metavar = names.partition(" ")
    return typer.Option(*words.split(","), metavar=metavar or None, help=text, **more)


def argument(metavar: str, text: str) -> Any:
    return typer.Argument(metavar=metavar, help=text, show_default=False)


File = Annotated[str, argument("FILE", "A request in JSON or YAML; - is standard input.")]
FileOrPlan = Annotated[str, argument("FILE|PLAN", "A request in JSON or YAML (-: standard input), or a plan's name.")]
FileOrRun = Annotated[str, argument("FILE|ID", "A request, or the id of a run.")]
Run = Annotated[str, argument("ID", "The id of a run.")]
RunId = Annotated[str | None, option("--run-id", "One of several runs of the same id (default: the latest).")]
NewId = Annotated[str | None, option("--id", "The id of the run (default: a new one).")]
Inputs = Annotated[
    list[str] | None,
    option("--input,-i KEY=JSON", "Add to the input; a value that is not JSON is a string. Or a file with an object."),
]
Agent = Annotated[
    bool | None, option("--agent/--plan", "What to run the file as (default: see above).", show_default=False)
]
AsJson = Annotated[bool, option("--json", "Print JSON only.")]
Watch = Annotated[bool, option("--watch,-w", "Show every call as it happens.")]
Detach = Annotated[bool, option("--detach,-d", "Start it, print its id, do not wait.")]
Yes = Annotated[bool, option("--yes,-y", "Do it without asking.")]
SetFile = Annotated[
    str | None,
    option("--set FILE[:ID]", "The plan is for each row of a JSON Lines or CSV file; ID is the field of its id."),
]
Modules = Annotated[
    str | None, option("--activities MODULES", "Python modules with Activities to load, comma separated.")
]
Note = Annotated[str | None, option("--note TEXT", "Why.")]


class CommandGroup(typer.Typer):
    """Commands that return an exit code (None: done), or a coroutine; a ``CommandError`` becomes its code."""

    def __init__(self, name: str | None = None, text: str | None = None) -> None:
        super().__init__(name=name, help=text, rich_markup_mode=None, no_args_is_help=True)

    def add(self, function: Callable[..., int | Coroutine[Any, Any, int | None] | None]) -> Callable[..., Any]:
        """Register a function under its name, with its docstring as help; examples in it stay a line each."""

        @functools.wraps(function)
        def run_command(*args: Any, **kwargs: Any) -> None:
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, io.TextIOWrapper):
                    stream.reconfigure(errors="backslashreplace")
            try:
                code = function(*args, **kwargs)
                if isinstance(code, Coroutine):
                    code = run_async(code)
            except CommandError as error:
                print_blocks(error.blocks)
                code = error.code
            raise typer.Exit(code or EXIT_DONE)

        text = inspect.cleandoc(function.__doc__ or "").replace("\n\nExamples:\n", "\n\n\b\nExamples:\n")
        self.command(function.__name__.rstrip("_").replace("_", "-"), help=text)(run_command)
        return function


def read_seconds(text: str | None, name: str) -> float | None:
    """The seconds of ``30s``, ``2h``, ``7d``, or a number: the value of the option ``name``, or None."""
    from acts.language.config import parse_seconds

    if text is None:
        return None
    try:
        return parse_seconds(float(text) if text.replace(".", "", 1).isdigit() else text)
    except ValueError:
        raise command_error(f"{text!r} is no duration", where=name, hint="for example 30s, 2h or 7d") from None


def moment_text(iso: str) -> str:
    """``2026-01-01 10:00:00Z``, of a time in UTC as ISO 8601 has it."""
    return f"{iso[:19].replace('T', ' ')}Z"


def require_yes(question: str, refusal: str, *, yes: bool = False, hint: str = "--yes does it without asking") -> None:
    """Ask a question that ``--yes`` answers; no answer means no, and is an error."""
    try:
        yes = yes or typer.confirm(question, err=True)
    except typer.Abort:
        print_err()
    if not yes:
        raise command_error(refusal, hint=hint)


def is_trusted(folder: Path) -> bool:
    """Whether the user has said that ``acts.toml`` of this folder may name code, which commands then import."""
    return _mark_of(folder).is_file()


def trust(folder: Path) -> None:
    """Remember that a folder with a file of settings is trusted, where the user's own settings can be written."""
    mark = _mark_of(folder)
    with suppress(OSError):
        (folder / PROJECT_FILE).stat()
        mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.write_bytes(os.fsencode(folder.resolve()))


def distrust(folder: Path) -> None:
    """Forget that a folder is trusted."""
    _mark_of(folder).unlink(missing_ok=True)


def _mark_of(folder: Path) -> Path:
    """A file in the user's own settings: what a folder holds cannot make it trusted."""
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
    return Path(typer.get_app_dir("acts"), "trusted", name)


def load_project_file() -> None:
    """Set the variables ``ACTS_*`` of ``acts.toml`` in the working directory; one that is set already comes first."""
    for name, value in read_project_file().items():
        os.environ.setdefault(name, value)


def read_project_file() -> dict[str, str]:
    path = Path(PROJECT_FILE)
    if not path.is_file():
        return {}
    import tomllib

    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise command_error(f"it is not readable TOML: {error}", where=path.name) from None
    variables = content.pop("environment", {})
    wrong, variables = ([*content], variables) if isinstance(variables, dict) else (["environment"], {})
    wrong += [n for n, v in variables.items() if not (isinstance(v, str) and re.fullmatch("ACTS_[A-Z0-9_]+", n))]
    if wrong:
        hint = '[environment]\nACTS_ACTIVITIES = "my_tools"; docs/deploy.md lists the variables'
        text = f"{wrong[0]} is no variable ACTS_… with a string in [environment]"
        raise command_error(text, where=path.name, hint=hint)
    return variables
