"""What models take that no price list says: the longest answer, and the efforts. By the beginning of their names.

A model that is in no row gets what is asked for, and its server's rejection is read (``endpoint_memory.py``). Sources:
the providers' documentation of models; where a row is wrong, the rejection still corrects it.
"""

from __future__ import annotations

import re
from typing import Final

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""All efforts of ``config.effort``, the least first."""

# (name, tokens): the first that matches counts. A date may follow a name
_MAX_OUTPUT: Final = (
    (r"claude-3-5-|claude-3-5", 8_192),
    (r"claude-3-7-", 64_000),
    (r"claude-3-", 4_096),
    (r"claude-opus-4-1|claude-opus-4-0|claude-opus-4-\d{8}", 32_000),
    (r"claude-(opus|sonnet|haiku)-4-5|claude-sonnet-4-\d{8}|claude-sonnet-4-0", 64_000),
    (r"claude-", 128_000),
    (r"gpt-4o-mini|gpt-4o|chatgpt-4o", 16_384),
    (r"gpt-4\.1", 32_768),
    (r"gpt-4-turbo|gpt-3\.5", 4_096),
    (r"gpt-4($|-)", 8_192),
    (r"o1|o3|o4", 100_000),
    (r"gpt-[5-9]", 128_000),
)
_ANTHROPIC: Final = ("low", "medium", "high", "xhigh", "max")
# (name, efforts); an empty row: the model takes none
_EFFORTS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (r"claude-3|claude-(sonnet|haiku)-4-5|claude-(opus|sonnet)-4-[01]($|-)|claude-(opus|sonnet)-4-\d{8}", ()),
    (r"claude-opus-4-5", ("low", "medium", "high")),
    (r"claude-(opus|sonnet)-4-6", ("low", "medium", "high", "max")),
    (r"claude-", _ANTHROPIC),
    (r"gpt-4|gpt-3|chatgpt", ()),
    (r"o1|o3|o4", ("low", "medium", "high")),
    (r"gpt-5($|-)", ("minimal", "low", "medium", "high")),
)

# How Bedrock names the models of others
_PREFIX: Final = re.compile(r"^(?:[a-z-]+\.)?(?:anthropic|openai)\.")


def max_output_tokens(model: str) -> int | None:
    """The longest answer that a model gives, in tokens; None where no row has it. Prefixes of gateways are ignored."""
    name = _bare_name(model)
    return next((tokens for pattern, tokens in _MAX_OUTPUT if re.match(pattern, name)), None)


def known_efforts(model: str) -> tuple[str, ...] | None:
    """The efforts that a model takes; empty: none; None where no row has it."""
    name = _bare_name(model)
    return next((efforts for pattern, efforts in _EFFORTS if re.match(pattern, name)), None)


def nearest_effort(effort: str, allowed: tuple[str, ...]) -> str:
    """The allowed effort that is nearest, the lower of two."""
    place = EFFORTS.index(effort)
    return min(allowed, key=lambda name: (abs(EFFORTS.index(name) - place), EFFORTS.index(name)))


def _bare_name(model: str) -> str:
    """The name without the prefixes of gateways and clouds: ``openai/…``, ``us.anthropic.…``, ``provider:…``."""
    name = _PREFIX.sub("", model.rpartition("/")[2].lower())
    head, _, rest = name.partition(":")
    # After a name, a colon begins its version or size
    return rest if rest and head.isalpha() else name
