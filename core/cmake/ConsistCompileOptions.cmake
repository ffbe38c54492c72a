# Warnings and sanitizers for everything in this tree (not for third-party plugins).
# Designated initialisers leave out what has a default on purpose.
add_compile_options(-Wall -Wextra -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers)
# GCC collects garbage from 128 MiB on: a tenth to a quarter of its time. A group of files (CONSIST_UNITY) takes 0.7 to 1 GiB without.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1000000;--param=ggc-min-expand=100>")
if(CONSIST_SANITIZE)
  add_compile_options(-fsanitize=${CONSIST_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${CONSIST_SANITIZE})
endif()
find_program(CONSIST_CCACHE ccache)
if(CONSIST_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these two, ccache leaves sources with precompiled headers alone.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CONSIST_CCACHE})
endif()
