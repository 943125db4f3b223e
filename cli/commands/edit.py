"""``acts edit``: the plan that waits, or one call of it, changed in an editor or by a file.

Laws of this file:
- what is opened is what waits, and what is sent names its version: an edit is never laid
  over a change that its author has not seen;
- the difference and the problems are shown before anything is sent; what was typed is
  never lost: when it is not sent, the file that holds it is named;
- an edit is not an approval, and what is printed says so.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from acts.language.errors import InvalidRequest, Problem
from acts.language.values import Json
from acts.tree.decisions import APPROVE, EDIT, PendingApproval
from cli.command_errors import DONE, CommandError, MessageBlock, refuse
from cli.commands.decide import Aim, place_of, send, waiting
from cli.commands.diff import calls_of, config_of, difference, print_difference, text_of, world_of
from cli.console import clean, out, print_blocks, say
from cli.runs import server
from cli.runs.pending_view import command, waits_of
from cli.text.plan_files import Source, parse, read
from cli.text.problems import blocks

if TYPE_CHECKING:
    from temporalio.client import Client

_SECONDS: Final = 5.0  # until the new version shows, where it is made by a run below


@dataclass(frozen=True)
class How:
    """``file``: what is sent instead of opening an editor. ``sure``: nobody is asked."""

    file: str | None = None
    sure: bool = False


def edit(aim: Aim, how: How) -> int:
    """Change what waits.

    Raises:
        Refusal: nothing such waits, the edit is wrong, or nobody answers.
    """
    return server.go(_edit(aim, how))


async def _edit(aim: Aim, how: How) -> int:
    client = await server.connect()
    wait = await waiting(client, aim, EDIT)
    calls = await calls_of(client, wait.workflow_id)
    if calls is None:
        raise refuse(f"nobody tells the plan of {wait.workflow_id}", hint="start a worker: `acts dev`")
    name = aim.call or wait.call
    place = None if name is None else place_of(name)
    if place is not None and place >= len(calls):
        raise refuse(f"the plan that waits has {len(calls)} calls, and no {name}", where="--call")
    before: Json = calls if place is None else calls[place]
    draft = Draft.of_file(how.file, before) if how.file is not None else Draft.opened(before)
    if draft.same(before):
        say("nothing was changed")
        return DONE
    if draft.whole:
        before, name, place = calls, None, None
    print_difference(difference(text_of(before)[0], text_of(draft.source.value)[0], ("waits", "edited")))
    found = await _problems(client, wait, calls, draft, place)
    shown = blocks(found, draft.source)
    if any(p.fatal for p in found):
        raise CommandError(*shown, *draft.kept())
    print_blocks(shown)
    if not how.sure and not confirmed():
        raise CommandError(MessageBlock("it was not sent", "", [("hint", "--yes sends without asking")]), *draft.kept())
    told = {"plan": draft.source.value} if place is None else {"call": name, "with": draft.source.value}
    try:
        await send(client, aim, wait, {"decision": EDIT, **told}, draft.source)
    except CommandError as refusal:
        raise CommandError(*refusal.blocks, *draft.kept(), code=refusal.code) from None
    draft.forget()
    await _tell(client, aim, wait)
    return DONE


@dataclass(frozen=True)
class Draft:
    """What is to be sent, as it was written. ``path``: a file of ours that holds it."""

    source: Source
    path: Path | None = None
    whole: bool = False

    @classmethod
    def of_file(cls, given: str, before: Json) -> Draft:
        """From a file: Calls, one Call, a plan message, or a Request that holds one."""
        source = read(given)
        value, at = _calls_in(source.value)
        if at:
            source = parse(source.name, text_of(value)[0], text_of(value)[1])
        return cls(source, whole=isinstance(value, list) and not isinstance(before, list))

    @classmethod
    def opened(cls, before: Json) -> Draft:
        """From an editor."""
        text, format_ = text_of(before)
        with tempfile.NamedTemporaryFile(
            "w", prefix="acts-edit-", suffix=f".{format_.lower()}", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        path = Path(file.name)
        open_editor(path)
        try:
            draft = cls(read(str(path)), path)
        except CommandError as refusal:
            raise CommandError(*refusal.blocks, _kept(path)) from None
        if draft.same(before):
            draft.forget()
        return draft

    def same(self, before: Json) -> bool:
        """True when it says what stood there."""
        return bool(self.source.value == before)

    def kept(self) -> list[MessageBlock]:
        """Where to find it, when it was not sent."""
        return [] if self.path is None else [_kept(self.path)]

    def forget(self) -> None:
        """It was sent: the run has it."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _kept(path: Path) -> MessageBlock:
    return MessageBlock(
        f"your text is kept in {path}", "", [("hint", f"mend it, and give it with --file {path}")], "note"
    )


