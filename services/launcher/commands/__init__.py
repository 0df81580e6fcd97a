"""The commands of `draftmesh`: each declares its options and calls the code that does the work."""
