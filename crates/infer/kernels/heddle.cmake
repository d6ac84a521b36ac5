# Builds our kernels into ggml, beside its own. CMake reads this after ggml's `project()`, when nothing of it is defined
# yet, as `.cargo/config.toml` says; what is called below is called when all of it is.

set(HEDDLE_KERNELS "${CMAKE_CURRENT_LIST_DIR}")

function(heddle_add_kernels)
    # Where this is off, ggml asks nobody for a better kernel.
    if (NOT GGML_LLAMAFILE)
        return()
    endif()
    set(asked "${CMAKE_CURRENT_SOURCE_DIR}/src/ggml-cpu/llamafile/sgemm.cpp")
    if (NOT TARGET ggml-cpu OR NOT EXISTS "${asked}")
        message(FATAL_ERROR "ggml has changed: ${HEDDLE_KERNELS}/heddle.cmake does not know where to put its kernels")
    endif()
    # Ours has the name that ggml calls, and calls ggml's own by this one.
    set_property(SOURCE "${asked}" TARGET_DIRECTORY ggml-cpu
        APPEND PROPERTY COMPILE_DEFINITIONS llamafile_sgemm=ggml_llamafile_sgemm)
    target_sources(ggml-cpu PRIVATE "${HEDDLE_KERNELS}/q4_1.cpp")
endfunction()

if (CMAKE_VERSION VERSION_LESS 3.19)
    message(WARNING "this CMake is too old to build heddle's kernels (3.19): models of type Q4_1 will be slower")
else()
    cmake_language(DEFER CALL heddle_add_kernels)
endif()
