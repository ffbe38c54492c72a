# Warnings and sanitizers for everything in this tree (not for third-party plugins).
# Designated initialisers leave out what has a default on purpose.
add_compile_options(-Wall -Wextra -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers)
if(CONSIST_SANITIZE)
  add_compile_options(-fsanitize=${CONSIST_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${CONSIST_SANITIZE})
endif()
find_program(CONSIST_CCACHE ccache)
if(CONSIST_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these two, ccache leaves sources with precompiled headers alone.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CONSIST_CCACHE})
endif()
