"""Chat templates in the manner of published ones, and conversations for them."""

from __future__ import annotations

from typing import Any

NAMED_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- '# Tools\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'system' %}{% continue %}{% endif %}
    {%- if message.role == 'assistant' and message.tool_calls %}
        {{- '<|im_start|>assistant' }}
        {%- for call in message.tool_calls %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson(indent=2) }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""

LLAMA3 = """\
{{ bos_token }}
{%- if tools is not none %}{{ '[' ~ tools | length ~ ' tools]' }}{% endif %}
{%- if messages[0]['role'] == 'assistant' %}
    {{- raise_exception('The first message must not be from the assistant, "' ~ eos_token ~ '"') }}
{%- endif %}
{%- for message in messages %}
    {%- set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' %}
    {{- content + (message['content'] or '') | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

THINKING = """\
{%- set ns = namespace(last=-1) %}
{%- for message in messages[::-1] %}
    {%- if message.role == "user" %}
        {%- set ns.last = messages | length - loop.index %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = message.content | map(attribute='text') | join('') if message.content else '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- if '</think>' in content and loop.index0 <= ns.last %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {% generation %}
        {{- '<|im_start|>assistant\\n' + content + '<|im_end|>' }}
        {% endgeneration %}
        {{- '\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "thinking": THINKING}

SHORT = [{"role": "user", "content": "  Grüße & <b>日本</b> 🎂 "}]
LONG = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 2+2?"},
    {"role": "assistant", "content": "<think>\nsimple\n</think>\n\n4"},
    {"role": "user", "content": "And 3+3?"},
]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]}]
CALLS = [
    {"role": "user", "content": "Weather in Zürich?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2}}}],
    },
    {"role": "tool", "content": "sunny"},
]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "Say <what> it's like", "parameters": {}},
    }
]

#: Template, messages, whether a reply is asked for, and variables.
CASES: dict[str, tuple[str, list[dict[str, Any]], bool, dict[str, Any]]] = {
    "chatml short": ("chatml", SHORT, True, {}),
    "chatml long": ("chatml", LONG, False, {}),
    "chatml tools": ("chatml", CALLS, True, {"tools": TOOLS}),
    "chatml tools and system": ("chatml", LONG, True, {"tools": TOOLS}),
    "llama3 short": ("llama3", SHORT, True, {}),
    "llama3 long": ("llama3", LONG, False, {}),
    "llama3 tools": ("llama3", CALLS, True, {"tools": TOOLS}),
    "thinking on": ("thinking", LONG, True, {}),
    "thinking off": ("thinking", LONG, True, {"enable_thinking": False}),
    "thinking parts": ("thinking", PARTS, False, {}),
    "thinking calls": ("thinking", CALLS, True, {"enable_thinking": True}),
    "thinking reply": ("thinking", LONG[:3], False, {}),
}
