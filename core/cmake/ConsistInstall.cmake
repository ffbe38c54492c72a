# cmake --install BUILD --prefix PREFIX: the executable, the core library and its public headers, plugins, what ships with them, and the CMake package
# Consist, with which plugins are built elsewhere, the documents with the files that they link to, example plugins, and (from a build with tests) the
# conformance programs that `consist check` runs. The tree may be moved: everything finds the rest relative to its own place.
include(CMakePackageConfigHelpers)

set(CONSIST_PACKAGE_DIRECTORY lib/cmake/Consist)

set_target_properties(consist_core PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS consist_core EXPORT ConsistTargets LIBRARY DESTINATION lib)
install(FILES ${SDK_HEADERS} DESTINATION include/consist)
install(EXPORT ConsistTargets NAMESPACE Consist:: DESTINATION ${CONSIST_PACKAGE_DIRECTORY})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ConsistConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/ConsistConfig.cmake
                              INSTALL_DESTINATION ${CONSIST_PACKAGE_DIRECTORY})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ConsistConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ConsistConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ConsistConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/ConsistAddPlugin.cmake ${CMAKE_CURRENT_LIST_DIR}/MakeFingerprint.cmake
              ${HEADERS_LIST}
        DESTINATION ${CONSIST_PACKAGE_DIRECTORY})
install(CODE "
  set(SOURCE ${CMAKE_SOURCE_DIR})
  set(TO \"\${CMAKE_INSTALL_PREFIX}/share/doc/consist\")
  include(${CMAKE_CURRENT_LIST_DIR}/InstallDocuments.cmake)")
install(DIRECTORY ${CMAKE_SOURCE_DIR}/tests/external/ DESTINATION share/consist/examples)
