"""``acts keygen``: a key that payloads are encrypted with."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from cli.command_errors import EXIT_DONE
from cli.console import print_out


def keygen() -> int:
    """Print a line for the file of ``ACTS_CODEC_KEYS``."""
    from connection.codec_keys import KEY_BYTES, encode_key

    key = os.urandom(KEY_BYTES)
    print_out(f"k{datetime.now(UTC):%Y%m%d%H%M%S} {encode_key(key)}")
    return EXIT_DONE
