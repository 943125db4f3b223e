"""The bodies of errors, in the shapes of the servers that imitate OpenAI. The SDK's message has only the first shape.

    {"error": {"message", "type", "code", "param"}}                      OpenAI, vLLM, Ollama, llama.cpp
    [{"error": {"code", "message", "status", "details": [{…}]}}]         Gemini: a list, the pause in details
    {"error": {"message", "code", "metadata": {"raw", …}}}               OpenRouter: what the provider behind it said
    {"detail": [{"type", "loc", "msg"}]}, {"detail": "…"}                FastAPI: Mistral, and many more
    {"message": {"detail": […]}, "type", …}, {"message": "{…}"}          Mistral, as an object and as JSON text
    {"error": "…"}, "…"                                                  LM Studio, Ollama, proxies

Pure: bodies go in, words come out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Final

# Levels of errors within errors, and defects of a list that are read
_MAX_DEPTH: Final = 6
_MAX_DEFECTS: Final = 10
_SECONDS: Final = re.compile(r"(\d+(?:\.\d+)?)s")
# Places in a request that each of its fields is below
_ROOTS: Final = ("body", "query")
# What OpenRouter says when its provider has said something better
_EMPTY_WORDS: Final = re.compile(r"provider returned error\.?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """What a body says. ``words`` are its codes and types, the most specific first; ``fields`` are those it rejects.

    ``retryAfter`` is in seconds.
    """

    message: str = ""
    words: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    retryAfter: float | None = None


def read_error_body(body: Any, depth: int = 0) -> ErrorBody:
    """What the body of an error says, whatever its shape; an empty message where it says nothing."""
    if depth > _MAX_DEPTH:
        return ErrorBody()
    if isinstance(body, str):
        return _read_text(body, depth)
    if isinstance(body, list):
        return _read_list(body, depth)
    return _read_object(body, depth) if isinstance(body, dict) else ErrorBody()


def _read_text(text: str, depth: int) -> ErrorBody:
    if text.lstrip()[:1] in ("{", "["):
        try:
            inner = read_error_body(json.loads(text), depth + 1)
        except (ValueError, RecursionError):
            return ErrorBody(text)
        return inner if inner.message else ErrorBody(text)
    return ErrorBody(text)


def _read_list(items: list[Any], depth: int) -> ErrorBody:
    """Errors in a row: all messages, the first pause."""
    parts = [read_error_body(item, depth + 1) for item in items[:_MAX_DEFECTS]]
    return ErrorBody(
        "; ".join(part.message for part in parts if part.message),
        tuple(word for part in parts for word in part.words),
        tuple(name for part in parts for name in part.fields),
        next((part.retryAfter for part in parts if part.retryAfter is not None), None),
    )


def _read_object(body: dict[str, Any], depth: int) -> ErrorBody:
    own = _own_words(body)
    if "msg" in body and "loc" in body:
        return _read_defect(body)
    for name in ("error", "detail", "message"):
        if body.get(name) and not isinstance(body[name], bool):
            said = read_error_body(body[name], depth + 1)
            break
    else:
        said = ErrorBody()
    metadata = body.get("metadata")
    if isinstance(metadata, dict) and metadata.get("raw"):
        raw = read_error_body(metadata["raw"], depth + 1)
        message = (
            raw.message
            if _EMPTY_WORDS.fullmatch(said.message) or not said.message
            else f"{said.message}: {raw.message}"
        )
        said = ErrorBody(message, (*said.words, *raw.words), (*said.fields, *raw.fields), raw.retryAfter)
    details = body.get("details")
    words, pause = _read_details(details if isinstance(details, list) else [])
    parameter = body.get("param")
    fields = (*said.fields, *((parameter,) if isinstance(parameter, str) and parameter else ()))
    return replace(
        said, words=(*words, *said.words, *own), fields=fields, retryAfter=said.retryAfter if pause is None else pause
    )


def _own_words(body: dict[str, Any]) -> tuple[str, ...]:
    """The words for the cause: a code that is a number is an HTTP status, or no one's but the server's."""
    values = (body.get("code"), body.get("type"), body.get("status"))
    return tuple(v for v in values if isinstance(v, str) and v and not v.isdigit())


def _read_defect(body: dict[str, Any]) -> ErrorBody:
    """A defect that pydantic found: ``{"type": "extra_forbidden", "loc": ["body", "store"], "msg"}``."""
    at = body["loc"] if isinstance(body["loc"], list) else [body["loc"]]
    names = [str(part) for part in at if part not in _ROOTS]
    place = ".".join(names)
    return ErrorBody(f"{place}: {body['msg']}" if place else str(body["msg"]), (), (place,) if place else ())


def _read_details(details: list[Any]) -> tuple[tuple[str, ...], float | None]:
    """Google's details: the reason of an ``ErrorInfo``, the pause of a ``RetryInfo``."""
    objects = [detail for detail in details if isinstance(detail, dict)]
    reasons = tuple(d["reason"] for d in objects if isinstance(d.get("reason"), str))
    delays = (_SECONDS.fullmatch(d["retryDelay"]) for d in objects if isinstance(d.get("retryDelay"), str))
    return reasons, next((float(match[1]) for match in delays if match), None)
