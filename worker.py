"""A door: the worker is ``acts/worker/``. ``python worker.py`` starts one, as ``acts worker`` does."""

from runpy import run_module

if __name__ == "__main__":
    run_module("acts.worker", run_name="__main__")
