# With CONSIST_UNITY, compiles the C++ sources of a folder together: headers are read, and templates instantiated, once for ten files.
# The core takes a third of the time so. A change of one file compiles its group again, for which it is off where people work on the
# code.

# consist_unite(<directory>): all targets of the directory and of those below it.
function(consist_unite directory)
  get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    consist_unite_target(${target})
  endforeach()
  get_property(folders DIRECTORY ${directory} PROPERTY SUBDIRECTORIES)
  foreach(folder IN LISTS folders)
    consist_unite(${folder})
  endforeach()
endfunction()

# A group is of one folder, since files of a folder know each other's names, and has as many files as a compiler with 1 GiB of memory
# takes. Sources with options of their own stay alone, by CMake.
function(consist_unite_target target)
  set(most 10)
  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "LIBRARY|EXECUTABLE" OR type STREQUAL INTERFACE_LIBRARY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(directory ${target} SOURCE_DIR)
  set(groups "")
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "\\.cpp$")
      continue()
    endif()
    get_filename_component(path ${source} ABSOLUTE BASE_DIR ${directory})
    get_filename_component(group ${path} DIRECTORY)
    file(RELATIVE_PATH group ${CMAKE_SOURCE_DIR} ${group})
    if(group MATCHES "^\\.\\.")  # made in a build folder elsewhere
      continue()
    endif()
    string(MAKE_C_IDENTIFIER "${group}" group)
    if(NOT group IN_LIST groups)
      list(APPEND groups ${group})
      set(count_${group} 0)
    endif()
    math(EXPR part "${count_${group}} / ${most}")
    math(EXPR count_${group} "${count_${group}} + 1")
    set_property(SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP ${group}_${part})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

if(CONSIST_UNITY)
  consist_unite(${CMAKE_SOURCE_DIR})
endif()
