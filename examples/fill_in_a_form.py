"""Replies that always parse: a story's beginning is continued as JSON of a given shape.

Run it with the path of a model that can chat, or without for the small one in the package.
"""

from __future__ import annotations

import json
import sys

import pyturbo

FORM = {
    "type": "object",
    "properties": {
        "animal": {"enum": ["cat", "dog", "bird", "fox"]},
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,9}$"},
        "legs": {"type": "integer", "minimum": 2, "maximum": 4},
        "friendly": {"type": "boolean"},
    },
    "required": ["animal", "name", "legs", "friendly"],
    "additionalProperties": False,
}


def main() -> None:
    model = pyturbo.load(sys.argv[1] if len(sys.argv) > 1 else None)
    question = "Lily met a new animal in the park today. What was it?"
    can_chat = model.tokenizer.chat_template is not None
    prompt = [{"role": "user", "content": f"{question} Answer as JSON."}] if can_chat else question
    for reply in model.generate(prompt, 100, temperature=0.8, seed=1, schema=FORM, n=3):
        animal = json.loads(reply.text)
        friendly = "friendly" if animal["friendly"] else "shy"
        print(f"{animal['name']}, a {friendly} {animal['animal']} with {animal['legs']} legs")


if __name__ == "__main__":
    main()
