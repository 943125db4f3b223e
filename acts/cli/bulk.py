"""One command for many runs: which they are, what is asked before, how fast it goes, and one summary after.

- The runs are chosen once and shown; who goes on types their number, or has named it. Nothing else is touched.
- A run that refuses stops no other one; those that refuse alike are one line of the summary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from acts.cli import console as cli
from acts.cli.console import clean, command_error, count_text, option, print_err
from acts.client import run_reader
from acts.client.client_errors import ClientError

if TYPE_CHECKING:
    from temporalio.client import Client

MAX_RUNS: Final = 10_000  # ten pages of the server
_MAX_NAMED: Final = 5  # ids in a line of the summary, and failures of a run

AnyRun = Annotated[str | None, cli.argument("[ID]", "The id of a run; without one, the options say which runs.")]
Query = Annotated[str | None, option("--query QUERY", "Runs that this visibility query finds.")]
Phases = Annotated[list[str] | None, option("--phase,-p PHASE", "Runs in this phase, like failed.")]
ByTool = Annotated[str | None, option("--tool NAME", "Runs with this tool.")]
ByFailedTool = Annotated[str | None, option("--tool NAME", "Runs in which a call of this tool failed.")]
Tags = Annotated[list[str] | None, option("--tag NAME=VALUE", "Runs with this tag.")]
Since = Annotated[str | None, option("--since TIME", "Runs started within this time, like 2h or 7d.")]
DryRun = Annotated[bool, option("--dry-run", "Of several runs: show which, do nothing.")]
MaxRate = Annotated[float, option("--max-rate", "Of several runs: so many in a second.", min=0.01, max=1_000)]
YesCount = Annotated[int | None, option("--yes N", "Of several: do not ask, if they are N.", min=1)]
RATE: Final = 10.0  # runs in a second: each is some requests to the server, and work for the workers


@dataclass(frozen=True)
class Bulk:
    """The runs that a command is for, by its options."""

    query: str | None = None
    phases: Sequence[str] = ()
    tool: str | None = None
    tags: Sequence[str] = ()
    since: str | None = None
    dry_run: bool = False
    max_rate: float = RATE
    yes: int | None = None

    def require_one_way(self, run: str | None) -> bool:
        """True where the options say which runs; CommandError: neither they nor an id do, or both."""
        by_options = any((self.query, self.phases, self.tool, self.tags, self.since))
        if by_options == (run is not None):
            hint = "an ID, or any of --phase, --tag, --tool, --since and --query"
            raise command_error("both name runs: the ID and the options" if run else "which runs?", hint=hint)
        if run is not None and (self.dry_run or self.yes is not None):
            hint = "leave the ID away, and name them by --phase, --tag, --tool, --since or --query"
            raise command_error("--dry-run and --yes are of several runs; nothing was done", hint=hint)
        return by_options

    async def choose(self, client: Client, condition: str, *, tool: bool = True) -> list[dict[str, Any]]:
        """The roots that fit and meet a condition of the command, as ``list_runs`` has them, the oldest first."""
        seconds = cli.read_seconds(self.since, "--since")
        earliest = None if seconds is None else datetime.now(UTC) - timedelta(seconds=seconds)
        own = [condition, *run_reader.tag_conditions(self.tags), *([self.query] if self.query else [])]
        query = run_reader.runs_query(self.phases, tool=self.tool if tool else None, since=earliest, conditions=own)
        rows = [row async for row in run_reader.list_runs(client, query, MAX_RUNS + 1)]
        if len(rows) > MAX_RUNS:
            raise command_error(f"more than {MAX_RUNS:,} runs fit", hint="narrow it, with --since or --query")
        return rows[::-1]

    def show(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            line = f"{row['id']}  {row['workflow']}  {row['phase']}  {cli.moment_text(row['started'])}"
            print_err(clean(line, 400))
            failures = row.get("failures", ())
            for error in failures[:_MAX_NAMED]:
                where = " of ".join(str(error[key]) for key in ("call", "instance") if error.get(key))
                print_err(clean(f"  {where or 'the run'}: [{error.get('code')}] {error.get('message')}", 300))
            if len(failures) > _MAX_NAMED:
                print_err(f"  … and {len(failures) - _MAX_NAMED:,} more")

    async def perform(self, verb: str, noun: str, items: Sequence[tuple[str, Callable[[], Awaitable[str]]]]) -> int:
        """Do it to each of what was shown, which returns in a word what was done, or raises ClientError."""
        if not items or self.dry_run:
            print_err(f"{count_text(len(items), noun)} to {verb}" + ("; nothing is done" if items else ""))
            return cli.EXIT_DONE
        self._require_count(verb, noun, len(items))
        loop = asyncio.get_running_loop()
        done: dict[str, list[str]] = {}
        failures: dict[str, list[str]] = {}
        begin = loop.time()
        for number, (id_, act) in enumerate(items):
            await asyncio.sleep(max(0.0, begin + number / self.max_rate - loop.time()))
            try:
                done.setdefault(await act(), []).append(id_)
            except (ClientError, cli.CommandError) as error:
                failures.setdefault(str(error).replace(id_, "ID"), []).append(id_)
                if isinstance(error, ClientError) and error.is_unavailable:
                    failures[str(error)] += [name for name, _ in items[number + 1 :]]
                    break
        print_err("; ".join(f"{word}: {len(ids):,} of {len(items):,}" for word, ids in done.items()))
        for text, ids in failures.items():
            cli.print_message(clean(text, 500), where=cli.list_names(ids, _MAX_NAMED))
        return cli.EXIT_FAILED if failures else cli.EXIT_DONE

    def _require_count(self, verb: str, noun: str, count: int) -> None:
        if self.yes is not None and self.yes != count:
            raise command_error(
                f"nothing is done: there are {count_text(count, noun)}, not {self.yes:,}", where="--yes"
            )
        try:
            typed = str(self.yes or typer.prompt(f"type {count} to {verb} {count_text(count, noun)}", err=True))
        except typer.Abort:
            typed = ""
        if typed.strip() != str(count):
            raise command_error(
                "nothing is done: the number was not typed", hint=f"--yes {count} does it without asking"
            )
