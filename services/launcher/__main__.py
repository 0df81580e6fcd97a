"""`python -m services.launcher` is the `draftmesh` command."""

from services.launcher.cli import main

if __name__ == "__main__":
    main()
