"""The worker of ``acts dev``, as a child process: ``python -m cli.dev.worker_process <fd>``.

Laws of this file:
- standard input controls it: the first line is JSON, the environment that leads to the server; the second requests a
  stop; the end of input means that the parent died, and ends the process at once;
- one line of JSON goes to the file descriptor: what the worker serves, or its error;
- it never outlives a stop by more than its limit, whatever its Activities do.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from cli.dev.watched_files import own_files

# Beyond the limit of running Activities; the parent kills a little later
_EXTRA_SECONDS: Final = 2.0


def main() -> None:
    """The process; it never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))  # the parent blocked it for the start
    output = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")

    def send_report(**report: Any) -> None:
        output.write(json.dumps(report) + "\n")
        output.flush()

    code = 1
    try:
        code = _run(send_report)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # threads of Activities cannot be stopped, and must not delay the exit


def _run(send_report: Any) -> int:
    from activities.registry import RegistryError, from_environment
    from telemetry.logs import configure_logs
    from telemetry.telemetry_settings import TelemetryError, TelemetrySettings
    from worker import serve
    from worker_runtime.process_watch import limit_stop
    from worker_settings import Settings, SettingsError

    try:
        # The terminal is for people: no line for what goes well
        configure_logs(TelemetrySettings.from_environment({"ACTS_LOG_LEVEL": "warning", **os.environ}))
        settings, registry = Settings.from_environment(), from_environment()
    except (SettingsError, RegistryError, TelemetryError) as error:
        send_report(error=str(error))
        return 2
    files = _watched_files()
    variables = sys.stdin.readline()
    if not variables:
        return 0
    os.environ.update(json.loads(variables))

    def ready(_line: str) -> None:
        tools = sorted(registry.tools)
        send_report(taskQueue=settings.task_queue, activities=registry.names, tools=tools, files=files)

    async def work() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        limit = settings.shutdown_seconds + _EXTRA_SECONDS

        def request_stop() -> None:
            limit_stop(limit)
            stop.set()

        loop.add_signal_handler(signal.SIGTERM, request_stop)
        arguments = (loop, stop, limit)
        threading.Thread(target=_obey_parent, args=arguments, name="parent", daemon=True).start()
        await serve(settings, registry, ready=ready, stop=stop)

    _runner()(work())
    return 0


def _watched_files() -> list[str]:
    """The files that the parent watches: a change of one starts the worker again."""
    folders = [Path(folder) for folder in os.environ.get("ACTS_TOOLS", "").split(os.pathsep) if folder]
    others = [file for folder in folders for file in (folder, *folder.glob("*.json"))]
    others += [Path(file) for name in ("ACTS_MCP", "ACTS_MODELS") if (file := os.environ.get(name))]
    return own_files(Path.cwd(), os.environ.get("ACTS_ACTIVITIES", "").split(","), others)


def _runner() -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _obey_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, limit_seconds: float) -> None:
    """Wait for the parent's request to stop, and limit how long the stop may take."""
    if not sys.stdin.readline():
        os._exit(1)
    loop.call_soon_threadsafe(stop.set)
    timer = threading.Timer(limit_seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()
    sys.stdin.read()  # returns when the parent dies during the stop
    os._exit(1)


if __name__ == "__main__":
    main()
