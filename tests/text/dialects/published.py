"""Chat templates that write thoughts and calls as published ones do."""

from __future__ import annotations

_TURNS = """\
{%- if tools %}{{- '<|im_start|>system\\n' ~ (tools | tojson) ~ '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}{{- message.content or '' }}
CALLS
{{- '<|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}THINKING{%- endif %}
"""
_JSON_CALLS = """\
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}"""
_CODER_CALLS = """\
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n<function=' ~ call.function.name ~ '>\\n' }}
{%- for name, value in call.function.arguments | items %}
{{- '<parameter=' ~ name ~ '>\\n' ~ (value if value is string else value | tojson) ~ '\\n</parameter>\\n' }}
{%- endfor %}{{- '</function>\\n</tool_call>' }}
{%- endfor %}"""
_THINKING = """\
{%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}
{%- else %}{{- '<think>\\n' }}{%- endif %}"""

# The arguments are text that is put together with other text, as DeepSeek's own template does it.
_DEEPSEEK = """\
{%- for message in messages %}
{%- if message.role == 'user' %}{{- '<!User!>' + message.content + '<!Assistant!>' }}{%- endif %}
{%- if message.role == 'assistant' and message.content is none %}
{{- '<!tool^calls^begin!>' }}
{%- for call in message.tool_calls %}{{- CALL }}{%- endfor %}
{{- '<!tool^calls^end!><!end^of^sentence!>' }}
{%- elif message.role == 'assistant' %}{{- message.content.split('</think>')[-1] }}{%- endif %}
{%- endfor %}
"""
_V3 = """'<!tool^call^begin!>' + call.type + '<!tool^sep!>' + call.function.name
    + '\\n```json\\n' + call.function.arguments + '\\n```<!tool^call^end!>'"""
_V31 = """'<!tool^call^begin!>' + call.function.name + '<!tool^sep!>'
    + call.function.arguments + '<!tool^call^end!>'"""

_LLAMA3 = """\
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
{%- if message.tool_calls %}
{{- '{"name": "' + message.tool_calls[0].function.name + '", "parameters": ' }}
{{- message.tool_calls[0].function.arguments | tojson }}{{- '}' }}
{%- else %}{{- message.content | trim }}{%- endif %}{{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""

_HARMONY = """\
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{%- if '<|channel|>' in message.content %}{{- raise_exception('expected the text alone') }}{%- endif %}
{%- if message.thinking %}
{{- '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' }}
{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '<|start|>assistant to=functions.' + call.function.name + '<|channel|>commentary json<|message|>' }}
{{- call.function.arguments | tojson }}{{- '<|call|>' }}
{%- endfor %}
{%- if message.content %}{{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}
{%- endif %}
{%- else %}{{- '<|start|>' + message.role + '<|message|>' + message.content + '<|end|>' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}
"""


def _with(calls: str, thinking: str = "") -> str:
    return _TURNS.replace("CALLS", calls).replace("THINKING", thinking)


def _deepseek(call: str) -> str:
    """The template, with the bars and the low block that DeepSeek's tokens have."""
    return _DEEPSEEK.replace("CALL", call).replace("!", "\uff5c").replace("^", "\u2581")


#: By family; "think" if they write thoughts, "opened" if the prompt begins them.
TEMPLATES = {
    "plain": _with(""),
    "plain think opened": _with("", _THINKING),
    "hermes": _with(_JSON_CALLS),
    "hermes think opened": _with(_JSON_CALLS, _THINKING),
    "qwen_coder": _with(_CODER_CALLS),
    "qwen_coder think opened": _with(_CODER_CALLS, _THINKING),
    "deepseek think": _deepseek(_V31),
    "deepseek think fenced": _deepseek(_V3),
    "llama3": _LLAMA3,
    "harmony": _HARMONY,
}
