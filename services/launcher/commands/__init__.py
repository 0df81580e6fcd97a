"""The commands of `draftmesh`: one file each, which declares the options and calls the code that does the work."""
