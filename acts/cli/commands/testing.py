"""``acts init``, ``test`` and ``save``: a folder with a plan of one's own, tests of plans, a plan made of a run.

``init`` and ``save`` overwrite nothing that exists; ``init`` writes either all files or none. The Tools of a test are
those that this environment loads, as for ``acts validate``; a Tool that it does not load takes any parameters.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from acts.cli import console as cli
from acts.cli.console import clean, command_error, console, count_text, option, print_blocks, print_json
from acts.cli.text.preflight import Preflight, missing_tools_error, run_preflight
from acts.cli.text.source import compare_plans, find_plan, format_plan, read_source, source_error
from acts.language.errors import InvalidRequest, Problem
from acts.language.values import Json, pointer
from acts.language.wire import AGENT, PLAN_QUERY
from acts.plan.validate import PLAN_NAME, validate_request
from acts.testing.rehearsal import (
    AWAITING,
    Mismatch,
    PlanCase,
    Rehearsal,
    Script,
    find_mismatches,
    read_case_file,
    rehearse,
)
from acts.testing.saved_plan import save_plan

STARTER: Final = Path(__file__).parents[1] / "starter"
SNIPPETS: Final = ".vscode/acts.code-snippets"
# Those of the starter, where none begins with a dot and none is in a folder
FILES: Final = ("plan.yaml", "order_tools.py", "plan.test.yaml", "acts.toml", "README.md", ".gitignore", SNIPPETS)
_MAX_DIFF_LINES: Final = 40
TEST_SUFFIXES: Final = (".test.yaml", ".test.yml", ".test.json")

Folder = Annotated[Path, cli.argument("[FOLDER]", "Where to write (default: here).")]
Remove = Annotated[bool, option("--remove", "Take it back.")]
TrustedFolder = Annotated[Path, cli.argument("[FOLDER]", "The folder (default: this one).")]
Files = Annotated[
    list[str] | None, cli.argument("[FILES]...", "Test files, or folders of them (default: this folder).")
]
PlanName = Annotated[str, cli.argument("NAME", "Of the plan, its file and its tool.")]
Name = Annotated[str, option("--name,-k TEXT", "Only cases with this in their name.")]
PastRun = Annotated[str, option("--from ID", "Test the plan of this run with what came of its calls.")]

app = cli.CommandGroup()


@app.add
def init(folder: Folder = Path(), as_json: cli.AsJson = False) -> int:
    """Write a plan with tools, tests and a README into a folder; it runs at once.

    Examples:
      acts init my-plans && cd my-plans && acts test
    """
    existing = [name for name in FILES if (folder / name).exists()]
    if existing:
        verb = "is" if len(existing) == 1 else "are"
        text = f"{', '.join(existing)} {verb} already there, and nothing is overwritten"
        raise command_error(text, where=clean(folder), hint="name another folder: acts init my-plans")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (folder / name).parent.mkdir(exist_ok=True)
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write((STARTER / Path(name).name.removeprefix(".")).read_text("utf-8"))
    except OSError as error:
        raise command_error(f"it cannot be written: {error.strerror or error}", where=clean(folder)) from None
    cli.trust(folder)
    if as_json:
        return print_json({"folder": str(folder), "files": list(FILES)})
    console().print(f"{clean(folder)}: {', '.join(FILES)}", style="green")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(clean(folder))} && "
    for command, effect in (("acts test", "run its tests"), ("acts dev", "start a server and a worker"),
                            ("acts run plan.yaml", "run it, in another terminal")):  # fmt: skip
        console().print(f"  {(enter + command).ljust(len(enter) + 20)}{effect}")
    return cli.EXIT_DONE


@app.add
def trust(folder: TrustedFolder = Path(), remove: Remove = False) -> int:
    """Let commands in a folder load the tools that its acts.toml names.

    They are Python modules, whose code runs as it is loaded. It is remembered in your own settings, for this folder,
    until --remove; `acts dev` and `acts worker` trust the folder in which they start again.
    """
    if remove:
        was_trusted = cli.is_trusted(folder)
        cli.distrust(folder)
        text = "is not trusted any more" if was_trusted else "was not trusted"
        console().print(f"{clean(folder.resolve())} {text}")
        return cli.EXIT_DONE
    cli.trust(folder)
    if not cli.is_trusted(folder):
        text = f"there is no {cli.PROJECT_FILE}, or your own settings cannot be written to"
        raise command_error(text, where=clean(folder))
    console().print(f"{clean(folder.resolve())} is trusted: commands there load what its {cli.PROJECT_FILE} names")
    return cli.EXIT_DONE


@app.add
async def test(
    files: Files = None, name: Name = "", past_run: PastRun = "", as_json: cli.AsJson = False
) -> int:  # fmt: skip
    """Run the tests of plans (*.test.yaml) with canned results. Needs no server, but with --from.

    Examples:
      acts test
      acts test orders.test.yaml -k declined
      acts test --from agent-7
    """
    reports: dict[str, list[CaseReport]] = {}
    has_wrong_file = False
    with TemporaryDirectory() as folder:
        plan = await _save_into(Path(folder), past_run, "plan") if past_run else None
        for path in [] if plan and not files else find_test_files(files or ()):
            try:
                reports[str(path)] = PlanTests(path).run_cases(name)
            except cli.CommandError as error:
                print_blocks(error.blocks)
                has_wrong_file = True
        if plan:
            reports[past_run] = PlanTests(plan[1]).run_cases(name)
    cases = [case for listed in reports.values() for case in listed]
    if not cases and not has_wrong_file:
        raise command_error(f"no case has {name!r} in its name", where="--name")
    failed = sum(bool(case.faults) for case in cases)
    passed = len(cases) - failed
    if as_json:
        rows = [{"file": file, "cases": [case.to_json() for case in listed]} for file, listed in reports.items()]
        print_json({"files": rows, "passed": passed, "failed": failed})
    else:
        for file, listed in reports.items():
            _print_file(file, listed)
        text = f"{count_text(passed, 'case')} passed, {failed} failed"
        console().print(text, style="bold red" if failed else "bold green")
    return cli.EXIT_WRONG_INPUT if has_wrong_file else cli.EXIT_FAILED if failed else cli.EXIT_DONE


@app.add
async def save(run: cli.Run, name: PlanName, as_json: cli.AsJson = False) -> int:
    """Make the plan of a run that has ended one by name, which planners see as a tool, with a test of its results.

    It goes into the first folder of ACTS_PLANS, or into this one. What its calls read becomes its input.

    Examples:
      acts save agent-7 refundOrder
    """
    if not PLAN_NAME.fullmatch(name) or find_plan(name) is not None:
        text = f'"{clean(name)}" is there already, or is no name of a plan: letters, digits, _, - and .'
        raise command_error(text, where="NAME", hint="nothing is overwritten: choose another name")
    files = await _save_into(Path(os.environ.get("ACTS_PLANS", "").split(os.pathsep)[0] or "."), run, name)
    [report] = PlanTests(files[1]).run_cases()
    if as_json:
        return print_json({"files": [*map(str, files)], "test": report.to_json()})
    console().print(f"{', '.join(clean(file) for file in files)}: the plan, and its test", style="green")
    _print_file(str(files[1]), [report])
    console().print(f'a request lists it as {{"type": "tool", "tool": "{name}"}} once the workers have started again')
    return cli.EXIT_FAILED if report.faults else cli.EXIT_DONE


async def _save_into(folder: Path, run: str, name: str) -> list[Path]:
    """Write the plan of a run that has completed, and a test of it. Returns the two files."""
    from acts.client.run_reader import open_run

    reader = await open_run(run)
    kind = (await reader.describe_planning()).workflow_type
    await reader.allow_replay_time()
    result, calls = await reader.result(), await reader.require(reader.plan())
    if result.get("status") != "completed":
        hint = cli.shell("acts", "show", run)
        raise command_error("only what has completed is saved or tested again", where=clean(run), hint=hint)
    outputs = await reader.require(reader.query(list, PLAN_QUERY, {"as": "output"})) if kind == AGENT else [None]
    try:
        plan, cases = save_plan(await reader.request(), calls, outputs[0], result, clean(run))
    except InvalidRequest as error:
        raise command_error(error.problems[0].message, where=clean(run)) from None
    texts = [(".", format_plan(plan)), (".test.", format_plan(cases))]
    files = {folder / f"{name}{middle}{format_.lower()}": text for middle, (text, format_) in texts}
    try:
        for file, text in files.items():
            with file.open("x", encoding="utf-8") as writer:
                writer.write(text)
    except OSError as error:
        raise command_error(f"it cannot be written: {error.strerror or error}", where=clean(folder)) from None
    return [*files]


def _print_file(file: str, cases: Sequence[CaseReport]) -> None:
    screen = console()
    failed = [case for case in cases if case.faults]
    counts = f"{len(cases) - len(failed)} passed" + (f", {len(failed)} failed" if failed else "")
    screen.print(f"{'✗' if failed else '✓'} {clean(file)}: {counts}", style="red" if failed else "green")
    for case in failed:
        screen.print(f"  ✗ {clean(case.name)}  ({clean(case.where)})", style="bold red")
        for line in case.lines():  # - is expected, + is what the plan does
            screen.print(f"    {clean(line)}", style={"+": "green", "-": "red"}.get(line.lstrip()[:1]))


def find_test_files(names: Sequence[str]) -> list[Path]:
    out: dict[Path, None] = {}
    foreign = re.compile(r"\..*|node_modules|__pycache__|venv")  # folders without tests of one's own
    for path in map(Path, names or (".",)):
        if not path.exists():
            raise command_error("there is no such file or folder", where=str(path))
        files = [file for suffix in TEST_SUFFIXES for file in path.rglob(f"*{suffix}")] if path.is_dir() else [path]
        out |= dict.fromkeys(
            sorted(f for f in files if not any(map(foreign.fullmatch, f.relative_to(path).parts[:-1])))
        )
    if not out:
        where = ", ".join(names) or "this folder"
        hint = "a test file is called like its plan: orders.test.yaml for orders.yaml; see docs/tools.md"
        raise command_error(f"no test file in {where}", hint=hint)
    return list(out)


@dataclass(frozen=True)
class CaseReport:
    """One case; ``faults`` are what differs, or the problems of its Request: none in one that passed."""

    name: str
    where: str
    faults: Sequence[Mismatch | Problem]

    def to_json(self) -> dict[str, Any]:
        """``{name, passed, where, failures?, problems?}``"""
        out: dict[str, Any] = {"name": self.name, "passed": not self.faults, "where": self.where}
        for fault in self.faults:
            out.setdefault("problems" if isinstance(fault, Problem) else "failures", []).append(fault.to_json())
        return out

    def lines(self) -> Iterator[str]:
        """Everything that is wrong; the difference of two values is a diff of their YAML."""
        for fault in self.faults:
            if isinstance(fault, Problem):
                yield clean(f"the plan is not valid: {fault.text()} [{fault.code}]")
                continue
            yield clean(fault.text)
            rows = compare_plans(fault.expected, fault.actual, ("expected", "actual"))[2:]
            rows = [row for row in rows if not row.startswith("@@")]
            yield from (f"  {row}" for row in rows[:_MAX_DIFF_LINES])
            if len(rows) > _MAX_DIFF_LINES:
                yield f"  … {len(rows) - _MAX_DIFF_LINES} more lines; --json has all"


class PlanTests:
    """A test file and its plan, read."""

    def __init__(self, path: Path) -> None:
        self.source = read_source(str(path))
        try:
            file = read_case_file(self.source.value)
        except InvalidRequest as error:
            raise source_error(self.source, error.problems) from None
        self.cases = file.cases
        stem = path.stem.removesuffix(".test")  # orders.yaml for orders.test.yaml, in any format
        files = [path.with_name(stem + suffix) for suffix in (".yaml", ".yml", ".json")]
        beside = next((f for f in files if f.is_file() and f != path), None)
        plan = beside if file.plan is None else path.parent / file.plan
        if plan is None:
            hint = f'name it: "plan": {stem}.yaml, relative to the test file'
            raise command_error("the plan of this test file is not beside it", where=str(path), hint=hint)
        self.plan = read_source(str(plan))

    @cached_property
    def _preflight(self) -> Preflight:
        """The Tools and Activities of the plan, looked up once for all cases."""
        preflight = run_preflight(
            _with_context(self.plan.value, self.cases[0].messages), file=self.plan.name, agent=False
        )
        if preflight.unseen:
            raise missing_tools_error("a test of this plan", preflight.unseen, self.plan.name)
        return preflight

    def run_cases(self, name: str = "") -> list[CaseReport]:
        """Run the cases with this in their name."""
        return [self.run_case(case) for case in self.cases if name.casefold() in case.name.casefold()]

    def run_case(self, case: PlanCase) -> CaseReport:
        where = self.source.where(pointer("cases", self.cases.index(case)))
        request = _with_context(self.plan.value, case.messages)
        script = Script(case.results, case.decisions, case.provide, case.expect.status == AWAITING)
        try:
            rehearsal = _rehearse(request, self._preflight, script)
        except InvalidRequest as error:
            return CaseReport(case.name, where, error.problems)
        return CaseReport(case.name, where, find_mismatches(case, rehearsal))


def rehearse_plan(
    plan: str | Path | Json, results: Mapping[str, Any] | None = None, *, input: Json = None,  # noqa: A002 - its name in a test file
    context: Iterable[Json] = (), decisions: Sequence[Mapping[str, Any]] | str = (), provide: Sequence[Json] = (),
) -> Rehearsal:  # fmt: skip
    """Run a plan (a Request, or the path of one) with canned results; functions among them get the Call.

    Raises:
        InvalidRequest: the plan, with this input, does not validate. CommandError: its file cannot be read.
    """
    file = None if isinstance(plan, dict) else str(plan)
    messages = [*context, *([] if input is None else [{"type": "input", "input": input}])]
    request = _with_context(plan if file is None else read_source(file).value, messages)
    script = Script(results or {}, decisions, tuple(provide), ends_waiting=True)
    return _rehearse(request, run_preflight(request, file=file, agent=False), script)


def _rehearse(request: Json, preflight: Preflight, script: Script) -> Rehearsal:
    prepared = validate_request(request, preflight.tools, preflight.served)
    return rehearse(prepared, script, preflight.tools, preflight.served)


def _with_context(request: Json, messages: Sequence[Json]) -> Json:
    context = request.get("context", []) if isinstance(request, dict) else None
    if not messages or not isinstance(context, list):
        return request  # the validator reports what is wrong with it
    return {**request, "context": [*context, *messages]}
