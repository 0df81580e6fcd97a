"""Compiles the draw in native code; pyproject.toml says everything else about the package.

It is plain C without Python's headers, which ctypes calls, so one library serves every Python. Without a C compiler the
installation goes on, and numpy draws. Nothing is contracted, so every processor computes the same values.
"""

from pathlib import Path

from setuptools import Extension, setup

draw = Extension(
    "shared.law._draw",
    ["shared/law/c/draw.c"],
    depends=[str(header) for header in Path("shared/law/c").glob("*.h")],
    extra_compile_args=["-O3", "-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno"],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[draw])
