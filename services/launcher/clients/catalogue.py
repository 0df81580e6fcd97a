"""The clients that `draftmesh launch` can start, and the settings that make each of them use our gateway. Pure.

A client keeps its user's home, history and settings. The arguments and variables here override the user's settings
files, which we neither read nor write. No key of the user for another service reaches the gateway.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

# The variable that holds the key. Clients get its name, so that the key is in no file and no command line.
KEY_VARIABLE: Final = "DRAFTMESH_API_KEY"
NO_KEY: Final = "none"  # a gateway without keys accepts any, and most clients require one

_PROVIDER: Final = "draftmesh"
_MOST_OUTPUT: Final = 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A running gateway and the model to use there: `n_ctx` tokens for prompt and answer together."""

    url: str  # without /v1 and without a slash at the end
    model: str
    n_ctx: int
    key: str = field(default=NO_KEY, repr=False)

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def most_output(self) -> int:
        """How much of the context clients should keep free for an answer, in tokens."""
        return min(_MOST_OUTPUT, max(1, self.n_ctx // 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecipe:
    """How a client is started: the user's own arguments follow `arguments`, `environment` is added to the user's."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    key_variable: str = KEY_VARIABLE  # gets the key
    files: Mapping[Path, str] = field(default_factory=dict)  # what must be there before


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A program that we can start."""

    program: str  # as it is found on PATH
    install: str
    opening: int  # tokens that it sends with "hi", by SmolLM2's vocabulary, rounded; 0: not measured (docs/clients.md)
    recipe: Callable[[Serving, Path], ClientRecipe]  # the path: a folder for files of this `Serving`


def _claude(serving: Serving, _: Path) -> ClientRecipe:
    # `env` in the user's settings.json has precedence over the environment, and --settings over both. An empty value
    # counts as none, and hides the user's own key, which would otherwise be sent.
    variables = {
        "ANTHROPIC_BASE_URL": serving.url,
        "ANTHROPIC_AUTH_TOKEN": "",
        "ANTHROPIC_API_KEY": "",
        "CLAUDE_CODE_USE_BEDROCK": "",
        "CLAUDE_CODE_USE_VERTEX": "",
        "ANTHROPIC_MODEL": serving.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": serving.model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": serving.model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": serving.model,
        "CLAUDE_CODE_SUBAGENT_MODEL": serving.model,
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(serving.n_ctx),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(serving.most_output),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # Both change with every request, so the cache could keep no prefix.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_TOTAL_TOKENS_REMINDER": "off",
    }
    settings = {"env": variables, "apiKeyHelper": f"printenv {KEY_VARIABLE}"}
    return ClientRecipe(arguments=("--settings", json.dumps(settings)))


def _codex(serving: Serving, _: Path) -> ClientRecipe:
    provider = {
        "name": _PROVIDER,
        "base_url": serving.openai_url,
        "wire_api": "responses",
        "env_key": KEY_VARIABLE,
    }
    options = {
        "model_provider": json.dumps(_PROVIDER),
        "model": json.dumps(serving.model),
        "model_context_window": str(serving.n_ctx),
        f"model_providers.{_PROVIDER}": _toml_table(provider),
        "web_search": '"disabled"',  # the server would have to do it
    }
    return ClientRecipe(arguments=tuple(word for name, value in options.items() for word in ("-c", f"{name}={value}")))


def _toml_table(values: Mapping[str, str]) -> str:
    """An inline table; TOML's basic strings are written as JSON's."""
    return "{" + ", ".join(f"{name}={json.dumps(value)}" for name, value in values.items()) + "}"


def _opencode(serving: Serving, _: Path) -> ClientRecipe:
    model = f"{_PROVIDER}/{serving.model}"
    configuration: dict[str, Any] = {
        "autoupdate": False,
        "share": "disabled",
        "model": model,
        "small_model": model,
        "provider": {
            _PROVIDER: {
                "npm": "@ai-sdk/openai-compatible",
                "name": _PROVIDER,
                "options": {"baseURL": serving.openai_url, "apiKey": f"{{env:{KEY_VARIABLE}}}"},
                "models": {
                    serving.model: {
                        "name": serving.model,
                        "tool_call": True,
                        "limit": {"context": serving.n_ctx, "output": serving.most_output},
                    }
                },
            }
        },
    }
    return ClientRecipe(environment={"OPENCODE_CONFIG_CONTENT": json.dumps(configuration)})


def _continue(serving: Serving, folder: Path) -> ClientRecipe:
    model = {
        "name": serving.model,
        "provider": "openai",
        "model": serving.model,
        "apiBase": serving.openai_url,
        "apiKey": f"${{{{ secrets.{KEY_VARIABLE} }}}}",
        "roles": ["chat", "edit", "apply"],
        "capabilities": ["tool_use"],
        "defaultCompletionOptions": {"contextLength": serving.n_ctx, "maxTokens": serving.most_output},
    }
    # JSON is YAML too.
    configuration = {"name": _PROVIDER, "version": "1.0.0", "schema": "v1", "models": [model]}
    file = folder / "config.yaml"
    return ClientRecipe(arguments=("--config", str(file)), files={file: _document(configuration)})


def _aider(serving: Serving, folder: Path) -> ClientRecipe:
    model = f"openai/{serving.model}"
    limits = {
        "max_tokens": serving.most_output,
        "max_input_tokens": serving.n_ctx,
        "max_output_tokens": serving.most_output,
        "input_cost_per_token": 0,
        "output_cost_per_token": 0,
        "litellm_provider": "openai",
        "mode": "chat",
    }
    file = folder / "models.json"
    # Options instead of variables, because a .env file of the user would override variables.
    arguments = (
        *("--model", model, "--weak-model", model, "--editor-model", model),
        *("--openai-api-base", serving.openai_url),
        *("--model-metadata-file", str(file)),
        *("--no-show-model-warnings", "--no-check-update", "--no-analytics"),
    )
    return ClientRecipe(
        arguments=arguments,
        key_variable="OPENAI_API_KEY",
        files={file: _document({model: limits})},
    )


def _open_webui(serving: Serving, _: Path) -> ClientRecipe:
    environment = {
        "OPENAI_API_BASE_URLS": serving.openai_url,
        "ENABLE_OLLAMA_API": "false",
        "DEFAULT_MODELS": serving.model,
        "ENABLE_PERSISTENT_CONFIG": "false",  # otherwise the settings stored at its first start would win
    }
    arguments = ("serve", "--host", "127.0.0.1")
    return ClientRecipe(arguments=arguments, environment=environment, key_variable="OPENAI_API_KEYS")


def _document(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def _npm(package: str) -> str:
    return f"npm install -g {package}"


CLIENTS: Final[Mapping[str, Client]] = {
    "claude": Client(program="claude", install=_npm("@anthropic-ai/claude-code"), opening=20_000, recipe=_claude),
    "codex": Client(program="codex", install=_npm("@openai/codex"), opening=9_000, recipe=_codex),
    "opencode": Client(program="opencode", install=_npm("opencode-ai"), opening=8_000, recipe=_opencode),
    "continue": Client(program="cn", install=_npm("@continuedev/cli"), opening=1_400, recipe=_continue),
    "aider": Client(program="aider", install="pipx install aider-chat", opening=700, recipe=_aider),
    "open-webui": Client(program="open-webui", install="pipx install open-webui", opening=0, recipe=_open_webui),
}