def _calls_in(value: Json) -> tuple[Json, bool]:
    """The Calls of a Request or plan message, and whether they stand deeper than at the top."""
    if isinstance(value, dict) and isinstance(value.get("context"), list):
        plans = [m for m in value["context"] if isinstance(m, dict) and m.get("type") == "plan"]
        value = plans[-1] if plans else value
    if isinstance(value, dict) and "_tool" not in value and isinstance(value.get("plan"), list):
        return value["plan"], True
    return value, False


def open_editor(path: Path) -> None:
    """Let a person change a file.

    Raises:
        Refusal: there is no editor, or it failed.
    """
    program = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        done = subprocess.run([*shlex.split(program), str(path)], check=False)  # noqa: S603 - a person's own editor
    except (OSError, ValueError) as error:
        path.unlink(missing_ok=True)
        text = f"the editor {clean(program, 100)!r} cannot be started: {error}"
        raise refuse(text, hint="set EDITOR, or give a file with --file") from None
    if done.returncode != 0:
        raise CommandError(
            MessageBlock(f"the editor ended with code {done.returncode}, so nothing was sent"), _kept(path)
        )


def confirmed() -> bool:
    """What a person says; nobody there is no."""
    import typer

    try:
        return typer.confirm("send it?", err=True)
    except typer.Abort:
        return False


async def _problems(
    client: Client, wait: PendingApproval, calls: list[Any], draft: Draft, place: int | None
) -> list[Problem]:
    """What is wrong with an edit, as far as it can be told from here; the worker has the last word."""
    from acts.plan.validate import validate

    value = draft.source.value
    if not isinstance(value, dict if place is not None else list):
        wanted = "one call: an object" if place is not None else "a list of calls"
        return [Problem("invalidPlan", f"what is sent is {wanted}")]
    world = await world_of(client, wait.workflow_id)
    if world is None:
        return []
    changed = [value if i == place else c for i, c in enumerate(calls)] if place is not None else value
    messages = [m for m in world.messages if not (isinstance(m, dict) and m.get("type") == "plan")]
    plan = {"type": "plan", "plan": changed, "mode": world.mode}
    request = {"config": await config_of(client, wait.workflow_id), "context": [*messages, plan]}
    try:
        found = validate(request, world.tools, world.served)
    except InvalidRequest as error:
        found = list(error.problems)
    return [mine for p in found if (mine := _of_edit(p, len(messages), place)) is not None]


def _of_edit(problem: Problem, plan: int, place: int | None) -> Problem | None:
    """A problem of the whole Request as one of what was edited; None where it stood there before."""
    from dataclasses import replace

    at = f"/context/{plan}/plan" + ("" if place is None else f"/{place}")
    if problem.pointer == at or problem.pointer.startswith(f"{at}/"):
        return replace(problem, pointer=problem.pointer.removeprefix(at))
    return replace(problem, pointer="") if problem.fatal else None


async def _tell(client: Client, aim: Aim, wait: PendingApproval) -> None:
    """Which version waits now, and the command that approves it."""
    handle = client.get_workflow_handle(aim.run)
    ends = asyncio.get_running_loop().time() + _SECONDS
    while True:
        waits = await waits_of(handle) or []
        new = next((w for w in waits if _same_place(w, wait) and w.version != wait.version), None)
        if new is not None or asyncio.get_running_loop().time() > ends:
            break
        await asyncio.sleep(0.1)
    if new is None:
        say(f"edited; `acts show {clean(aim.run)}` tells what waits now")
        return
    say(clean(f"edited: version {new.version} waits, and an edit is no approval"))
    out(command(APPROVE, aim.run, new, waits))


def _same_place(one: PendingApproval, other: PendingApproval) -> bool:
    # a Call that was edited into one of another Tool has another name, at the same place of the plan
    same = (one.workflow_id, one.what == "plan", one.instance) == (other.workflow_id, other.what == "plan",
                                                                   other.instance)  # fmt: skip
    if one.call is None or other.call is None:
        return same and one.call == other.call
    return same and place_of(one.call) == place_of(other.call)
