import asyncio
import json
from datetime import timedelta

from agents import Agent, OpenAIProvider, Runner
from on_temporal import OPTIONS, look_up, main, notify, pay
from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
from temporalio.openai_agents.workflow import activity_as_tool

with workflow.unsafe.imports_passed_through():
    import shop


# task: refund
class Decision(BaseModel):
    cents: int
    reason: str


@workflow.defn
class Refund:
    @workflow.run
    async def run(self, id: str) -> str:
        order = await workflow.execute_activity(look_up, id, **OPTIONS)
        decider = Agent("decider", "Decide how much of the order to refund.", model="any", output_type=Decision)
        decision = (await Runner.run(decider, json.dumps(order))).final_output
        payment = await workflow.execute_activity(pay, args=[id, decision.cents], **OPTIONS)
        await workflow.execute_activity(notify, args=[id, f"Paid: {payment['receipt']}"], **OPTIONS)
        return payment["receipt"]


# task: agent
@activity.defn
def read_page(number: int) -> str:
    """Reads a page."""
    return shop.read_page(number)


@workflow.defn
class PageReader:
    @workflow.run
    async def run(self, order: str) -> str:
        reader = Agent("reader", model="any", tools=[activity_as_tool(read_page, **OPTIONS)])
        return (await Runner.run(reader, "Read the pages 1 to 20.", max_turns=50)).final_output


# task: wiring
PLUGIN = OpenAIAgentsPlugin(
    model_params=ModelActivityParameters(start_to_close_timeout=timedelta(seconds=30)),
    model_provider=OpenAIProvider(use_responses=False),
)

if __name__ == "__main__":
    asyncio.run(main(Refund, PageReader, [read_page], plugins=[PLUGIN]))
