"""Searches a folder of texts, and writes the answer to a file. A model reads and judges."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from temporalio import activity

from examples.effects import Json, own_file, write_atomically

_TEXTS: Final = Path(__file__).parent / "texts"


@activity.defn(name="searchTexts")
def search_texts(call: Json, _tool: Json, _context: list[Json]) -> list[Json]:
    """Returns the texts that contain the word, in the order of their names, without those in ``known``."""
    word, known_files = call["word"].casefold(), {text["file"] for text in call.get("known", ())}
    matches = []
    for path in sorted(_TEXTS.glob("*.txt")):
        text = path.read_text("utf-8")
        if path.name not in known_files and word in re.findall(r"\w+", text.casefold()):
            title, _, body = text.partition("\n")
            matches.append({"file": path.name, "title": title, "text": " ".join(body.split())})
    return matches


@activity.defn(name="writeAnswer")
def write_answer(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Writes question, answer and sources to the Call's own file."""
    answer = call["answer"]
    text = f"{call['question']}\n\n{answer['text']}\n\nSources: {', '.join(answer['files'])}\n"
    return {"file": write_atomically(own_file("research", "answer", call), text)}
