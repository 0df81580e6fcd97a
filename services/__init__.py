"""The services of draftmesh. Each imports `shared` and itself, never another service."""
