"""Prebuilt backends fetched into the user's data folder, listed and removed.

The doors are `command` and, for those that only say what is missing, `signs`.

The rule: a backend's folder appears whole, after it was tried in a process of its own, or it does not appear. npm and
pip know their registries, so no registry is named here.
"""
