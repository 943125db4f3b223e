"""Finds dead links in the Markdown files of the checkout: relative files and #anchors. Uses no network.

    python -m tools.check_links

Prints one line per dead link, `file:line: problem`, and exits 1 if there are any. Headings become anchors as on GitHub;
`<a id="…">` is one too. Links in code and links to web addresses are ignored.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

INLINE = re.compile(r"\]\(\s*(?:<([^>]*)>|([^)\s]+))")  # matches the end of a link: its text may contain another
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?")
HTML = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=[\"']([^\"']+)[\"']", re.IGNORECASE)
ANCHOR = re.compile(r"<[a-z]+\b[^>]*?\b(?:id|name)=[\"']([^\"']+)[\"']", re.IGNORECASE)
HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)(?:\s+#+)?\s*$")
FENCE = re.compile(r"^\s*(?:>\s*)*(`{3,}|~{3,})")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


def main() -> int:
    root = Path(__file__).parents[1]
    files = markdown_files(root)
    dead = [line for path in files for line in dead_links(path, root)]
    for line in dead:
        print(line)
    print(f"{len(files)} Markdown files, {len(dead)} dead links")
    return 1 if dead else 0


def markdown_files(root: Path) -> list[Path]:
    """The Markdown files that git tracks or would add."""
    output = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"],  # noqa: S607 - from PATH
        cwd=root,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return sorted(path for name in set(output.split("\0")) if name and (path := root / name).is_file())


def dead_links(path: Path, root: Path) -> Iterator[str]:
    for number, link in links(path):
        problem = find_problem(path, link, root)
        if problem:
            yield f"{path.relative_to(root)}:{number}: {problem}"


def links(path: Path) -> Iterator[tuple[int, str]]:
    """Line (from 1) and target of every link that stays in the checkout."""
    for number, line in prose(path):
        text = CODE.sub("", line)
        for match in (match for pattern in (INLINE, REFERENCE, HTML) for match in pattern.finditer(text)):
            target = next(group for group in match.groups() if group is not None)
            if not ELSEWHERE.match(target):
                yield number, target


def find_problem(path: Path, link: str, root: Path) -> str | None:
    """The problem of a link, or None."""
    name, _, anchor = unquote(link).partition("#")
    base = root if name.startswith("/") else path.parent
    target = base / name.lstrip("/") if name else path
    if not target.exists():
        return f"no file {name}"
    if root not in [target.resolve(), *target.resolve().parents]:
        return f"{name} leaves the checkout"
    if anchor and target.suffix == ".md" and anchor not in anchors(target):
        return f"no heading for #{anchor} in {target.relative_to(root) if target.is_relative_to(root) else target}"
    return None


@cache
def anchors(path: Path) -> frozenset[str]:
    counts: dict[str, int] = {}
    names: set[str] = set()
    for _, line in prose(path):
        names.update(ANCHOR.findall(line))
        heading = HEADING.match(line)
        if heading:
            slug = make_slug(heading[2])
            count = counts.get(slug, 0)
            counts[slug] = count + 1
            names.add(f"{slug}-{count}" if count else slug)
    return frozenset(names)


def make_slug(heading: str) -> str:
    """The anchor on GitHub: the text without markup, lower case, no punctuation, hyphens for spaces."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)  # the text of a link
    text = re.sub(r"<[^>]+>", "", text)
    text = re.sub(r"(?<!\w)_+|_+(?!\w)|[*`]", "", text)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines outside fenced code, numbered from 1."""
    fence = ""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        mark = FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence):
                fence = ""
        elif mark:
            fence = mark[1]
        else:
            yield number, line


if __name__ == "__main__":
    sys.exit(main())
