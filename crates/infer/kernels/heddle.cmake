# Builds our kernels into ggml, beside its own. CMake reads this after ggml's `project()`, when nothing of it is defined
# yet, as `.cargo/config.toml` says; what is called below is called when all of it is.

set(HEDDLE_KERNELS "${CMAKE_CURRENT_LIST_DIR}")

# x86-64-v3, processors of 2013 and newer, as ggml for plain x86-64 is several times slower; `heddle daemon` checks the
# processor before it loads a model. Here and not in variables of Cargo, which hold for every target.
if (CMAKE_OSX_ARCHITECTURES)
    set(HEDDLE_PROCESSOR "${CMAKE_OSX_ARCHITECTURES}")
else()
    set(HEDDLE_PROCESSOR "${CMAKE_SYSTEM_PROCESSOR}")
endif()
if (HEDDLE_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
    foreach (feature IN ITEMS SSE42 AVX AVX2 BMI2 F16C FMA)
        set(GGML_${feature} ON CACHE BOOL "ggml: enable ${feature}")
    endforeach()
endif()

# llama.cpp's library for its own programs, with an HTTP server in it: nothing of it is linked, and it takes a third of the time.
# Its bindings ask for it, whatever their users want, so it is turned off here, before llama.cpp comes to it.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "llama: build common utils library" FORCE)

# Which kernels these are: the sum of the sums of these files.
set(HEDDLE_SUM "")
foreach (file IN ITEMS abort.cpp attention.cpp heddle.cmake q4_1.cpp)
    file(SHA256 "${HEDDLE_KERNELS}/${file}" sum)
    string(APPEND HEDDLE_SUM "${sum}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${HEDDLE_KERNELS}/${file}")
endforeach()
string(SHA256 HEDDLE_SUM "${HEDDLE_SUM}")
string(SUBSTRING "${HEDDLE_SUM}" 0 8 HEDDLE_SUM)

# Gives a function another name in a file of ggml: where the file defines it, calls from elsewhere are calls of ours; where
# it calls it, what it calls is ours.
function(heddle_replace file function name)
    set(path "${CMAKE_CURRENT_SOURCE_DIR}/src/ggml-cpu/${file}")
    if (NOT TARGET ggml-cpu OR NOT EXISTS "${path}")
        message(FATAL_ERROR "ggml has changed: ${HEDDLE_KERNELS}/heddle.cmake does not know where to put its kernels")
    endif()
    set_property(SOURCE "${path}" TARGET_DIRECTORY ggml-cpu APPEND PROPERTY COMPILE_DEFINITIONS ${function}=${name})
endfunction()

function(heddle_add_kernels)
    heddle_replace(ggml-cpu.cpp ggml_graph_compute heddle_graph_compute)
    target_sources(ggml-cpu PRIVATE "${HEDDLE_KERNELS}/abort.cpp")
    heddle_replace(ops.cpp ggml_compute_forward_flash_attn_ext ggml_own_flash_attn_ext)
    target_sources(ggml-cpu PRIVATE "${HEDDLE_KERNELS}/attention.cpp")
    set_property(SOURCE "${HEDDLE_KERNELS}/attention.cpp" TARGET_DIRECTORY ggml-cpu
        APPEND PROPERTY COMPILE_DEFINITIONS "HEDDLE_KERNELS=\"${HEDDLE_SUM}\"")
    # Where this is off, ggml asks nobody for a better kernel.
    if (GGML_LLAMAFILE)
        heddle_replace(llamafile/sgemm.cpp llamafile_sgemm ggml_llamafile_sgemm)
        target_sources(ggml-cpu PRIVATE "${HEDDLE_KERNELS}/q4_1.cpp")
    endif()
endfunction()

if (CMAKE_VERSION VERSION_LESS 3.19)
    message(FATAL_ERROR "this CMake is too old to build heddle's kernels: it takes 3.19 or newer")
else()
    cmake_language(DEFER CALL heddle_add_kernels)
endif()
