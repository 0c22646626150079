# The kernels of this folder, once per instruction set level, into the library pyturbo.

set(PYTURBO_FAST_SOURCES attention_decode.cpp attention_prefill.cpp bench.cpp delta.cpp delta_chunkwise.cpp
    elementwise.cpp level.cpp linear.cpp mla_attention.cpp mla_project.cpp mla_turbo.cpp moe.cpp norm.cpp quantized.cpp
    quantized_run.cpp rope.cpp route_grouped.cpp turbo_attention.cpp turbo_codec.cpp turbo_steps.cpp)
list(TRANSFORM PYTURBO_FAST_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)

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
set(PYTURBO_FAST_OPTIMIZATION -O3)
if(PYTURBO_SANITIZE)
  set(PYTURBO_FAST_OPTIMIZATION -O1)
endif()

foreach(level ${PYTURBO_LEVELS})
  add_library(pyturbo_${level} OBJECT ${PYTURBO_FAST_SOURCES})
  target_include_directories(pyturbo_${level} PRIVATE ${PYTURBO_NATIVE}/include ${PYTURBO_NATIVE})
  target_compile_definitions(pyturbo_${level} PRIVATE PYTURBO_ISA=${level})
  # Fused operations are written out, so that all compilers round alike. Each level keeps its symbols to itself: the
  # linker must not take one level's code for another's.
  target_compile_options(pyturbo_${level} PRIVATE ${PYTURBO_WARNINGS} ${PYTURBO_FAST_OPTIMIZATION} -ffp-contract=off
                         -fno-math-errno -fno-trapping-math -fno-strict-aliasing -fvisibility=hidden ${PYTURBO_FLAGS_${level}}
                         # GCC 11 and 12 say of their own headers that they use what they mean to leave undefined.
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-uninitialized -Wno-psabi>)
  target_sources(pyturbo PRIVATE $<TARGET_OBJECTS:pyturbo_${level}>)
endforeach()
