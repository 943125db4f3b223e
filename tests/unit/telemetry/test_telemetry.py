"""The observation of a worker, without a server: settings, log lines, labels, headers, and the files for monitoring."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError

from acts.language.errors import SettingsError
from acts.telemetry import metrics
from acts.telemetry.logs import LogGuard, configure_logs, current_call
from acts.telemetry.metrics import METRICS
from acts.telemetry.tracing import HEADER, TRACE_PARENT, add_header, is_requested, read_header
from acts.worker.settings import Settings

ROOT = Path(__file__).parents[3]
CALL = {
    "run": "order-1", "runId": "0199", "call": "a/2:refund", "instance": "a", "tool": "refund", "attempt": 2
}  # fmt: skip
NAME = "tests.a_tool"

# settings


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ACTS_LOG", "xml", "ACTS_LOG is 'xml'; input should be 'text' or 'json'"),
        ("ACTS_LOG_LEVEL", "loud", "should be 'info', 'error', 'debug' or 'warning'"),
        ("ACTS_METRICS", "9464", "ACTS_METRICS is '9464'; it is host:port, such as 127.0.0.1:9464"),
        ("ACTS_METRICS", ":9464", "host:port"),
        ("ACTS_METRICS", "127.0.0.1:99999", "host:port"),
        ("ACTS_HEALTH", "127.0.0.1:http", "ACTS_HEALTH is '127.0.0.1:http'; it is host:port"),
        ("ACTS_HEALTH", "no-such-host.invalid:80", "its host has no address"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_what_is_allowed(
    variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=re.escape(words)):
        Settings.from_environment()


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
def test_traces_are_switched_on_by_an_endpoint(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, requested: bool
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_requested() is requested


BLOCKED = """
import sys
sys.modules["opentelemetry"] = sys.modules["opentelemetry.sdk"] = None
import acts.worker.serve, acts.client.server, acts.worker.interceptors
from acts.telemetry.tracing import start_tracing
assert start_tracing("worker") is None
import os
os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:4318"
start_tracing("worker")
"""


def test_a_worker_needs_no_opentelemetry_until_traces_are_switched_on() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "SettingsError: OTEL_EXPORTER_OTLP_ENDPOINT is set, and traces need OpenTelemetry's SDK" in done.stderr
    assert "pip install 'acts-engine[otel]'" in done.stderr


# log lines


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Lines of text, from debug on."""
    yield from _configured("text")


@pytest.fixture
def json_log() -> Iterator[io.StringIO]:
    yield from _configured("json")


def _configured(form: str) -> Iterator[io.StringIO]:
    root, text = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    configure_logs("debug", form, text)
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
    assert " INFO    the attempt failed: CardDeclined: the card was declined  run=order-1" in log.getvalue()
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


def test_a_secret_is_masked_in_the_ids_of_a_line_too(log: io.StringIO) -> None:
    guard = LogGuard()
    with guard.watch():
        guard.announce(["order-1", "hunter2"])
        fail_attempt(ValueError("hunter2"))
    assert "hunter2" not in log.getvalue()
    assert "run=[secret] runId=0199" in log.getvalue()


# metrics


def test_the_metrics_that_the_docs_name_exist() -> None:
    page = (ROOT / "docs" / "observability.md").read_text("utf-8")
    named = set(re.findall(r"\b(acts_[a-z_]+[a-z])\b", page))
    assert named
    assert named - {"acts_backlog"} <= METRICS.keys()


def test_labels_are_bounded_and_registered_tools_always_count() -> None:
    meters = metrics.Meters(MetricMeter.noop, ["refund"])
    assert {meters.bound("tool", f"tool-{n}") for n in range(1000)} == {*(f"tool-{n}" for n in range(100)), "other"}
    assert meters.bound("tool", "refund") == "refund"
    assert meters.bound("tool", "tool-7") == "tool-7"


# trace headers


def test_a_header_that_cannot_be_read_is_no_failure() -> None:
    carrier = {TRACE_PARENT: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "acts-root": "order-1"}
    assert read_header(add_header({}, carrier)) == carrier
    assert read_header({}) == read_header({HEADER: Payload(metadata={"encoding": b"odd"})}) == {}


DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/acts.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]


def load(path: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((DEPLOY / path).read_text("utf-8"))
    return content


def test_each_panel_says_what_it_shows_and_reads_the_data_source_that_is_provided() -> None:
    (source,) = load("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    for panel in PANELS:
        if panel["type"] != "row":
            assert panel["description"], panel["title"]
            assert panel["targets"], panel["title"]
            assert panel["datasource"] == {"type": source["type"], "uid": source["uid"]}


def test_prometheus_loads_the_alerts_and_each_says_what_is_wrong_and_where_to_look() -> None:
    settings = load("prometheus/prometheus.yml")
    assert all((DEPLOY / "prometheus" / name).is_file() for name in settings["rule_files"])
    rules = [rule for group in load("prometheus/alerts.yml")["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}, rule["alert"]
        page, _, anchor = rule["annotations"]["runbook_url"].rpartition("/")[2].partition("#")
        titles = re.findall(r"^### (.+)$", (DEPLOY.parent / "docs" / page).read_text("utf-8"), flags=re.MULTILINE)
        assert (anchor, rule["alert"]) in {(title.lower(), title) for title in titles}
        assert "job=" not in rule["expr"], "discovery names the job"
    assert {job["job_name"] for job in settings["scrape_configs"]} == {"acts-worker", "temporal"}
    (manager,) = settings["alerting"]["alertmanagers"]
    assert manager["static_configs"][0]["targets"] == ["alertmanager:9093"]
    named = re.findall(r"Acts\w+", (DEPLOY / "alertmanager" / "alertmanager.yml").read_text("utf-8"))
    assert set(named) <= {rule["alert"] for rule in rules}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool judges the rules")
def test_the_rules_fire_in_time_and_not_before() -> None:
    command = [str(shutil.which("promtool")), "test", "rules", str(DEPLOY / "prometheus" / "alerts_test.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
