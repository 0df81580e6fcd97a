"""The chat: it streams, says who guessed every token, stops for real, and believes nothing that a model says."""

import asyncio
import re

import pytest
from playwright.async_api import expect

from shared.model.llama.model import Model
from shared.wire.messages import Chunk, Finish
from tests.browser.conftest import Visit
from tests.browser.fleets import DRAFTER, ask, fleet, guessed, helper, ready
from tests.service.scripted import HI, fixed, speaking

pytestmark = pytest.mark.asyncio(loop_scope="session")

TEXT = "The sky is blue because air scatters short waves."


async def test_an_answer_streams_and_every_token_says_who_guessed_it(
    valkey_url: str, vocabulary: bytes, model: Model, visit: Visit
) -> None:
    gate = asyncio.Event()
    script = fixed(*guessed(model, TEXT, gate=gate))
    async with fleet(valkey_url, vocabulary, script, others=[helper()]) as s:
        page = await visit(s.url)
        await ready(page, "small-Q8_0")
        await ask(page, "Why is the sky blue?")
        answer = page.locator(".answer")
        await expect(answer).to_have_text("The sky is")  # the first round, while the second is held back
        gate.set()
        await expect(answer).to_have_text(TEXT)
        marks = await page.locator(".token").evaluate_all("tokens => tokens.map(token => token.className)")
        assert marks[:3] == ["token mark-0", "token mark-0", "token mark-refused"]
        details = page.locator("#chat-token")
        await page.hover(".token >> nth=0")
        await expect(details).to_have_text("“The” guessed by small-Q8_0 on cuda:1, h; accepted; probability 77.9 %")
        await page.hover(".token >> nth=2")
        await expect(details).to_contain_text("drawn by the target itself, which refused another guess")
        await expect(page.locator("#chat-legend")).to_contain_text("small-Q8_0 on cuda:1, h")
        await expect(page.locator(".note")).to_have_text(
            re.compile(r"^\d+ tokens · .* tokens/s · .* per round · .* % of drafts accepted$")
        )
        [job] = s.verifier.jobs
        assert job.sampling.temperature == 0.7


async def test_stop_cancels_the_request(valkey_url: str, vocabulary: bytes, visit: Visit) -> None:
    going = asyncio.Event()
    async with fleet(valkey_url, vocabulary, fixed(Chunk(tokens=(HI,)), going, Chunk(tokens=(HI,)))) as s:
        page = await visit(s.url)
        await ready(page)
        await ask(page, "Go on for ever.")
        await expect(page.locator(".answer")).to_have_text("Hi")
        await page.click("text=Stop")
        assert await s.terminal(s.verifier.jobs[0].request_id) is Finish.CANCELLED
        await expect(page.locator(".note")).to_have_text("Stopped")
        await expect(page.locator("#chat-send")).to_be_enabled()
        going.set()


async def test_a_conversation_goes_on_and_can_be_begun_anew(
    valkey_url: str, vocabulary: bytes, model: Model, visit: Visit
) -> None:
    async with fleet(valkey_url, vocabulary, speaking(model, "Hello")) as s:
        page = await visit(s.url)
        await ready(page)
        for number in range(2):
            await ask(page, f"Question {number}")
            await expect(page.locator(".note")).to_have_count(number + 1)
            await expect(page.locator("#chat-send")).to_be_enabled()
        await page.click("text=New chat")
        await ask(page, "Question 2")
        await expect(page.locator(".note")).to_have_count(1)
        await expect(page.locator("#chat-send")).to_be_enabled()
        prompts = [b"".join(map(model.vocabulary.piece, job.prompt)).decode() for job in s.verifier.jobs]
    assert [prompt.count("Hello") for prompt in prompts] == [0, 1, 0]
    assert "Question 0" in prompts[1]
    assert "Question 0" not in prompts[2]


async def test_options_are_sent(valkey_url: str, vocabulary: bytes, model: Model, visit: Visit) -> None:
    async with fleet(valkey_url, vocabulary, speaking(model, "Hello")) as s:
        page = await visit(s.url)
        await ready(page)
        await page.click("summary")
        await page.select_option("#chat-drafts", "off")
        await page.fill("#chat-temperature", "0")
        await page.fill("#chat-tokens", "17")
        await ask(page, "Hi")
        await expect(page.locator(".note")).to_contain_text("tokens")
        [job] = s.verifier.jobs
    assert (job.speculation.value, job.sampling.temperature, job.max_tokens) == ("off", 0.0, 17)


