"""Settings, log lines, labels and trace headers: the observation of a worker, without a server."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from telemetry import metrics
from telemetry.call_identity import CallIdentity, current_call
from telemetry.logs import MAX_FIELD, TextLines, add_redactor, announce, configure_logs
from telemetry.metrics import MAX_FOREIGN_TOOLS, METRICS, Names
from telemetry.telemetry_settings import TelemetryError, TelemetrySettings
from telemetry.trace_context import (
    HEADER,
    TRACE_PARENT,
    RunSpan,
    SpanRef,
    own_trace_id,
    parse_trace_parent,
    read_header,
    run_span_id,
    write_header,
)
from telemetry.tracing import create_tracing, is_requested

ROOT = Path(__file__).parents[2]
CALL = CallIdentity("order-1", "0199", "a/2:refund", "refund", "a", 2, "shop.refund")
NAME = "tests.a_tool"

# settings


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ACTS_LOG", "xml", "ACTS_LOG is 'xml'; it is one of text, json"),
        ("ACTS_LOG_LEVEL", "loud", "one of debug, info, warning, error"),
        ("ACTS_METRICS", "9464", "ACTS_METRICS is '9464'; it is host:port, such as 127.0.0.1:9464"),
        ("ACTS_METRICS", ":9464", "host:port"),
        ("ACTS_METRICS", "127.0.0.1:99999", "host:port"),
        ("ACTS_HEALTH", "127.0.0.1:http", "host:port, such as 127.0.0.1:8081"),
        ("ACTS_HEALTH", "no-such-host.invalid:80", "its host has no address"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_what_is_allowed(variable: str, value: str, words: str) -> None:
    with pytest.raises(TelemetryError, match=re.escape(words)):
        TelemetrySettings.from_environment({variable: value})


def test_a_host_name_becomes_the_address_that_the_sdk_takes() -> None:
    settings = TelemetrySettings.from_environment({"ACTS_METRICS": "[::1]:9464", "ACTS_LOG": "JSON"})
    assert str(settings.metrics) == "[::1]:9464"
    assert settings.log_format == "json"
    assert TelemetrySettings.from_environment({}) == TelemetrySettings()


@pytest.mark.parametrize(
    ("environment", "requested"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_SERVICE_NAME": "worker"}, False),
    ],
)
def test_traces_are_switched_on_by_an_endpoint(environment: dict[str, str], requested: bool) -> None:  # noqa: FBT001 - a column
    assert is_requested(environment) is requested


BLOCKED = """
import sys
sys.modules["opentelemetry"] = sys.modules["opentelemetry.sdk"] = None
import worker, cli.runs.server, workflows.runtime.run_observer
from telemetry.tracing import start_tracing
assert start_tracing("worker") is None
import os
os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:4318"
start_tracing("worker")
"""


def test_a_worker_needs_no_opentelemetry_until_traces_are_switched_on() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "TelemetryError: OTEL_EXPORTER_OTLP_ENDPOINT is set, and traces need OpenTelemetry's SDK" in done.stderr
    assert "pip install 'acts-engine[otel]'" in done.stderr


# log lines


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Lines of text, from debug on."""
    yield from _configured(TelemetrySettings(log_level="debug"))


@pytest.fixture
def json_log() -> Iterator[io.StringIO]:
    yield from _configured(TelemetrySettings(log_format="json", log_level="debug"))


def _configured(settings: TelemetrySettings) -> Iterator[io.StringIO]:
    root, text = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    configure_logs(settings, text)
    token = current_call.set(CALL)
    yield text
    current_call.reset(token)
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def fail_attempt(error: Exception) -> None:
    """Log the failure of an Activity as the SDK does."""
    extra = {"__temporal_error_identifier": "ActivityFailure"}
    try:
        raise_(error)
    except Exception:
        logging.getLogger("temporalio.activity").warning("Completing activity as failed", exc_info=True, extra=extra)


def raise_(error: Exception) -> None:
    raise error


