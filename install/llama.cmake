# CMake runs this right after llama-cpp-python's own `project(llama_cpp)`.

# llama.cpp's command-line helpers: half of the build's time, and nothing here uses them. A plain variable goes before
# the cache entry that llama-cpp-python sets.
set(LLAMA_BUILD_COMMON OFF)

# Libraries find those beside them, wherever the folder is moved to.
if(NOT APPLE)
  set(CMAKE_INSTALL_RPATH "$ORIGIN")
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include \"${CMAKE_CURRENT_LIST_DIR}/amx_tile_config.h\">")
endif()
