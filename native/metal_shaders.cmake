# Compiles ${metal_shaders} with Apple's compiler into pyturbo.metallib. Without that compiler, which is a download of its
# own in recent versions of Xcode, the package has only the sources, and the device compiles them when it needs them.

set(PYTURBO_WERROR "$ENV{CI}" CACHE STRING "Treat warnings of Apple's Metal compiler as errors (default: in CI)")

execute_process(COMMAND xcrun -sdk macosx metal --version RESULT_VARIABLE metal_result OUTPUT_QUIET
                ERROR_VARIABLE metal_answer)
if(NOT metal_result EQUAL 0)
  string(STRIP "${metal_answer}" metal_answer)
  message(WARNING "There is no Metal compiler (xcrun metal: ${metal_answer}): kernels are compiled at run time. Install "
                  "Xcode and run `xcodebuild -downloadComponent MetalToolchain` to compile them now.")
  return()
endif()

# Metal 3.1 needs macOS 14.
set(metal_target ${CMAKE_OSX_DEPLOYMENT_TARGET})
if(NOT metal_target OR metal_target VERSION_LESS 14.0)
  set(metal_target 14.0)
endif()
set(metal_options -std=metal3.1 -mmacosx-version-min=${metal_target} -fno-fast-math -Wall -Wextra -Wno-unused-parameter
                  -I ${CMAKE_CURRENT_SOURCE_DIR}/shaders)
if(PYTURBO_WERROR)
  list(APPEND metal_options -Werror)
endif()

set(air_files "")
foreach(shader ${metal_shaders})
  file(RELATIVE_PATH stem ${CMAKE_CURRENT_SOURCE_DIR} ${shader})
  string(REGEX REPLACE "[/.]" "_" stem ${stem})
  set(air ${CMAKE_CURRENT_BINARY_DIR}/air/${stem}.air)
  add_custom_command(
    OUTPUT ${air}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/air
    COMMAND xcrun -sdk macosx metal ${metal_options} -MMD -MF ${air}.d -c ${shader} -o ${air}
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
