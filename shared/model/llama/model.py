"""A loaded GGUF file."""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as C

from shared.model.llama import library
from shared.model.llama.backend_device import BackendDevice
from shared.model.llama.vocabulary import Vocabulary
from shared.model.rows import LlamaError


class Model:
    """A loaded GGUF: weights and vocabulary, or the vocabulary alone. Free it with `close`."""

    def __init__(
        self,
        path: str | Path,
        *,
        vocab_only: bool = False,
        devices: Sequence[BackendDevice] = (),
        gpu_layers: int = -1,
        extra_buffers: bool = True,
        tensor_split: Sequence[float] = (),
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Load `path` onto `devices`, the CPU without any. `tensor_split` divides the layers in the devices' order.

        `gpu_layers` -1 means all. `extra_buffers` lets the CPU rearrange weights for faster kernels;
        `fitness` says whether these work here. Raises `LlamaError` with llama.cpp's reason for a file that
        it cannot load.
        """
        library.start()
        params = C.llama_model_default_params()
        params.vocab_only = vocab_only
        params.use_extra_bufts = extra_buffers
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
        self.extra_buffers = extra_buffers
        library.forget_errors()
        self.handle = C.llama_model_load_from_file(str(path).encode(), params)
        if not self.handle:
            raise LlamaError(f"llama.cpp cannot load {path} as a model: {library.reason() or 'it does not say why'}")
        self.vocabulary = Vocabulary(self.handle)

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return int(C.llama_model_size(self.handle))

    @property
    def can_roll_back(self) -> bool:
        """False for recurrent and hybrid models, whose state cannot drop its last tokens."""
        return not (C.llama_model_is_recurrent(self.handle) or C.llama_model_is_hybrid(self.handle))

    @property
    def window(self) -> int:
        """Tokens that a layer with a sliding window sees; 0 if no layer has one."""
        return int(C.llama_model_n_swa(self.handle))

    def close(self) -> None:
        if self.handle:
            C.llama_model_free(self.handle)
            self.handle = None
