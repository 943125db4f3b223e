"""Commands that need no server: ``validate``, ``simulate``, ``graph FILE``, ``schema``.

Laws of this file:
- Temporal is not imported, unless a Request leaves something to Activities that this
  environment loads, or is one for an agent;
- findings go to stderr, what was asked for to stdout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from acts.language.errors import InvalidRequest
from acts.language.values import Json
from cli.command_errors import DONE, WRONG_INPUT, CommandError, MessageBlock, refuse
from cli.console import clean, console, out, out_json, print_blocks
from cli.render.tables import MAX_ROWS
from cli.text.inputs import with_inputs
from cli.text.plan_files import STDIN, Source, read
from cli.text.preflight import Verdict, judge, needs_tools
from cli.text.problems import blocks, from_json

# What a person reads of combinations and of the names in one line; --json has all
MAX_COMBINATIONS: Final = 16
MAX_NAMES: Final = 20


def validate(given: str, inputs: Sequence[str], *, strict: bool, as_json: bool, agent: bool | None = None) -> int:
    """Print every problem. 0 when a worker may run it, else 2."""
    source, request = _read(given, inputs)
    verdict = judge(request, strict=strict, file=_file(given), agent=agent)
    if as_json:
        out_json([p.to_json() for p in verdict.problems])
        return WRONG_INPUT if verdict.errors else DONE
    print_blocks(blocks(verdict.problems, source))
    if verdict.errors:
        console(stderr=True).print(f"{clean(source.name)} is not valid: {_counted(verdict)}", style="bold red")
        return WRONG_INPUT
    out(f"{clean(source.name)} is valid: {_summary(verdict)}")
    return DONE


def simulate(given: str, inputs: Sequence[str], *, as_json: bool) -> int:
    """Print what the plan would do.

    Raises:
        Refusal: the Request does not validate, or has no plan.
    """
    from acts.simulation.simulate import simulate as dry_run

    source, verdict, request = _sound(given, inputs, "the simulation")
    try:
        found = dry_run(request, verdict.tools, verdict.served)
    except InvalidRequest as error:
        raise CommandError(*blocks(error.problems, source)) from None
    wrong = [p for p in found["problems"] if p.get("severity", "error") == "error"]
    if as_json:
        out_json(found)
        return WRONG_INPUT if wrong else DONE
    seen = {(p.code, p.pointer) for p in verdict.problems}
    fresh = [p for p in from_json(found["problems"]) if (p.code, p.pointer) not in seen]
    print_blocks(blocks([*verdict.problems, *fresh], source))
    _print_simulation(found)
    return WRONG_INPUT if wrong else DONE


def graph(given: str, inputs: Sequence[str], *, mermaid: bool) -> int:
    """Print the plan as a drawing.

    Raises:
        Refusal: the Request does not validate, or has no plan.
    """
    source, verdict, request = _sound(given, inputs, "the picture")
    print_blocks(blocks(verdict.problems, source))
    draw(request, verdict, mermaid=mermaid)
    return DONE


def draw(request: Json, verdict: Verdict, *, mermaid: bool, told: Mapping[str, Any] | None = None) -> None:
    """A sound Request's plan on stdout; ``told`` is the result of its run."""
    from acts.plan.validate import validate_request
    from acts.views.mermaid import mermaid as draw_mermaid
    from acts.views.plan_drawing import draw_waves
    from cli.render.terminal_plan import render_plan

    prepared = validate_request(request, verdict.tools, verdict.served)
    if mermaid:
        out(draw_mermaid(prepared, told).rstrip("\n"))
    else:
        out(render_plan(draw_waves(prepared, told), console().width))


def schema() -> int:
    """Print the JSON Schema of a Request file."""
    from cli.text.editor_schema import request_schema

    out_json(request_schema())
    return DONE


def _read(given: str, inputs: Sequence[str]) -> tuple[Source, Json]:
    source = read(given)
    return source, with_inputs(source.value, inputs)


def _file(given: str) -> str | None:
    return None if given == STDIN else given


def _sound(given: str, inputs: Sequence[str], what: str) -> tuple[Source, Verdict, Json]:
    """A Request that can be drawn and walked: its own plan, also where that is only shown to an agent.

    Raises:
        Refusal: it does not validate, has no plan, or ``what`` is made of it needs Tools that are not known here.
    """
    source, request = _read(given, inputs)
    verdict = judge(request, file=_file(given))
    if verdict.agent and not verdict.errors:
        if not verdict.calls:
            raise refuse(
                "there is no plan to look at: an agent makes it when it runs",
                where=source.name,
                hint=f"acts run {source.name}",
            )
        text = "an agent is shown this plan and makes its own; this is the one in the file"
        print_blocks([MessageBlock(text, source.name, severity="note")])
        verdict = judge(request, file=_file(given), agent=False)
    if verdict.errors:
        raise CommandError(*blocks(verdict.problems, source))
    if verdict.unseen:
        raise needs_tools(what, verdict.unseen, source.name)
    return source, verdict, request


