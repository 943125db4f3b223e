"""Secrets by reference: which parameters they fill, where they are found, and what their masks cover."""

from __future__ import annotations

import asyncio
import base64
import binascii
import dataclasses
import html
import json
import logging
import re
import shlex
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio import activity, workflow
from temporalio.api.failure.v1 import Failure
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.converter import default
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ExecuteActivityInput

from acts.activities.mcp.connection import McpConnection
from acts.activities.mcp.server_tools import McpServerConfig
from acts.activities.mcp.servers import McpServers
from acts.activities.registry import Registry
from acts.activities.secret_interceptor import (
    SecretInterceptor,
    SecretMissing,
    check_tools,
    masked_failure,
    read_secret,
)
from acts.cli.dev.temporal_server import _lock_state
from acts.language.config import Options
from acts.language.errors import SettingsError
from acts.language.messages import read_request
from acts.language.secret_masks import MASK, MIN_LENGTH, SecretMasks
from acts.language.tools import (
    Tool,
    inline_secret_problems,
    parameter_schema,
    put_secrets,
    read_tool,
    secret_parameters,
)
from acts.plan.validate import validate
from acts.planner.answer_schema import compose_solution_schema
from acts.telemetry.failures import EngineFailureConverter
from acts.telemetry.logs import LogGuard
from acts.tree.child_requests import tool_messages
from acts.worker.interceptors import _Inbound
from acts.worker.settings import Settings
from acts.workflows.in_flight import miss_of

Json = Any
REFERENCE = {"$secret": "stripe"}
TOOL = {
    "type": "object",
    "properties": {
        "_tool": {"const": "pay"}, "_activity": {"const": "pay"}, "_outputPath": {"type": "string"},
        "amount": {"type": "number"}, "apiKey": {"const": REFERENCE, "description": "the key"},
        "headers": {"const": {"x": [1, REFERENCE]}}, "fixed": {"const": {"$secret": 1}},
    },
    "required": ["amount", "apiKey"],
}  # fmt: skip

secrets = st.text(min_size=MIN_LENGTH, max_size=40).filter(lambda s: len(s.strip()) >= MIN_LENGTH)


def in_lines(columns: int, text: bytes) -> str:
    encoded = base64.b64encode(text).decode()
    return "\r\n".join(encoded[at : at + columns] for at in range(0, len(encoded), columns))


def lower_escapes(text: str) -> str:
    return re.sub("%..", lambda match: match[0].lower(), text)


PRINTED = {
    "as it is": lambda s: s,
    "as JSON": json.dumps,
    "as JSON in JSON": lambda s: json.dumps(json.dumps(s)),
    "as JSON of PHP": lambda s: json.dumps(s).replace("/", "\\/"),
    "as JSON of JavaScript": lambda s: json.dumps(s, ensure_ascii=False).replace("<", "\\u003C"),
    "by repr": repr,
    "by repr of bytes": lambda s: repr(s.encode()),
    "by ascii": ascii,
    "in a URL": quote,
    "in a query": lambda s: quote(s, safe=""),
    "in a query of a query": lambda s: quote(quote(s, safe=""), safe=""),
    "in a URL of other libraries": lambda s: lower_escapes(quote(s, safe="")),
    "in a form": quote_plus,
    "in JSON in a URL": lambda s: quote(json.dumps(s)),
    "in HTML": html.escape,
    "in XML": lambda s: s.encode("ascii", "xmlcharrefreplace").decode(),
    "in JSON in HTML": lambda s: html.escape(json.dumps(s)),
    "in a shell": shlex.quote,
    "in CSV": lambda s: '"' + s.replace('"', '""') + '"',
    "in a mail as quoted-printable": lambda s: binascii.b2a_qp(b"x" * 70 + s.encode(), istext=False).decode(),
    "in a mail in JSON": lambda s: json.dumps(binascii.b2a_qp(b"x" * 71 + s.encode(), istext=False).decode()),
    "in hexadecimal": lambda s: s.encode().hex().upper(),
}
PRINTED_IN_BASE64 = {
    "in base64": lambda s: base64.b64encode(s.encode()).decode(),
    "in base64 for a URL": lambda s: base64.urlsafe_b64encode(s.encode()).decode(),
    "as basic authorization": lambda s: base64.b64encode(f"user:{s}".encode()).decode(),
    "in a mail": lambda s: in_lines(76, b"x" * 50 + s.encode()),
    "in PEM": lambda s: in_lines(64, b"x" * 43 + s.encode()),
    "in a mail in JSON": lambda s: json.dumps(in_lines(76, b"x" * 51 + s.encode())),
    "in PEM in a URL": lambda s: quote(in_lines(64, b"x" * 44 + s.encode()), safe=""),
}


