"""``acts edit``: the plan that waits for approval, or one call of it, changed in an editor or by a file.

Laws of this file:
- an edit names the version that it changes, so it never overwrites a change that its author has not seen;
- the difference and the problems are printed before anything is sent; a text that is not sent is kept in a file, and
  the file is named;
- an edit is not an approval, and the output says so.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from acts.language.errors import InvalidRequest, Problem
from acts.language.values import Json
from acts.language.wire import APPROVE, EDIT
from acts.tree.decisions import PendingApproval
from cli.command_errors import EXIT_DONE, EXIT_WRONG_INPUT, CommandError, MessageBlock, command_error, message
from cli.commands.decide import ApprovalTarget, call_position, find_approval, send_decision
from cli.commands.diff import print_diff
from cli.console import clean, print_blocks, print_err, print_out
from cli.render.pending_view import decision_command
from cli.runs.run_reader import RunReader, open_run
from cli.text.plan_text import compare_plans, format_plan
from cli.text.problems import problem_blocks
from cli.text.source_text import SourceText, parse_source, read_source

NEW_VERSION_SECONDS: Final = 5.0  # until a new version of a run below is listed
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True)
class EditOptions:
    """``file`` is sent instead of opening an editor; ``confirmed``: without asking."""

    file: str | None = None
    confirmed: bool = False


async def edit(target: ApprovalTarget, options: EditOptions) -> int:
    """Change what waits for approval."""
    run = await open_run(target.run)
    approval = await find_approval(run, target, EDIT)
    waiting = run.other(approval.workflow_id)
    calls = await waiting.plan()
    if calls is None:
        raise await waiting.no_answer_error()
    name = target.call or approval.call
    position = None if name is None else call_position(name)
    if position is not None and position >= len(calls):
        raise command_error(f"the plan that waits has {len(calls)} calls, and no {name}", where="--call")
    before: Json = calls if position is None else calls[position]
    text = EditFile.read(options.file, before) if options.file is not None else EditFile.open_editor(before)
    if text.source.value == before:
        print_err("nothing was changed")
        return EXIT_DONE
    if text.is_whole_plan:
        before, position = calls, None
    print_diff(compare_plans(before, text.source.value, ("waits", "edited")))
    problems = await _find_problems(waiting, calls, text.source.value, position)
    blocks = problem_blocks(problems, text.source)
    if any(p.fatal for p in problems):
        raise text.unsent(*blocks)
    print_blocks(blocks)
    if not options.confirmed and not confirm():
        raise text.unsent(message("it was not sent", hint="--yes sends without asking"))
    value = text.source.value
    content = {"plan": value} if position is None else {"call": name, "with": value}
    try:
        await send_decision(run, target, approval, {"decision": EDIT, **content}, text.source)
    except CommandError as error:
        raise text.unsent(*error.blocks, code=error.code) from None
    text.delete()
    await _print_new_version(run, approval)
    return EXIT_DONE


@dataclass(frozen=True)
class EditFile:
    """The edited text. ``path`` is a temporary file that holds it; ``is_whole_plan``: a plan in place of one call."""

    source: SourceText
    path: Path | None = None
    is_whole_plan: bool = False

    @classmethod
    def read(cls, file: str, before: Json) -> EditFile:
        """From a file: calls, one call, a plan message, or a Request that holds one."""
        source = read_source(file)
        value = _calls_in(source.value)
        if value is not source.value:
            source = parse_source(source.name, *format_plan(value))
        return cls(source, is_whole_plan=isinstance(value, list) and not isinstance(before, list))

    @classmethod
    def open_editor(cls, before: Json) -> EditFile:
        """From an editor."""
        text, format_ = format_plan(before)
        with tempfile.NamedTemporaryFile(
            "w", prefix="acts-edit-", suffix=f".{format_.lower()}", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        path = Path(file.name)
        run_editor(path)
        try:
            edited = cls(read_source(str(path)), path)
        except CommandError as error:
            raise CommandError(*error.blocks, _file_note(path)) from None
        if edited.source.value == before:
            edited.delete()
        return edited

    def unsent(self, *blocks: MessageBlock, code: int = EXIT_WRONG_INPUT) -> CommandError:
        """The error of a text that is not sent; it names the file that keeps the text."""
        return CommandError(*blocks, *([] if self.path is None else [_file_note(self.path)]), code=code)

    def delete(self) -> None:
        """Remove the temporary file."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _file_note(path: Path) -> MessageBlock:
    hint = f"correct it, and send it with --file {path}"
    return message(f"your text is kept in {path}", hint=hint, severity="note")


