"""The worker of ``acts dev``, as a child process: ``python -m cli.dev.worker_process <fd>``.

Laws of this file:
- standard input rules it: one line of JSON is the environment that leads to the server,
  the next line asks it to stop, and its end means that the parent died: then it is over
  at once;
- one line of JSON goes to the descriptor: what it serves, or why it cannot;
- it never outlives a stop by more than its own limit, whatever its Activities do.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from typing import Any, Final

# After the limit that running Activities have; the parent kills a little later
_MARGIN_SECONDS: Final = 2.0


def main() -> None:
    """The process; it never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))  # blocked by the parent until this point
    answer = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8")

    def tell(**what: Any) -> None:
        answer.write(json.dumps(what) + "\n")
        answer.flush()

    code = 1
    try:
        code = _run(tell)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # threads of Activities cannot be stopped, and must not keep us


def _run(tell: Any) -> int:
    from activities.registry import RegistryError, from_environment
    from worker import Settings, SettingsError, serve

    try:
        settings, registry = Settings.from_environment(), from_environment()
    except (SettingsError, RegistryError) as error:
        tell(error=str(error))
        return 2
    first = sys.stdin.readline()
    if not first:
        return 0
    os.environ.update(json.loads(first))

    def ready(line: str) -> None:
        tell(line=line, taskQueue=settings.task_queue, activities=registry.names, tools=sorted(registry.tools))

    async def work() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        arguments = (loop, stop, settings.shutdown_seconds + _MARGIN_SECONDS)
        threading.Thread(target=_obey, args=arguments, name="parent", daemon=True).start()
        await serve(settings, registry, ready=ready, stop=stop)

    _runner()(work())
    return 0


def _runner() -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _obey(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, limit_seconds: float) -> None:
    """Wait for the parent's word; what comes after it is bounded."""
    word = sys.stdin.readline()
    if not word:
        os._exit(1)
    loop.call_soon_threadsafe(stop.set)
    timer = threading.Timer(limit_seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()
    sys.stdin.read()  # its end: the parent died while we were stopping
    os._exit(1)


if __name__ == "__main__":
    main()
