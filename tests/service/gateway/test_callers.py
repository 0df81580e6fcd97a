"""A job names its caller, so that no caller's text becomes another's draft."""

from typing import Any

from shared.model.llama.model import Model
from shared.wire.broker import Broker
from shared.wire.messages import Job
from tests.service.scripted import speaking, stack


async def test_jobs_of_one_key_have_one_caller_which_is_not_the_key(
    valkey: Broker, valkey_url: str, vocabulary: bytes, model: Model
) -> None:
    jobs: list[Job] = []
    answer = speaking(model, "Hi")

    def script(job: Job) -> Any:
        jobs.append(job)
        return answer(job)

    async with stack(valkey_url, vocabulary, script, api_key=["first-key", "second-key"]) as s:
        for key in ("first-key", "second-key", "first-key"):
            body = {"messages": [{"role": "user", "content": "x"}]}
            headers = {"Authorization": f"Bearer {key}"}
            async with s.session.post(f"{s.url}/v1/chat/completions", json=body, headers=headers) as response:
                assert response.status == 200
    one, two, again = (job.caller for job in jobs)
    assert one == again != two
    assert one.isalnum()
    assert "key" not in one