def _calls_in(value: Json) -> Json:
    """The calls of a Request or of a plan message; any other value itself."""
    if isinstance(value, dict) and isinstance(value.get("context"), list):
        plans = [m for m in value["context"] if isinstance(m, dict) and m.get("type") == "plan"]
        value = plans[-1] if plans else value
    if isinstance(value, dict) and "_tool" not in value and isinstance(value.get("plan"), list):
        return value["plan"]
    return value


def run_editor(path: Path) -> None:
    """Let a person change a file.

    Raises:
        CommandError: there is no editor, or it failed.
    """
    program = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        process = subprocess.run([*shlex.split(program), str(path)], check=False)  # noqa: S603 - the person's editor
    except (OSError, ValueError) as error:
        path.unlink(missing_ok=True)
        text = f"the editor {clean(program, 100)!r} cannot be started: {error}"
        raise command_error(text, hint="set EDITOR, or name a file with --file") from None
    if process.returncode != 0:
        text = f"the editor ended with code {process.returncode}, so nothing was sent"
        raise CommandError(message(text), _file_note(path))


def confirm() -> bool:
    """Ask whether to send; no answer means no."""
    import typer

    try:
        return typer.confirm("send it?", err=True)
    except typer.Abort:
        return False


async def _find_problems(run: RunReader, calls: list[Any], value: Json, position: int | None) -> list[Problem]:
    """The problems of an edit as far as they can be found here; the worker decides."""
    from acts.plan.validate import validate

    if not isinstance(value, dict if position is not None else list):
        required = "one call: an object" if position is not None else "a list of calls"
        return [Problem("invalidPlan", f"the edit must be {required}")]
    prompt_context, messages = await run.prompt_context(), await run.messages()
    if prompt_context is None or messages is None:
        return []
    tools: dict[str, Any] = prompt_context.get("tools") or {}
    schemas, served = {n: t["schema"] for n, t in tools.items()}, [n for n, t in tools.items() if t["served"]]
    changed = [value if i == position else c for i, c in enumerate(calls)] if position is not None else value
    context = [m for m in messages if not (isinstance(m, dict) and m.get("type") == "plan")]
    plan = {"type": "plan", "plan": changed, "mode": str(prompt_context.get("mode"))}
    try:
        problems = validate({"config": await _config(run), "context": [*context, plan]}, schemas, served)
    except InvalidRequest as error:
        problems = list(error.problems)
    return [p for problem in problems if (p := _problem_of_edit(problem, len(context), position)) is not None]


async def _config(run: RunReader) -> Json:
    """The config that a run was started with, without its budget: that is not the plan's alone."""
    request = await run.request()
    config = request.get("config") if isinstance(request, dict) else None
    return {k: v for k, v in config.items() if k != "budget"} if isinstance(config, dict) else {}


def _problem_of_edit(problem: Problem, plan: int, position: int | None) -> Problem | None:
    """A problem of the whole Request as one of the edited text; None for a warning about something else."""
    at = f"/context/{plan}/plan" + ("" if position is None else f"/{position}")
    if problem.pointer == at or problem.pointer.startswith(f"{at}/"):
        return replace(problem, pointer=problem.pointer.removeprefix(at))
    return replace(problem, pointer="") if problem.fatal else None


async def _print_new_version(run: RunReader, old: PendingApproval) -> None:
    """Print the version that waits now, and the command that approves it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + NEW_VERSION_SECONDS
    while True:
        approvals = await run.fresh().pending() or []
        new = next((a for a in approvals if _is_same_place(a, old) and a.version != old.version), None)
        if new is not None or loop.time() > deadline:
            break
        await asyncio.sleep(_POLL_SECONDS)
    if new is None:
        print_err(f"edited; `acts show {clean(run.id)}` shows what waits now")
        return
    print_err(clean(f"edited: version {new.version} waits, and an edit is no approval"))
    print_out(decision_command(APPROVE, run.id, new, approvals))


def _is_same_place(one: PendingApproval, other: PendingApproval) -> bool:
    """True for two versions of one plan or call; an edit may give a call another tool, and with it another id."""
    if (one.workflow_id, one.what == "plan", one.instance) != (other.workflow_id, other.what == "plan", other.instance):
        return False
    if one.call is None or other.call is None:
        return one.call == other.call
    return call_position(one.call) == call_position(other.call)
