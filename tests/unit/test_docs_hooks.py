"""The site of the docs: links of the repository become links of the site, and the reference has every setting."""

from __future__ import annotations

import pytest

from acts.language.config import Budget, Config, Options
from tools.docs_hooks import reference_page, rewrite_links

PAGES = {"README.md", "start.md", "examples.md", "plans.md", "errors.md", "images/run.png"}


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("docs/plans.md", "[the readme](../README.md#commands)", "[the readme](start.md#commands)"),
        ("docs/plans.md", "[`E1`](errors.md#e1)", "[`E1`](errors.md#e1)"),
        ("docs/plans.md", "![a run](images/run.png)", "![a run](images/run.png)"),
        ("docs/plans.md", "[its code](../examples/weather/plan.yaml)", "its code"),
        ("docs/plans.md", "[Temporal](https://docs.temporal.io)", "[Temporal](https://docs.temporal.io)"),
        ("docs/plans.md", "[here](#below)", "[here](#below)"),
        ("README.md", "[plans](docs/plans.md)", "[plans](plans.md)"),
        ("examples/README.md", "[back](../README.md)", "[back](start.md)"),
        ("README.md", "`[x](docs/plans.md)`", "`[x](docs/plans.md)`"),
        ("README.md", "```\n[x](gone.md)\n```", "```\n[x](gone.md)\n```"),
    ],
)
def test_links_lead_to_pages_of_the_site_and_to_nothing_else(source: str, text: str, expected: str) -> None:
    assert rewrite_links(text, source, "page.md", PAGES) == expected


def test_the_reference_has_every_setting() -> None:
    page = reference_page()
    for model in (Config, Options, Budget):
        assert f"## {model.__name__}" in page
        for name in model.model_fields:
            assert f"| `{name}` |" in page, f"{model.__name__}.{name}"
