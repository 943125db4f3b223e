"""People as tools, and rules for their decisions, over the wire."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from acts.client.client_errors import ClientError
from acts.client.notices import Notifier, signature
from tests.support import assert_eventually
from tests.workflow.foreign import Foreign, Handle, call, decide, ended, failure, own, pending, states, tool
from tests.workflow.tools import echo

Json = Any
FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}


def ask(**person: Json) -> dict[str, Any]:
    message = tool("ask", activity=None)
    message["tool"]["properties"] |= {"_output": FORM, "_person": {"const": person}}
    return message


@contextmanager
def receiver(*answers: int) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """A webhook that answers so, then with 200, and what it was sent."""
    left, received = list(answers), list[tuple[dict[str, str], bytes]]()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(left.pop(0) if left else 200)
            self.end_headers()

        def log_message(self, *_: Json) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/", received
        http.shutdown()


async def refusal(handle: Handle, update: str, value: Json) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update(update, value)
    return str(refused.value.cause)


async def test_a_person_answers_a_call_and_the_plan_goes_on_with_it(foreign: Foreign) -> None:
    plan = [
        call("ask", "†state.one", question="now?"), call("ask", "†state.each", _each=["a", "b"], question="†item"),
        call("echo", "†state.seen", value="†state.one.ok"), call("slow", "†state.late", _errorPath="†state.error"),
    ]  # fmt: skip
    slow = ask(timeout=0.5)
    slow["tool"]["properties"]["_tool"] = {"const": "slow"}
    async with foreign.serving(echo):
        handle = await foreign.start(foreign.request(*plan, context=[foreign.tool("echo"), ask(who="finance"), slow]))
        waits = {w["call"]: w for w in await pending(handle, 3)}
        assert waits.keys() == {"1:ask", "2:ask[0]", "2:ask[1]"}
        assert (waits["1:ask"]["what"], waits["1:ask"]["form"], waits["1:ask"]["who"]) == ("answer", FORM, ["finance"])
        text = await refusal(handle, "answer", {"call": "1:ask", "output": {"ok": "yes"}, "by": "Ada"})
        assert "does not fit the form of 1:ask, which goes on waiting: /ok" in text
        assert "nothing that waits is matched" in await refusal(handle, "decide", {"decision": "approve"})
        await handle.execute_update("answer", {"call": "1:ask", "output": {"ok": True}, "by": "Ada"})
        await handle.signal("answer", {"call": "2:ask[1]", "output": {"ok": False}, "by": "Bob"})
        await decide(handle, decision="answer", call="2:ask[0]", output={"ok": True}, by="Ada")
        result = await ended(handle)
    assert set(states(result).values()) == {"completed"}
    assert result["state"]["each"] == [{"ok": True}, {"ok": False}]
    assert (result["state"]["seen"], result["state"]["error"]["code"]) == (True, "ApprovalTimeout")
    assert [c.get("answeredBy") for c in result["calls"]] == ["person", "person", None, "person"]


async def test_rules_say_who_approves_how_many_and_what_is_approved_from_now_on(foreign: Foreign) -> None:
    rules = [
        {"calls": ["pay"], "when": "†call.value > 1000", "who": "finance", "of": 2,
         "escalate": [{"after": 0.5, "who": "heads"}]},
        {"calls": ["pay"]},
    ]  # fmt: skip
    pay = tool("pay", activity="echo", options={"taskQueue": foreign.queue})
    instances = [own("a", value=1), own("b", value=2), own("c", value=5000), own("d", value=900)]
    async with foreign.serving(echo):
        request = foreign.request(
            call("pay", "†state.paid", value="†state.value"), context=[pay, *instances], approve={"rules": rules}
        )
        handle = await foreign.start(request)
        waits = {w["instance"]: w for w in await pending(handle, 4)}
        assert [waits[i].get("of") for i in "abcd"] == [None, None, 2, None]
        remember = {"when": "†call.value < 100", "count": 5}
        await decide(handle, decision="approve", instance="a", by="Ada", remember=remember)
        await pending(handle, 2)  # b is like it, d is not
        await decide(handle, decision="revoke", remembered="1", by="Bob")
        assert "remembered" not in await handle.query("status")
        await decide(handle, decision="approve", instance="d", by="Ada")
        await decide(handle, decision="approve", instance="c", by="Ada")

        async def is_escalated() -> bool:
            (wait,) = await handle.query("pending")
            return bool(wait["who"] == ["finance", "heads"] and wait.get("approvals") == ["Ada"])

        await assert_eventually(is_escalated)
        again = {"decision": "approve", "instance": "c", "by": "ada"}
        assert "2 different people" in await refusal(handle, "decide", again)
        await decide(handle, decision="approve", instance="c", by="Cy")
        result = await ended(handle)
    assert {i: part["state"]["paid"] for i, part in result["instances"].items()} == {
        "a": 1,
        "b": 2,
        "c": 5000,
        "d": 900,
    }
    told = [(d["instance"], d.get("by"), d.get("remembered")) for d in result["decisions"] if "instance" in d]
    assert sorted(told, key=str) == sorted(
        [("a", "Ada", None), ("b", "Ada", "1"), ("c", "Ada", None), ("c", "Cy", None), ("d", "Ada", None)], key=str
    )


async def test_a_webhook_is_told_of_each_wait_and_failure_until_it_has_taken_it(foreign: Foreign) -> None:
    with receiver(503) as (url, received):
        since = datetime.now(UTC) - timedelta(seconds=1)
        notifier = Notifier(foreign.client, url, since, "secret", "https://acts.example/{run}")
        waiting = await foreign.start(foreign.request(call("ask", question="?"), context=[ask(who="finance")]))
        (wait,) = await pending(waiting)
        bad = {"context": [{"type": "plan", "plan": [{"_tool": "none"}]}]}
        await failure(await foreign.start(bad, id=f"{waiting.id}/x"))

        async def told() -> dict[str, Json]:
            with suppress(ClientError):
                await notifier.round()
            bodies = [json.loads(body) for _, body in received]
            own = [n for body in bodies[1:] for n in body["notices"] if n["run"].startswith(waiting.id)]
            return {n["kind"]: n for n in own} if {n["kind"] for n in own} >= {"waits", "failed"} else {}

        notices = await assert_eventually(told)
        assert (notices["waits"]["run"], notices["waits"]["call"], notices["waits"]["who"]) == (
            waiting.id, wait["call"], ["finance"],
        )  # fmt: skip
        assert notices["failed"]["link"] == "https://acts.example/" + f"{waiting.id}/x".replace("/", "%2F")
        headers, body = received[-1]
        assert headers["Acts-Signature"] == signature("secret", body, int(headers["Acts-Timestamp"]))["Acts-Signature"]
        ids = [n["id"] for _, body in received[1:] for n in json.loads(body)["notices"]]
        assert len(ids) == len(set(ids)), "what was taken is not sent again"
        await waiting.terminate()
