"""Options: their declarations, `draftmesh.toml`, and the end of a command with wrong options."""
