"""Chat templates for models whose file has none or a broken one: a few of our own by name, or a file."""

from pathlib import Path
from typing import Final

from shared.errors import StartError

OWN: Final = "own"  # the template that the model's file has
_MOST_BYTES: Final = 1 << 20  # the longest known templates have some 20 KB

# The marks are those of the models' own templates. Roles that a template leaves out are put into the user's turns.
BUILT_IN: Final = {
    "chatml": (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "gemma": (
        "{{ bos_token }}{% for m in messages %}{% if m.role in ['user', 'assistant'] %}"
        "{{ '<start_of_turn>' + ('user' if m.role == 'user' else 'model') + '\n' }}"
        "{{ m.content|trim + '<end_of_turn>\n' }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
    ),
    "llama3": (
        "{{ bos_token }}{% for m in messages %}"
        "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content|trim + '<|eot_id|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
    "mistral": (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
        "{% elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
    ),
    "vicuna": (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ 'USER: ' + m.content + '\n' }}"
        "{% elif m.role == 'assistant' %}{{ 'ASSISTANT: ' + m.content + eos_token + '\n' }}"
        "{% else %}{{ m.content + '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
    ),
    "zephyr": (
        "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
    ),
}
NAMES: Final = ", ".join(BUILT_IN)


def find(spec: str, option: str = "--chat-template") -> str:
    """The Jinja source that `spec` means, a name of ours or a file; empty for the model's own.

    Raises `StartError` naming `option`.
    """
    if spec in ("", OWN):
        return ""
    if spec in BUILT_IN:
        return BUILT_IN[spec]
    try:
        data = Path(spec).expanduser().read_bytes()
        text = data.decode() if len(data) <= _MOST_BYTES else ""
    except OSError as error:
        raise StartError(
            option, spec, f"neither {NAMES} or {OWN}, nor a file that can be read ({error.strerror})"
        ) from None
    except UnicodeDecodeError:
        raise StartError(option, spec, "not a text file in UTF-8") from None
    if not text.strip():
        raise StartError(option, spec, f"a template has 1 to {_MOST_BYTES} bytes, and this file has {len(data)}")
    return text
