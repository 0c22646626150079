# macOS: compiles the shaders with Apple's compiler into one metallib, and the Objective-C++ of the Metal device.

enable_language(OBJCXX)

# Tests have their own kernels.
set(metal_shaders ${PYTURBO_SHADERS})
if(PYTURBO_TESTS)
  file(GLOB test_shaders CONFIGURE_DEPENDS tests/shaders/*.metal)
  list(APPEND metal_shaders ${test_shaders})
endif()

set(PYTURBO_METAL_OPTIONS -std=metal3.1 -fno-fast-math -Wall -Wextra -Wno-unused-parameter -Werror -I ${CMAKE_CURRENT_SOURCE_DIR}/shaders)
set(air_files "")
foreach(shader ${metal_shaders})
  file(RELATIVE_PATH stem ${CMAKE_CURRENT_SOURCE_DIR} ${shader})
  string(REGEX REPLACE "[/.]" "_" stem ${stem})
  set(air ${CMAKE_CURRENT_BINARY_DIR}/air/${stem}.air)
  add_custom_command(
    OUTPUT ${air}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/air
    COMMAND xcrun -sdk macosx metal ${PYTURBO_METAL_OPTIONS} -MMD -MF ${air}.d -c ${shader} -o ${air}
    DEPENDS ${shader}
    DEPFILE ${air}.d
    COMMENT "Compiling ${stem} for Metal"
    VERBATIM)
  list(APPEND air_files ${air})
endforeach()

set(metallib ${CMAKE_CURRENT_BINARY_DIR}/pyturbo.metallib)
add_custom_command(OUTPUT ${metallib} COMMAND xcrun -sdk macosx metallib ${air_files} -o ${metallib}
                   DEPENDS ${air_files} VERBATIM)
add_custom_target(pyturbo_metallib ALL DEPENDS ${metallib})
install(FILES ${metallib} DESTINATION pyturbo)

file(GLOB PYTURBO_METAL CONFIGURE_DEPENDS native/metal/*.mm)
set_source_files_properties(${PYTURBO_METAL} PROPERTIES COMPILE_OPTIONS "-fno-objc-arc")
target_sources(pyturbo PRIVATE ${PYTURBO_METAL} native/metal/register.cpp)
# Without CoreGraphics a command-line program finds no default device.
target_link_libraries(pyturbo PRIVATE "-framework Foundation" "-framework Metal" "-framework CoreGraphics")
