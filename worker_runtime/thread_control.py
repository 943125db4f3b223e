"""What one thread may do to another: count what it has computed, and raise an exception in it."""

from __future__ import annotations

import ctypes
import time


def count_thread_seconds(thread_id: int, started: float, now: float) -> float:
    """CPU seconds of a thread that runs; wall seconds since ``started`` where the system does not count them."""
    if not hasattr(time, "pthread_getcpuclockid"):  # macOS
        return now - started
    return time.clock_gettime(time.pthread_getcpuclockid(thread_id))


def raise_in_thread(thread_id: int, exception: type[BaseException]) -> None:
    """Raise an exception in a thread as soon as it runs Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), ctypes.py_object(exception))


def clear_exception(thread_id: int) -> None:
    """Take back an exception that has not been raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), None)
