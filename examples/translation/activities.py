"""Detects the language of a text by its common words. A model translates."""

from __future__ import annotations

import csv
import re
from typing import Annotated

from pydantic import Field

import acts
from examples.effects import example_file


@acts.tool(name="detectLanguage", read_only=True, failures=["unknown_language"])
def detect_language(text: str) -> str:
    """The language of a text: en, fr, de or es."""
    words = re.findall(r"\w+", text.casefold())
    with example_file("translation", "words.csv").open(encoding="utf-8", newline="") as file:
        languages = {row["language"]: frozenset(row["words"].split()) for row in csv.DictReader(file)}
    counts = {language: sum(word in common for word in words) for language, common in languages.items()}
    best = max(counts, key=lambda language: counts[language])
    if counts[best] == 0:
        text = f"the text holds none of the small words of {', '.join(languages)}"
        raise acts.Failure("unknown_language", text)
    return best


@acts.tool(name="isEnglish", read_only=True)
def is_english(language: str) -> bool:
    """Whether a language is English."""
    return language == "en"


# A model answers it, and sees its parameters and the language alone
@acts.tool(name="translateText", latent=True, scopes=["†state.language"])
def translate_text(text: str, *, is_english: Annotated[bool, Field(alias="isEnglish")]) -> str:
    """The text in English; as it is, where it is English already."""
    raise NotImplementedError
