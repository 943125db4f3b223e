"""Values are planted in secrets, parameters, results and failures, with a codec, and looked for in all that is written.

The server's database file, the worker's log, its traces and metrics, and what a client reads with and without the keys.
"""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import os
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

import acts
from acts.cli.commands.operations import create_key
from acts.cli.dev.temporal_server import DevServer, dev_server
from acts.client.client_errors import ClientError
from acts.payloads.codec import VARIABLE
from acts.payloads.converter import client_converter
from acts.workflows.types import PlanWorkflow
from tests.cli.conftest import ROOT, clean_environment, run_acts
from tests.security.leaky_tools import TOOLS
from tests.support import assert_eventually, free_port

Json = Any
SECRET = 'sk-test/51Hq+planted secret\\of"ours'  # noqa: S105 - planted
LATER = "the-secret-that-came-later"
PLANTED = {name: f"planted-{name}-{uuid.uuid4().hex}" for name in ("parameter", "failure", "kept", "reason")}


def forms(value: str) -> set[bytes]:
    """The bytes as which a value could be in a file: as text, in base64 wherever it begins, in UTF-16."""
    encoded = {value.encode(), value.encode("utf-16-le"), value.encode().hex().encode()}
    for before in range(3):
        text = base64.b64encode(bytes(before) + value.encode())
        encoded.add(text[4:-4])
    return encoded


def files_with(folder: Path, *values: str) -> list[tuple[str, str]]:
    """The files in which one of the values is, in whatever form."""
    contents = {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    return [
        (name, value)
        for name, data in contents.items()
        for value in values
        if any(form in data for form in forms(value))
    ]


@contextmanager
def worker_process(environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "acts.worker"], cwd=ROOT, env=clean_environment(**environment),
            stdout=subprocess.PIPE, stderr=file, text=True,
        )  # fmt: skip
        with process:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            assert any(line.startswith("acts worker: task queue") for line in lines)
            try:
                yield
            finally:
                process.terminate()
            log.with_name("worker.out").write_text("".join(lines), "utf-8")


@contextmanager
def collector(file: Path) -> Iterator[str]:
    """An endpoint for traces that writes what it receives to a file; yields its address."""

    class Spans(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with file.open("ab") as spans:
                spans.write(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Spans) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[tuple[DevServer, dict[str, str], Client]]:
    """A server with a database, a worker with keys and a secret, and a client with the keys."""
    keys, secrets = folder / "keys.txt", folder / "secrets"
    secrets.mkdir()
    keys.write_text(f"k1 {base64.b64encode(os.urandom(32)).decode()}\n", "utf-8")
    (secrets / "crm-token").write_text(SECRET + "\n", "utf-8")
    approvers = folder / "approvers.json"
    approvers.write_text(json.dumps({"ada": base64.b64encode(create_key(folder / "ada.pem")).decode()}), "utf-8")
    spans = folder / "state" / "spans.bin"
    with dev_server(ui=False, state=folder / "state") as server, collector(spans) as traces:
        environment = {
            "TEMPORAL_ADDRESS": server.address, "ACTS_TASK_QUEUE": "planted", VARIABLE: str(keys),
            "ACTS_SECRETS": str(secrets), "ACTS_ACTIVITIES": "tests.security.leaky_tools",
            "ACTS_SHUTDOWN_SECONDS": "1", "ACTS_APPROVERS": str(approvers), "ACTS_METRICS": f"127.0.0.1:{free_port()}",
            "OTEL_EXPORTER_OTLP_ENDPOINT": traces, "OTEL_BSP_SCHEDULE_DELAY": "100",
        }  # fmt: skip
        with worker_process(environment, folder / "state" / "worker.log"), pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, str(keys))
            yield server, environment, await Client.connect(server.address, data_converter=client_converter())


def call(tool: str, path: str, **more: Json) -> Json:
    return {"_tool": tool, "_outputPath": path, **more}


def request(*calls: Json, **config: Json) -> Json:
    return {
        "config": config,
        "context": [
            *({"type": "tool", "tool": name} for name in TOOLS),
            {"type": "state", "state": {"kept": PLANTED["kept"]}},
            {"type": "plan", "plan": list(calls)},
        ],
    }  # fmt: skip


ENDS = ("exit", "generator", "type")
PLAN = (
    call("leakResult", "†state.a", planted=PLANTED["parameter"]),
    call("leakThread", "†state.b"),
    call("leakLocal", "†state.c", planted="†state.kept"),
    call("leakFailure", "†state.d || †state.error", planted=PLANTED["failure"]),
    call("leakFailure", "†state.e || †state.otherError"),
    call("leakPrint", "†state.f || †state.interruptError"),
    *(call("leakExit", f"†state.{end} || †state.{end}Error", planted=end) for end in ENDS),
)


async def everything_of(client: Client, id_: str) -> str:
    """All that a client with the keys reads of a run: its decrypted history, and its answers."""
    handle = client.get_workflow_handle(id_)
    texts = [repr(await handle.query(name)) for name in ("status", "context", "plan", "pending", "graph")]
    assert client.data_converter.payload_codec is not None
    async for event in handle.fetch_history_events():
        texts.append(str(event))
        for field, value in event.ListFields():
            texts.append(str(field.name))
            for part in ("input", "result", "details", "last_heartbeat_details"):
                payloads = getattr(getattr(value, part, None), "payloads", ())
                texts += [p.data.decode("latin-1") for p in await client.data_converter.payload_codec.decode(payloads)]
    return "\n".join(texts)


