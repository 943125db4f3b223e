"""``--input key=json``: what the command line adds to a Request."""

from __future__ import annotations

from collections.abc import Sequence

from acts.language.values import Json, defect
from cli.command_errors import refuse
from cli.console import clean


def with_inputs(request: Json, inputs: Sequence[str]) -> Json:
    """The Request with one more message that holds the inputs.

    Raises:
        Refusal: an input is not ``key=value``, or a key is given twice.
    """
    if not inputs:
        return request
    payload: dict[str, Json] = {}
    for item in inputs:
        key, equals, text = item.partition("=")
        if not key or not equals:
            raise refuse(
                f"{clean(item, 100)!r} is not an input",
                where="--input",
                hint="write key=value; a value is JSON, else a string",
            )
        if key in payload:
            raise refuse(f'the input "{clean(key, 100)}" is given twice', where="--input")
        payload[key] = _value(text)
    broken = defect(payload)
    if broken is not None:
        raise refuse(f"{broken[1]} (at {broken[0]})", where="--input")
    context = request.get("context", []) if isinstance(request, dict) else None
    if not isinstance(context, list):
        return request  # the validator says what is wrong with it
    return {**request, "context": [*context, {"type": "input", "input": payload}]}


def _value(text: str) -> Json:
    """What a value on the command line means: JSON where it is JSON."""
    from cli.text import json_text
    from cli.text.positions import TextError, TooDeepError, TwiceError

    try:
        return json_text.parse(text)
    except (TooDeepError, TwiceError) as error:
        raise refuse(error.message, where="--input", hint=error.hint or "") from None
    except TextError:
        return text
