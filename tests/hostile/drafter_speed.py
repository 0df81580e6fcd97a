"""`python -m tests.hostile.drafter_speed`: how fast a target answers beside a drafter that does all that it may.

The target is a toy whose decodes take 30 ms. The drafter is a process of its own with its own Redis user; it sends
every command that it may send, on every key that it may reach, as fast as it can. In turn with it the same drafter
attacks another server, which costs this machine as much, and nobody attacks.
"""

import asyncio
import itertools
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import redis

from services.launcher.fleet import access_rules, acl
from shared.model import model_source
from shared.wire.messages import Speculation
from tests.hostile.drafter import Place, commands
from tests.server import valkey_server
from tests.service.verifier.test_verifier import ENDLESS
from tests.stack import client, verifier
from tests.toy_loaded import toy
from tests.toys import drafter_card

DECODE_S: Final = 0.03
TOKENS: Final = 100
TURNS: Final = 6
_USER: Final = "drafter-laptop"
_NAME: Final = f"{_USER}@1"
_FLOOD: Final = ("XADD", "SET", "SADD")  # every second turn: writes alone
_WARM_S: Final = 5.0  # until the attack is at full speed


def attack(url: str, verifier: str, flood: bool) -> None:
    """Never returns."""
    rules = [(rule.commands.split(), [*rule.read, *rule.write, *rule.both]) for rule in access_rules.rights(_USER)]
    place = Place(_NAME, verifier, "r", drafter_card(_NAME, "model", "toy"))
    sent = [one for one in commands(place, rules) if one[0] not in ("MULTI", "EXEC", "DISCARD")]
    connection = redis.Redis.from_url(url)
    for command in itertools.cycle([one for one in sent if not flood or one[0] in _FLOOD]):
        with suppress(redis.RedisError):
            connection.execute_command(*command)  # type: ignore[no-untyped-call]


async def main() -> None:
    """Print the ratios turn by turn, and their median and extremes."""
    path = model_source.resolve("default")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        acl.write(folder, "redis://127.0.0.1:0/0", ["laptop"])
        users = ("--aclfile", str(folder / acl.USERS))
        with valkey_server("127.0.0.1", *users) as server, valkey_server("127.0.0.1", *users) as elsewhere:

            def url(user: str, at: str) -> str:
                text = (folder / f"{user}.env").read_text().strip().removeprefix("DRAFTMESH_REDIS=")
                return text.replace("127.0.0.1:0", at[8:-2])

            target = toy(path, lambda rows: time.sleep(DECODE_S))
            async with (
                verifier(url("verifier", server.url), target) as verifier_id,
                client(url("admin", server.url), path) as asker,
            ):
                await asker.cards(1)

                async def speed(attacked: str = "", flood: bool = False) -> float:
                    process = None
                    if attacked:
                        command = (sys.executable, "-m", __spec__.name, attacked, verifier_id, str(int(flood)))
                        process = await asyncio.create_subprocess_exec(*command)
                        await asyncio.sleep(_WARM_S)
                    try:
                        began = time.perf_counter()
                        await asker.ask(asker.job([5, 6, 7], ENDLESS, TOKENS, Speculation.AUTO))
                        return TOKENS / (time.perf_counter() - began)
                    finally:
                        if process:
                            process.kill()
                            await process.wait()

                await speed()
                against: dict[str, list[float]] = {"nobody attacks": [], "another server is attacked": []}
                for turn in range(TURNS):
                    flood = turn % 2 == 1
                    here = await speed(url(_USER, server.url), flood)
                    there = await speed(url(_USER, elsewhere.url), flood)
                    against["nobody attacks"].append(here / await speed())
                    against["another server is attacked"].append(here / there)
    for what, ratios in against.items():
        print(f"attacked, over {what}: {statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f})")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        attack(sys.argv[1], sys.argv[2], sys.argv[3] == "1")
    asyncio.run(main())
