"""The choice of an adapter by the name of a model, its loading on first use, and the prices of models."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from acts.activities.models import select
from acts.activities.models.adapters import CODES
from acts.activities.models.interface import ModelError
from tests.models.support import model_request


@pytest.mark.parametrize("model", ["", "claude", "mistral:large", "openai:", ":x", "OpenAI:x"])
async def test_an_unknown_model_is_refused_with_the_allowed_providers(model: str) -> None:
    with pytest.raises(ModelError, match=r"allowed: anthropic:…, openai:…, scripted:…") as caught:
        await select.ask(model, model_request())
    assert (caught.value.code, caught.value.retryable) == ("modelUnknown", False)


def test_the_sdks_are_imported_on_first_use() -> None:
    code = (
        "import sys, acts.activities.ask_model, acts.activities.registry; "
        "sys.exit(bool({'anthropic', 'openai', 'httpx2', 'genai_prices'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_documentation_has_every_code_and_whether_it_is_retryable() -> None:

    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if re.match(r"\| `model[A-Z]", line)}
    assert set(rows) == set(CODES)
    for code, (retryable, _) in CODES.items():
        assert rows[code].split("|")[2].strip() == ("yes" if retryable else "no")
