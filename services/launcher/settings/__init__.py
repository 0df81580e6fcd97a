"""The options of `up`, the keys of `draftmesh.toml` for the services, and what `up` hands down to them.

The options of the services are in `shared.settings`.
"""
