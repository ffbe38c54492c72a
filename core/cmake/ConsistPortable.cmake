# CONSIST_PORTABLE: binaries for other machines than the one that builds (launch/package). What a user's system may lack, or have in another version, is
# linked into them where it is there as an archive; what is there as a shared library only (oneDNN, OpenMP) is put beside them by the package.
#
# Included before the libraries are looked for: what is found here stays in the cache, and the same search elsewhere gives it again.
set(CONSIST_SPDLOG spdlog::spdlog)
option(CONSIST_PORTABLE "Link libraries that a user's system may lack into the binaries" OFF)
if(NOT CONSIST_PORTABLE)
  return()
endif()

set(CONSIST_SHARED_FIRST ${CMAKE_FIND_LIBRARY_SUFFIXES})
set(CMAKE_FIND_LIBRARY_SUFFIXES .a ${CMAKE_FIND_LIBRARY_SUFFIXES})
set(OPENSSL_USE_STATIC_LIBS ON)
set(Boost_USE_STATIC_LIBS ON)
find_package(ZLIB REQUIRED)
# HDF5's own archive and those of its compression alone; FindHDF5 would also add archives of libm and of what opens files of clouds. Debian compiles
# it for executables: what it says of stderr and stdout, variables of another library, cannot stand in a shared one, so that a copy of the archive
# names variables of ours instead.
foreach(library hdf5_serial sz aec)
  find_library(CONSIST_ARCHIVE_${library} ${library} REQUIRED)
endforeach()
set(archive ${CMAKE_BINARY_DIR}/libhdf5_in_library.a)
execute_process(COMMAND ${CMAKE_OBJCOPY} --redefine-sym stderr=consist_hdf5_stderr --redefine-sym stdout=consist_hdf5_stdout
                ${CONSIST_ARCHIVE_hdf5_serial} ${archive} COMMAND_ERROR_IS_FATAL ANY)
add_library(consist_hdf5_streams OBJECT ${CMAKE_CURRENT_LIST_DIR}/hdf5_streams.c)
set(CONSIST_HDF5_LIBRARIES $<TARGET_OBJECTS:consist_hdf5_streams> ${archive} ${CONSIST_ARCHIVE_sz} ${CONSIST_ARCHIVE_aec} ZLIB::ZLIB m)
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_package(PkgConfig REQUIRED)
pkg_check_modules(CONSIST_TOKENIZER REQUIRED IMPORTED_TARGET libpcre2-8 libutf8proc)
pkg_check_modules(CONSIST_JINJA REQUIRED IMPORTED_TARGET libutf8proc)
set(CMAKE_FIND_LIBRARY_SUFFIXES ${CONSIST_SHARED_FIRST})

# Symbols of archives stay inside: a plugin, or a library that it loads, may bring another version of them. Libraries that nothing is taken from are
# left out.
add_link_options(-Wl,--exclude-libs,ALL -Wl,--as-needed)
# std::condition_variable::wait has a second version since GCC 12, which differs in what it says of exceptions alone. The first is in every library.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-include${CMAKE_CURRENT_LIST_DIR}/portable_symbols.h>)
# spdlog's headers instead of its library, and those of {fmt}.
set(CONSIST_SPDLOG spdlog::spdlog_header_only)
add_compile_definitions(FMT_HEADER_ONLY)
# Paths of the building machine stay out of the files, so that two builds are equal.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.> $<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${CMAKE_BINARY_DIR}=build>)