@pytest.mark.parametrize("form", PRINTED)
@given(secret=secrets, before=st.text(max_size=5), after=st.text(max_size=5))
def test_what_is_printed_of_a_secret_is_masked(form: str, secret: str, before: str, after: str) -> None:
    masks, printed = SecretMasks([secret]), PRINTED[form](secret)
    masked = masks.mask_text(f"{before}{printed}{after}")
    assert masks.is_in_text(f"{before}{printed}{after}")
    assert MASK in masked
    assert secret not in masked or secret in MASK


@pytest.mark.parametrize("form", PRINTED_IN_BASE64)
@given(secret=st.text(min_size=8, max_size=40).filter(lambda s: len(s.strip()) >= 8))
def test_of_base64_no_more_is_left_than_the_characters_at_its_ends(form: str, secret: str) -> None:
    printed = PRINTED_IN_BASE64[form](secret)
    masked = SecretMasks([secret]).mask_text(printed)
    assert MASK in masked
    known = PRINTED_IN_BASE64[form]("")
    assert len(masked.replace(MASK, "")) <= len(known) + 14


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no")


circular: list[Json] = []
circular.append(circular)
DETAILS = st.sampled_from([circular, {(1, 2): "x"}, Unprintable(), object(), float("nan"), b"x", {1: "x"}]) | st.text()


@given(
    secret=secrets, details=st.lists(DETAILS, max_size=3), form=st.sampled_from(sorted(PRINTED)),
    kind=st.sampled_from([ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, OSError]),
)  # fmt: skip
def test_no_secret_is_in_what_a_failure_becomes_whatever_was_raised(
    secret: str, details: list[Json], form: str, kind: type[BaseException]
) -> None:
    masks, printed = SecretMasks([secret]), PRINTED[form](secret)
    named = type("E" + secret.replace("\0", ""), (kind,), {})
    for leak in (
        kind(printed), named("x"), ExceptionGroup(printed, [ValueError(printed)]),
        ApplicationError(printed, *details, {("k", printed): printed}, {printed: [printed]}, type=printed),
    ):  # fmt: skip
        error = ApplicationError("plain", *details)
        error.__cause__ = leak
        for raised in (leak, error):
            failure = Failure()
            EngineFailureConverter().to_failure(masked_failure(raised, masks), default().payload_converter, failure)
            assert not masks.is_in_text(str(failure).replace(MASK, "")), failure


@given(secret=secrets, value=st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=8,
))  # fmt: skip
def test_a_result_is_masked_in_texts_and_keys_and_is_else_the_same(secret: str, value: Json) -> None:
    masks = SecretMasks([secret])
    if not masks.is_in_bytes(json.dumps(value).encode()):
        assert masks.mask_value(value) == value
    masked = masks.mask_value({"own": value, secret: [f"<{secret}>", 1]})
    assert secret not in json.dumps(masked, ensure_ascii=False)
    for is_ascii in (True, False):
        assert masks.is_in_bytes(json.dumps({"x": [secret]}, ensure_ascii=is_ascii).encode())


@given(
    secret=st.text("abcXYZ019_-/+", min_size=30, max_size=300), ends=st.tuples(st.integers(12, 29), st.integers(8, 29))
)
def test_of_a_secret_that_an_error_shortens_no_end_is_left(secret: str, ends: tuple[int, int]) -> None:
    assert SecretMasks([secret]).mask_text(f"got {secret[: ends[0]]}…") == f"got {MASK}"
    for cut in ("...", "…"):
        assert SecretMasks([secret]).mask_text(f"got '{secret[: ends[0]]}{cut}{secret[-ends[1] :]}'") == f"got '{MASK}'"


def test_a_number_that_is_a_secret_is_masked_and_short_secrets_are_not_looked_for() -> None:
    assert SecretMasks(["12345678"]).mask_value({"pin": 12345678, "n": 5}) == {"pin": MASK, "n": 5}
    assert SecretMasks(["12"]).mask_value({"n": "12"}) == {"n": "12"}


