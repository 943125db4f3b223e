"""Every error of a file is one readable message and exit code 2, never a traceback."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acts.cli.main import app
from acts.cli.text import source as source_text

DEEP = 10_000


@dataclass(frozen=True)
class Case:
    """A file by its name and content, and the words of its error, in this order."""

    name: str
    content: str | bytes
    words: tuple[str, ...]
    title: str = ""

    def __str__(self) -> str:
        return self.title or f"{self.name} {self.content[:40]!r}"


def plan(*calls: object, **config: object) -> str:
    """A Request of one tool that needs a number, and these calls; each call on a line of its own."""
    tool = {
        "properties": {
            "_tool": {"const": "add"},
            "_activity": {"const": "add"},
            "_outputPath": {},
            "n": {"type": "number"},
        }
    }
    head = json.dumps({"config": config, "context": [{"type": "tool", "tool": tool}]})[:-2]
    return (
        head + ',\n{"type":"plan","plan":[\n' + ",\n".join(json.dumps(c, ensure_ascii=False) for c in calls) + "\n]}]}"
    )


LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

TEXTS = [
    # -- invalid JSON
    Case("a.json", '{"context": [1,]}', ("a.json:1:", "not valid JSON", "a comma too many")),
    Case("a.json", '{"context": [\n  {"type": text}]}', ("a.json:2:12", "found 't'", '{"type": text}')),
    Case("a.json", "{'context': []}", ("a.json:1:2", "double quotes")),
    Case("a.json", '{"context": []} // note', ("a.json:1:17", "JSON has no comments")),
    Case("a.json", '{"context": [', ("a.json:1:14", "found the end", "is not closed")),
    Case("a.json", '{"context": "' + "\x07" + '"}', ("Invalid control character",)),
    Case("a.json", '{\n"config": {},\n"config": {}}', ("a.json:3", 'the key "config" occurs twice', "in line 2")),
    Case("a.json", '{"context": [{"type": "input", "input": {"a": {"x": 1,\n"x": 2}}}]}', ("a.json:2", 'the key "x"')),
    Case("a.json", '{"config": {"temperature": NaN}}', ("a.json:1:28", "NaN is not a JSON number", "use null")),
    Case("a.json", '{"context": [1e999]}', ("a.json:1", "the number 1e999 is too large")),
    Case("a.json", "1" * 5000, ("more digits than can be read",), "a number of 5,000 digits"),
    Case("a.json", "[" * DEEP, ("nested deeper than 100 levels",), "10,000 open lists"),
    Case("a.json", '{"a":' * DEEP + "1" + "}" * DEEP, ("a.json:1:501", "nested deeper than 100"), "10,000 objects"),
    Case("a.json", '{"context":\n["\\ud800"]}', ("a.json:2", "lone surrogate", "/context/0")),
    Case("a.json", '{"context": [{"\\udfff": 1}]}', ("lone surrogate",)),
    # -- invalid YAML, or YAML that JSON lacks
    Case("a.yaml", "context:\n\t- 1", ("a.yaml:2:1", "not valid YAML", "not with tabs")),
    Case("a.yaml", "context: a: b", ("a.yaml:1:11", "in quotes")),
    Case("a.yaml", "context: @x", ("a.yaml:1:10", "in quotes")),
    Case("a.yaml", "context: []\nconfig: {}\ncontext: []", ("a.yaml:3", 'the key "context" occurs twice', "in line 1")),
    Case("a.yaml", "context:\n  1: x", ("a.yaml:2:3", "the key 1 is not a string", '"1"')),
    Case("a.yaml", "true: x", ("the key true is not a string",)),
    Case("a.yaml", "? [a]\n: b", ("a key is a string",)),
    Case("a.yaml", "a: &x {k: 1}\n<<: *x", ("a.yaml:2:1", "merge key")),
    Case("a.yaml", "a: .nan", ("a.yaml:1:4", ".nan is not a JSON number")),
    Case("a.yaml", "a: !!python/object:os.system 1", ("the tag !!python/object:os.system",)),
    Case("a.yaml", "a: *nope", ("undefined alias 'nope'",)),
    Case("a.yaml", "a: &a [1, *a]", ("nested deeper than 100 levels",)),
    Case("a.yaml", LAUGHS, ("expand to more than 4,194,304 bytes",), "a billion laughs"),
    Case("a.yaml", "[" * DEEP, ("nested deeper than 100 levels",), "10,000 open YAML lists"),
    Case("a.yaml", "- " * DEEP, ("nested deeper than 100 levels",), "10,000 dashes"),
    Case("a.yaml", "a: 1\n---\nb: 2", ("a.yaml:2", "found another document")),
    Case("a.yaml", 'a: "\\ud800"', ("not valid YAML",)),
    Case("a.yaml", "a: x\x07y", ("a.yaml:1:5", "U+0007 is not allowed")),
    Case("a.yaml", "a: " + "1" * 5000, ("more digits than can be read",), "a YAML number of 5,000 digits"),
    # -- not a text
    Case("a.json", "", ("the file is empty",)),
    Case("a.json", b"\x89PNG\r\n\x1a\n\x00\x00", ("this is not a text file", "NUL")),
    Case("a.json", '{"context": []}'.encode("utf-16"), ("the file is UTF-16", "save it as UTF-8")),
    Case("a.json", b'{\n"a": "\xff"}', ("a.json:2", "not UTF-8", "0xFF")),
]

REQUESTS = [
    # -- a value, but not a Request
    Case("a.yaml", "# only a comment", ("a Request is an object", "not null")),
    Case("a.json", '{"contxt": []}', ("unknown key", "contxt", 'did you mean "context"')),
    Case("a.json", '{"config": {"maxTick": 1}}', ('unknown setting "maxTick"', "known:", 'did you mean "maxTicks"')),
    # -- a Request, but no plan that can run
    Case(
        "a.json",
        plan({"_tool": "ad"}),
        ("a.json:3", 'unknown tool "ad" in call 1', "known: add", "1:ad", "/context/1/plan/0/_tool"),
    ),
    Case(
        "a.json",
        plan({"_tool": "add", "n": "†state.", "_outputPath": "†state.x"}),
        ("a.json:3", "a name must follow", "column 8"),
    ),
    Case(
        "a.json",
        plan(
            {"_tool": "add", "n": "†state.b", "_outputPath": "†state.a"},
            {"_tool": "add", "n": "†state.a", "_outputPath": "†state.b"},
        ),
        ("calls wait for each other", "1:add reads †state.b", "2:add"),
    ),
    Case(
        "a.yaml",
        "context:\n  - type: plan\n    plan:\n      - _tool: nope\n",
        ("a.yaml:4", 'unknown tool "nope"', "_tool: nope"),
    ),
]


def contains_in_order(output: str, words: tuple[str, ...]) -> bool:
    at = 0
    for word in words:
        at = output.find(word, at)
        if at < 0:
            return False
        at += len(word)
    return True


def check_refused(arguments: list[str], words: tuple[str, ...], stdin: bytes | None = None) -> None:
    result = CliRunner().invoke(app, arguments, input=stdin)
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert contains_in_order(result.stderr, words), f"{words} not in: {result.stderr}"
    assert result.stdout == ""


@pytest.mark.parametrize("case", [*TEXTS, *REQUESTS], ids=str)
def test_an_invalid_file_is_refused_with_the_line_and_a_hint(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = case.content if isinstance(case.content, bytes) else case.content.encode()
    Path(case.name).write_bytes(content)
    check_refused(["validate", case.name], case.words)


def test_the_error_of_a_missing_file_suggests_similar_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("weather.yaml").touch()
    check_refused(["validate", "wether.yaml"], ("wether.yaml", "there is no such file", "did you mean weather.yaml?"))
    check_refused(["graph", "weather.json"], ("there is no such file", "did you mean weather.yaml?"))
    check_refused(["run", "nowhere/plan.json"], ("there is no such file",))


def test_a_file_is_read_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_text, "MAX_BYTES", 1024)
    path = tmp_path / "big.json"
    path.write_text(" " * 1025)
    check_refused(["validate", str(path)], ("big.json", "the file is larger than"))
    if os.access("/dev/zero", os.R_OK):
        check_refused(["validate", "/dev/zero"], ("/dev/zero", "the file is larger than"))


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(plan({"_tool": "\x1b[31mred\x1b[0m\n[bold]x[/bold]"}), "utf-8")
    result = CliRunner().invoke(app, ["validate", str(path)])
    assert result.exit_code == 2
    assert "\x1b" not in result.output
    assert "[bold]x[/bold]" in result.output
