# consist_add_plugin(<name> KIND <adapter|device|dataset|kernels|model|loss|observer|optimizer|precision|schedule|strategy|transport> SOURCES <file>... [LIBRARIES <target>...]
#                    [CUDA] [OUTPUT_DIRECTORY <folder>])
#
# Builds a plugin: a module that the `consist` executable finds at run time. In this tree it goes beside the executable; elsewhere
# (find_package(Consist)) into <build>/lib/consist/plugins, to be named with --plugin or CONSIST_PLUGIN_PATH, or installed. With
# OUTPUT_DIRECTORY it goes there and is not installed.
# CUDA: the plugin uses the toolkit that find_package(CUDAToolkit) found. Its major version goes into the plugin's record, since a
# plugin of another one is refused. Plugins that link one of the toolkit's targets (CUDA::...) need not say it.
function(consist_add_plugin name)
  cmake_parse_arguments(PLUGIN "CUDA" "KIND;OUTPUT_DIRECTORY" "SOURCES;LIBRARIES" ${ARGN})
  set(kinds adapter device dataset kernels model loss observer optimizer precision schedule strategy transport)
  if(NOT PLUGIN_KIND IN_LIST kinds)
    message(FATAL_ERROR "consist_add_plugin(${name}): KIND is '${PLUGIN_KIND}'; it must be one of ${kinds}")
  endif()
  if(NOT PLUGIN_SOURCES)
    message(FATAL_ERROR "consist_add_plugin(${name}): no SOURCES")
  endif()
  set(folder ${PLUGIN_OUTPUT_DIRECTORY})
  if(NOT folder)
    set(folder ${CMAKE_BINARY_DIR}/lib/consist/plugins)
  endif()
  set(target consist_${PLUGIN_KIND}_${name})
  add_library(${target} MODULE ${PLUGIN_SOURCES})
  target_link_libraries(${target} PRIVATE Consist::core ${PLUGIN_LIBRARIES})
  get_target_property(is_installed Consist::core IMPORTED)
  if(is_installed)
    consist_check_headers()
    add_dependencies(${target} consist_headers)
  endif()
  target_compile_features(${target} PRIVATE cxx_std_20)
  # The public headers are C++20 in .cu files, too. As a flag, since CMake 3.25 does not know that nvcc 13 has that dialect.
  if(NOT CMAKE_CUDA_STANDARD)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  endif()
  if(PLUGIN_CUDA OR PLUGIN_LIBRARIES MATCHES "CUDA::")
    if(NOT CUDAToolkit_VERSION_MAJOR)
      message(FATAL_ERROR "consist_add_plugin(${name}): it uses CUDA, and there is no toolkit; call find_package(CUDAToolkit) before")
    endif()
    target_compile_definitions(${target} PRIVATE CONSIST_PLUGIN_CUDA_MAJOR=${CUDAToolkit_VERSION_MAJOR})
  endif()
  set_target_properties(${target} PROPERTIES
    PREFIX "" OUTPUT_NAME "${PLUGIN_KIND}-${name}"
    LIBRARY_OUTPUT_DIRECTORY ${folder}
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../.." INSTALL_RPATH_USE_LINK_PATH ON)
  # Loaded once and never unloaded; every symbol must resolve when it is loaded, so one that is missing is an error of the link already
  # (but for the sanitizers' own, which come with the executable).
  target_link_options(${target} PRIVATE -Wl,-z,nodelete -Wl,-z,now)
  if(NOT CONSIST_SANITIZE)
    target_link_options(${target} PRIVATE -Wl,-z,defs)
  endif()
  if(PLUGIN_OUTPUT_DIRECTORY)
    return()
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION lib/consist/plugins)
  set_property(GLOBAL APPEND PROPERTY CONSIST_PLUGIN_KINDS ${PLUGIN_KIND})
  set_property(GLOBAL APPEND PROPERTY CONSIST_PLUGINS_${PLUGIN_KIND} ${name})
  set_property(GLOBAL APPEND PROPERTY CONSIST_PLUGIN_TARGETS ${target})
endfunction()

# Against an installed Consist: the build fails where its public headers were changed since it was built, since the fingerprint that
# they carry would be another's. Looked at again when one of them changes.
function(consist_check_headers)
  if(TARGET consist_headers)
    return()
  endif()
  get_target_property(folder Consist::core INTERFACE_INCLUDE_DIRECTORIES)
  set(checked ${CMAKE_BINARY_DIR}/consist_headers.checked)
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/MakeFingerprint.cmake)
  set(list ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/headers.txt)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/consist/*.h)
  add_custom_command(OUTPUT ${checked}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder}/consist -DOUTPUT=${checked} -DLIST=${list} -P ${script}
    DEPENDS ${headers} ${list} ${script} COMMENT "Checking the headers of Consist" VERBATIM)
  add_custom_target(consist_headers DEPENDS ${checked})
endfunction()
