"""How models write thinking and tool calls: a parser and a grammar for each format.

No I/O: what a parser decides depends on the text alone.
"""