def test_a_line_has_time_level_and_the_ids_of_the_call(log: io.StringIO) -> None:
    logging.getLogger(NAME).info("asked %s", "the bank")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    asked the bank  run=order-1 runId=0199 call=a/2:refund "
        r"instance=a tool=refund attempt=2\n",
        log.getvalue(),
    )


def test_what_a_tool_declares_is_one_line_and_any_other_exception_has_its_place(log: io.StringIO) -> None:
    fail_attempt(ApplicationError("the card was declined", type="CardDeclined"))
    assert log.getvalue().count("\n") == 1
    assert "the attempt failed: CardDeclined: the card was declined  run=order-1" in log.getvalue()
    fail_attempt(ValueError("odd"))
    assert "the attempt failed: ValueError: odd" in log.getvalue()
    assert "Traceback" in log.getvalue()


def test_an_exception_that_became_a_failure_keeps_its_place(log: io.StringIO) -> None:
    error = ApplicationError("odd; the worker has another definition", type="ValueError")
    error.__cause__ = ValueError("odd")
    fail_attempt(error)
    assert "Traceback" in log.getvalue()


def test_json_lines_are_one_object_each_whatever_they_say(json_log: io.StringIO) -> None:
    logging.getLogger(NAME).warning('two\nlines, "quoted", †')
    fail_attempt(ApplicationError("no", type="CardDeclined"))
    fail_attempt(KeyError("x"))
    lines = [json.loads(line) for line in json_log.getvalue().splitlines()]
    assert [line["message"] for line in lines[:2]] == [
        'two\nlines, "quoted", †',
        "the attempt failed: CardDeclined: no",
    ]
    assert lines[0] | {"time": ""} == {
        "time": "", "level": "warning", "logger": NAME, "message": 'two\nlines, "quoted", †', "run": "order-1",
        "runId": "0199", "call": "a/2:refund", "instance": "a", "tool": "refund", "attempt": 2,
    }  # fmt: skip
    assert lines[1]["error"] == {"type": "CardDeclined"}
    assert lines[2]["error"]["type"] == "KeyError"
    assert "Traceback" in lines[2]["error"]["stack"]


@pytest.mark.parametrize(
    "name", ["temporalio.worker._workflow", "openai._base_client", "httpx2", "temporalio.activity"]
)
def test_libraries_that_write_what_they_send_are_not_heard_at_debug(log: io.StringIO, name: str) -> None:
    logging.getLogger(name).debug("completion: %s", "4711")
    assert log.getvalue() == ""


def test_a_line_about_a_run_has_its_ids_and_no_copy_of_them_in_its_text(log: io.StringIO) -> None:
    current_call.set(None)
    details = {"workflow_id": "order-1", "run_id": "0199", "workflow_type": "Plan", "namespace": "default"}
    logging.getLogger("temporalio.workflow").info("Plan ended: partial", extra={"temporal_workflow": details})
    assert log.getvalue().endswith(" INFO    Plan ended: partial  run=order-1 runId=0199\n")
    assert not workflow.logger.workflow_info_on_message


def test_the_fields_of_the_sdks_core_are_short_and_scalar(json_log: io.StringIO) -> None:
    current_call.set(None)

    class Entry:
        fields = {"run_id": "0199", "completion": {"payload": "4711"}, "error": "e" * 1000}  # noqa: RUF012 - a stand-in

    logging.getLogger("temporalio.core").warning("Failing workflow task", extra={"temporal_log": Entry()})
    line = json.loads(json_log.getvalue())
    assert line["run_id"] == "0199"
    assert "completion" not in line
    assert len(line["error"]) == MAX_FIELD + 1


def test_colours_are_for_terminals_alone() -> None:
    record = logging.LogRecord(NAME, logging.ERROR, "", 0, "no", (), None)
    assert "\x1b[31mERROR  \x1b[0m no" in TextLines(has_colours=True).format(record)
    assert "\x1b" not in TextLines().format(record)


