"""Options: their declarations, `draftmesh.toml`, and how a command line ends that cannot be followed.

Nothing here serves.
"""
