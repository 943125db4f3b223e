import asyncio
import json

from on_temporal import OPTIONS, look_up, main, notify, pay
from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    import shop
    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, PydanticAIWorkflow, TemporalDurability
    from pydantic_ai.models.openai import OpenAIChatModel


# task: refund
class Decision(BaseModel):
    cents: int
    reason: str


decider = Agent(
    OpenAIChatModel("any"),
    instructions="Decide how much of the order to refund.",
    output_type=Decision,
    name="decider",
    capabilities=[TemporalDurability()],
)


@workflow.defn
class Refund(PydanticAIWorkflow):
    __pydantic_ai_agents__ = [decider]

    @workflow.run
    async def run(self, id: str) -> str:
        order = await workflow.execute_activity(look_up, id, **OPTIONS)
        decision = (await decider.run(json.dumps(order))).output
        payment = await workflow.execute_activity(pay, args=[id, decision.cents], **OPTIONS)
        await workflow.execute_activity(notify, args=[id, f"Paid: {payment['receipt']}"], **OPTIONS)
        return payment["receipt"]


# task: agent
reader = Agent(OpenAIChatModel("any"), name="reader", capabilities=[TemporalDurability()])


@reader.tool_plain
def read_page(number: int) -> str:
    """Reads a page."""
    return shop.read_page(number)


@workflow.defn
class PageReader(PydanticAIWorkflow):
    __pydantic_ai_agents__ = [reader]

    @workflow.run
    async def run(self, order: str) -> str:
        return (await reader.run("Read the pages 1 to 20.")).output


# task: wiring
if __name__ == "__main__":
    asyncio.run(main(Refund, PageReader, plugins=[PydanticAIPlugin()]))
