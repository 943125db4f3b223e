"""The checker of Markdown links: it rings for a dead link, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_links import dead_links, find_problem, links, make_slug

PAGE = """\
# The house
## What it does, and why
## `walk.py` is *the* heart
## Twice
## Twice
<a id="by-hand"></a>
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page one.md").write_text(PAGE, "utf-8")
    (tmp_path / "README.md").write_text(PAGE, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("docs/page%20one.md", None),
        ("docs", None),
        ("/docs/", None),
        ("#the-house", None),
        ("docs/page%20one.md#what-it-does-and-why", None),
        ("#walkpy-is-the-heart", None),
        ("#twice-1", None),
        ("#by-hand", None),
        ("docs/gone.md", "no file docs/gone.md"),
        ("#twice-2", "no heading for #twice-2 in README.md"),
        ("docs/page%20one.md#gone", "no heading for #gone in docs/page one.md"),
        ("..", ".. leaves the checkout"),
    ],
)
def test_a_link_is_dead_or_alive(link: str, problem: str | None, root: Path) -> None:
    assert find_problem(root / "README.md", link, root) == problem


@pytest.mark.parametrize(
    ("line", "targets"),
    [
        ("[a](b.md)", ["b.md"]),
        ("[a](<b.md> 'title') and ![i](c.png)", ["b.md", "c.png"]),
        ("[![badge](c.svg)](b.md)", ["c.svg", "b.md"]),
        ("[`code`](b.md) and [two words](<b c.md>)", ["b.md", "b c.md"]),
        ("[a]: b.md", ["b.md"]),
        ('<img src="c.png" alt="">', ["c.png"]),
        ("`[a](b.md)`", []),
        ("[a](https://example.org/b.md) <mailto:x@example.org>", []),
        ("a[0](x) is no link in code: ``f[0](b.md)``", ["x"]),
        ("```\n[a](b.md)\n```", []),
    ],
)
def test_links_are_read_in_prose_alone(line: str, targets: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(line, "utf-8")
    assert [target for _, target in links(page)] == targets


def test_a_dead_link_is_reported_with_its_line(root: Path) -> None:
    page = root / "docs" / "broken.md"
    page.write_text("fine\n\n[a](gone.md)\n", "utf-8")
    assert list(dead_links(page, root)) == ["docs/broken.md:3: no file gone.md"]


def test_a_heading_with_a_link_is_named_by_its_text() -> None:
    assert make_slug("See [the `Plan`](plan.md) — now") == "see-the-plan--now"
