"""A second real device: Mesa's llvmpipe, which is Vulkan on the CPU. Its driver is never loaded by pytest itself."""
