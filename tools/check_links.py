"""Finds dead links in the Markdown files of the checkout: relative files and #anchors. Uses no network.

    python -m tools.check_links

Prints one line per dead link, `file:line: problem` (the line where its paragraph begins), and exits 1 if there are any.
Headings become anchors as on GitHub; `<a id="…">` is one too. Links to web addresses are ignored.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

MARKDOWN = MarkdownIt().enable("table")
HTML = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=[\"']([^\"']+)[\"']", re.IGNORECASE)
ANCHOR = re.compile(r"<[a-z]+\b[^>]*?\b(?:id|name)=[\"']([^\"']+)[\"']", re.IGNORECASE)
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


def markdown_files(root: Path) -> list[Path]:
    """The Markdown files that git tracks or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"]
    output = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True).stdout  # noqa: S603 - git
    return sorted(path for name in set(output.split("\0")) if name and (path := root / name).is_file())


def tokens(path: Path) -> Iterator[tuple[int, Token]]:
    """Every token of a file with its line, from 1."""
    for block in MARKDOWN.parse(path.read_text("utf-8")):
        for token in (block, *(block.children or ())):
            yield (block.map or [0])[0] + 1, token


def dead_links(path: Path, root: Path) -> Iterator[str]:
    for line, token in tokens(path):
        links = [str(token.attrs.get("href") or token.attrs.get("src") or "")]
        for link in HTML.findall(token.content) if token.type.startswith("html") else links:
            if not link or ELSEWHERE.match(link):
                continue
            name, _, anchor = unquote(link).partition("#")
            target = (root if name.startswith("/") else path.parent) / name.lstrip("/") if name else path
            problem = ""
            if not target.exists():
                problem = f"no file {name}"
            elif not target.resolve().is_relative_to(root):
                problem = f"{name} leaves the checkout"
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.resolve()):
                problem = f"no heading for #{anchor} in {target}"
            if problem:
                yield f"{path.relative_to(root)}:{line}: {problem}"


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of the headings, as GitHub makes them, and those in HTML."""
    names: list[str] = []
    in_heading = False
    for _, token in tokens(path):
        if token.type == "inline" and in_heading:
            slug = make_slug("".join(t.content for t in token.children or () if t.type in ("text", "code_inline")))
            number = next(n for n in range(len(names) + 1) if (f"{slug}-{n}" if n else slug) not in names)
            names.append(f"{slug}-{number}" if number else slug)
        elif token.type.startswith("html"):
            names += ANCHOR.findall(token.content)
        in_heading = token.type == "heading_open"
    return frozenset(names)


def make_slug(heading: str) -> str:
    """The anchor of a heading on GitHub: its text in lower case, no punctuation, hyphens for spaces."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


if __name__ == "__main__":
    checkout = Path(__file__).parents[1]
    files = markdown_files(checkout)
    dead = [line for path in files for line in dead_links(path, checkout)]
    print("\n".join([*dead, f"{len(files)} Markdown files, {len(dead)} dead links"]))
    sys.exit(bool(dead))
