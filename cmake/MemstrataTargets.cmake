# Flags that every target of the project shares, and the helpers that make a layer and a test.

add_library(memstrata_warnings INTERFACE)
target_compile_options(memstrata_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wnon-virtual-dtor -Wswitch -Wundef
  -Wold-style-cast -Woverloaded-virtual -Wcast-align -Wformat=2 -Wimplicit-fallthrough -Wextra-semi
  $<$<BOOL:${MEMSTRATA_WERROR}>:-Werror>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # GCC 12 reports overlapping copies in std::string at -O2, and uninitialized members of the variants inside
  # std::expected at -O3, where there are none; clang and the sanitizers watch for real ones.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-maybe-uninitialized>)

add_library(memstrata_flags INTERFACE)
target_compile_features(memstrata_flags INTERFACE cxx_std_23)
if(MEMSTRATA_SANITIZE)
  target_compile_options(memstrata_flags INTERFACE
    -fsanitize=${MEMSTRATA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(memstrata_flags INTERFACE -fsanitize=${MEMSTRATA_SANITIZE})
endif()
if(MEMSTRATA_CHECKS STREQUAL "SLOW")
  target_compile_definitions(memstrata_flags INTERFACE MEMSTRATA_ASSERTS=1 MEMSTRATA_SLOW_ASSERTS=1)
elseif(MEMSTRATA_CHECKS STREQUAL "DEBUG")
  target_compile_definitions(memstrata_flags INTERFACE MEMSTRATA_ASSERTS=1)
elseif(MEMSTRATA_CHECKS STREQUAL "AUTO")
  target_compile_definitions(memstrata_flags INTERFACE $<$<CONFIG:Debug>:MEMSTRATA_ASSERTS=1>)
endif()

# memstrata_layer(<name> SOURCES ... [PUBLIC targets...] [PRIVATE targets...]): one static library per layer,
# with the public headers of include/memstrata/<name>; its link line states what the layer may include.
function(memstrata_layer name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  set(target memstrata_${name})
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(memstrata::${name} ALIAS ${target})
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/memstrata/${name}/*.hpp")
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${headers})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_compile_features(${target} PUBLIC cxx_std_23)
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC}
    PRIVATE $<BUILD_INTERFACE:memstrata_flags> $<BUILD_INTERFACE:memstrata_warnings> ${arg_PRIVATE})
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${name}
    POSITION_INDEPENDENT_CODE ON
    CXX_EXTENSIONS OFF
    VERIFY_INTERFACE_HEADER_SETS ON)
  if(MEMSTRATA_LAYERS_BY_FILE)  # where one source at a time is changed and built again
    set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  endif()
endfunction()

# What ./test builds where it does not build everything: the programs of these labels.
add_custom_target(memstrata_fast_tests)
set(memstrata_fast_labels unit conformance)
add_custom_target(memstrata_sanitized_tests)
set(memstrata_sanitized_labels unit property stress)

# memstrata_test(<name> SOURCES ... LIBS ... [LABELS ...]): one test program, each TEST a ctest case.
function(memstrata_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} memstrata_flags memstrata_warnings GTest::gtest_main
    GTest::gmock)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests" "${PROJECT_SOURCE_DIR}/src")
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF)
  target_precompile_headers(${name} REUSE_FROM memstrata_test_pch)
  # Without it ccache cannot keep what a precompiled header went into.
  target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${arg_LABELS}")
  foreach(label IN LISTS arg_LABELS)
    foreach(group IN ITEMS fast sanitized)
      if(label IN_LIST memstrata_${group}_labels)
        add_dependencies(memstrata_${group}_tests ${name})
      endif()
    endforeach()
  endforeach()
  # For scripts/mutate.py: target, program, labels, libraries.
  list(JOIN arg_LABELS "," labels)
  list(JOIN arg_LIBS "," libraries)
  set_property(GLOBAL APPEND PROPERTY memstrata_test_programs
    "${name}|$<TARGET_FILE:${name}>|${labels}|${libraries}")
endfunction()

# Writes the list of test programs into the build folder; called once all of them are known.
function(memstrata_write_test_programs)
  get_property(programs GLOBAL PROPERTY memstrata_test_programs)
  list(JOIN programs "\n" text)
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/test_programs.txt" CONTENT "${text}\n")
endfunction()
