"""Finds dead links in the Markdown files of the checkout: relative files and #anchors. Looks at no network.

    python -m tools.check_links

Prints one line per dead link, `file:line: what was found`, and exits 1 if there is any. Headings become anchors as
GitHub makes them; `<a id="…">` counts too. Links in code and to web addresses are left alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

INLINE = re.compile(r"\]\(\s*(?:<([^>]*)>|([^)\s]+))")  # the end of a link is enough: its text may hold another
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
    """What git knows or would add; files it ignores belong to others."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"],  # noqa: S607 - from PATH
        cwd=root,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return sorted(path for name in set(listed.split("\0")) if name and (path := root / name).is_file())


def dead_links(path: Path, root: Path) -> Iterator[str]:
    for number, link in links(path):
        problem = check(path, link, root)
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


def check(path: Path, link: str, root: Path) -> str | None:
    """What is wrong with a link, or None."""
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
    seen: dict[str, int] = {}
    found: set[str] = set()
    for _, line in prose(path):
        found.update(ANCHOR.findall(line))
        heading = HEADING.match(line)
        if heading:
            slug = slugged(heading[2])
            count = seen.get(slug, 0)
            seen[slug] = count + 1
            found.add(f"{slug}-{count}" if count else slug)
    return frozenset(found)


def slugged(heading: str) -> str:
    """As GitHub does it: the text without markup, lower case, no punctuation, spaces to hyphens."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)  # a link shows its text
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
