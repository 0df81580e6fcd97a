"""Chat templates of every kind of ability, as short as can be."""

_TURN = "[{{ message.role }}: {{ message.content }}"
_ANSWER = "{% if add_generation_prompt %}[assistant: {% endif %}"
_LOOP = "{% for message in messages %}"

CHATML = f"{_LOOP}{_TURN}]\n{{% endfor %}}{_ANSWER}"

_TOOLS = "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>\n{% endif %}"
_CALL = '<tool_call>{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}</tool_call>'
_CALLS = f"{{% for call in message.tool_calls or [] %}}{_CALL}{{% endfor %}}"
HERMES = f"{_TOOLS}{_LOOP}{_TURN}{_CALLS}]\n{{% endfor %}}{_ANSWER}"

_TEXT_CALL = "<tool_call>{{ call.function.name + ' ' + call.function.arguments }}</tool_call>"
_TEXT_CALLS = f"{{% for call in message.tool_calls or [] %}}{_TEXT_CALL}{{% endfor %}}"
TEXT_ARGUMENTS = f"{_TOOLS}{_LOOP}{_TURN}{_TEXT_CALLS}]\n{{% endfor %}}{_ANSWER}"

STRICT = (
    "{% set ns = namespace(last='') %}" + _LOOP + "{% if message.role == 'system' and not loop.first %}"
    "{{ raise_exception('system message must be at the beginning') }}{% endif %}"
    "{% if message.role == ns.last %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% set ns.last = message.role %}" + _TURN + "]\n{% endfor %}" + _ANSWER
)

NO_SYSTEM = (
    _LOOP + "{% if message.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "" + _TURN + "]\n{% endfor %}" + _ANSWER
)

TYPED = (
    _LOOP + "[{{ message.role }}: {% for part in message.content if part.type == 'text' %}{{ part.text }}{% endfor %}]"
    "\n{% endfor %}" + _ANSWER
)

# Where a call is another kind of turn than a text.
CHANNELS = (
    _TOOLS + _LOOP + "{% if message.tool_calls %}[assistant to {{ message.tool_calls[0].function.name }}: "
    "{{ message.tool_calls[0].function.arguments | tojson }}{% else %}" + _TURN + "{% endif %}]\n{% endfor %}" + _ANSWER
)
