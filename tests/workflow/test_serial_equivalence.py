"""Serial equivalence on a real server: random plans, tools on a foreign queue that finish in random order.

``TEST_PLANS`` says how many plans (100), ``TEST_SEED`` which (1).
"""

from __future__ import annotations

import asyncio
import json
import os
from random import Random
from typing import Any

from tests import oracle
from tests.property.drive import plain
from tests.strategies import Case, cases, collisions, draw_plans
from tests.workflow.foreign import Foreign, Handle, states
from tests.workflow.scripted import Script, Stage

Json = Any
PLANS = int(os.environ.get("TEST_PLANS", "50"))
SEED = int(os.environ.get("TEST_SEED", "4"))
AT_ONCE = 25
LONGEST_SECONDS = 0.02


async def views(handle: Handle, expected: oracle.Outcome) -> dict[str, Json]:
    out = {}
    for kind in dict.fromkeys(e.kind for e in expected.entries):
        found = await handle.query("context", {"path": f"†{kind}"})
        if "value" in found:
            out[kind] = found["value"]
    return out


async def test_whatever_finishes_first_the_result_is_that_of_one_call_after_another(foreign: Foreign) -> None:
    random = Random(SEED)  # noqa: S311
    strategy = (cases(instances=False) | collisions()).filter(lambda case: not oracle.instances_of(case.request))
    plans = draw_plans(strategy, PLANS, SEED)
    assert len(plans) >= PLANS * 9 // 10
    many = asyncio.Semaphore(AT_ONCE)
    seen: dict[str, int] = {}

    async with Stage(foreign).open() as stage:

        async def check(case: Case, expected: oracle.Outcome) -> None:
            delays = {id_: random.random() * LONGEST_SECONDS for id_ in case.results}
            script = Script(case.results, delays)
            async with many:
                result, handle = await stage.play(case.request, script)
                held = await views(handle, expected)
            for state in states(result).values():
                seen[state] = seen.get(state, 0) + 1
            told = json.dumps({"request": case.request, "results": case.results, "delays": delays}, ensure_ascii=False)
            came = {
                "states": states(result),
                "paths": {c["id"]: c.get("outputPath") for c in result["calls"]},
                "errors": {c["id"]: plain(c["error"]) for c in result["calls"] if "error" in c},
                "appended": plain(result["context"]),
                "started": {k: (plain(p), plain(c)) for k, (p, c) in script.started.items()},
                "state": plain(result["state"]),
                "views": plain(held),
            }
            wanted = {kind: expected.view(kind) for kind in dict.fromkeys(e.kind for e in expected.entries)}
            wanted = {kind: view for kind, view in wanted.items() if view is not oracle.ABSENT}
            assert came == {
                "states": expected.states,
                "paths": expected.paths,
                "errors": expected.errors,
                "appended": expected.appended,
                "started": expected.started,
                "state": wanted.get("state", {}),
                "views": wanted,
            }, told
            assert len(set(script.identities)) == len(script.identities)

        await asyncio.gather(*[check(case, expected) for case, expected in plans])
    assert set(seen) >= {"completed", "failed", "skipped", "detached"}
    print(f"\n{len(plans)} plans: {seen}")  # noqa: T201 - shown with pytest -s
