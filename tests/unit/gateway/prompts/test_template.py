"""Chat templates: rendered as transformers would, in a sandbox, with the template's own refusals."""

from datetime import datetime

import pytest

from services.gateway.prompts.capabilities import fault
from services.gateway.prompts.template import ChatTemplate, TemplateError
from shared.model import chat_templates

USER = [{"role": "user", "content": "hi"}]


def render(source: str, **variables: object) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>", now=lambda: datetime(2030, 1, 2)).render(USER, variables)


def test_blocks_are_trimmed_as_transformers_does() -> None:
    source = (
        "{{ bos_token }}\n  {% for m in messages %}\n{{ m.role }}: {{ m.content }}{{ eos_token }}\n  {% endfor %}\n"
    )
    assert render(source) == "<s>\nuser: hi</s>\n"


def test_the_template_refuses_in_its_own_words() -> None:
    with pytest.raises(TemplateError, match=r"^Roles must alternate!$"):
        render("{{ raise_exception('Roles must alternate!') }}")


@pytest.mark.parametrize(
    "source", ["{{ messages.x.y }}", "{{ 1 + 'a' }}", "{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}"]
)
def test_what_cannot_be_rendered_is_a_refusal(source: str) -> None:
    with pytest.raises(TemplateError, match="cannot render"):
        render(source)


def test_a_broken_template_is_named_as_such() -> None:
    with pytest.raises(TemplateError, match="does not compile"):
        ChatTemplate("{% if %}")


def test_json_is_not_escaped_for_html() -> None:
    assert render("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'


def test_loop_controls_and_the_generation_tag_work() -> None:
    body = "{% if i == 2 %}{% break %}{% endif %}{% generation %}{{ i }}{% endgeneration %}"
    assert render("{% for i in [1, 2] %}" + body + "{% endfor %}") == "1"


def test_the_date_is_the_clock_s() -> None:
    assert render("{{ strftime_now('%d %b %Y') }}") == "02 Jan 2030"


def test_variables_reach_the_template_but_replace_nothing_of_ours() -> None:
    assert render("{{ enable_thinking }} {{ add_generation_prompt }}", enable_thinking=False) == "False True"
    assert render("{{ bos_token }}", bos_token="x", messages=[]) == "<s>"


CONVERSATION = [
    {"role": "user", "content": " hi "},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Why?"},
]
RENDERED = {
    "chatml": "<|im_start|>user\n hi <|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
    "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n",
    "gemma": "<s><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n"
    "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n",
    "llama3": "<s><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "<s>[INST]  hi  [/INST] Hello.</s>[INST] Why? [/INST]",
    "vicuna": "<s>USER:  hi \nASSISTANT: Hello.</s>\nUSER: Why?\nASSISTANT:",
    "zephyr": "<|user|>\n hi </s>\n<|assistant|>\nHello.</s>\n<|user|>\nWhy?</s>\n<|assistant|>\n",
}


@pytest.mark.parametrize("name", chat_templates.BUILT_IN)
def test_our_own_templates_write_what_their_models_were_trained_with(name: str) -> None:
    template = ChatTemplate(chat_templates.find(name), bos="<s>", eos="</s>")
    assert template.render(CONVERSATION) == RENDERED[name]
    assert fault(template) == ""


@pytest.mark.parametrize(
    ("source", "reason"), [("{{ nobody.x }}", "cannot render these messages"), ("{{ raise_exception('No!') }}", "No!")]
)
def test_a_template_that_renders_no_message_at_all_is_told(source: str, reason: str) -> None:
    assert reason in fault(ChatTemplate(source))
