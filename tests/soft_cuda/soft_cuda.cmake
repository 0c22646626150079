# Soft CUDA: the driver API and NVRTC over the reference kernels, and its tests. The device opens the library by its
# path, as it opens NVIDIA's.

set(soft_cuda ${CMAKE_CURRENT_SOURCE_DIR}/tests/soft_cuda)
file(GLOB soft_cuda_cpp CONFIGURE_DEPENDS ${soft_cuda}/*.cpp)
add_library(soft_cuda SHARED ${soft_cuda_cpp})
target_include_directories(soft_cuda PRIVATE ${soft_cuda})
target_include_directories(soft_cuda PUBLIC ${soft_cuda}/..)
target_compile_options(soft_cuda PRIVATE ${PYTURBO_WARNINGS} ${PYTURBO_TEST_OPTIMIZATION})
target_precompile_headers(soft_cuda REUSE_FROM pyturbo)
set_target_properties(soft_cuda PROPERTIES ${PYTURBO_TOGETHER})
target_link_libraries(soft_cuda PRIVATE pyturbo Threads::Threads)

cython_transpile(${soft_cuda}/_soft_cuda_tests.pyx LANGUAGE CXX OUTPUT_VARIABLE soft_cuda_module
                 CYTHON_ARGS --directive language_level=3)
file(GLOB soft_cuda_cases CONFIGURE_DEPENDS ${soft_cuda}/cases/*.cpp)
python_add_library(_soft_cuda_tests MODULE ${soft_cuda_module} ${soft_cuda_cases} WITH_SOABI)
# Hidden, so that the list of cases is not one with that of _native_tests.
set_target_properties(_soft_cuda_tests PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_include_directories(_soft_cuda_tests PRIVATE ${soft_cuda}/cases ${CMAKE_CURRENT_SOURCE_DIR}/tests/native)
target_compile_options(_soft_cuda_tests PRIVATE ${PYTURBO_WARNINGS} ${PYTURBO_TEST_OPTIMIZATION})
target_precompile_headers(_soft_cuda_tests REUSE_FROM pyturbo)
target_link_libraries(_soft_cuda_tests PRIVATE soft_cuda pyturbo)

install(TARGETS soft_cuda _soft_cuda_tests DESTINATION pyturbo)