def _counted(verdict: Verdict) -> str:
    errors = len(verdict.errors)
    warnings = len(verdict.problems) - errors
    return _many(errors, "error") + (f", {_many(warnings, 'warning')}" if warnings else "")


def _summary(verdict: Verdict) -> str:
    request = verdict.request
    parts = [_many(verdict.calls, "call")]
    if verdict.agent and request is not None:
        parts = ["a task for an agent", clean(f"model {request.config.model}", 100)]
        parts += [f"{_many(verdict.calls, 'call')} to be shown to it"] if verdict.calls else []
    elif request is not None and request.instances():
        parts.append(_many(len(request.instances()), "instance"))
    warnings = len(verdict.problems)
    return ", ".join([*parts, *([_many(warnings, "warning")] if warnings else [])])


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _print_simulation(found: Mapping[str, Any]) -> None:
    screen = console()
    screen.print("waves", style="bold")
    for number, wave in enumerate(found["waves"], 1):
        screen.print(
            f"  {number}  "
            + ", ".join(clean(c) for c in wave[:MAX_NAMES])
            + (f", … ({len(wave)} in all)" if len(wave) > MAX_NAMES else "")
        )
    screen.print("critical path", style="bold")
    screen.print("  " + " → ".join(clean(c) for c in found["criticalPath"][:40]))
    screen.print("calls", style="bold")
    screen.print(_calls_table(found["calls"]))
    if found["outside"]:
        names = ", ".join(clean(c) for c in found["outside"][:MAX_NAMES])
        more = f", … ({len(found['outside'])} in all)" if len(found["outside"]) > MAX_NAMES else ""
        screen.print("may change something outside", style="bold")
        screen.print(f"  {names}{more}")
    _print_outcomes(found["outcomes"])
    requests, cost = found["requests"], found.get("cost")
    parts = [f"{_span(requests)} model requests"]
    if requests["max"]:
        parts.append(f"{_span(cost)} USD" if cost else "cost unknown")
        parts += [f"about {_span(found['tokens'])} tokens"]
    delegates = found["delegates"]
    parts += [f"{_span(delegates)} delegates, whose requests are not counted"] if delegates["max"] else []
    unknown = "actions" in found["unforeseen"]
    parts += [f"{found['actions']['min']:,} or more" if unknown else _span(found["actions"])]
    parts[-1] += " Temporal actions"
    parts += [f"{found['runs']:,} child workflows for instances"] if "runs" in found else []
    screen.print("forecast", style="bold")
    screen.print("  " + ", ".join(parts))


def _calls_table(calls: Sequence[Mapping[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 2))
    for title in ("call", "how", "reads", "writes"):
        table.add_column(title, overflow="fold")
    for call in calls[:MAX_ROWS]:
        behind = call.get("activity") or call.get("delegate")
        how = f"{call['how']} {behind}" if behind and behind != call["tool"] else str(call["how"])
        how += f" on {call['taskQueue']}" if call.get("taskQueue") else ""
        how += ", in the background" if call.get("background") else ""
        how += ", after approval" if call.get("approval") else ""
        name = str(call["id"]) + (f" [{call['instance']}]" if call.get("instance") else "")
        reads = ", ".join([*call["reads"], *(f"{s} (scope)" for s in call["scopes"])])
        table.add_row(*(Text(clean(t, 300)) for t in (name, how, reads, ", ".join(call["writes"]))))
    if len(calls) > MAX_ROWS:
        table.add_row(Text(f"… and {len(calls) - MAX_ROWS} more; --json lists all"))
    return table


def _print_outcomes(outcomes: Mapping[str, Any]) -> None:
    listed = [c for c in outcomes["combinations"] if c["choices"]]
    if not listed:
        return
    screen = console()
    screen.print("outcomes", style="bold")
    for item in listed[:MAX_COMBINATIONS]:
        screen.print("  if " + ", ".join(clean(f"{call} → {path}") for call, path in item["choices"].items()))
        for key in ("run", "skipped", "failed", "waiting"):
            if item.get(key):
                names = ", ".join(clean(c) for c in item[key][:MAX_NAMES]) + (
                    " …" if len(item[key]) > MAX_NAMES else ""
                )
                screen.print(
                    f"    {key.ljust(8)} {names}",
                    style="dim" if key == "skipped" else "red" if key == "failed" else None,
                )
    if len(listed) > MAX_COMBINATIONS or outcomes["truncated"]:
        screen.print("  … and more; --json lists up to 64", style="dim")


def _span(found: Mapping[str, float] | None) -> str:
    if not found:
        return "unknown"
    low, high = found["min"], found["max"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
