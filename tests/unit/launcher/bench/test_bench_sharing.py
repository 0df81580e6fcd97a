"""What is taken out of words before they are shared."""

import pytest

from services.launcher.bench.sharing import scrubbed


@pytest.fixture(autouse=True)
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "attic.lan")
    monkeypatch.setattr("getpass.getuser", lambda: "carol")


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct"),
        ("unsloth/Qwen3-8B-GGUF:Q4_K_M", "unsloth/Qwen3-8B-GGUF:Q4_K_M"),  # public, and what others need
        ("/srv/models/big.gguf", "big.gguf"),
        ("~/models/big.gguf", "big.gguf"),
        ("./models/big.gguf", "big.gguf"),
        ("../big.gguf", "big.gguf"),
        ("C:\\Users\\carol\\big.gguf", "big.gguf"),
        ("\\\\nas\\models\\big.gguf", "big.gguf"),
        ("cannot open /srv/big.gguf today", "cannot open big.gguf today"),
        ("drafter-attic-12-ab is slow", "drafter-…-12-ab is slow"),
        ("Carol on ATTIC.LAN", "… on …"),
        ("carolina", "carolina"),
        ("see http://10.0.0.7:80/x", "see …"),
        ("at 192.0.2.7:7071", "at …"),
        ("b1234-abc (Linux/x86_64)", "b1234-abc (Linux/x86_64)"),
        ("Python/3.11 aiohttp/3.14", "Python/3.11 aiohttp/3.14"),
        ("0.6 B at 4.5 bits, 2.9 x", "0.6 B at 4.5 bits, 2.9 x"),
    ],
)
def test_names_of_hosts_and_users_paths_and_addresses_go(text: str, shared: str) -> None:
    assert scrubbed(text) == shared
