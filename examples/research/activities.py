"""A search over a folder of texts, and an answer that is written down. Reading and judging are left to a model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from temporalio import activity

from examples.effects import Json, own_file, write_whole

_TEXTS: Final = Path(__file__).parent / "texts"


@activity.defn(name="searchTexts")
def search_texts(call: Json, _tool: Json, _context: list[Json]) -> list[Json]:
    """The texts that hold the word, in the order of their names, without those that are ``known``."""
    word, known = call["word"].casefold(), {text["file"] for text in call.get("known", ())}
    found = []
    for path in sorted(_TEXTS.glob("*.txt")):
        text = path.read_text("utf-8")
        if path.name not in known and word in re.findall(r"\w+", text.casefold()):
            title, _, body = text.partition("\n")
            found.append({"file": path.name, "title": title, "text": " ".join(body.split())})
    return found


@activity.defn(name="writeAnswer")
def write_answer(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Question, answer and sources, in a file of this Call's own."""
    answer = call["answer"]
    text = f"{call['question']}\n\n{answer['text']}\n\nSources: {', '.join(answer['files'])}\n"
    return {"file": write_whole(own_file("research", "answer", call), text)}
