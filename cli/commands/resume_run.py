"""``acts retry`` and ``acts fork``: a new run that takes over what an earlier one had completed.

Laws of this file:
- the earlier run is read, never changed;
- the new run's Request is that of the earlier run, with its plan as it was edited while it ran, or the file's;
- what the worker decides (which calls are unchanged) is not guessed here: the result says it.
"""

from __future__ import annotations

import json
import secrets
from typing import Any, Final

from acts.language.values import Json
from acts.language.wire import AGENT, PLAN
from cli.command_errors import CommandError, command_error
from cli.commands.run import RunOptions, start_and_wait
from cli.console import clean, print_blocks, print_err
from cli.runs.run_reader import RunReader, open_run
from cli.text.preflight import run_preflight
from cli.text.problems import problem_blocks
from cli.text.set_input import add_set, names_set, next_results
from cli.text.source_text import STDIN, SourceText, parse_source, read_source

# Characters of the earlier run's id in that of the new one
_MAX_NAME: Final = 200


async def retry(id_: str, run_id: str | None, file: str | None, options: RunOptions, *, only_failed: bool) -> int:
    """Run what a run that has ended has not completed."""
    run = await open_run(id_, run_id)
    info = await run.describe()
    is_agent = info.workflow_type == AGENT
    if not is_agent:
        await _describe_plan(run)
    if info.close_time is None:
        name = clean(id_, 200)
        hint = f"acts cancel {name} ends it; acts fork {name} --from CALL runs it another way beside it"
        raise command_error(f'the run "{name}" has not ended', where="ID", hint=hint)
    if is_agent and (file is not None or only_failed):
        hint = "start one with `acts run FILE`, and a request of your own"
        raise command_error("an agent is retried as it was, without --edit and --only-failed", where="ID", hint=hint)
    if is_agent:
        return await _start_agent(run, options)
    resume: dict[str, Any] = {"workflowId": id_, "runId": info.run_id, **({"only": "failed"} if only_failed else {})}
    return await _start(run, resume, file, "retry", options)


async def fork(id_: str, run_id: str | None, call: str, file: str | None, options: RunOptions) -> int:
    """Run a plan another way from one call on."""
    run = await open_run(id_, run_id)
    await _describe_plan(run)
    resume = {"workflowId": id_, "runId": (await run.describe()).run_id, "keep": {"before": call}}
    return await _start(run, resume, file, "fork", options)


async def _describe_plan(run: RunReader) -> None:
    """Refuse a run that is no plan.

    Raises:
        CommandError: there is no such run, or a plan cannot resume it.
    """
    info = await run.describe()
    if info.workflow_type == PLAN:
        return
    name, type_ = clean(run.id, 200), clean(info.workflow_type, 100)
    hint = "only a Plan can be resumed"
    if info.workflow_type == AGENT:
        hint = f"acts retry starts an agent anew with what it had done; the plan of a tick is a Plan: {name}/plan-1"
    raise command_error(f'the run "{name}" is of the type {type_}', where="ID", hint=hint)


async def _start_agent(run: RunReader, options: RunOptions) -> int:
    """Start an agent with the whole context of the earlier one: its model sees what was done, and plans on."""
    request, messages = await run.request(), await run.messages()
    if messages is None:
        raise await run.no_answer_error()
    if not isinstance(request, dict):
        raise command_error(f'the run "{clean(run.id, 200)}" was not started with a request', where="ID")
    request = {**request, "context": messages}
    new_id = options.run or f"{run.id[:_MAX_NAME]}-retry-{secrets.token_hex(3)}"
    print_err(clean(f"starting an Agent with the context of {run.id}: its model sees what was done"), "dim")
    return await start_and_wait(request, AGENT, new_id, _source_of(request), options)


async def _start(run: RunReader, resume: dict[str, Any], file: str | None, word: str, options: RunOptions) -> int:
    request, source = await _read_request(run, file)
    request = _with_results(request, options.results)
    request = {**request, "config": {**(request.get("config") or {}), "resume": resume}}
    preflight = run_preflight(request, file=None if file in (None, STDIN) else file, agent=False)
    blocks = problem_blocks(preflight.problems, source)
    if preflight.errors:
        raise CommandError(*blocks)
    print_blocks(blocks)
    new_id = options.run or f"{run.id[:_MAX_NAME]}-{word}-{secrets.token_hex(3)}"
    print_err(clean(f"taking over what {run.id} had completed"), "dim")
    return await start_and_wait(request, PLAN, new_id, source, options)


async def _read_request(run: RunReader, file: str | None) -> tuple[dict[str, Any], SourceText]:
    """The Request of the new run, and the text that its problems are shown in."""
    edited = None if file is None else read_source(file)
    if edited is not None and isinstance(edited.value, dict) and "context" in edited.value:
        return edited.value, edited
    request = await run.request()
    if not isinstance(request, dict) or not isinstance(request.get("context"), list):
        raise command_error(f'the run "{clean(run.id, 200)}" was not started with a request', where="ID")
    if edited is not None:
        calls = edited.value.get("plan") if isinstance(edited.value, dict) else edited.value
        if not isinstance(calls, list):
            hint = "a list of calls, a plan message, or a whole request"
            raise command_error("the file holds no plan", where=edited.name, hint=hint)
    else:
        calls = await run.plan()  # as it was edited while it ran; without a worker, as it was sent
    if calls is not None:
        request = {**request, "context": _with_plan(request["context"], calls)}
    return request, _source_of(request)


def _with_results(request: dict[str, Any], results: str | None) -> dict[str, Any]:
    """A Request over a set gets a results file of its own: this one, or the next after that of the earlier run."""
    if results is not None or not names_set(request):
        named: dict[str, Any] = add_set(request, None, results)
        return named
    config = request.get("config")
    earlier = config.get("results") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(earlier, str) or not earlier:
        return request
    own = next_results(earlier)
    print_err(clean(f"results: {own}"), "dim")
    return {**request, "config": {**config, "results": own}}


def _with_plan(context: list[Json], calls: list[Json]) -> list[Json]:
    """A context whose latest plan has these calls."""
    places = [at for at, message in enumerate(context) if isinstance(message, dict) and message.get("type") == "plan"]
    if not places:
        return [*context, {"type": "plan", "plan": calls}]
    return [*context[: places[-1]], {**context[places[-1]], "plan": calls}, *context[places[-1] + 1 :]]


def _source_of(request: Json) -> SourceText:
    return parse_source("the request", json.dumps(request, ensure_ascii=False, indent=2), "JSON")