def test_a_redactor_sees_every_line(log: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.logs._redactors", [])
    add_redactor(lambda line: line.replace("hunter2", "***"))
    fail_attempt(ValueError("hunter2"))
    assert "hunter2" not in log.getvalue()
    assert "***" in log.getvalue()


@pytest.mark.parametrize(("form", "read"), [("text", str.strip), ("json", lambda line: json.loads(line)["message"])])
def test_the_line_that_the_worker_is_ready_is_of_the_form_of_the_others(
    form: str, read: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    announce("acts worker: ready", TelemetrySettings(log_format=form))
    assert read(capsys.readouterr().out) == "acts worker: ready"


# metrics


def test_the_docs_list_every_metric_with_its_kind_and_labels() -> None:
    text = (ROOT / "docs" / "observability.md").read_text("utf-8")
    rows = re.findall(r"^\| `(acts_\w+)` \| (\w+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, flags=re.MULTILINE)
    assert {(n, kind, tuple(re.findall(r"`(\w+)`", labels)), what.strip()) for n, kind, _, labels, what in rows} == {
        (m.name, m.kind, m.labels, m.text) for m in METRICS.values()
    }
    assert all(unit.strip() for _, _, unit, _, _ in rows)


def test_names_of_metrics_end_in_their_kind_and_unit() -> None:
    for metric in METRICS.values():
        assert metric.name.endswith("_total") is (metric.kind == "counter"), metric.name
        assert bool(metric.buckets) is (metric.kind == "histogram"), metric.name
        assert list(metric.buckets) == sorted(metric.buckets)


def test_labels_are_bounded_and_registered_tools_always_count() -> None:
    names = Names(["refund"], MAX_FOREIGN_TOOLS)
    assert {names.bound(f"tool-{n}") for n in range(1000)} == {*(f"tool-{n}" for n in range(100)), "other"}
    assert names.bound("refund") == "refund"
    assert names.bound("tool-7") == "tool-7"


def test_while_metrics_are_off_there_is_nothing_to_record_into() -> None:
    metrics.start(None)
    assert metrics.meters() is None


# trace headers


def test_a_span_travels_through_the_header_of_the_sdks() -> None:
    own = SpanRef(own_trace_id("root run"), run_span_id("run"))
    carrier = read_header({HEADER: write_header({TRACE_PARENT: own.trace_parent, "acts-root": "order-1"})})
    assert parse_trace_parent(carrier[TRACE_PARENT]) == own
    assert carrier["acts-root"] == "order-1"


@pytest.mark.parametrize(
    "text",
    [
        None, "", 7, "00-abc-def-01", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01",
        f"01-{'1' * 32}-{'1' * 16}-01", f"00-{'G' * 32}-{'1' * 16}-01",
    ],
)  # fmt: skip
def test_what_names_no_span_is_none(text: Any) -> None:
    assert parse_trace_parent(text) is None


def test_a_trace_that_is_not_recorded_stays_so() -> None:
    ref = SpanRef("1" * 32, "2" * 16, is_sampled=False)
    assert parse_trace_parent(ref.trace_parent) == ref


def test_a_sampler_decides_alike_for_a_run_and_for_what_is_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    exporter = InMemorySpanExporter()
    traces = create_tracing("acts-test", SimpleSpanProcessor(exporter))
    refs = [SpanRef(own_trace_id(f"run {n}"), run_span_id(f"run {n}")) for n in range(60)]
    recorded = {ref.trace_id for ref in refs if traces.is_sampled(ref.trace_id)}
    assert 10 < len(recorded) < 50
    for ref in refs:
        own = replace(ref, is_sampled=traces.is_sampled(ref.trace_id))
        with traces.span("refund", carrier={TRACE_PARENT: own.trace_parent}):
            pass
        traces.emit(RunSpan("Plan", own, None, 1, 2, {}))
    spans = exporter.get_finished_spans()
    assert sorted(f"{span.context.trace_id:032x}" for span in spans) == sorted([*recorded, *recorded])
    assert {span.name for span in spans} == {"Plan", "refund"}
    assert {f"{s.context.span_id:016x}" for s in spans if s.name == "Plan"} == {
        ref.span_id for ref in refs if ref.trace_id in recorded
    }


def test_a_header_that_cannot_be_read_is_none() -> None:
    payload = write_header({"a": "b"})
    payload.data = b"{"
    assert read_header({HEADER: payload}) == {}
    assert read_header({}) == {}
