"""States of sequences, out of a context's KV cache into host memory and back, bit for bit."""

import ctypes
from typing import Any

import llama_cpp.llama_cpp as C
import numpy as np

from shared.model.target import State

_WHOLE = C.LLAMA_STATE_SEQ_FLAGS_NONE


class SequenceStates:
    """The states of one context's sequences; the thread that owns the context calls it.

    llama.cpp copies a stream to another at the next decode, not at the call. Until then (`copying`, which the context
    sets) the copy has no data yet, and its source must keep its own; so nothing is saved or restored meanwhile.
    """

    def __init__(self, handle: Any, memory: Any) -> None:
        self._handle = handle
        self._memory = memory
        self.copying = False

    def size(self, sequence: int) -> int:
        """Bytes of the sequence's state."""
        return int(C.llama_state_seq_get_size_ext(self._handle, sequence, _WHOLE))

    def save(self, sequence: int) -> State | None:
        """A copy of the sequence's state; the sequence keeps its tokens. None while a copy between streams waits."""
        if self.copying:
            return None
        state = np.empty(self.size(sequence), np.uint8)
        written = C.llama_state_seq_get_data_ext(self._handle, _bytes(state), len(state), sequence, _WHOLE)
        return state if written == len(state) else None

    def restore(self, sequence: int, state: State) -> bool:
        """Make the sequence hold exactly the tokens of `state`.

        False, and it holds none, if cells are lacking or while a copy between streams waits.
        """
        C.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        if self.copying:
            return False
        if C.llama_state_seq_set_data_ext(self._handle, _bytes(state), len(state), sequence, _WHOLE) == len(state):
            return True
        C.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        return False


def _bytes(state: State) -> Any:
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
