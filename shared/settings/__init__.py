"""Options: their declarations, `draftmesh.toml`, and how a command ends whose options are wrong.

Nothing here serves.
"""
