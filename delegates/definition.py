"""From bytes to a definition: strict JSON, and a Request that can be read.

What makes two readers see two different definitions is refused: a key twice in one
object, NaN, another encoding than UTF-8. A byte order mark is let pass, since editors
write one and it changes nothing; the SHA-256 is that of the bytes with it.

What is returned can be relied on: its messages can be read, and its schemas are schemas.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from acts.language.errors import InvalidRequest, Problem, summary
from acts.language.messages import read_request
from acts.language.values import MAX_DEPTH, Json, pointer
from acts.language.wire import DELEGATE_INVALID
from acts.plan.validate import settings_problems_of
from delegates.load_errors import failed, shown

_SHAPE: Final = "a definition is a Request: {config?, context, schema?}"

# SHA-256 of what was found sound. To check its schemas takes milliseconds, a hundred times as long as all the
# rest, and a batch loads the same definition for each of its instances. Some 100 bytes each
_sound: Final[set[str]] = set()
_MAX_SOUND: Final = 1000


def read_definition(data: bytes, sha256: str, source: str) -> dict[str, Any]:
    """The Request that the bytes are, as JSON. ``sha256`` is theirs.

    Raises:
        ApplicationError: ``DelegateInvalid``; its first detail is the list of problems,
            each ``{code, message, pointer, hint?}``.
    """
    try:
        value = _parsed(data)
    except ValueError as error:
        raise _invalid(source, [Problem("invalidJson", str(error))]) from error
    if sha256 not in _sound:
        problems = [p for p in _problems(value) if p.fatal]
        if problems:
            raise _invalid(source, problems)
        if len(_sound) >= _MAX_SOUND:
            _sound.clear()
        _sound.add(sha256)
    definition: dict[str, Any] = value
    return definition


def _parsed(data: bytes) -> Json:
    """The value of a JSON text.

    Raises:
        ValueError: it is none; the message says why and where.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = f"byte 0x{data[error.start]:02x} at offset {error.start:,}"
        raise ValueError(f"it is not UTF-8: {error.reason}, {at}") from error
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels") from error


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {shown(twice)} stands twice in one object")
    return found


def _constant(name: str) -> Json:
    raise ValueError(f"{name} is not a JSON number")


def _problems(value: Json) -> list[Problem]:
    """What keeps a JSON value from being a definition."""
    try:
        request = read_request(value)
    except InvalidRequest as error:
        return list(error.problems)
    problems = [*request.problems, *settings_problems_of(request)]
    if "context" not in value:
        problems.append(Problem("invalidRequest", "it has no context: a list of Messages", pointer("context")))
    return problems


def _invalid(source: str, problems: list[Problem]) -> Exception:
    found = summary(problems).replace("the request", "it", 1)
    error = InvalidRequest(problems)
    return failed(DELEGATE_INVALID, f'the delegate "{source}" is not a definition ({_SHAPE}): {found}', error.to_json())
