"""Requests as they were sent, checked field by field against the types of the real SDKs."""

from __future__ import annotations

import types
import typing
from typing import Any, get_args, get_origin, get_type_hints

from anthropic.types import message_create_params
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params

TYPES: dict[str, Any] = {
    "anthropic": message_create_params.MessageCreateParamsStreaming,
    "chat": completion_create_params.CompletionCreateParamsStreaming,
    "responses": response_create_params.ResponseCreateParamsStreaming,
}


def defects_of_request(api: str, body: dict[str, Any]) -> list[str]:
    """What of a request's body its SDK's type does not have."""
    return _defects(body, TYPES[api], "")


def _defects(value: Any, type_: Any, place: str) -> list[str]:  # noqa: PLR0911 - one for each kind of type
    """The defects of a value; a union has none where one of its alternatives has none."""
    origin, arguments = get_origin(type_), get_args(type_)
    if type_ in (Any, object):
        return []
    if origin in (typing.Required, typing.NotRequired, typing.Annotated):
        return _defects(value, arguments[0], place)
    if origin in (typing.Union, types.UnionType):
        branches = [_defects(value, branch, place) for branch in arguments]
        return min(branches, key=len)
    if origin is typing.Literal:
        return [] if value in arguments else [f"{place}: {value!r} is none of {arguments}"]
    if typing.is_typeddict(type_):
        return _object_defects(value, type_, place)
    if origin is dict or (origin is not None and "Mapping" in str(origin)):
        return [] if isinstance(value, dict) else [f"{place}: no object"]
    if origin is not None:
        if not isinstance(value, list):
            return [f"{place}: no list"]
        return [d for i, item in enumerate(value) for d in _defects(item, arguments[0], f"{place}/{i}")]
    if type_ is float:
        type_ = (int, float)
    if type_ is type(None):
        return [] if value is None else [f"{place}: not null"]
    try:
        return [] if isinstance(value, type_) else [f"{place}: {value!r} is no {type_}"]
    except TypeError:
        return []


def _object_defects(value: Any, type_: Any, place: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{place}: no object"]
    hints = get_type_hints(type_, include_extras=True)
    out = [f"{place}/{key}: unknown" for key in value if key not in hints]
    out += [f"{place}/{key}: missing" for key in type_.__required_keys__ if key not in value]
    return out + [d for key in value if key in hints for d in _defects(value[key], hints[key], f"{place}/{key}")]
