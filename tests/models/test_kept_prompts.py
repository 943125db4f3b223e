"""``ACTS_KEEP_PROMPTS``: a file for each request, private and whole, and what ``acts prompt`` shows of them."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest

from activities import kept_prompts
from activities.kept_prompts import check_folder, read_kept, safe_name
from cli.commands.show_prompt import prompt_of_id
from tests.models.rawserver import RawServer, Reply
from tests.models.test_ask_model import NO_JSON, SOLUTION, contexts, latent_request, reply, run, solution_request

__all__ = ["contexts"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACTS_KEEP_PROMPTS", str(tmp_path / "kept"))
    check_folder()
    return tmp_path / "kept"


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


async def test_every_request_is_a_private_file_with_its_answer(raw: RawServer, folder: Path) -> None:
    raw.reply_with(reply(NO_JSON), reply(json.dumps(SOLUTION)), reply(json.dumps(SOLUTION)))
    for _ in range(2):
        await run(solution_request())
    names = [p.relative_to(folder).as_posix() for p in files(folder)]
    assert names == [f"run-1/tick-0001_attempt-01_request-{n}_2d711642.json" for n in (1, 2, 3)]
    assert {stat.S_IMODE(p.stat().st_mode) for p in files(folder)} == {0o600}
    assert {stat.S_IMODE(p.stat().st_mode) for p in (folder, folder / "run-1")} == {0o700}
    first, second, _ = (json.loads(p.read_text("utf-8")) for p in files(folder))
    assert first["answer"]["text"] == NO_JSON
    assert first["answer"]["error"]["code"] == "modelNotJson"
    assert second["answer"]["tokens"]["inputTokens"] == 11
    assert [t["role"] for t in second["turns"]] == ["user", "assistant", "user"]
    assert "Add." in second["turns"][0]["text"]
    assert (second["model"], second["workflowId"], second["attempt"]) == ("openai:gpt-6-sol", "run-1", 1)


async def test_a_latent_call_has_a_file_of_its_own_and_an_unsafe_run_id_is_hashed(raw: RawServer, folder: Path) -> None:
    raw.reply_with(reply('{"output": 1, "path": "†state.sum"}'))
    source = {"workflowId": "../../etc/passwd", "runId": "x", "upto": 1}
    await run(latent_request(source=source))
    (file,) = files(folder)
    assert file.parent == folder / safe_name("../../etc/passwd")
    assert file.parent.name.startswith("sha256-")
    assert file.name.startswith("call-")
    assert [record["subject"] for record in read_kept(folder, "../../etc/passwd", None)] == [file.name.split("_")[0]]


async def test_no_prompt_is_in_the_result_or_the_log_and_no_key_in_a_file(
    raw: RawServer, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    caplog.set_level(logging.DEBUG)
    raw.reply_with(Reply(status=401, body={"error": {"message": "bad key sk-ve***"}}), reply(json.dumps(SOLUTION)))
    with pytest.raises(Exception, match="bad key"):
        await run(solution_request())
    result = await run(solution_request())
    texts = [p.read_text("utf-8") for p in files(folder)]
    assert [json.loads(t)["answer"].get("error", {}).get("code") for t in texts] == ["modelUnauthorized", None]
    assert "sk-very-secret" not in "".join(texts)
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("activities")]
    assert "Add." not in json.dumps([result, ours])


async def test_a_folder_that_cannot_be_written_fails_no_request(
    raw: RawServer, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "run-1").write_text("in the way")
    raw.reply_with(reply(json.dumps(SOLUTION)))
    assert "solution" in await run(solution_request())
    assert "a prompt was not kept in" in caplog.text
    assert "Add." not in caplog.text


def test_a_file_is_whole_or_absent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path, __: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        kept_prompts._write_whole(folder / "x.json", b"{}")
    assert files(folder) == []


async def test_nothing_is_kept_unless_it_is_asked_for(raw: RawServer, tmp_path: Path) -> None:
    raw.reply_with(reply(json.dumps(SOLUTION)))
    await run(solution_request())
    assert kept_prompts.folder_of_prompts() is None


async def test_acts_prompt_shows_what_was_kept_without_a_server(
    raw: RawServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw.reply_with(reply(json.dumps(SOLUTION)), reply(json.dumps(SOLUTION)))
    for tick in (1, 2):
        await run(solution_request(tick=tick))
    (folder / "run-1" / "tick-0002_attempt-09_request-1_x.json").write_text("{cut")
    assert await prompt_of_id("run-1", 2, as_json=False) == 0
    shown = capsys.readouterr().out
    for text in ("=== request: tick-0002 of openai:gpt-6-sol", "=== system", "=== user", "=== answer", '"inputTokens"'):
        assert text in shown
    assert "tick-0001" not in shown
    assert await prompt_of_id("run-1", None, as_json=True) == 0
    records: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [r["subject"] for r in records["kept"]] == ["tick-0001", "tick-0002"]
