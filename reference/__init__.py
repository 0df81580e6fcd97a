"""The pages of docs/reference, made from the code: `make reference` writes them, a test holds them to it."""
