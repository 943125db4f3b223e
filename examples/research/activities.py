"""Searches a folder of texts, and writes the answer to a file. A model reads and judges."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import BaseModel

import acts
from examples.effects import own_file, write_atomically

_TEXTS: Final = Path(__file__).parent / "texts"


class Text(BaseModel):
    file: str
    title: str
    text: str


class Finding(BaseModel):
    text: str
    files: list[str]


class Answer(BaseModel):
    file: str


@acts.tool(name="searchTexts", read_only=True)
def search_texts(word: str, known: tuple[Text, ...] = ()) -> list[Text]:
    """The texts that hold a word, without those that are known already."""
    known_files = {text.file for text in known}
    matches = []
    for path in sorted(_TEXTS.glob("*.txt")):
        text = path.read_text("utf-8")
        if path.name not in known_files and word.casefold() in re.findall(r"\w+", text.casefold()):
            title, _, body = text.partition("\n")
            matches.append(Text(file=path.name, title=title, text=" ".join(body.split())))
    return matches


@acts.tool(name="writeAnswer")
def write_answer(question: str, answer: Finding, *, call: acts.Call) -> Answer:
    """Writes the answer into a file."""
    text = f"{question}\n\n{answer.text}\n\nSources: {', '.join(answer.files)}\n"
    return Answer(file=write_atomically(own_file("research", "answer", call), text))
