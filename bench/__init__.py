"""What draftmesh costs and gains on this machine; `python -m bench`."""
