# Install rules: libraries and headers by layer, find_package(memstrata CONFIG) and a pkg-config file. The
# tool installs itself, with its manual page, completion and sample.
include(CMakePackageConfigHelpers)

set(memstrata_layers core contract mechanism structure governance holder frontend)
set(memstrata_installed_targets memstrata_all)
set(memstrata_pc_libs "")
foreach(layer IN LISTS memstrata_layers)
  if(TARGET memstrata_${layer} AND NOT layer STREQUAL "frontend")
    list(APPEND memstrata_installed_targets memstrata_${layer})
    # A static library comes before those that it needs.
    string(PREPEND memstrata_pc_libs "-lmemstrata_${layer} ")
  endif()
endforeach()
string(STRIP "${memstrata_pc_libs}" memstrata_pc_libs)

install(TARGETS ${memstrata_installed_targets}
  EXPORT memstrata-targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT memstrata-targets
  NAMESPACE memstrata::
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/memstrata")

configure_package_config_file(cmake/memstrata-config.cmake.in
  "${PROJECT_BINARY_DIR}/memstrata-config.cmake"
  INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/memstrata"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/memstrata-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/memstrata-config.cmake"
  "${PROJECT_BINARY_DIR}/memstrata-config-version.cmake"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/memstrata")

# The prefix is written relative to the file, so that a moved installation is still found.
file(RELATIVE_PATH memstrata_pc_prefix
  "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" memstrata_pc_prefix "${memstrata_pc_prefix}")
configure_file(cmake/memstrata.pc.in "${PROJECT_BINARY_DIR}/memstrata.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/memstrata.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

install(FILES LICENSE README.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
