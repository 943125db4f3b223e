"""A plan or a call as text that a person reads and edits, and the difference of two such texts.

The text parses back to the same value: it is YAML, or JSON if YAML would change the value.
"""

from __future__ import annotations

import difflib
import json

import yaml

from acts.language.values import Json
from cli.console import clean
from cli.text import yaml_text
from cli.text.positions import TextError
from cli.text.source_text import Format


def format_plan(value: Json) -> tuple[str, Format]:
    """A plan or a call as text, and the format of the text."""
    text = yaml.safe_dump(value, allow_unicode=True, sort_keys=False, width=120)
    try:
        if yaml_text.parse(text) == value:
            return text, "YAML"
    except TextError:
        pass
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n", "JSON"


def compare_plans(old: Json, new: Json, names: tuple[str, str]) -> list[str]:
    """The unified diff of two plans, as clean lines; empty if they are equal."""
    old_text, new_text = format_plan(old)[0], format_plan(new)[0]
    rows = difflib.unified_diff(old_text.splitlines(), new_text.splitlines(), *names, lineterm="")
    return [clean(row) for row in rows]
