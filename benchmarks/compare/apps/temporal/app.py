import asyncio

from on_temporal import OPTIONS, look_up, main, notify, pay
from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities import ask_model, decide, read_page


# task: refund
@workflow.defn
class Refund:
    @workflow.run
    async def run(self, id: str) -> str:
        order = await workflow.execute_activity(look_up, id, **OPTIONS)
        decision = await workflow.execute_activity(decide, order, **OPTIONS)
        payment = await workflow.execute_activity(pay, args=[id, decision["cents"]], **OPTIONS)
        await workflow.execute_activity(notify, args=[id, f"Paid: {payment['receipt']}"], **OPTIONS)
        return payment["receipt"]


# task: agent
@workflow.defn
class PageReader:
    @workflow.run
    async def run(self, order: str) -> str:
        messages: list[dict] = [{"role": "user", "content": "Read the pages 1 to 20."}]
        while True:
            message = await workflow.execute_activity(ask_model, messages, **OPTIONS)
            messages.append(message)
            if not message.get("tool_calls"):
                return message["content"]
            for call in message["tool_calls"]:
                text = await workflow.execute_activity(read_page, call["function"]["arguments"], **OPTIONS)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})


# task: wiring
if __name__ == "__main__":
    asyncio.run(main(Refund, PageReader, [decide, ask_model, read_page]))
