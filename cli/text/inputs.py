"""``--input key=json``: values that the command line adds to a Request."""

from __future__ import annotations

from collections.abc import Sequence

from acts.language.values import Json, defect
from cli.command_errors import command_error
from cli.console import clean


def add_inputs(request: Json, inputs: Sequence[str]) -> Json:
    """The Request with one more message, which holds the inputs.

    Raises:
        CommandError: an input is not ``key=value``, or a key is repeated.
    """
    if not inputs:
        return request
    payload: dict[str, Json] = {}
    for item in inputs:
        key, equals, text = item.partition("=")
        if not key or not equals:
            hint = "write key=value; a value that is not JSON is a string"
            raise command_error(f"{clean(item, 100)!r} is not an input", where="--input", hint=hint)
        if key in payload:
            raise command_error(f'the input "{clean(key, 100)}" is given twice', where="--input")
        payload[key] = _parse_value(text)
    broken = defect(payload)
    if broken is not None:
        raise command_error(f"{broken[1]} (at {broken[0]})", where="--input")
    context = request.get("context", []) if isinstance(request, dict) else None
    if not isinstance(context, list):
        return request  # the validator reports what is wrong with it
    return {**request, "context": [*context, {"type": "input", "input": payload}]}


def _parse_value(text: str) -> Json:
    """The value of a JSON text; any other text is itself the value."""
    from cli.text import json_text
    from cli.text.positions import DuplicateKeyError, NumberTooLargeError, TextError, TooDeepError

    try:
        return json_text.parse(text)
    except (TooDeepError, DuplicateKeyError, NumberTooLargeError) as error:
        raise command_error(error.message, where="--input", hint=error.hint or "") from None
    except TextError:
        return text
