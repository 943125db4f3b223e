"""The protocol of durable plans, pure: no I/O, no clock, no randomness, no Temporal.

Laws of this room
-----------------
* Everything here is a function of its arguments: the same Request gives the same
  plan order, the same commands and the same result on every machine and under every
  ``PYTHONHASHSEED``. No set is ever iterated.
* JSON values are treated as immutable. A fold copies what it changes.
* Nothing here knows who carries a plan out. ``walk.py`` says what should be done;
  a shell (``workflows/``) does it and reports back.

Reading order: ``values`` → ``references`` → ``messages`` → ``tools`` → ``calls`` →
``graph`` → ``context`` → ``validate`` → ``walk`` → ``simulate``.
"""
