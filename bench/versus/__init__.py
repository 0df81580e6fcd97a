"""draftmesh beside other engines on the same files, cores and prompts; `python -m bench.versus`."""
