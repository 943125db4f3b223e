"""The worker of ``acts dev`` as a child process, seen from its parent.

Laws of this file:
- a pipe controls the child (``cli.dev.worker_process``): a line on it requests a stop, its end means that the parent
  died. So the worker ends even after ``kill -9`` of the parent, and one that hangs or crashes can always be stopped;
- every wait is bounded, and a second Ctrl-C cuts the only long one short.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import IO, TYPE_CHECKING, Any, Final

from cli.command_errors import EXIT_FAILED, EXIT_WRONG_INPUT, command_error
from cli.console import print_err

if TYPE_CHECKING:
    from pathlib import Path

    from cli.dev.temporal_server import DevServer

READY_SECONDS: Final = 30.0  # it needs 1 s; importing the worker's modules takes as long as they take
SHUTDOWN: Final = "ACTS_SHUTDOWN_SECONDS"
# Of running Activities, unless the environment says otherwise: a developer restarts often, and they are retried then
SHUTDOWN_SECONDS: Final = 3.0
KILL_SECONDS: Final = 3.0  # between the worker's own limit for a stop and the kill
QUIET_STOP_SECONDS: Final = 0.5  # a stop that takes longer is explained


class WorkerChild:
    """A worker process. It imports its modules while it waits for the server's address, which ``connect`` sends.

    ``log`` receives its output, otherwise the terminal does.
    """

    def __init__(self, environment: Mapping[str, str], log: Path | None) -> None:
        self._log = log
        self._stack = ExitStack()
        read_end, write_end = os.pipe()
        self._pipe = read_end
        self._stack.callback(os.close, read_end)
        output: IO[bytes] | None = self._stack.enter_context(log.open("ab")) if log is not None else None
        # The terminal's Ctrl-C goes to the whole process group, but only the parent stops the child. A blocked signal
        # is inherited, so the child ignores it from its first instruction on; for the parent it is only delayed.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter and a module of ours
                [sys.executable, "-m", "cli.dev.worker_process", str(write_end)],
                stdin=subprocess.PIPE, stdout=output or sys.stderr, stderr=output, pass_fds=(write_end,),
                env=_with_plain_logs(environment, is_file=output is not None),
            )  # fmt: skip
        finally:
            os.close(write_end)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def connect(self, server: DevServer) -> Mapping[str, Any]:
        """Send the child the server's address; what it reports that it serves.

        Raises:
            CommandError: it cannot start, and why.
        """
        variables = {"ADDRESS": server.address, "NAMESPACE": server.namespace, "CONFIG_FILE": os.devnull}
        with suppress(BrokenPipeError):  # the child has ended, and its error is in the pipe
            self._write_line(json.dumps({f"TEMPORAL_{name}": value for name, value in variables.items()}))
        report: dict[str, Any] = json.loads(self._read_line() or "{}")
        if "error" in report:
            hint = "the variables ACTS_* say what it loads and how it runs"
            raise command_error(str(report["error"]), where="the worker", hint=hint, code=EXIT_WRONG_INPUT)
        if not report:
            hint = f"its output is in {self._log}" if self._log is not None else "see its output above"
            raise command_error("the worker did not start", hint=hint, code=EXIT_FAILED)
        return report

    def has_ended_within(self, seconds: float) -> bool:
        """Wait for its end, at most so long."""
        readable, _, _ = select.select([self._pipe], [], [], seconds)
        return bool(readable)

    def stop(self) -> None:
        """Stop gracefully, unless it takes too long or Ctrl-C comes again."""
        try:
            with suppress(OSError):
                self._write_line("stop")
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(QUIET_STOP_SECONDS)
                return
            limit = _shutdown_seconds()
            print_err(f"running Activities have up to {limit:g} s to finish; Ctrl-C again does not wait for them")
            self._process.wait(limit + KILL_SECONDS)
        except subprocess.TimeoutExpired:
            print_err("the worker did not stop in time and was killed; its Activities will be retried")
        except KeyboardInterrupt:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """End it now, and free what it holds of this process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        self._stack.close()

    def _write_line(self, text: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()

    def _read_line(self) -> str:
        """The child's one line; nothing if it ended or took too long."""
        data = b""
        deadline = time.monotonic() + READY_SECONDS
        while not data.endswith(b"\n"):
            readable, _, _ = select.select([self._pipe], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self._pipe, 65536) if readable else b""
            if not part:
                return ""
            data += part
        return data.decode()


def _with_plain_logs(environment: Mapping[str, str], *, is_file: bool) -> dict[str, str]:
    """The environment; without a terminal to read them, the logs have no color codes, of the SDK's core neither."""
    if is_file or not sys.stderr.isatty():
        return {"NO_COLOR": "1", **environment}
    return dict(environment)


def _shutdown_seconds() -> float:
    try:
        return min(max(float(os.environ.get(SHUTDOWN) or SHUTDOWN_SECONDS), 0.0), 3600.0)
    except ValueError:
        return SHUTDOWN_SECONDS
