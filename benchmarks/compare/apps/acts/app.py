import asyncio
from pathlib import Path

import acts
import shop


async def main():
    async with await acts.Client.connect() as client:

        async def run(task, order):
            # task: fan_out
            numbers = {"numbers": list(range(500))} if task == "fan_out" else {}
            # task: wiring
            run = await client.start(Path(f"{task}.yaml"), {"order": order, **numbers}, id=order, agent=task == "agent")
            result = await run.result()
            return result.require().status

        async def resume(task, order):
            return (await client.run(order).result()).require().status

        # task: approval
        async def waiting(order):
            return [wait.content for wait in await client.run(order).pending()]

        async def approve(order):
            (wait,) = await client.run(order).pending()
            await client.run(order).approve(wait.call, subject=wait.subject, by="ada")

        # task: wiring
        await shop.serve(run, waiting, approve, resume)


asyncio.run(main())
