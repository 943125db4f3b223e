"""Detects the language of a text by its common words. A model translates."""

from __future__ import annotations

import csv
import re
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from examples.effects import Json, example_file

_PATH: Final = {"type": "string", "pattern": "^†"}
_TEXT: Final = {"type": "string"}


def _tool(description: str, activity_name: str, output: Json, **parameters: Json) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "properties": {
            "_activity": {"const": activity_name}, "_outputPath": _PATH, "_output": output, **parameters,
        },
        "required": ["_outputPath", *parameters],
        "additionalProperties": False,
    }  # fmt: skip


TOOLS: Final[dict[str, dict[str, Any]]] = {
    "detectLanguage": _tool("The language of a text: en, fr, de or es.", "detectLanguage", _TEXT, text=_TEXT),
    "isEnglish": _tool("Whether a language is English.", "isEnglish", {"type": "boolean"}, language=_TEXT),
    # No Activity: a model answers it, and sees its parameters and the language alone
    "translateText": _tool(
        "The text in English; as it is, where it is English already.", "", _TEXT,
        text=_TEXT, isEnglish={"type": "boolean"},
    ),
}  # fmt: skip
TOOLS["translateText"]["properties"]["_scopes"] = {"const": ["†state.language"]}


@activity.defn(name="detectLanguage")
def detect_language(call: Json, _tool: Json, _context: list[Json]) -> str:
    """Returns the language with the most of its small words in the text; without any, ``unknown_language``."""
    words = re.findall(r"\w+", call["text"].casefold())
    with example_file("translation", "words.csv").open(encoding="utf-8", newline="") as file:
        languages = {row["language"]: frozenset(row["words"].split()) for row in csv.DictReader(file)}
    counts = {language: sum(word in common for word in words) for language, common in languages.items()}
    best = max(counts, key=lambda language: counts[language])
    if counts[best] == 0:
        text = f"the text holds none of the small words of {', '.join(languages)}"
        raise ApplicationError(text, type="unknown_language", non_retryable=True)
    return best


@activity.defn(name="isEnglish")
def is_english(call: Json, _tool: Json, _context: list[Json]) -> bool:
    """Compares the language with English."""
    return bool(call["language"] == "en")