async def test_all_of_it_can_be_done_with_the_keyboard(
    valkey_url: str, vocabulary: bytes, model: Model, visit: Visit
) -> None:
    async with fleet(valkey_url, vocabulary, fixed(*guessed(model, TEXT)), others=[helper()]) as s:
        page = await visit(s.url)
        await ready(page, "small-Q8_0")
        press = page.keyboard.press
        await press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await press("Enter")
        await press("Tab")
        await expect(page.locator("#chat-new")).to_be_focused()
        await press("Tab")
        await expect(page.locator("#chat-text")).to_be_focused()
        await page.keyboard.type("One line")
        await press("Shift+Enter")
        await page.keyboard.type("and another")
        assert await page.input_value("#chat-text") == "One line\nand another"
        await press("Enter")
        await expect(page.locator(".asked")).to_have_text("One line\nand another")
        await expect(page.locator(".answer")).to_have_text(TEXT)
        await press("Shift+Tab")
        await expect(page.locator(".answer")).to_be_focused()
        await press("ArrowRight")
        await press("ArrowRight")
        await expect(page.locator("#chat-token")).to_contain_text("“ sky” guessed by small-Q8_0")
        await press("End")
        await expect(page.locator(".looked-at")).to_have_text(".")


async def test_a_finger_shows_what_a_pointer_does(
    valkey_url: str, vocabulary: bytes, model: Model, visit: Visit
) -> None:
    async with fleet(valkey_url, vocabulary, fixed(*guessed(model, TEXT)), others=[helper()]) as s:
        page = await visit(s.url, viewport={"width": 400, "height": 800}, has_touch=True, is_mobile=True)
        await ready(page, "small-Q8_0")
        await ask(page, "Hi")
        await page.tap(".token >> nth=1")
        await expect(page.locator("#chat-token")).to_contain_text("“ sky” guessed by small-Q8_0")


async def test_what_models_and_processes_say_is_text(
    valkey_url: str, vocabulary: bytes, model: Model, visit: Visit
) -> None:
    attack = (
        "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script></span><a href='javascript:window.hit=1'>"
    )
    others = [helper(model=attack, device=attack, host=attack)]
    async with fleet(valkey_url, vocabulary, fixed(*guessed(model, attack)), others=others) as s:
        page = await visit(s.url)
        await ready(page)
        await ask(page, attack)
        await expect(page.locator(".answer")).to_have_text(attack)
        await expect(page.locator("#fleet")).to_contain_text(attack)
        await page.hover(".token >> nth=0")
        await expect(page.locator("#chat-token")).to_contain_text(attack)
        assert await page.evaluate(
            "[window.hit, document.querySelectorAll('main img, main script, main a').length]"
        ) == [
            None,
            0,
        ]


async def test_refusals_and_failures_are_told(valkey_url: str, vocabulary: bytes, visit: Visit) -> None:
    script = fixed(Chunk(tokens=(HI,)), Chunk(tokens=(), finish=Finish.ERROR, detail="The target broke."))
    async with fleet(valkey_url, vocabulary, script) as s:
        page = await visit(s.url)
        await ready(page)
        await ask(page, "word " * 4000)
        await expect(page.locator(".note")).to_contain_text("Refused: ")
        await expect(page.locator("#chat-send")).to_be_enabled()
        await ask(page, "Hi")
        await expect(page.locator(".note").last).to_have_text("Failed: The target broke.")
        await expect(page.locator(".note")).to_have_count(2)


async def test_a_mark_is_named_as_soon_as_its_drafter_is_known(
    valkey_url: str, vocabulary: bytes, model: Model, visit: Visit
) -> None:
    async with fleet(valkey_url, vocabulary, fixed(*guessed(model, TEXT))) as s:
        page = await visit(s.url)
        await ready(page)
        await ask(page, "Hi")
        await expect(page.locator("#chat-legend")).to_contain_text(DRAFTER)
        await s.registry.beat(helper())
        await expect(page.locator("#chat-legend")).to_contain_text("small-Q8_0 on cuda:1, h")
