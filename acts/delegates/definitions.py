"""Definitions: the files below the delegate folders, what they may hold, and the errors of loading one.

* A name is letters, digits, ``_ - .`` and ``/`` between them, so it can only mean a path below a folder; only
  ``*.json`` is ever read. ``sources`` keeps the path inside its folder.
* There is no cache. Reading a file again costs less than a tenth of a millisecond, and an uncached
  definition is never out of date.
* Input in which two readers would see two different definitions is refused: a key twice in one object, NaN, an encoding
  other than UTF-8. A byte order mark is accepted; the SHA-256 is that of the bytes including it.
* ``acts/language/wire.py`` lists the types of the errors, and which of them are retryable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from temporalio.exceptions import ApplicationError

from acts.delegates import sources
from acts.delegates.sources import MAX_NAME, IrregularFileError, quote
from acts.language import wire
from acts.language.errors import InvalidRequest, Problem, format_choices, suggest, summary, truncate
from acts.language.messages import read_request
from acts.language.spelling import read_plain
from acts.language.strict_json import read_json
from acts.language.values import pointer
from acts.plan.validate import settings_problems_of

# Bytes of a definition as it is stored. Its result in history must stay below the 2 MiB of a payload
MAX_BYTES: Final = 1024 * 1024
# Characters of a message, room for a list of problems; Temporal itself would take far more
MAX_MESSAGE: Final = 4000
_STEP: Final = re.compile(r"[\w-][\w.-]*")
# Names that an error lists
_MAX_LISTED: Final = 1000
_ALLOWED: Final = (
    'a delegate is a name ("composer"), a path inside a folder ("music/composer.json") or an http(s) URL; each step of'
    " a path is letters, digits, _, - and ., and begins with no dot"
)
_SHAPE: Final = "a definition is a Request: {config?, context, schema?}"


def load_error(type_: str, message: str, *details: Any) -> ApplicationError:
    """The error to raise; ``type_`` is one of the ``DELEGATE_…`` types."""
    text, is_final = truncate(message, MAX_MESSAGE), type_ in wire.NON_RETRYABLE_TYPES
    return ApplicationError(text, *details, type=type_, non_retryable=is_final)


def too_large(source: str) -> ApplicationError:
    """The error of a definition with more bytes than are read."""
    return load_error(wire.DELEGATE_TOO_LARGE, f'the delegate "{source}" has more than {MAX_BYTES:,} bytes (1 MiB)')


def read_file(folders: Sequence[Path], name: str) -> tuple[bytes, str]:
    """The bytes of the first file with that name, and its path inside its folder; ApplicationError where none fits."""
    if len(name) > MAX_NAME or not all(_STEP.fullmatch(step) for step in name.split("/")):
        raise load_error(wire.DELEGATE_REFUSED, f"the delegate {quote(name)} is no name or path: {_ALLOWED}")
    source = name if name.endswith(wire.DELEGATE_SUFFIX) else name + wire.DELEGATE_SUFFIX
    for folder in folders:
        data = _read_below(folder, source)
        if data is not None:
            return data, source
    names, where = list_delegates(folders), ", ".join(map(str, folders))
    hint = suggest(source.removesuffix(wire.DELEGATE_SUFFIX), names) or ""
    text = f"there is no delegate {quote(name)}: {hint} there are: {format_choices(names)}; looked for {source} in"
    raise load_error(wire.DELEGATE_NOT_FOUND, f"{text} {where}")


def _read_below(folder: Path, source: str) -> bytes | None:
    """The bytes, or None where the folder has no such file."""
    below = sources.resolve_below(folder, source)
    if below is None:
        text = f'the delegate "{source}" of {folder} is a symbolic link that leaves the folder'
        raise load_error(wire.DELEGATE_REFUSED, f"{text}; links inside it are allowed")
    try:
        with os.fdopen(sources.open_regular(*below), "rb") as file:
            sources.check_regular(os.fstat(file.fileno()).st_mode)  # it may have been replaced since it was looked at
            data = file.read(MAX_BYTES + 1)
    except IrregularFileError as error:
        text = f'the delegate "{source}" is {error}; a definition is a regular file'
        raise load_error(wire.DELEGATE_REFUSED, text) from None
    except OSError as error:
        if error.errno in sources.ABSENT:
            return None
        text = f'the delegate "{source}" of {folder} cannot be read: {error.strerror}'
        raise load_error(
            wire.DELEGATE_REFUSED if error.errno in sources.DENIED else wire.DELEGATE_UNAVAILABLE, text
        ) from error
    if len(data) > MAX_BYTES:
        raise too_large(source)
    return data


def list_delegates(folders: Sequence[Path]) -> list[str]:
    """The names of the delegates in the folders, as a Call names them; of very many, the first."""
    names: dict[str, None] = {}
    for folder in folders:
        for path, below, files in os.walk(folder):
            below[:] = sorted(f for f in below if _STEP.fullmatch(f) and not f.startswith("__"))
            relative = os.path.relpath(path, folder)
            file_names = (f for f in sorted(files) if f.endswith(wire.DELEGATE_SUFFIX) and _STEP.fullmatch(f))
            names |= dict.fromkeys(
                os.path.normpath(f"{relative}/{f}").removesuffix(wire.DELEGATE_SUFFIX) for f in file_names
            )
            if len(names) >= _MAX_LISTED:
                return list(names)[:_MAX_LISTED]
    return list(names)


def read_definition(data: bytes, source: str) -> dict[str, Any]:
    """The Request in ``data``, as JSON: its messages can be read, and its schemas are valid. Raises ApplicationError:
    ``DelegateInvalid``; its first detail is the list of problems, each ``{code, message, pointer, hint?}``.
    """
    value: dict[str, Any] = {}
    try:
        value = read_plain(read_json(data, unique_keys=True))
        request = read_request(value)
        problems = [problem for problem in (*request.problems, *settings_problems_of(request)) if problem.fatal]
        if "context" not in value:
            problems.append(Problem("invalidRequest", "it has no context: a list of Messages", pointer("context")))
    except InvalidRequest as error:
        problems = list(error.problems)
    except ValueError as error:
        problems = [Problem("invalidJson", f"it is not JSON in UTF-8: {error}")]
    if problems:
        text = summary(problems).replace("the request", "it", 1)
        details = InvalidRequest(problems).to_json()
        raise load_error(
            wire.DELEGATE_INVALID, f'the delegate "{source}" is not a definition ({_SHAPE}): {text}', details
        )
    return value
