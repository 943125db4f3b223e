"""The choice of an adapter by the name of a model, its loading on first use, and the prices of models."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from acts.activities.models import select
from acts.activities.models.adapters import CODES
from acts.activities.models.interface import ModelError
from acts.cli.commands import operations
from acts.language.tools import Tool
from acts.planner.answer_schema import compose_latent_schema
from benchmarks import live_smoke
from tests.models.rawserver import RawServer, Reply, chat
from tests.models.support import model_request


@pytest.mark.parametrize("model", ["", "claude", "mistral:large", "openai:", ":x", "OpenAI:x"])
async def test_an_unknown_model_is_refused_with_the_allowed_providers(model: str) -> None:
    with pytest.raises(ModelError, match=r"allowed: anthropic:…, openai:…, scripted:…") as caught:
        await select.ask(model, model_request())
    assert (caught.value.code, caught.value.retryable) == ("modelUnknown", False)


# the outcomes of the form, the path in the script, the answer
SCRIPTED = [
    (["†state.a"], {}, {"output": "x", "path": "†state.a"}),
    (["†state.a", "†state.b"], {}, "x"),
    (["†state.a", "†state.b"], {"path": "†state.b"}, {"output": "x", "path": "†state.b"}),
]


@pytest.mark.parametrize(("paths", "path", "value"), SCRIPTED)
async def test_a_script_need_not_name_the_only_outcome(
    paths: list[str], path: dict[str, str], value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTS_SCRIPTS", str(tmp_path))
    (tmp_path / "s.json").write_text(json.dumps({"answers": [{"output": "x", **path}]}), "utf-8")
    schema, _ = compose_latent_schema(Tool("say", {}, {}, {}), paths)
    assert (await select.ask("scripted:s", model_request(schema=schema))).value == value


def test_the_sdks_are_imported_on_first_use() -> None:
    code = (
        "import sys, acts.activities.ask_model, acts.activities.registry; "
        "sys.exit(bool({'anthropic', 'openai', 'httpx2', 'genai_prices'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_documentation_has_every_code_and_whether_it_is_retryable() -> None:
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text("utf-8")
    rows = re.findall(r"^\| (`model[A-Z].*?) \| (yes|no) \|", page, re.MULTILINE)
    said = {code: word for codes, word in rows for code in re.findall(r"`(\w+)`", codes)}
    assert {code: "yes" if retryable else "no" for code, (retryable, _) in CODES.items()}.items() <= said.items()


PLAN = json.dumps({"calls": [{"_tool": "tool_1", "amount": 12.5, "note": "smoke"}], "output": None})


def answer(cached: int = 0) -> Reply:
    return Reply(events=chat(PLAN, usage={"prompt_tokens_details": {"cached_tokens": cached}}))


async def test_each_number_of_tools_the_cache_and_an_effort_have_a_row(raw: RawServer) -> None:
    raw.reply_with(answer(), answer(), answer(cached=9), answer())
    transcripts: list[str] = []
    rows = await live_smoke.request_all(["openai:gpt-6-sol"], [1, 5], transcripts)
    assert [row[1] for row in rows] == ["1", "5", "5 again", "1, effort low"]
    assert [(row[2], row[6], row[-1]) for row in rows] == [
        ("unenforced", "0", "ok"), ("unenforced", "0", "ok"), ("unenforced", "9", "ok"), ("unenforced", "0", "ok")
    ]  # fmt: skip
    assert raw.body["reasoning_effort"] == "low"
    assert len(transcripts) == 4
    assert 'Call the tool "tool_1" once' in transcripts[0]
    assert '"amount": 12.5' in transcripts[0]
    assert all(0 <= float(row[3]) <= float(row[4]) for row in rows)


async def test_the_doctor_asks_a_model_for_a_word(raw: RawServer) -> None:
    raw.reply_with(*(Reply(events=chat(json.dumps({"word": word}), usage={})) for word in ("ready", "perhaps")))
    raw.reply_with(Reply(status=401))
    findings: operations.Findings = {}
    for _ in range(3):
        await operations.add_findings(findings, "models", partial(operations.ask_model, "openai:gpt-6-sol"))
    assert [finding.level for finding in findings["models"]] == ["ok", "warn", "fail"]
    assert "perhaps" in findings["models"][1].hint


def test_without_a_key_nothing_is_requested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["live_smoke"])
    assert live_smoke.main() == 0
    assert "nothing was requested" in capsys.readouterr().out