def test_lines_of_a_long_secret_are_masked_on_their_own() -> None:
    pem = "-----BEGIN KEY-----\nMIIBVgIBADANBgkqhkiG9w0BAQEFAASCAUAwggE8\nshort\n"
    assert SecretMasks([pem]).mask_text("at MIIBVgIBADANBgkqhkiG9w0BAQEFAASCAUAwggE8!") == f"at {MASK}!"


def test_log_lines_their_arguments_and_tracebacks_are_masked(caplog: pytest.LogCaptureFixture) -> None:
    guard, logger = LogGuard(), logging.getLogger("guarded")
    with guard.watch():
        guard.announce(["secret-of-ours"])
        logger.warning("with %s and %d", "secret-of-ours", 1)
        try:
            raise ValueError("secret-of-ours")  # noqa: TRY301 - what a Tool does
        except ValueError:
            logger.exception("failed")
        logger.warning("plain %s", "text")
    assert "secret-of-ours" not in caplog.text
    assert f"with {MASK} and 1" in caplog.text
    assert f"ValueError: {MASK}" in caplog.text
    assert "plain text" in caplog.text


def test_with_encrypted_payloads_the_sdk_logs_no_text_of_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    with LogGuard(hides_failures=True).watch():
        try:
            try:
                raise KeyError("planted-cause")  # noqa: TRY301 - what a Tool does
            except KeyError as error:
                raise ApplicationError("planted-text", type="broken") from error
        except ApplicationError:
            logging.getLogger("temporalio.activity").warning("Completing activity as failed", exc_info=True)
            logging.getLogger("own").warning("my own line", exc_info=True)
    sdk, own = caplog.text.split("my own line")
    assert "planted" not in sdk.replace('("planted-cause")', "").replace('("planted-text"', "")  # lines of this file
    assert "KeyError" in sdk
    assert "broken" in sdk
    assert "planted-text" in own


def test_only_parameters_that_a_tool_fixes_are_filled() -> None:
    fixed = secret_parameters(TOOL)
    assert set(fixed) == {"apiKey", "headers"}
    filled = {k: put_secrets(v, {"stripe": "sk"}) for k, v in fixed.items()}
    assert filled == {"apiKey": "sk", "headers": {"x": [1, "sk"]}}


def context(*calls: Json) -> list[Json]:
    return [{"type": "tool", "tool": "pay"}, {"type": "plan", "plan": list(calls)}]


@pytest.mark.parametrize("value", [REFERENCE, "sk_live", None, "†state.x"])
def test_no_call_may_have_a_secret_parameter_nor_needs_it(value: Json) -> None:
    call = {"_tool": "pay", "amount": 5, "_outputPath": "†state.paid"}
    state = {"type": "state", "state": {"x": 1}}
    assert validate({"context": [state, *context(call)]}, {"pay": TOOL}, ["pay"]) == []
    problems = validate({"context": [state, *context({**call, "apiKey": value})]}, {"pay": TOOL}, ["pay"])
    assert [(p.code, p.pointer) for p in problems] == [("schemaMismatch", "/context/2/plan/0/apiKey")]


def test_a_reference_in_a_call_is_data_like_any_other() -> None:
    schema = {"type": "object", "properties": {"_tool": {"const": "pay"}, "value": True}}
    call = {"_tool": "pay", "value": REFERENCE, "_outputPath": "†state.x"}
    open_schema = {**schema, "properties": {**schema["properties"], "_outputPath": True}}
    assert validate({"context": context(call)}, {"pay": open_schema}, ["pay"]) == []
    assert secret_parameters(open_schema) == {}


def test_no_model_is_shown_a_secret_parameter() -> None:
    tool, problems = read_tool("pay", TOOL)
    assert tool is not None
    assert problems == []
    shown = json.dumps(compose_solution_schema({"pay": tool}, None))
    assert "apiKey" not in shown
    assert "stripe" not in shown
    assert "amount" in shown
    assert parameter_schema(TOOL)["required"] == ["amount"]


