"""The keys of `draftmesh.toml` for the services, and what `up` hands down to them.

The declarations of options are in `shared.settings`.
"""
