"""A prepared check of draftmesh on this machine's devices: `make device-kit` gathers, `make device-check` runs."""