@pytest.mark.parametrize("tool", [TOOL, {"other": {"type": "object", "properties": {"k": {"const": REFERENCE}}}}])
def test_a_tool_of_a_request_cannot_name_a_secret(tool: Json) -> None:
    problem, *_ = inline_secret_problems(read_request({"context": [{"type": "tool", "tool": tool}]}))
    assert (problem.code, problem.pointer) == ("secretNotAllowed", "/context/0/tool")
    assert '"stripe"' in problem.message
    assert "ACTS_TOOLS" in (problem.hint or "")
    assert inline_secret_problems(read_request({"context": [{"type": "tool", "tool": "pay"}]})) == []


CALL = {"_tool": "pay", "_id": "1", "_outputPath": "†state.x", "amount": 5}
STRICT = {**TOOL, "properties": {**TOOL["properties"], "url": {"const": "https://api.example"}}}


def fill(call: Json, schema: Json, kind: str = "pay", *, tools: Json = None) -> Json:
    """The Call that the Activity of this type would get."""

    @activity.defn(name="pay")
    async def pay(call: Json, tool: Json, context: Json) -> None: ...

    registry = Registry({"pay": STRICT} if tools is None else tools, (pay,))
    announced: list[str] = []
    interceptor = SecretInterceptor(registry, "env:TEST_", announced.extend)
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, activity_type=kind)

    async def run() -> Json:
        args, _ = await interceptor.fill([call, schema, []], secret_parameters(schema))
        assert announced == ["sk_live_planted"]
        return args[0]

    return asyncio.run(environment.run(run))


def named(schema: Json) -> Json:
    """As an agent passes a Tool on to the run of a tick."""
    message: Json = tool_messages([Tool("pay", schema, {}, {})])[0]
    return message["tool"]


