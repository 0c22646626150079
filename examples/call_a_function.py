"""A chat whose model may call a Python function: its result goes back, until there is an answer.

Takes a model with a chat template and a question: ``python call_a_function.py MODEL "What is 17 * 23?"``.
"""

from __future__ import annotations

import sys
from typing import Any

import pyturbo

MULTIPLY = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "The product of two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
    },
}


def multiply(arguments: dict[str, Any]) -> str:
    try:
        return str(arguments["a"] * arguments["b"])
    except (KeyError, TypeError) as error:
        return f"wrong arguments: {error}"  # the model may correct itself


def main(path: str, question: str) -> None:
    conversation = pyturbo.Conversation(pyturbo.load(path), tools=[MULTIPLY])
    said: str | list[dict[str, Any]] = question
    for _ in range(4):
        reply = conversation.reply(said, max_tokens=200)
        for _ in reply:
            pass
        calls = [call for call in reply.message.tool_calls if call.complete]
        if not calls:
            break
        said = []
        for call in calls:
            result = multiply(call.values())
            print(f"{call.name}({call.arguments}) = {result}")
            said.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result})
    print(f"answer: {reply.message.content}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
