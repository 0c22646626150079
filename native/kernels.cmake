# pyturbo_add_kernels(<target> LIBRARY <name> ROOT <folder> SHADERS <files...>)
#
# Runs the kernel front end over the shaders and adds to <target> the host translation units: once as they are
# and, with PYTURBO_CHECKED, once instrumented for the checker. Sets, in the caller's scope, PYTURBO_MANIFEST to the
# manifest's path, PYTURBO_SOURCES to the folder of the texts that GPUs compile, and PYTURBO_ARGUMENTS to the
# include folder of the headers for host code, "arguments/<shader>.h"; the target <target>_shaders makes them.

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)

set(PYTURBO_FRONTEND ${CMAKE_CURRENT_LIST_DIR}/../shaders/frontend)
set(PYTURBO_NATIVE ${CMAKE_CURRENT_LIST_DIR})
set(PYTURBO_MSL ${PYTURBO_NATIVE}/msl ${PYTURBO_NATIVE}/msl/host)  # include folders of <metal_stdlib> for hosts

# Exact semantics on every machine: no contraction, no reassociation; MSL code reinterprets memory by pointer casts.
set(PYTURBO_KERNEL_OPTIONS -O2 -ffp-contract=off -fno-math-errno -fno-strict-aliasing -fwrapv
                           -fsigned-char -fno-exceptions -fstack-clash-protection
                           -fvisibility=hidden -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-function
                           -Wno-unused-parameter)  # an argument may serve the contract alone

# A frame must fit the stack of a fiber.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND PYTURBO_KERNEL_OPTIONS -Werror=frame-larger-than=49152)
else()
  list(APPEND PYTURBO_KERNEL_OPTIONS -Wframe-larger-than=49152 -Werror=frame-larger-than
       -Wno-unused-command-line-argument)  # -fstack-clash-protection is not for every processor
endif()

function(pyturbo_add_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "LIBRARY;ROOT" "SHADERS")
  set(out ${CMAKE_CURRENT_BINARY_DIR}/kernels/${ARG_LIBRARY})
  set(manifest ${out}/manifest.json)
  set(command ${Python_EXECUTABLE} ${PYTURBO_FRONTEND} --compiler ${CMAKE_CXX_COMPILER} --library ${ARG_LIBRARY}
              --root ${ARG_ROOT} -I ${ARG_ROOT} --out ${out} --sources ${out}/shaders --msl ${PYTURBO_NATIVE}/msl
              --manifest ${manifest} ${ARG_SHADERS})
  execute_process(COMMAND ${command} --list-outputs OUTPUT_VARIABLE outputs COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "\n$" "" outputs "${outputs}")
  string(REPLACE "\n" ";" outputs "${outputs}")

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${ARG_ROOT}/*.h ${PYTURBO_FRONTEND}/*.py ${PYTURBO_NATIVE}/msl/metal/*.h
       ${PYTURBO_NATIVE}/msl/cuda/*.h ${PYTURBO_NATIVE}/msl/metal_stdlib)
  add_custom_command(OUTPUT ${outputs} COMMAND ${command} DEPENDS ${ARG_SHADERS} ${sources}
                     COMMENT "Reading the shaders of ${ARG_LIBRARY}" VERBATIM)

  set(units ${outputs})
  list(FILTER units INCLUDE REGEX "\\.cpp$")
  set(tables ${units})
  list(FILTER tables INCLUDE REGEX "_tables\\.cpp$")
  list(REMOVE_ITEM units ${tables})
  add_custom_target(${target}_shaders DEPENDS ${outputs})

  set(variants reference)
  if(PYTURBO_CHECKED)
    list(APPEND variants checked)
  endif()
  foreach(variant ${variants})
    add_library(${target}_${variant} OBJECT ${units})
    add_dependencies(${target}_${variant} ${target}_shaders)
    target_include_directories(${target}_${variant} SYSTEM PRIVATE ${PYTURBO_MSL})
    target_include_directories(${target}_${variant} PRIVATE ${PYTURBO_NATIVE}/include)
    target_compile_definitions(${target}_${variant} PRIVATE PYTURBO_VARIANT=${variant})
    target_compile_options(${target}_${variant} PRIVATE ${PYTURBO_KERNEL_OPTIONS})
    target_precompile_headers(${target}_${variant} PRIVATE <metal_stdlib> <invoke.h>)  # each unit begins with them
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_${variant}>)
  endforeach()
  target_sources(${target} PRIVATE ${tables})
  set_source_files_properties(${tables} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_dependencies(${target} ${target}_shaders)
  if(PYTURBO_CHECKED)
    # The callbacks that -fsanitize=thread asks for are ours (tsan_hooks.cpp); its runtime is not linked.
    target_compile_definitions(${target}_checked PRIVATE PYTURBO_MARK_STATEMENTS)
    target_include_directories(${target}_checked PRIVATE ${PYTURBO_NATIVE}/checker)  # tsan_symbols.h
    target_compile_options(${target}_checked PRIVATE -O1 -fno-sanitize=all -fsanitize=thread)
    target_sources(${target} PRIVATE ${PYTURBO_NATIVE}/checker/tsan_hooks.cpp)
    set_source_files_properties(${PYTURBO_NATIVE}/checker/tsan_hooks.cpp PROPERTIES COMPILE_OPTIONS -fvisibility=hidden)
    set_source_files_properties(${tables} PROPERTIES COMPILE_DEFINITIONS PYTURBO_CHECKED)
  endif()
  set(PYTURBO_MANIFEST ${manifest} PARENT_SCOPE)
  set(PYTURBO_SOURCES ${out}/shaders PARENT_SCOPE)
  set(PYTURBO_ARGUMENTS ${out} PARENT_SCOPE)
endfunction()
