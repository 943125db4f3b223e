"""How a run names what waits in it: by what is asked, the Call and the instance; and the timer of each wait.

Laws of this file: a name is made of its parts and read back into them, and says nothing else.
"""

from __future__ import annotations

import json

Key = tuple[str, str | None, str | None]  # what, call, instance


def timer_name(key: Key, deadline: str | None) -> str:
    """One timer of one wait: a timer that fires beside the decision is none of what waits next."""
    return f"{text_key(key)} {deadline}"


def key_of_timer(name: str) -> Key | None:
    """What a timer is for, as its name says; None for a name of another form."""
    try:
        what, call, instance = json.loads(name.rpartition(" ")[0])
    except (TypeError, ValueError):
        return None
    return what, call, instance


def text_key(key: Key) -> str:
    """A key as a text."""
    return json.dumps(key, ensure_ascii=False)
