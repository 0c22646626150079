# Soft Metal: Metal's API over GNUstep's Foundation and the reference kernels, and its tests.
#
# Built where the C++ compiler is GCC with Objective-C++ (Debian: gobjc++) and GNUstep is there (libgnustep-base-dev).
# PYTURBO_SOFT_METAL says whether. For other Objective-C++ sources:
#   soft_metal_sources(<target> <files.mm...>)  compiles them for it, several at once and with the flags they need;
#   soft_metal                                  is the library that gives them <Metal/Metal.h> and implements it;
#                                               tests steer it through "soft_metal/soft_metal.h".

set(soft_metal ${CMAKE_CURRENT_SOURCE_DIR}/tests/soft_metal)
find_path(GNUSTEP_INCLUDE Foundation/Foundation.h PATH_SUFFIXES GNUstep)
find_library(GNUSTEP_BASE gnustep-base)

set(SOFT_METAL_OPTIONS -x objective-c++ -fobjc-exceptions -fconstant-string-class=NSConstantString -fno-strict-aliasing
                       -DGNUSTEP -DGNUSTEP_BASE_LIBRARY=1 -DGNU_RUNTIME=1 -D_NATIVE_OBJC_EXCEPTIONS)

set(PYTURBO_SOFT_METAL FALSE)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND GNUSTEP_INCLUDE AND GNUSTEP_BASE)
  # A static library: the flag that names the language must not reach the linker.
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  try_compile(SOFT_METAL_COMPILES ${CMAKE_CURRENT_BINARY_DIR}/soft_metal_check ${soft_metal}/foundation_check.cpp
              COMPILE_DEFINITIONS ${SOFT_METAL_OPTIONS} -isystem ${GNUSTEP_INCLUDE})
  unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
  set(PYTURBO_SOFT_METAL ${SOFT_METAL_COMPILES})
endif()
if(NOT PYTURBO_SOFT_METAL)
  message(STATUS "Soft Metal is not built: gobjc++ or libgnustep-base-dev is missing")
  return()
endif()

# Most of a source are the headers of Foundation and Metal. GCC warns about the parameters of the accessors that @synthesize
# makes. The sources have the visibility, the definitions and the include folders of the target.
function(soft_metal_sources target)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
  add_library(${target}_objects OBJECT ${ARGN})
  target_compile_options(${target}_objects PRIVATE $<TARGET_PROPERTY:${target},COMPILE_OPTIONS> ${SOFT_METAL_OPTIONS}
                         -Wno-unused-parameter)
  target_compile_definitions(${target}_objects PRIVATE $<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>)
  target_include_directories(${target}_objects PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
  target_include_directories(${target}_objects SYSTEM PRIVATE ${GNUSTEP_INCLUDE})
  foreach(property CXX_VISIBILITY_PRESET VISIBILITY_INLINES_HIDDEN)
    get_target_property(value ${target} ${property})
    if(value)
      set_target_properties(${target}_objects PROPERTIES ${property} ${value})
    endif()
  endforeach()
  set_target_properties(${target}_objects PROPERTIES ${PYTURBO_TOGETHER})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_objects>)
endfunction()

# Takes the kernels and the executor from libpyturbo when it is loaded, and is not linked with it: libpyturbo may so be
# linked with soft Metal, as it is with Apple's framework.
file(GLOB soft_metal_cpp CONFIGURE_DEPENDS ${soft_metal}/*.cpp)
file(GLOB soft_metal_mm CONFIGURE_DEPENDS ${soft_metal}/*.mm)
list(REMOVE_ITEM soft_metal_cpp ${soft_metal}/foundation_check.cpp)
add_library(soft_metal SHARED ${soft_metal_cpp})
target_include_directories(soft_metal PUBLIC ${soft_metal}/include ${soft_metal}/.. PRIVATE ${soft_metal} native native/include)
target_include_directories(soft_metal SYSTEM PUBLIC ${GNUSTEP_INCLUDE})
target_compile_definitions(soft_metal PRIVATE SOFT_METAL_COMPILER="${CMAKE_CXX_COMPILER}")
target_compile_options(soft_metal PRIVATE ${PYTURBO_WARNINGS} ${PYTURBO_TEST_OPTIMIZATION})
set_target_properties(soft_metal PROPERTIES ${PYTURBO_TOGETHER})
target_link_libraries(soft_metal PUBLIC ${GNUSTEP_BASE} objc Threads::Threads)
soft_metal_sources(soft_metal ${soft_metal_mm})

# What takes the place of the metallib: all kernels, also those that exist for tests.
set(soft_metallib ${CMAKE_CURRENT_BINARY_DIR}/pyturbo.metallib)
set(manifests ${PYTURBO_MANIFEST} ${CMAKE_CURRENT_BINARY_DIR}/kernels/test/manifest.json)
add_custom_command(OUTPUT ${soft_metallib}
                   COMMAND ${Python_EXECUTABLE} ${soft_metal}/write_metallib.py ${soft_metallib} ${manifests}
                   DEPENDS ${soft_metal}/write_metallib.py ${manifests} VERBATIM)
add_custom_target(soft_metallib ALL DEPENDS ${soft_metallib})
add_dependencies(soft_metallib pyturbo_shaders _native_tests_shaders)

file(GLOB soft_metal_cases CONFIGURE_DEPENDS ${soft_metal}/cases/*.mm)
cython_transpile(${soft_metal}/_soft_metal_tests.pyx LANGUAGE CXX OUTPUT_VARIABLE soft_metal_module
                 CYTHON_ARGS --directive language_level=3)
# With the Metal device itself, which importing the module makes known.
file(GLOB metal_device CONFIGURE_DEPENDS native/metal/*.mm)
python_add_library(_soft_metal_tests MODULE ${soft_metal_module} WITH_SOABI)
# Hidden, so that the list of cases is not one with that of _native_tests.
set_target_properties(_soft_metal_tests PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_include_directories(_soft_metal_tests PRIVATE ${soft_metal}/cases ${CMAKE_CURRENT_SOURCE_DIR}/tests/native)
target_compile_definitions(_soft_metal_tests PRIVATE SOFT_METALLIB="${soft_metallib}")
target_compile_options(_soft_metal_tests PRIVATE ${PYTURBO_WARNINGS} ${PYTURBO_TEST_OPTIMIZATION})
target_precompile_headers(_soft_metal_tests REUSE_FROM pyturbo)
target_link_libraries(_soft_metal_tests PRIVATE soft_metal pyturbo)
soft_metal_sources(_soft_metal_tests ${soft_metal_cases} ${metal_device})

install(TARGETS soft_metal _soft_metal_tests DESTINATION pyturbo)
install(FILES ${soft_metallib} DESTINATION pyturbo)
