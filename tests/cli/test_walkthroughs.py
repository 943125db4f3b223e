"""The pages that a reader follows, followed: each becomes a shell script of its files and commands, as they stand.

A fenced block without a title is typed into the first terminal; one with a title is the file of that name (or goes to
its end), or what a second terminal runs until the page has something else for it. What is done in a checkout is not.
Each line of a block of text was printed; `…` stands for anything. One after another: pages name ports.
"""

from __future__ import annotations

import http.server
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from acts.cli.dev.temporal_server import free_address
from tests.cli.conftest import ROOT, clean_environment

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
ELSEWHERE = ("in the checkout", "changed lines of", "keys.env")
RUN = re.compile(r"^acts run.* --id (\S+) --detach.*$", re.MULTILINE)
MINUTES = 8
# A reader looks before deciding: the script waits until there is something to look at, or nothing more comes
AWAITING = '\nuntil acts show {} --json | grep -qE \'"phase": "(awaiting|completed|failed)"\'; do :; done'
RESTARTS = re.compile(r"^sleep 5 +# until the worker is ready again.*$", re.MULTILINE)
READY = "until tail -n1 second.log | grep -q 'the worker is ready'; do sleep 0.1; done"


def steps(page: str) -> Iterator[str]:
    """The script, block by block."""
    typed: list[str] = []  # in the second terminal
    yield "set -e; begin=$PWD"
    for number, (language, title, text) in enumerate(BLOCK.findall(page)):
        if title == "terminal 2":
            *before, last = text.strip().splitlines()
            typed += before
            yield "[ -z ${second-} ] || { kill $second; wait $second || :; rm second.log; }"
            yield "\n".join(["(", "cd $begin", *typed, f"exec {last}", ") >second.log 2>&1 & second=$!"])
            yield "until grep -qs 'ready\\|Server:' second.log; do kill -0 $second; sleep 0.1; done"
        elif title and not title.startswith(ELSEWHERE):
            name, _, is_end = title.partition(", ")
            yield f"cat {'>>' if is_end else '>'} {name} <<'END OF FILE'\n{text}END OF FILE"
        elif language == "sh" and not title:
            yield f'echo "=== {number} $SECONDS s"'
            yield RESTARTS.sub(READY, RUN.sub(lambda run: run[0] + AWAITING.format(run[1]), text))


def is_printed(line: str, output: str) -> bool:
    return re.search(".*".join(map(re.escape, line.split("…"))), output) is not None


@pytest.fixture
def chat() -> Iterator[tuple[str, list[bytes]]]:
    """The address of a webhook, and what was posted to it."""
    posts: list[bytes] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posts.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", posts
        server.shutdown()


def follow(name: str, folder: Path, chat: str = "") -> str:
    """What a reader of the page has seen at its end."""
    page = (ROOT / "docs" / name).read_text("utf-8").replace("7233", free_address(None).rpartition(":")[2])
    page = page.replace("https://chat.example.com/hooks/refunds", chat)
    script = folder / "page.sh"
    script.write_text("\n".join(steps(page)), "utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    seen = folder / "seen.txt"
    with seen.open("w") as file:
        process = subprocess.Popen(
            ["/bin/bash", "-c", f"exec /bin/bash {script} < <(yes)"], cwd=folder, start_new_session=True,
            env=clean_environment(PATH=path, COLUMNS="120"), stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        code = process.wait(MINUTES * 60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    output = seen.read_text("utf-8")
    assert code == 0, output
    for language, title, text in BLOCK.findall(page):
        if language == "text" and not title:
            assert [line for line in text.splitlines() if not is_printed(line, output)] == [], output
    return output


@pytest.mark.long
def test_the_first_hour_can_be_followed_and_quotes_the_files_of_acts_init(tmp_path: Path) -> None:
    follow("first-hour.md", tmp_path)
    files = "".join((tmp_path / "orders" / name).read_text("utf-8") for name in ("order_tools.py", "plan.yaml"))
    page = (ROOT / "docs" / "first-hour.md").read_text("utf-8")
    quotes = [text for language, title, text in BLOCK.findall(page) if language in ("python", "yaml") and not title]
    assert len(quotes) == 2
    assert all(text in files for text in quotes)


@pytest.mark.long
@pytest.mark.parametrize("page", ["people.md", "delegates.md"])
def test_the_commands_of_a_guide_run_as_they_stand(page: str, tmp_path: Path) -> None:
    follow(page, tmp_path)


@pytest.mark.long
def test_an_agent_comes_to_production_and_pays_once(tmp_path: Path, chat: tuple[str, list[bytes]]) -> None:
    address, posts = chat
    output = follow("production.md", tmp_path, address)
    assert [path.read_text() for path in sorted((tmp_path / "refunds" / "ledger").iterdir(), key=os.path.getmtime)] == [
        "A-7 2900\n", "A-8 48000\n", "A-9 48000\n",
    ]  # fmt: skip
    assert b"wait-A-10" in b"".join(posts)
    assert "2:issueRefund  completed  2" in output.partition("kill-A-9")[2]