@pytest.mark.parametrize("schema", [STRICT, named(STRICT), {**STRICT, "_scopes": ["state"]}])
def test_a_call_gets_the_secrets_of_its_tool(schema: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_STRIPE", "sk_live_planted")
    assert fill(CALL, schema) == {**CALL, "apiKey": "sk_live_planted", "headers": {"x": [1, "sk_live_planted"]}}
    assert fill({**CALL, "url": "https://api.example"}, schema)["apiKey"] == "sk_live_planted"


@pytest.mark.parametrize(
    ("call", "schema", "kind", "tools", "says"),
    [
        (CALL, TOOL, "pay", None, "is not the one that this worker has loaded"),  # a fixed URL was left out
        (CALL, {**STRICT, "properties": {**STRICT["properties"], "amount": True}}, "pay", None, "is not the one"),
        (CALL, STRICT, "echo", None, "is not the one"),
        (CALL, STRICT, "pay", {}, "this worker has not loaded it: load it with"),
        ({**CALL, "_tool": "other"}, STRICT, "pay", None, "has not loaded it"),
        ({**CALL, "url": "https://evil.example"}, STRICT, "pay", None, "does not fit the tool"),
        ({**CALL, "amount": "x"}, STRICT, "pay", None, "does not fit the tool"),
        ({**CALL, "apiKey": "mine"}, STRICT, "pay", None, "does not fit the tool"),
        ("a text", STRICT, "pay", None, "has not loaded it"),
    ],
)
def test_who_schedules_an_activity_cannot_choose_where_a_secret_goes(
    call: Json, schema: Json, kind: str, tools: Json, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_STRIPE", "sk_live_planted")
    with pytest.raises(ApplicationError, match=says) as caught:
        fill(call, schema, kind, tools=tools)
    assert caught.value.type in ("SecretRefused", "NotServed")


def test_a_secret_that_is_missing_is_a_miss_and_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_STRIPE", raising=False)
    with pytest.raises(ApplicationError, match='tool "pay": the secret "stripe" is missing: TEST_STRIPE') as caught:
        fill(CALL, STRICT)
    assert miss_of(caught.value, Options()) is not None


def test_secrets_are_files_of_a_folder_or_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stripe").write_text("sk_live \n", "utf-8")
    (tmp_path / "empty").write_text("\n", "utf-8")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    outside = tmp_path.parent / "outside"
    outside.write_text("x", "utf-8")
    folder = str(tmp_path)
    assert read_secret(folder, "stripe") == "sk_live "
    for name, says in (("empty", "is empty"), ("bytes", "not text"), ("none", "No such file"), ("../outside", "name")):
        with pytest.raises(SecretMissing, match=says):
            read_secret(folder, name)
    variables = "env:ACTS_SECRET_"
    monkeypatch.setenv("ACTS_SECRET_MY_KEY_2", "v")
    assert read_secret(variables, "my.key-2") == "v"
    with pytest.raises(SecretMissing, match="ACTS_SECRET_NONE is not set"):
        read_secret(variables, "none")
    with pytest.raises(SecretMissing, match="ACTS_SECRETS is not set"):
        read_secret("", "stripe")


def test_a_worker_says_at_its_start_which_secrets_are_missing_and_which_are_in_the_wrong_place(tmp_path: Path) -> None:
    (line,) = check_tools({"pay": TOOL}, str(tmp_path))
    assert line.startswith('tool "pay": the secret "stripe" is missing')
    wrong = {"type": "object", "properties": {"a": {"properties": {"b": {"const": REFERENCE}}}}}
    with pytest.raises(SettingsError, match='tool "bad" names a secret in another place'):
        check_tools({"bad": wrong}, str(tmp_path))


def test_keys_of_servers_and_models_are_secrets_of_their_activities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In results, failures, listings and the last line of stderr; files of keys are read anew."""
    key = tmp_path / "key"
    models = {"endpoints": {"own": {"provider": "openai", "url": "http://127.0.0.1:9", "keyFile": str(key)}}}
    (tmp_path / "models.json").write_text(json.dumps(models), "utf-8")
    monkeypatch.setenv("ACTS_MODELS", str(tmp_path / "models.json"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-variable")
    config = McpServerConfig(name="x", command="c", env={"T": "env-key/1"}, headers={"A": "Bearer header-key"})
    registry = Registry({}, (), McpServers([config]))
    announced: list[str] = []
    interceptor = SecretInterceptor(registry, "", announced.extend)

    def told(kind: str, value: str) -> str:
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(environment.info, activity_type=kind)
        call = ExecuteActivityInput(fn=print, args=[{}, {}], executor=None, headers={})

        async def proceed(fails: bool, _: Json) -> str:  # noqa: FBT001 - a partial
            if fails:
                raise SystemExit(value)
            return value

        async def run() -> str:
            result = await interceptor(call, partial(proceed, False))
            with pytest.raises((SystemExit, ApplicationError)) as caught:
                await interceptor(call, partial(proceed, True))
            return f"{result.payload.data if hasattr(result, 'payload') else result} {caught.value}"

        return asyncio.run(environment.run(run))

    for number in range(2):
        key.write_text(f"key-of-a-file-{number}\n", "utf-8")
        for secret in (f"key-of-a-file-{number}", "sk-of-a-variable"):
            assert secret not in told("acts.model", f"401: {secret}!")
            assert secret in told("own", secret)
    for kind in ("mcp.x", "acts.registry"):
        for secret in ("env-key/1", "env-key%2f1", "header-key"):
            assert secret not in told(kind, f"<{secret}>")
    assert {"env-key/1", "header-key", "key-of-a-file-1", "sk-of-a-variable"} <= set(announced)
    connection = McpConnection(config)
    connection._stderr = b"started\n" + b"y" * 290 + b" with env-key/1 and header-key"
    assert not SecretMasks(["env-key/1", "header-key", "env-key", "ader-key"]).is_in_text(connection._last_words())


async def test_without_the_page_the_web_ui_is_given_nothing_to_render(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = WorkflowMetadata(current_details="**loading**")

    async def handle_query(*_: object) -> WorkflowMetadata:
        return answer

    info = SimpleNamespace(workflow_type="Plan")
    monkeypatch.setattr(workflow, "info", lambda: info)
    monkeypatch.setattr(workflow, "instance", lambda: None)
    inbound = _Inbound(SimpleNamespace(handle_query=handle_query))  # type: ignore[arg-type]
    query: Json = SimpleNamespace(query="__temporal_workflow_metadata")
    assert (await inbound.handle_query(query)).current_details
    inbound.shows_page = False
    assert not (await inbound.handle_query(query)).current_details
    monkeypatch.setenv("ACTS_PAGE", "off")
    assert Settings.from_environment().page == "off"


def test_the_state_of_the_development_server_is_for_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide, own = tmp_path / "wide", tmp_path / "here"
    for folder in (wide, own):
        folder.mkdir(mode=0o755)
    monkeypatch.chdir(own)
    for folder, mode in ((wide, 0o700), (tmp_path / "new" / ".acts", 0o700), (own, 0o755)):
        with _lock_state(folder):
            assert folder.stat().st_mode & 0o777 == mode
