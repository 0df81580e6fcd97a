"""How `make install` and the image get llama-cpp-python. Standard library only: nothing is installed yet."""
