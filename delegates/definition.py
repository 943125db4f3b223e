"""From bytes to a definition: strict JSON, and a Request that can be read.

Input in which two readers would see two different definitions is refused: a key twice in one object, NaN, an encoding
other than UTF-8. A byte order mark is accepted, since editors write one and it changes nothing; the SHA-256 is that of
the bytes including it. Of a definition that is returned, the messages can be read and the schemas are valid.
"""

from __future__ import annotations

import json
from typing import Any, Final

from acts.language.errors import InvalidRequest, Problem, summary
from acts.language.request_reader import read_request
from acts.language.strict_json import read_json
from acts.language.values import Json, pointer
from acts.language.wire import DELEGATE_INVALID
from acts.plan.validate import settings_problems_of
from delegates.load_errors import load_error

_SHAPE: Final = "a definition is a Request: {config?, context, schema?}"

# SHA-256 of definitions without problems, some 100 bytes each. Checking the schemas takes milliseconds, a hundred times
# as long as everything else, and a batch loads the same definition for each of its instances
_valid_hashes: Final[set[str]] = set()
_MAX_VALID_HASHES: Final = 1000


def read_definition(data: bytes, sha256: str, source: str) -> dict[str, Any]:
    """The Request in ``data``, as JSON. ``sha256`` is the hash of the bytes.

    Raises:
        ApplicationError: ``DelegateInvalid``; its first detail is the list of problems,
            each ``{code, message, pointer, hint?}``.
    """
    try:
        value = _parse(data)
    except ValueError as error:
        raise _invalid_error(source, [Problem("invalidJson", str(error))]) from error
    if sha256 not in _valid_hashes:
        problems = [p for p in _find_problems(value) if p.fatal]
        if problems:
            raise _invalid_error(source, problems)
        if len(_valid_hashes) >= _MAX_VALID_HASHES:
            _valid_hashes.clear()
        _valid_hashes.add(sha256)
    definition: dict[str, Any] = value
    return definition


def _parse(data: bytes) -> Json:
    """The value of a JSON text.

    Raises:
        ValueError: it is not one; the message says why and where.
    """
    try:
        return read_json(data, unique_keys=True)
    except UnicodeDecodeError as error:
        position = f"byte 0x{data[error.start]:02x} at offset {error.start:,}"
        raise ValueError(f"it is not UTF-8: {error.reason}, {position}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from error


def _find_problems(value: Json) -> list[Problem]:
    """Each reason why a JSON value is not a definition."""
    try:
        request = read_request(value)
    except InvalidRequest as error:
        return list(error.problems)
    problems = [*request.problems, *settings_problems_of(request)]
    if "context" not in value:
        problems.append(Problem("invalidRequest", "it has no context: a list of Messages", pointer("context")))
    return problems


def _invalid_error(source: str, problems: list[Problem]) -> Exception:
    text = summary(problems).replace("the request", "it", 1)
    details = InvalidRequest(problems).to_json()
    return load_error(DELEGATE_INVALID, f'the delegate "{source}" is not a definition ({_SHAPE}): {text}', details)
