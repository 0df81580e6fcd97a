"""Real processes, a real model and one fault after the other; `python -m tests.chaos` runs it for as long as asked."""
