"""Chat streams, frame by frame."""

from shared.llama import Model
from tests import golden
from tests.service.scripted import MESSAGES, speaking, stack


async def test_text(valkey_url: str, vocabulary: bytes, model: Model) -> None:
    async with stack(valkey_url, vocabulary, speaking(model, "Hello 😀 world", 2)) as s:
        golden.check("chat-text", await s.transcript("/v1/chat/completions", messages=MESSAGES, stream=True, seed=5))
