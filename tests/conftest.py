"""What every test may ask for: one real server per test process, a client of it, a task queue of one's own."""

from __future__ import annotations

import logging
import os
import re
import signal
import uuid
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from acts.cli.dev.temporal_server import DevServer, dev_server
from tests.file_order import order_files

# The same examples each time, on a machine that is as busy as it may be: no test fails by chance.
# `--hypothesis-profile=search` looks for others
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", settings.get_profile("search"), derandomize=True)
settings.load_profile("suite")

# Test files of several folders import it; its asserts speak as those of a test file do
pytest.register_assert_rewrite("tests.property.drive")


# Only where processes are killed does a test have a second chance: the machine decides what a kill meets
RERUN_FOLDER = "crash"
MOST_RERUNS = 2
# Suites that need what `make setup` cannot install. In CI, any other skip is a failure
OPTIONAL = (
    "Node.js",
    "`make clients`",
    "`make mcp-servers`",
    "Chromium",
    "make support-desk-kill",
    "make walkthroughs",
)
# A test that has not ended by then fails, and has a second chance: a connection may hang without end, once in many runs
HUNG_SECONDS, LONG_SECONDS = 240, 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {file: place for place, file in enumerate(order_files({item.path for item in items}))}
    items.sort(key=lambda item: order[item.path])
    for item in items:
        if item.path.parent.name == RERUN_FOLDER:
            item.add_marker(pytest.mark.flaky(reruns=1))
        else:
            item.add_marker(pytest.mark.flaky(reruns=1, only_rerun=["HungError"]))
        if "server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.server)


class HungError(Exception):
    """A test has not ended in its time."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    def give_up(*_: object) -> None:
        raise HungError(item.nodeid)

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LONG_SECONDS if item.get_closest_marker("long") else HUNG_SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session", autouse=True)
def _own_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test trusts a folder in the name of the person who runs it."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("settings")))
        yield


def find_ci_problems(stats: dict[str, list[pytest.TestReport]]) -> list[str]:
    """Reruns above the limit, and skips for a reason that CI does not have."""
    reruns = [report.nodeid for report in stats.get("rerun", [])]
    problems = (
        [f"{len(reruns)} reruns, at most {MOST_RERUNS}: {', '.join(reruns)}"] if len(reruns) > MOST_RERUNS else []
    )
    for report in stats.get("skipped", []):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(word.lower() in reason.lower() for word in OPTIONAL):
            problems.append(f"{report.nodeid} should run here: {reason}")
    return problems


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("CI") or session.exitstatus != pytest.ExitCode.OK:
        return
    for problem in find_ci_problems(reporter.stats):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter.write_line(f"CI: {problem}", red=True)


@pytest.fixture(autouse=True)
def _levels_of_loggers() -> Iterator[None]:
    """Commands that tests call in this process set levels: no test hears less because of the one before."""
    levels = {log: log.level for log in _loggers()}
    yield
    for log in _loggers():
        log.setLevel(levels.get(log, logging.NOTSET))


def _loggers() -> list[logging.Logger]:
    named = logging.root.manager.loggerDict.values()
    return [logging.root, *(log for log in named if isinstance(log, logging.Logger))]


@pytest.fixture(scope="session")
def server() -> Iterator[DevServer]:
    """A dev server in memory, without Web UI; shared, so tests keep to their own task queue and workflow ids."""
    with dev_server(ui=False) as running:
        yield running


@pytest.fixture(scope="session")
async def client(server: DevServer) -> Client:
    return await Client.connect(server.address, namespace=server.namespace, data_converter=pydantic_data_converter)


@pytest.fixture
def task_queue(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, yet one can tell in the Web UI whose it is."""
    test = re.sub(r"\W+", "-", request.node.name)[:60].strip("-")
    return f"{test}-{uuid.uuid4().hex[:8]}"
