"""Whether a gateway accepts requests."""

import aiohttp


async def is_ready(http: aiohttp.ClientSession, url: str) -> bool:
    """Ask the gateway at `url`; one that does not answer is not ready."""
    try:
        async with http.get(f"{url}/ready") as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
