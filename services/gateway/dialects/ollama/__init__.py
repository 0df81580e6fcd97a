"""What Ollama's clients read."""
