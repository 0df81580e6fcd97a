"""The `draftmesh` command."""
