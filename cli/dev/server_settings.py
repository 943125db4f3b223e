"""What the Temporal dev server is set to: its dynamic configuration and its database, each value with its reason.

Values only, in the words of the server; ``temporal_server.py`` passes them to it. Other servers have the limits among
them from ``deploy/dynamicconfig.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# By default, the server's one history shard polls for work 20 times a second and rounds timers up to a second: an
# activity on another queue costs 100 ms, a child workflow 200 ms, a sleep of 1 ms a whole second. With these values,
# only the work itself remains: 6 to 20 ms per activity, depending on the load of the machine.
DYNAMIC_CONFIG: Final[Mapping[str, str]] = {
    # Timers are read in batches, so they may fire so much late; the default of 1 s is added to every retry and sleep.
    "history.timerProcessorMaxTimeShift": '"1ms"',
    # Polls per second and shard (default 20, so 50 ms per sequential hop); 10,000 is no limit: nothing on one machine
    # hops every 0.1 ms. Transfer = activities and children, timer = sleeps, timeouts and retries,
    # visibility = how soon a run appears in lists and counts.
    "history.transferProcessorMaxPollRPS": "10000",
    "history.timerProcessorMaxPollRPS": "10000",
    "history.visibilityProcessorMaxPollRPS": "10000",
    # Updates in flight per run (default 10): every decision that is being applied is one.
    "history.maxInFlightUpdates": "1000",
    # Updates per run in all (default 2,000): at 5 events each, the limit of 51,200 events per history comes first.
    "history.maxTotalUpdates": "100000",
    # Events buffered while a workflow task runs (default 100; beyond it the task is discarded and replayed): two for
    # each of the 2,000 activities a run may have pending. The size limit (2 MB) stays: past 4 MB, results are lost.
    "history.maximumBufferedEventsBatch": "4000",
    # Events of the runs that are active, which the server needs for each activity that starts or ends. By default each
    # shard has 512 KiB; what does not fit is read from the database again, a whole workflow task at a time. A run of
    # 2,000 calls with arguments of 1 kB has 2 MB of them, so 64 MiB are room for 30 such runs.
    "history.enableHostLevelEventsCache": "true",
    "history.eventsHostLevelCacheMaxSizeBytes": "67108864",
    # Until the server gives up a workflow task and begins it again (default 10 s). A worker that has lost its cache
    # replays 15,000 events in 7 to 11 s of CPU; what takes longer than this is lost each time, for ever. A task that
    # dies with its worker is begun again after this time, so no longer than needed.
    "history.defaultWorkflowTaskTimeout": '"15s"',
    # A run is terminated above this (default 50 MB). The engine ends a run at 46 MB, but results that are on their way
    # still arrive: 100 calls in flight (the default) with 2 MB each.
    "limit.historySize.error": "268435456",
    # A worker that stops cancels its polls. What the server hands to one of them at that moment is lost: an activity
    # without a heartbeat then waits for its whole timeout. With this, the server ends the polls itself.
    "frontend.enableCancelWorkerPollsOnShutdown": "true",
    # The server would ask for the newest version.
    "frontend.enableServerVersionCheck": "false",
}

# A commit is in the file system's cache before it is acknowledged: kill -9 of any process loses nothing, a power cut
# may lose the last commits but never the file. At least twice as fast as SQLite's default.
SQLITE_PRAGMAS: Final = ("journal_mode=WAL", "synchronous=NORMAL")
