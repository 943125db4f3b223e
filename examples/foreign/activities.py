"""The part of the example in the project's worker: compares the results of the foreign worker."""

from __future__ import annotations

from pydantic import BaseModel, Field

import acts
from examples.effects import own_file, write_atomically


class Factors(BaseModel):
    number: int
    factors: list[int] = Field(min_length=1)


class Comparison(BaseModel):
    file: str
    common: list[int]


@acts.tool(name="writeFactors")
def write_factors(first: Factors, second: Factors, *, call: acts.Call) -> Comparison:
    """Writes both factorizations and their common primes to the Call's own file."""
    common = sorted(set(first.factors) & set(second.factors))
    lines = [f"{item.number} = {' * '.join(map(str, item.factors))}" for item in (first, second)]
    text = "\n".join([*lines, f"common primes: {', '.join(map(str, common)) or 'none'}", ""])
    return Comparison(file=write_atomically(own_file("foreign", "factors", call), text), common=common)
