"""What a server that imitates OpenAI rejects of a request, and the request without it.

Servers differ in the fields that they know, and few ignore the others: Gemini and Mistral reject ``prompt_cache_key``,
Mistral ``max_completion_tokens``, older servers ``stream_options`` or a ``response_format`` with a schema. Their words
name the field. It is left out of all later requests to the model.
"""

from __future__ import annotations

import re
from typing import Any, Final

from activities.providers.endpoint_memory import SCHEMA, rejected_setting
from activities.providers.openai_turns import remove_breakpoints
from activities.providers.provider_errors import ProviderFault
from activities.providers.response_stream import ResponseStream

CACHE_OPTIONS: Final = "prompt_cache_options"
STRICT: Final = "strict"
# Fields of their own that a server may reject. Each attempt leaves out one more, so there are no more attempts
_FIELDS: Final = (
    "temperature", "prompt_cache_key", "stream_options", "store", "max_completion_tokens", "max_tokens", CACHE_OPTIONS,
)  # fmt: skip
# Fields with the schema in them: a rejection of these is one of the schema first
_FORMATS: Final = ("response_format", "text")
_ALTERNATIVES: Final = {"max_completion_tokens": "max_tokens", "max_tokens": "max_completion_tokens"}
_UNKNOWN_PARAMETER: Final = re.compile(
    r"unsupported|unknown|unrecogni[sz]ed|unexpected|not (supported|permitted|allowed)|extra (inputs|fields)"
    r"|does not (support|accept)|cannot find field|invalid (field|argument|parameter)|not implemented",
    re.IGNORECASE,
)
# A server that takes texts only: its parser fails at a list of parts, which carries the breakpoints
_ONLY_TEXTS: Final = re.compile(
    r"cannot unmarshal array|content.{0,40}(must be|should be|valid) (a )?(valid )?string|invalid message content type",
    re.IGNORECASE,
)
_BAD_REQUEST: Final = (400, 422)
# llama.cpp and its relatives answer a format that they do not know with 500
_UNKNOWN_FORMAT: Final = re.compile(r"response_format|text\.format|json_schema", re.IGNORECASE)
_FAILED: Final = (500, 501)


def leave_out(body: dict[str, Any], rejections: set[str], stream: ResponseStream) -> dict[str, Any]:
    """The request without what the endpoint rejects."""
    out = {k: v for k, v in body.items() if k not in rejections}
    if CACHE_OPTIONS in rejections:
        remove_breakpoints(out)
    if STRICT in rejections and isinstance(schema := out.get("response_format", {}).get("json_schema"), dict):
        out["response_format"] = {
            **out["response_format"],
            "json_schema": {k: schema[k] for k in schema if k != STRICT},
        }
    for name, other in _ALTERNATIVES.items():
        if name in rejections and other not in rejections and name in body:
            out[other] = stream.request.maxOutputTokens
    return out


def rejection_notes(body: dict[str, Any], rejections: set[str], omissions: set[str], site: str) -> tuple[str, ...]:
    """Notes for people about what was left out, apart from the ``omissions`` of the endpoint's settings."""
    names = sorted(name for name in rejections - omissions if name in body or name == STRICT)
    return tuple(f"{name} was left out: {site} rejects it" for name in names if name != "temperature")


def rejected_part(fault: ProviderFault, body: dict[str, Any], stream: ResponseStream) -> str | None:
    """The part of the request that the provider rejects; None: the error is about something else."""
    is_in_words = stream.sent.form == "words"
    if fault.status in (*_FAILED, *(_BAD_REQUEST if is_in_words else ())) and _UNKNOWN_FORMAT.search(fault.message):
        return _format_rejection(body, stream)
    if (name := rejected_setting(fault, stream.request, stream.request.maxOutputTokens)) is not None:
        return name
    if fault.status not in _BAD_REQUEST or fault.code != "modelBadRequest":
        return None
    is_unknown = bool(_UNKNOWN_PARAMETER.search(fault.message))
    if CACHE_OPTIONS in body and ((is_unknown and _is_about_breakpoints(fault)) or _ONLY_TEXTS.search(fault.message)):
        return CACHE_OPTIONS
    if is_unknown and (name := next((n for n in _FIELDS if n in body and _is_about(n, fault)), None)) is not None:
        return name
    if is_unknown and any(field.endswith(f".{STRICT}") for field in fault.fields) and _has_strict(body):
        return STRICT
    return SCHEMA if not is_in_words and fault.is_schema_rejection else None


def _format_rejection(body: dict[str, Any], stream: ResponseStream) -> str | None:
    if stream.sent.form != "words":
        return SCHEMA
    return next((name for name in _FORMATS if name in body), None)


def _is_about(name: str, fault: ProviderFault) -> bool:
    """True where the provider names a field: as a parameter, a place, or a word in quotes."""
    is_named = any(name in re.split(r"[.\[\]/]", field) for field in fault.fields)
    return is_named or bool(re.search(rf"['\"`]{name}['\"`.]|\b{name}:", fault.message))


def _is_about_breakpoints(fault: ProviderFault) -> bool:
    return any("prompt_cache_breakpoint" in text for text in (fault.message, *fault.fields))


def _has_strict(body: dict[str, Any]) -> bool:
    return STRICT in body.get("response_format", {}).get("json_schema", {})
