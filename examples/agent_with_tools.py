"""An agent with tools: after every result the context is fitted again, and no call is ever parted from its result.

The calls are scripted, so that no language model is needed. What an agent does with a real one is the same loop:
`thread.context()` without a prompt asks for the messages stored so far; the tools' schemas count in the budget.
"""

from typing import Any

import backscroll

MAX_TOKENS = 700
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "van_status",
            "description": "Fuel, mileage and next service of one van.",
            "parameters": {"type": "object", "properties": {"van": {"type": "integer"}}, "required": ["van"]},
        },
    }
]


def call(number: int) -> dict[str, Any]:
    """What a model says when it wants a tool."""
    function = {"name": "van_status", "arguments": f'{{"van": {number}}}'}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call-{number}", "type": "function", "function": function}],
    }


def result(number: int) -> dict[str, Any]:
    """What the tool answers."""
    log = " ".join(f"Day {day}: {60 + 7 * number + day} km driven, tank {95 - 5 * day} %." for day in range(1, 8))
    return {"role": "tool", "tool_call_id": f"call-{number}", "content": f"Van {number}. {log}"}


def is_valid(messages: list[dict[str, Any]]) -> bool:
    """Whether every call is followed by its result, and every result has its call."""
    calls = [one["id"] for message in messages for one in message.get("tool_calls") or ()]
    return calls == [message["tool_call_id"] for message in messages if message["role"] == "tool"]


def main() -> None:
    """Ask once, call eight times, and fit the context after each result."""
    with backscroll.open(":memory:", embedder="hashing") as memory:
        thread = memory.thread("checks", user="alice")
        thread.append({"role": "system", "content": "You look after the fleet."})
        thread.append({"role": "user", "content": "Which of our eight vans drove most this week?"})
        for number in range(1, 9):
            thread.append([call(number), result(number)])
            context = thread.context(max_tokens=MAX_TOKENS, tools=TOOLS)
            held = [message["tool_call_id"] for message in context if message["role"] == "tool"]
            valid = "valid" if is_valid(context.messages) else "INVALID"
            print(f"{number} calls stored: {context.tokens:>3} of {MAX_TOKENS} tokens, {valid}, sent {', '.join(held)}")
        print(f"\nthe first messages sent: {[message['role'] for message in context][:3]}")
        print(f"lines kept in the store: {len(thread.lines())}")


if __name__ == "__main__":
    main()
