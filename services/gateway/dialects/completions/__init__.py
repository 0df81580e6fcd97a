"""OpenAI's completions of a text."""
