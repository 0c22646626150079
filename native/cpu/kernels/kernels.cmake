# The bodies of this folder, once per level, into the library pyturbo. Include after pyturbo_add_kernels.

# Each of these sources ends with PYTURBO_BODIES(<stem>, ...); bodies.cpp makes one table of them.
set(PYTURBO_BODY_SOURCES attention_decode attention_prefill bench delta delta_chunkwise elementwise linear mla_attention
    mla_project mla_turbo moe norm quantized rope route_grouped turbo_attention turbo_codec turbo_steps)
set(PYTURBO_LEVEL_SOURCES bodies quantized_run ${PYTURBO_BODY_SOURCES})
list(TRANSFORM PYTURBO_LEVEL_SOURCES REPLACE "(.+)" "${CMAKE_CURRENT_LIST_DIR}/\\1.cpp")
list(TRANSFORM PYTURBO_BODY_SOURCES REPLACE "(.+)" "X(\\1)" OUTPUT_VARIABLE entries)
list(JOIN entries " " entries)
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/kernels/body_sources.h @ONLY
     CONTENT "// Generated from kernels.cmake.\n#define PYTURBO_BODY_SOURCES(X) @entries@\n")

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(PYTURBO_LEVELS avx2 avx512 vnni)
  set(PYTURBO_FLAGS_avx2 -mavx2 -mfma -mf16c)
  set(PYTURBO_FLAGS_avx512 ${PYTURBO_FLAGS_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
  set(PYTURBO_FLAGS_vnni ${PYTURBO_FLAGS_avx512} -mavx512vnni -mavx512vbmi)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(PYTURBO_LEVELS neon dotprod)
  set(PYTURBO_FLAGS_neon "")
  set(PYTURBO_FLAGS_dotprod -march=armv8.2-a+dotprod)
endif()

# In every build type; under sanitizers the compiler would take minutes a file.
set(PYTURBO_LEVEL_OPTIMIZATION -O3)
if(PYTURBO_SANITIZE)
  set(PYTURBO_LEVEL_OPTIMIZATION -O1)
endif()

foreach(level ${PYTURBO_LEVELS})
  add_library(pyturbo_${level} OBJECT ${PYTURBO_LEVEL_SOURCES})
  add_dependencies(pyturbo_${level} pyturbo_shaders)
  target_include_directories(pyturbo_${level} PRIVATE ${PYTURBO_NATIVE}/include ${PYTURBO_NATIVE} ${PYTURBO_ARGUMENTS}
                             ${CMAKE_CURRENT_BINARY_DIR}/kernels)
  target_compile_definitions(pyturbo_${level} PRIVATE PYTURBO_LEVEL=${level})
  # Fused operations are written out, so that all compilers round alike. Each level keeps its symbols to itself: the
  # linker must not take one level's code for another's.
  target_compile_options(pyturbo_${level} PRIVATE ${PYTURBO_WARNINGS} ${PYTURBO_LEVEL_OPTIMIZATION} -ffp-contract=off
                         -fno-math-errno -fno-trapping-math -fno-strict-aliasing -fvisibility=hidden ${PYTURBO_FLAGS_${level}}
                         # GCC 11 and 12 say of their own headers that they use what they mean to leave undefined.
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-uninitialized -Wno-psabi>)
  target_sources(pyturbo PRIVATE $<TARGET_OBJECTS:pyturbo_${level}>)
endforeach()
