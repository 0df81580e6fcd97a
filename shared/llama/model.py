"""A loaded GGUF file."""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as C

from shared.llama import library
from shared.llama.backend_device import BackendDevice
from shared.llama.vocabulary import Vocabulary
from shared.rows import LlamaError


class Model:
    """A loaded GGUF: weights and vocabulary, or the vocabulary alone. Free it with `close`."""

    def __init__(
        self,
        path: str | Path,
        *,
        vocab_only: bool = False,
        devices: Sequence[BackendDevice] = (),
        gpu_layers: int = -1,
        tensor_split: Sequence[float] = (),
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Load `path` onto `devices`, the CPU without any. `tensor_split` divides the layers in the devices' order.

        Raises `LlamaError` if it is not a model that llama.cpp can load.
        """
        library.start()
        params = C.llama_model_default_params()
        params.vocab_only = vocab_only
        handles = [device.handle for device in devices if device.kind != "cpu"]
        params.n_gpu_layers = gpu_layers if handles else 0
        self._devices = (ctypes.c_void_p * (len(handles) + 1))(*handles, None)
        params.devices = ctypes.cast(self._devices, ctypes.c_void_p)
        if tensor_split:
            self._split = (ctypes.c_float * C.llama_max_devices())(*tensor_split)
            params.tensor_split = ctypes.cast(self._split, ctypes.POINTER(ctypes.c_float))

        def report(fraction: float, _: Any) -> bool:
            if progress is not None:
                progress(fraction)
            return True

        self._progress = C.llama_progress_callback(report)
        params.progress_callback = self._progress
        self.path = Path(path)
        self.handle = C.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            raise LlamaError(f"{path}: llama.cpp cannot load this file as a GGUF model")
        self.vocabulary = Vocabulary(self.handle)

    @property
    def n_ctx_train(self) -> int:
        return int(C.llama_model_n_ctx_train(self.handle))

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return int(C.llama_model_size(self.handle))

    @property
    def description(self) -> str:
        buffer = ctypes.create_string_buffer(128)
        C.llama_model_desc(self.handle, buffer, len(buffer))
        return buffer.value.decode(errors="replace")

    @property
    def can_roll_back(self) -> bool:
        """False for recurrent and hybrid models, whose state cannot drop its last tokens."""
        return not (C.llama_model_is_recurrent(self.handle) or C.llama_model_is_hybrid(self.handle))

    def metadata(self, key: str) -> str | None:
        """A metadata value as text, or None."""
        return self.vocabulary.metadata(key)

    def close(self) -> None:
        if self.handle:
            C.llama_model_free(self.handle)
            self.handle = None
