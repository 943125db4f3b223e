"""Counts words of many small files in parallel, and summarizes all counts."""

from __future__ import annotations

import hashlib
from typing import Annotated

from pydantic import BaseModel, Field

import acts
from examples.effects import example_file, own_file, write_atomically


class Count(BaseModel):
    file: str
    words: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$", examples=["0" * 64])


class Summary(BaseModel):
    file: str
    files: int
    words: int
    longest: str


# The path and the method are fixed: they apply to every Call
@acts.tool(name="countWords", read_only=True, output_path="†state.counts", meta={"_outputMethod": "push"})
def count_words(file: str) -> Count:
    """Counts the words of one file that ships with the example."""
    content = example_file("fanout", file).read_bytes()
    return Count(file=file, words=len(content.decode("utf-8").split()), sha256=hashlib.sha256(content).hexdigest())


@acts.tool(name="summarize")
def summarize(counts: Annotated[list[Count], Field(min_length=1)], *, call: acts.Call) -> Summary:
    """Writes a line for each count, in their order, and the totals."""
    words, longest = sum(count.words for count in counts), max(counts, key=lambda count: count.words).file
    lines = [f"{count.words:>6}  {count.sha256[:12]}  {count.file}" for count in counts]
    text = "\n".join([*lines, f"{words:>6}  words in {len(counts)} files, most of them in {longest}", ""])
    path = write_atomically(own_file("fanout", "summary", call), text)
    return Summary(file=path, files=len(counts), words=words, longest=longest)
