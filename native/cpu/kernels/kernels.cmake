# The bodies of this folder, once per level, into the library pyturbo. Include after pyturbo_add_kernels.

set(PYTURBO_LEVELS all CACHE STRING
    "Levels to build: all, native for the best one of this machine, or tested for those of this machine")

# Levels, best first. A level that only adds instructions for products of quantised weights takes all other code from its
# base. tiles_of_<level>: the sources of products with many tokens, where it is not quantized_tiles alone.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(levels amx vnni avx512 avxvnni avx2)
  set(base_of_amx avx512)
  set(base_of_vnni avx512)
  set(base_of_avxvnni avx2)
  set(flags_of_avx2 -mavx2 -mfma -mf16c)
  set(flags_of_avxvnni ${flags_of_avx2} -mavxvnni)
  set(flags_of_avx512 ${flags_of_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  set(flags_of_vnni ${flags_of_avx512} -mavx512vnni)
  set(flags_of_amx ${flags_of_vnni} -mamx-tile -mamx-bf16)
  set(tiles_of_amx amx_tiles)
  set(intrinsics <immintrin.h>)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(levels i8mm dotprod neon)
  set(base_of_i8mm neon)
  set(base_of_dotprod neon)
  set(flags_of_i8mm -march=armv8.2-a+dotprod+i8mm)
  set(flags_of_dotprod -march=armv8.2-a+dotprod)
  set(intrinsics <arm_neon.h>)
  foreach(level ${levels})
    set(tiles_of_${level} quantized_tiles gguf_unit_tiles)
  endforeach()
endif()
if(NOT PYTURBO_LEVELS MATCHES "^(all|native|tested)$")
  message(FATAL_ERROR "PYTURBO_LEVELS: expected all, native or tested, got ${PYTURBO_LEVELS}")
endif()
set(available ${levels})
if(NOT PYTURBO_LEVELS STREQUAL "all")
  try_run(ran compiled ${CMAKE_CURRENT_BINARY_DIR}/available_levels ${CMAKE_CURRENT_LIST_DIR}/available_levels.cpp
          RUN_OUTPUT_VARIABLE available)
  if(NOT compiled)
    message(FATAL_ERROR "PYTURBO_LEVELS=${PYTURBO_LEVELS}: available_levels.cpp does not compile")
  endif()
endif()

# The levels that the compiler knows, or the best one of this machine. Those that are tested but not available are compiled
# up to where code is generated, which finds most of what is wrong with them, and stay out of the library.
set(in_library "")
include(CheckCXXCompilerFlag)
foreach(level IN LISTS levels)
  list(JOIN flags_of_${level} " " flags)
  check_cxx_compiler_flag("${flags}" PYTURBO_COMPILES_${level})
  if(NOT PYTURBO_COMPILES_${level})
    message(STATUS "The level ${level} is left out: the compiler does not accept ${flags}")
    list(REMOVE_ITEM levels ${level})
  elseif(level IN_LIST available)
    list(APPEND in_library ${level})
  endif()
endforeach()
if(PYTURBO_LEVELS STREQUAL "native")
  list(SUBLIST in_library 0 1 in_library)
  set(levels ${in_library})
endif()

# Sources with bodies: each ends with PYTURBO_BODIES(<stem>, ...), and bodies.cpp makes one table of them. Those that lead
# to products of bytes are a level's own, as are the sources without bodies.
set(shared_sources attention_decode attention_prefill bench delta delta_chunkwise elementwise linear mla_attention mla_turbo
    moe norm rope route_grouped turbo_attention turbo_codec turbo_steps)
set(own_sources mla_project quantized)

# A source that is in neither list would be left out, and its kernels would run as shaders.
file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
set(found "")
foreach(file ${files})
  file(STRINGS ${file} bodies REGEX "^PYTURBO_BODIES\\(" LIMIT_COUNT 1)
  if(bodies)
    cmake_path(GET file STEM stem)
    list(APPEND found ${stem})
  endif()
endforeach()
set(listed ${shared_sources} ${own_sources})
list(SORT listed)
list(SORT found)
if(NOT found STREQUAL listed)
  message(FATAL_ERROR "kernels.cmake: expected the sources with PYTURBO_BODIES, ${found}, got ${listed}")
endif()

# `entries` is X(<item>) for each item.
function(pyturbo_entries items)
  list(TRANSFORM items REPLACE "(.+)" "X(\\1)")
  list(JOIN items " " items)
  set(entries "${items}" PARENT_SCOPE)
endfunction()

set(built ${CMAKE_CURRENT_BINARY_DIR}/kernels)
pyturbo_entries("${in_library}")
file(CONFIGURE OUTPUT ${built}/built_levels.h @ONLY
     CONTENT "// Generated from kernels.cmake.\n#define PYTURBO_LEVELS(X) @entries@\n")
pyturbo_entries("${shared_sources}")
set(shared_entries "${entries}")
pyturbo_entries("${own_sources}")
file(CONFIGURE OUTPUT ${built}/body_sources.h @ONLY
     CONTENT "// Generated from kernels.cmake.\n#define PYTURBO_SHARED_SOURCES(X) @shared_entries@\n#define PYTURBO_OWN_SOURCES(X) @entries@\n")
target_include_directories(pyturbo PRIVATE ${built})

# Sources in the namespace of a level, which has a base, into the library. They are optimised in every build type, but less
# under sanitizers, where -O3 takes minutes per file.
function(pyturbo_add_level_sources target level base)
  set(optimization -O3)
  if(NOT level IN_LIST available)
    set(optimization -O0 -flto)  # ends before code is generated
  elseif(PYTURBO_SANITIZE)
    set(optimization -O1)
  endif()
  list(TRANSFORM ARGN REPLACE "(.+)" "${PYTURBO_NATIVE}/cpu/kernels/\\1.cpp" OUTPUT_VARIABLE sources)
  add_library(${target} OBJECT ${sources})
  add_dependencies(${target} pyturbo_shaders)
  if(TARGET pyturbo_${level}_shared AND NOT target STREQUAL pyturbo_${level}_shared)
    target_precompile_headers(${target} REUSE_FROM pyturbo_${level}_shared)
  else()
    target_precompile_headers(${target} PRIVATE ${PYTURBO_COMMON_HEADERS} ${intrinsics})
  endif()
  target_include_directories(${target} PRIVATE ${PYTURBO_NATIVE}/include ${PYTURBO_NATIVE} ${PYTURBO_ARGUMENTS} ${built})
  target_compile_definitions(${target} PRIVATE PYTURBO_LEVEL=${level} PYTURBO_BASE=${base})
  # Fused operations are written out, so that all compilers round alike. Each level keeps its symbols to itself: the
  # linker must not take one level's code for another's.
  target_compile_options(${target} PRIVATE ${PYTURBO_WARNINGS} ${optimization} -ffp-contract=off
                         -fno-math-errno -fno-trapping-math -fno-strict-aliasing -fvisibility=hidden ${flags_of_${level}}
                         # GCC 11 and 12 warn about their own headers, which leave values undefined on purpose.
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-uninitialized -Wno-psabi>)
  if(level IN_LIST available)
    target_sources(pyturbo PRIVATE $<TARGET_OBJECTS:${target}>)
  endif()
endfunction()

foreach(level ${levels})
  set(base ${level})
  if(DEFINED base_of_${level})
    set(base ${base_of_${level}})
  endif()
  set(tiles quantized_tiles)
  if(DEFINED tiles_of_${level})
    set(tiles ${tiles_of_${level}})
  endif()
  if(NOT TARGET pyturbo_${base}_shared)
    pyturbo_add_level_sources(pyturbo_${base}_shared ${base} ${base} ${shared_sources})
  endif()
  pyturbo_add_level_sources(pyturbo_${level} ${level} ${base} bodies gguf_reader quantized_run ${tiles} ${own_sources})
endforeach()
