"""The commands of `draftmesh`: a file each, which declares options and calls what does the work."""
