# macOS: the Objective-C++ of the Metal device, and the shaders as one metallib if Apple's compiler for them is there.

enable_language(OBJCXX)

file(GLOB PYTURBO_METAL CONFIGURE_DEPENDS native/metal/*.mm)
set_source_files_properties(${PYTURBO_METAL} PROPERTIES COMPILE_OPTIONS "-fno-objc-arc")
target_sources(pyturbo PRIVATE ${PYTURBO_METAL} native/metal/register.cpp)
# Without CoreGraphics a command-line program finds no default device.
target_link_libraries(pyturbo PRIVATE "-framework Foundation" "-framework IOKit" "-framework Metal"
                                       "-framework CoreGraphics")

# Tests have their own kernels.
set(metal_shaders ${PYTURBO_SHADERS})
if(PYTURBO_TESTS)
  file(GLOB test_shaders CONFIGURE_DEPENDS tests/shaders/*.metal)
  list(APPEND metal_shaders ${test_shaders})
endif()
include(native/metal_shaders.cmake)
