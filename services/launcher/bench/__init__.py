"""`draftmesh bench`: measures any server that speaks OpenAI's chat dialect, alone or in turn with others."""
