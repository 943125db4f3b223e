"""placeholder: replaced by the language room's"""

import json
from typing import Any


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def read_json(data: str | bytes) -> Any:
    return json.loads(data, parse_constant=_refuse)


def write_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def json_size(value: Any) -> int:
    return len(write_json(value))