async def check_signed_decisions(folder: Path, environment: dict[str, str], client: Client, id_: str) -> None:
    """With approvers, a decision that is not signed is refused, and one that is signed is recorded with its key."""
    create_key(folder / "eve.pem")
    plan = request(call("leakThread", "†state.a"), call("leakThread", "†state.b"), approve={"plan": True})
    run = await client.start_workflow("Plan", plan, id=id_, task_queue="planted")

    async def waits() -> bool:
        return bool(await run.query("pending"))

    async def act(*words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(run_acts, *words, id_, "--by", "ada", cwd=folder, **environment)

    await assert_eventually(waits, why="the plan waits")
    await run.signal("approve", {"by": "ada"})
    subject = (await run.query("pending"))[0]["subject"]
    unsigned, unseen = await act("approve"), await act("approve", "--key", "ada.pem")
    assert f"name what you have seen: --subject {subject[:16]}" in unseen.stderr
    forged = await act("approve", "--key", "eve.pem", "--subject", subject)
    assert "has to be signed; approvers: ada" in unsigned.stderr
    assert 'no key of "ada" has signed' in forged.stderr
    assert (unsigned.returncode, forged.returncode) == (2, 2)
    signing = acts.Client(client, key=folder / "ada.pem").run(id_)
    with pytest.raises(ClientError, match="a signed approval names its subject"):
        await signing.approve(by="ada")
    await signing.reject(PLANTED["reason"], by="ada")
    (decision,) = (await asyncio.wait_for(run.result(), 180))["decisions"]
    assert (decision["by"], decision["reason"], decision["decision"]) == ("ada", PLANTED["reason"], "reject")
    assert decision["signed"]["signature"]
    # A worker without the variable replays the run as it was
    history = await run.fetch_history()
    replayer = Replayer(
        workflows=[PlanWorkflow], workflow_runner=UnsandboxedWorkflowRunner(), data_converter=client.data_converter
    )
    assert "ACTS_APPROVERS" not in os.environ
    await replayer.replay_workflow(history)


@pytest.mark.long
async def test_no_planted_value_is_in_the_database_or_a_log_and_no_secret_in_anything_a_client_reads(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as (_, environment, client):
        id_ = f"planted-{uuid.uuid4().hex}"
        handle = await client.start_workflow("Plan", request(*PLAN), id=id_, task_queue="planted")
        result = await asyncio.wait_for(handle.result(), 180)
        assert {c["state"] for c in result["calls"]} == {"completed"}
        state = result["state"]
        # The secret was there, and was masked wherever the Tools had put it
        assert state["a"]["echo"]["headers"] == {"Authorization": "[secret]", "Accept": "text/plain"}
        assert state["a"]["echo"]["planted"] == PLANTED["parameter"]
        assert state["a"]["url"] == "https://x/?k=[secret]"
        assert state["a"]["[secret]"] == ["[secret]", "([secret])"]
        assert state["b"] == "[secret]"
        assert state["c"]["headers"]["Authorization"] == "[secret]"
        assert state["error"]["message"] == f"the key [secret] was refused: {PLANTED['failure']}"
        assert state["error"]["details"] == {"headers": {"Authorization": "[secret]", "Accept": "text/plain"}}
        assert state["otherError"] == {
            "code": "plain", "message": "a failure without any secret", "details": {"limit": 3},
        }  # fmt: skip
        assert {state[f"{end}Error"]["message"] for end in ("interrupt", *ENDS)} == {"[secret]"}
        assert state["typeError"]["code"] == "Error[secret]"
        read = await everything_of(client, id_)
        assert PLANTED["parameter"] in read
        assert not [form for form in forms(SECRET) if form.decode("latin-1") in read]

        # A failed run, and the remedy of a program without keys
        failing = request(call("leakFailure", "†state.x", planted=PLANTED["failure"]))
        with pytest.raises(WorkflowFailureError) as caught:
            await client.execute_workflow("Plan", failing, id=f"{id_}-failed", task_queue="planted")
        assert PLANTED["failure"] in str(caught.value.cause)
        locked = await asyncio.to_thread(
            run_acts, "show", id_, cwd=tmp_path, TEMPORAL_ADDRESS=environment["TEMPORAL_ADDRESS"]
        )
        assert locked.returncode == 2
        assert "'k1', and ACTS_CODEC_KEYS is not set" in locked.stderr
        assert "Traceback" not in locked.stderr
        shown = await asyncio.to_thread(run_acts, "show", id_, cwd=tmp_path, **environment)
        assert PLANTED["kept"] in shown.stdout

        await check_signed_decisions(tmp_path, environment, client, f"{id_}-signed")

        # A secret that is missing is no failure of the Call: it waits until the secret is there
        late = await client.start_workflow(
            "Plan", request(call("late", "†state.late")), id=f"{id_}-late", task_queue="planted"
        )

        async def waits() -> bool:
            return any("comes-later" in note for note in (await late.query("status")).get("notes", ()))

        await assert_eventually(waits, why="the status names the secret")
        (tmp_path / "secrets" / "comes-later").write_text(LATER, "utf-8")
        came = await asyncio.wait_for(late.result(), 180)
        assert came["state"]["late"]["headers"]["Authorization"] == "[secret]"
        metrics = await asyncio.to_thread(urllib.request.urlopen, f"http://{environment['ACTS_METRICS']}/metrics")
        with metrics:
            (tmp_path / "state" / "metrics.txt").write_bytes(metrics.read())
        # Plain workflow ids, so the search finds what is there
        assert files_with(tmp_path / "state", id_)
    assert b"leakFailure" in (tmp_path / "state" / "spans.bin").read_bytes()
    assert b"leakFailure" in (tmp_path / "state" / "metrics.txt").read_bytes()
    assert "called with [secret]" in (tmp_path / "state" / "worker.log").read_text("utf-8")
    assert (tmp_path / "state" / "worker.out").read_text("utf-8").count("[secret]") == 4
    assert files_with(tmp_path / "state", SECRET, LATER, *PLANTED.values()) == []
