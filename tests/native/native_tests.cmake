# The test-only extension: the C++ cases of this folder and the kernels of tests/shaders.

set(tests ${CMAKE_CURRENT_SOURCE_DIR}/tests)
file(GLOB cases CONFIGURE_DEPENDS ${tests}/native/*.cpp)
file(GLOB shaders CONFIGURE_DEPENDS ${tests}/shaders/*.metal)

cython_transpile(${tests}/native/_native_tests.pyx LANGUAGE CXX OUTPUT_VARIABLE test_module
                 CYTHON_ARGS --directive language_level=3 --include-dir ${CMAKE_CURRENT_SOURCE_DIR})
python_add_library(_native_tests MODULE ${test_module} ${cases} WITH_SOABI)
target_include_directories(_native_tests PRIVATE ${tests}/native)
# The cases see our <metal_stdlib> as kernels do.
target_include_directories(_native_tests SYSTEM PRIVATE ${PYTURBO_MSL})
target_compile_options(_native_tests PRIVATE ${PYTURBO_WARNINGS} ${PYTURBO_TEST_OPTIMIZATION} -fsigned-char -ffp-contract=off)
target_precompile_headers(_native_tests PRIVATE ${PYTURBO_COMMON_HEADERS})
target_link_libraries(_native_tests PRIVATE pyturbo Threads::Threads)
set(PYTURBO_MANIFEST_OF_PACKAGE ${PYTURBO_MANIFEST})
pyturbo_add_kernels(_native_tests LIBRARY test ROOT ${tests}/shaders SHADERS ${shaders})
set(PYTURBO_MANIFEST ${PYTURBO_MANIFEST_OF_PACKAGE})
install(TARGETS _native_tests DESTINATION pyturbo)
# The texts of these kernels for GPUs, beside those of the package.
install(DIRECTORY ${PYTURBO_SOURCES}/ DESTINATION pyturbo/shaders FILES_MATCHING PATTERN "*.metal" PATTERN "*.cu")
