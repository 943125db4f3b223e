"""Counts words of many small files in parallel, and summarizes all counts."""

from __future__ import annotations

import hashlib

from temporalio import activity

from examples.effects import Json, example_file, own_file, write_atomically


@activity.defn(name="countWords")
def count_words(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Returns ``{file, words, sha256}`` of one file that ships with the example."""
    content = example_file("fanout", call["file"]).read_bytes()
    words = len(content.decode("utf-8").split())
    return {"file": call["file"], "words": words, "sha256": hashlib.sha256(content).hexdigest()}


@activity.defn(name="summarize")
def summarize(call: Json, _tool: Json, _context: list[Json]) -> Json:
    """Writes a line for each count, in their order, and the totals."""
    counts = call["counts"]
    words = sum(count["words"] for count in counts)
    longest = max(counts, key=lambda count: count["words"])["file"]
    lines = [f"{count['words']:>6}  {count['sha256'][:12]}  {count['file']}" for count in counts]
    text = "\n".join([*lines, f"{words:>6}  words in {len(counts)} files, most of them in {longest}", ""])
    path = write_atomically(own_file("fanout", "summary", call), text)
    return {"file": path, "files": len(counts), "words": words, "longest": longest}
