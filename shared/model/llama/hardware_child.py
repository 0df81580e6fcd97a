"""The child of `hardware.look`: prints every device of this llama.cpp as JSON."""

import sys

import msgspec

from shared.model.llama.backend_device import list_all

if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(list_all()))
