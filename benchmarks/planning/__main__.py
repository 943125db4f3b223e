"""A planning suite: how well a model plans with what it is told.

    python -m benchmarks.planning                        score all recorded answers; ask models that have a key
    python -m benchmarks.planning --model anthropic:…    ask one model, live
    python -m benchmarks.planning --write FOLDER         write each task's exact prompt to a file
    python -m benchmarks.planning --score FOLDER         score the answers of a folder, and record nothing
    python -m benchmarks.planning --read FOLDER --of NAME --date 2026-11-22   record answers from a folder, and score

``--write`` makes ``<task>.md`` (system, turns, schema); an answer is ``<task>.json`` beside it, one Solution. Recorded
answers stand in ``answers/<name>/`` with ``about.json``: whose they are, and of which day. A task is scored on its first
answer; ``asked again`` counts the worlds in which it does not end the task. Only a live model gets its problems back, so only there the requests until a valid answer are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from acts.activities.ask_model import build_model_request
from acts.activities.model_context import PromptContext, build_planner_request, room_of, sent_schema
from acts.activities.models import select
from acts.activities.models.interface import ModelError
from acts.activities.models.schema import drop_nulls
from acts.language.strict_json import read_json
from acts.planner.prompt import render_repair_turn
from acts.tree.records import ContextRef, ModelQuestion
from benchmarks.planning.forms import FORMS
from benchmarks.planning.held_out import HELD_OUT
from benchmarks.planning.judge import Verdict, build_agent, judge
from benchmarks.planning.task import Json, Task
from benchmarks.planning.tasks import TASKS
from benchmarks.tables import Table

ANSWERS: Final = Path(__file__).parent / "answers"
# Models that are asked where their provider's key is set
LIVE: Final = {"ANTHROPIC_API_KEY": "anthropic:claude-sonnet-5-5", "OPENAI_API_KEY": "openai:gpt-6-sol"}
# Further requests for a task whose answer was not valid
MAX_REPAIRS: Final = 2
# What is written for no model in particular is in the dialect that changes a schema least
_ANY_MODEL: Final = "anthropic:any"


@dataclass(frozen=True)
class Score:
    """What came of one task. ``requests`` until an answer was valid; None: unknown, or never."""

    task: Task
    first: Verdict
    is_held_out: bool
    requests: int | None = None
    tokens: int = 0


def all_tasks() -> Iterator[tuple[Task, bool]]:
    """Every task, and whether it is held out."""
    yield from ((task, False) for task in TASKS)
    yield from ((task, True) for task in (*HELD_OUT, *FORMS))


def context_of(task: Task) -> PromptContext:
    """The context that the planner of a task is shown."""
    agent = build_agent(task)
    request = agent.request
    return PromptContext(
        dict(agent.context.tools), request.schema, agent.context.mode, request.config.step,
        request.instances(), request.config.maxTicks, list(request.context), list(agent.turns), request.config.tools.search,
    )  # fmt: skip


def write_prompts(folder: Path) -> None:
    """Write the exact prompt of each task."""
    folder.mkdir(parents=True, exist_ok=True)
    for task, _ in all_tasks():
        prompt, schema = build_planner_request(context_of(task), len(task.earlier) + 1, room_of(_ANY_MODEL))
        blocks = [("system", "\n\n".join(part.text for part in prompt.system))]
        blocks += [(turn.role, turn.text) for turn in prompt.turns]
        blocks += [(f"{name} of the answer", text) for name, text in sent_schema(schema, _ANY_MODEL).items()]
        text = "\n".join(f"=== {head}\n{text}" for head, text in blocks)
        (folder / f"{task.id}.md").write_text(text + "\n", "utf-8")
    print(f"{len([*all_tasks()])} prompts in {folder}; put each answer beside its prompt, as <task>.json")


def _answer_file(folder: Path, task: Task) -> Path:
    """Where an answer stands, ``<task>.json``; ``<number>.json`` for a task whose prompt is known by its number."""
    file = folder / f"{task.id}.json"
    number = folder / f"{task.id[:2]}.json"
    return number if task.id[:2].isdigit() and not file.is_file() else file


def record_answers(folder: Path, name: str, date: str, how: str) -> Path:
    """Copy the answers of a folder to the recorded ones."""
    target = ANSWERS / name
    target.mkdir(parents=True, exist_ok=True)
    (target / "about.json").write_text(json.dumps({"model": name, "date": date, "how": how}, indent=1) + "\n", "utf-8")
    for task, _ in all_tasks():
        file = _answer_file(folder, task)
        if file.is_file():
            (target / f"{task.id}.json").write_text(file.read_text("utf-8"), "utf-8")
    return target


def score_recorded(folder: Path) -> list[Score]:
    """The scores of recorded answers; a task without one is left out, an answer that is no JSON is not valid."""
    scores = []
    for task, is_held_out in all_tasks():
        file = _answer_file(folder, task)
        if file.is_file():
            scores.append(Score(task, _judge_text(task, file.read_text("utf-8")), is_held_out))
    return scores


def _judge_text(task: Task, text: str) -> Verdict:
    """The verdict on a recorded answer, nulls that stand for absent properties left out."""
    try:
        answer = read_json(text)
    except ValueError as error:
        return Verdict((f"not JSON: {error}",))
    _, schema = build_planner_request(context_of(task), len(task.earlier) + 1, room_of(_ANY_MODEL))
    return judge(task, drop_nulls(answer, schema))


async def score_live(model: str) -> list[Score]:
    """The scores of a model that is asked now, one task after another."""
    return [await _score_one(model, task, is_held_out) for task, is_held_out in all_tasks()]


async def _score_one(model: str, task: Task, is_held_out: bool) -> Score:  # noqa: FBT001 - a fact of the task
    tick = len(task.earlier) + 1
    prompt, schema = build_planner_request(context_of(task), tick, room_of(model))
    source = ContextRef(workflowId=f"planning-{task.id}", runId="", messageCount=0)
    question = ModelQuestion(ask="solution", model=model, source=source)
    request = build_model_request(question, prompt, schema, "solution", f"tick {tick}")
    first: Verdict | None = None
    requests, tokens = None, 0
    for number in range(1, MAX_REPAIRS + 2):
        try:
            response = await select.ask(model, request)
            verdict, text = judge(task, response.value), response.text
            tokens += response.tokens.inputTokens + response.tokens.outputTokens
        except ModelError as error:
            verdict, text = Verdict((f"{error.code}: {error.message}",)), error.text
        first = first or verdict
        if verdict.is_valid:
            requests = number
            break
        request = request.with_repair(text, render_repair_turn(verdict.problems))
    return Score(task, first or Verdict(("no answer",)), is_held_out, requests, tokens)


def print_scores(title: str, scores: list[Score]) -> None:
    """A table by kind, and what was wrong."""
    table = Table(title, ["tasks", "number", "valid at first", "right at first", "asked again", "requests", "tokens"])
    for kind in dict.fromkeys(score.task.kind for score in scores):
        table.rows.append(_row(kind, [s for s in scores if s.task.kind == kind]))
    for name, is_held_out in (("open", False), ("held out", True)):
        table.rows.append(_row(f"all {name}", [s for s in scores if s.is_held_out is is_held_out]))
    print(table.text())
    for score in scores:
        for text in (*score.first.problems, *score.first.wrong):
            print(f"- {score.task.id}: {text}")


def _row(name: str, scores: list[Score]) -> list[Any]:
    requests = [s.requests for s in scores if s.requests is not None]
    return [
        name, len(scores), sum(s.first.is_valid for s in scores), sum(s.first.is_right for s in scores),
        sum(s.first.again for s in scores),
        f"{sum(requests) / len(requests):.2f}" if requests else "", sum(s.tokens for s in scores) or "",
    ]  # fmt: skip


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description="how well a model plans")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the prompts")
    parser.add_argument("--read", type=Path, metavar="FOLDER", help="record answers")
    parser.add_argument("--score", type=Path, metavar="FOLDER", help="score answers")
    parser.add_argument("--of", metavar="NAME", help="whose answers they are")
    parser.add_argument("--date", help="of which day")
    parser.add_argument("--how", default="each prompt answered alone", help="how they were obtained")
    parser.add_argument("--model", help="ask this model, live")
    options = parser.parse_args()
    if options.write is not None:
        write_prompts(options.write)
        return 0
    if options.score is not None:
        print_scores(str(options.score), score_recorded(options.score))
        return 0
    if options.read is not None:
        if not options.of or not options.date:
            parser.error("--read needs --of and --date: whose answers they are, and of which day")
        target = record_answers(options.read, options.of, options.date, options.how)
        print_scores(options.of, score_recorded(target))
        return 0
    models = [options.model] if options.model else [model for key, model in LIVE.items() if os.environ.get(key)]
    for model in models:
        print_scores(f"{model}, live", asyncio.run(score_live(model)))
    for folder in sorted(p.parent for p in ANSWERS.glob("*/about.json")) if not options.model else ():
        about: Json = json.loads((folder / "about.json").read_text("utf-8"))
        print_scores(f"{about['model']}, recorded {about['date']}", score_recorded(folder))
    if not models and not [*ANSWERS.glob("*/about.json")]:
        print("no key is set and no answers are recorded: see --write and --read", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
