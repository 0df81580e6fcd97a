"""How models write what is not plain text: their thinking and their tool calls, one format per file."""
