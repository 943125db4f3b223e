"""``acts doctor``: what is wrong between this shell, the server and the workers, and what to do about it.

Laws of this file:
- it changes nothing, and asks a model only where ``--ask`` names it;
- one finding is one line, with what to do below it; a check that breaks is a finding;
- exit codes: 0 nothing fails, 1 something does, 3 no server answers.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from cli.command_errors import EXIT_DONE, EXIT_FAILED, EXIT_NO_SERVER, CommandError
from cli.console import clean, console, print_json
from cli.doctor import local_checks, server_checks, worker_checks
from cli.doctor.findings import MARKS, STYLES, Finding, fail
from cli.runs import server

if TYPE_CHECKING:
    from activities.registry import Registry


async def doctor(ask: Sequence[str], queue: str | None, *, as_json: bool) -> int:
    """Check everything, print a line for each finding; the exit code says whether something fails."""
    findings = local_checks.check_settings()
    registry, about_tools = local_checks.load_registry()
    findings += about_tools
    at_server, is_reached = await _check_server(registry, queue or server.task_queue())
    findings += [*at_server, *local_checks.check_payloads(), *local_checks.check_models()]
    if ask:
        from cli.doctor.model_checks import check_asked

        findings += await check_asked(ask)
    findings += await local_checks.check_mcp(registry) if registry is not None else []
    findings += await local_checks.check_addresses()
    is_well = all(f.level != "fail" for f in findings)
    if as_json:
        print_json({"ok": is_well, "findings": [f.to_json() for f in findings]})
    else:
        _print(findings)
    return EXIT_DONE if is_well else EXIT_FAILED if is_reached else EXIT_NO_SERVER


async def _check_server(registry: Registry | None, queue: str) -> tuple[list[Finding], bool]:
    """The findings about the server and the workers; False where no server answers."""
    try:
        target = server.find_target()
        client = await server.connect(target)
    except CommandError as error:
        block = error.blocks[0]
        facts = "; ".join(f"{label}: {fact}" for label, fact in block.facts if label != "hint")
        hint = next((fact for label, fact in block.facts if label == "hint"), "")
        return [fail("server", f"{block.head} ({facts})" if facts else block.head, hint)], False
    checks: dict[str, Coroutine[Any, Any, list[Finding]]] = {
        "server": server_checks.check_server(client, target.address),
        "clock": server_checks.check_clock(client),
        "namespace": server_checks.check_namespace(client),
        "search attributes": server_checks.check_search_attributes(client),
        "workers": worker_checks.check_workers(client, queue, registry),
        "runs": server_checks.check_problems(client),
    }
    findings: list[Finding] = []
    for name, check in checks.items():
        findings += await _guard(name, check)
    return findings, True


async def _guard(name: str, check: Coroutine[Any, Any, list[Finding]]) -> list[Finding]:
    from temporalio.service import RPCError

    try:
        return await check
    except RPCError as error:
        return [server_checks.explain_rpc(name, error)]


def _print(findings: Sequence[Finding]) -> None:
    width = max(len(f.check) for f in findings)
    for finding in findings:
        line = Text()
        line.append(f"{MARKS[finding.level]} ", STYLES[finding.level])
        line.append(f"{finding.check.ljust(width)}  ", "dim")
        line.append(clean(finding.text))
        console().print(line)
        if finding.hint:
            console().print(Text(f"  {' ' * width}  → {clean(finding.hint)}", "dim"))
