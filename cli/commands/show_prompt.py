"""``acts prompt``: what a planner is shown for a Request, or was shown in a tick of a run, with its tokens by part.

Laws of this file:
- a Request needs no server; a run needs a worker, which has its context, unless its requests were kept in a folder;
- the prompt goes to stdout as it is sent, its headings and the estimate go with it; ``--json`` prints nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from acts.language.values import Json
from acts.language.wire import PROMPT_CONTEXT
from cli.command_errors import EXIT_DONE, command_error
from cli.console import clean, console, print_json, print_out
from cli.render.tables import new_table
from cli.runs.run_reader import open_run
from cli.text.inputs import add_inputs
from cli.text.planner_prompt import ShownPrompt, prompt_of_request, prompt_of_run
from cli.text.preflight import run_preflight
from cli.text.source_text import STDIN, read_source


def prompt_of_file(file: str, inputs: Sequence[str], tick: int | None, *, as_json: bool) -> int:
    """Print the prompt of a Request's first tick."""
    if tick not in (None, 1):
        raise command_error("a request that has not run has one tick", where="--tick", hint="give the id of a run")
    source = read_source(file)
    preflight = run_preflight(
        add_inputs(source.value, inputs), file=None if file == STDIN else file, agent=True
    )  # fmt: skip
    return _print(prompt_of_request(preflight, source), as_json=as_json)


async def prompt_of_id(id_: str, tick: int | None, *, as_json: bool) -> int:
    """Print the prompt of a tick of a run: as it was kept (``ACTS_KEEP_PROMPTS``), or else built once more."""
    from activities.kept_prompts import folder_of_prompts, read_kept

    folder = folder_of_prompts()
    if folder is not None and (kept := read_kept(folder, id_, tick)):
        return _print_kept(kept, as_json=as_json)
    run = await open_run(id_)
    await run.describe_planning("prompt")
    await run.allow_replay_time()

    async def ask(page: Json) -> Any:
        answer = await run.query(PROMPT_CONTEXT, page)
        if answer is None:
            raise await run.no_answer_error()
        return answer

    return _print(await prompt_of_run(clean(id_, 200), tick, ask), as_json=as_json)


def _print(shown: ShownPrompt, *, as_json: bool) -> int:
    if as_json:
        print_json(shown.to_json())
        return EXIT_DONE
    for part in shown.prompt.system:
        _print_block(f"system: {part.kind}", part.text)
    for turn in shown.prompt.turns:
        _print_block(turn.role, turn.text)
    _print_block("schema of the answer", json.dumps(shown.schema, ensure_ascii=False, separators=(",", ":")))
    table = new_table("part", "tokens, about")
    for kind, count in shown.tokens.items():
        table.add_row(kind, f"{count:,}")
    table.add_row(f"all of tick {shown.tick}", f"{sum(shown.tokens.values()):,}")
    console().print(table)
    return EXIT_DONE


def _print_kept(records: list[dict[str, Any]], *, as_json: bool) -> int:
    """Requests as they were sent, with their answers."""
    if as_json:
        print_json({"kept": records})
        return EXIT_DONE
    for record in records:
        answer = record.get("answer") or {}
        _print_block(f"request: {record.get('subject')} of {record.get('model')}", f"kept in {record['file']}")
        _print_block("system", str(record.get("system")))
        for turn in record.get("turns") or ():
            _print_block(str(turn.get("role")), str(turn.get("text")))
        _print_block("schema of the answer", json.dumps(record.get("schema"), ensure_ascii=False))
        _print_block("answer", str(answer.get("text")))
        rest = {k: v for k, v in answer.items() if k != "text" and v}
        _print_block("of the answer", json.dumps(rest, ensure_ascii=False))
    return EXIT_DONE


def _print_block(head: str, text: str) -> None:
    print_out(f"=== {head}")
    print_out("\n".join(clean(line, len(line) + 1) for line in text.splitlines()))
