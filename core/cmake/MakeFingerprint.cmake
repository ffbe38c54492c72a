# A hash over the names of the public headers and what they declare. Comments and white space do not count: a plugin need not be built
# again because a sentence was mended. Run in script mode,
# - with HEADERS, OUTPUT, LIST and SDK: writes OUTPUT, consist/fingerprint.h, which has the hash, LIST, with that of each header, and the
#   folder SDK, the headers as they are installed: with fingerprint.h, and each with its mark;
# - with FOLDER, OUTPUT and LIST: fails unless the headers of FOLDER are those of LIST and of its fingerprint.h; then touches OUTPUT.
#
# The mark is the header's last lines. It puts the header's name and hash into the section .consist_headers of the plugin that includes
# it, where the loader reads what the plugin was built with (core/plugin/header_marks.h). Strings of all of a plugin's objects, and of
# libraries that are linked into it, meet there, each once; the section is not loaded.
cmake_minimum_required(VERSION 3.22)
if(FOLDER)
  file(GLOB HEADERS ${FOLDER}/*.h)
  list(FILTER HEADERS EXCLUDE REGEX "/fingerprint\\.h$")
endif()
set(mark_begin "// What includes this header is known by it (docs/plugins.md, The fingerprint).\n")

# The lines that name a header in what includes it. Not for the part of a .cu file that a GPU runs.
function(mark_of name hash variable)
  set(${variable} "${mark_begin}#ifndef __CUDA_ARCH__\nasm(\".pushsection .consist_headers,\\\"MS\\\",@progbits,1\\n.asciz \\\"${name} ${hash}\\\"\\n.popsection\");\n#endif\n" PARENT_SCOPE)
endfunction()

# The same text keeps its time, so that nothing is built again.
function(write_if_changed path content)
  set(before "")
  if(EXISTS ${path})
    file(READ ${path} before)
  endif()
  if(NOT "${before}" STREQUAL "${content}")
    file(WRITE ${path} "${content}")
  endif()
endfunction()

list(SORT HEADERS)
set(all "")
foreach(header IN LISTS HEADERS)
  file(READ ${header} text)
  set(whole "${text}")
  string(FIND "${text}" "${mark_begin}" at REVERSE)
  set(mark "")
  if(FOLDER AND at GREATER -1)
    string(SUBSTRING "${text}" ${at} -1 mark)
    string(SUBSTRING "${text}" 0 ${at} text)
  endif()
  # A literal that holds // or /* is cut off here; what it says past that does not reach the hash.
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" "" text "${text}")
  string(REGEX REPLACE "\\\\\n" " " text "${text}")
  string(REGEX REPLACE "[ \t\r\n]+" " " text "${text}")
  string(SHA256 hash "${text}")
  get_filename_component(name ${header} NAME)
  mark_of(${name} ${hash} own_mark)
  if(FOLDER AND NOT "${mark}" STREQUAL "${own_mark}")
    set(hash "without its mark")
  endif()
  string(APPEND all "${name} ${hash}\n")
  if(NOT FOLDER)
    write_if_changed(${SDK}/${name} "${whole}${own_mark}")
  endif()
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
set(text "// Generated at build time from the public headers.\n#pragma once\n#define CONSIST_HEADERS_HASH \"${hash}\"\n")

function(read_if_there path variable)
  set(content "")
  if(EXISTS ${path})
    file(READ ${path} content)
  endif()
  set(${variable} "${content}" PARENT_SCOPE)
endfunction()

if(NOT FOLDER)
  write_if_changed(${OUTPUT} "${text}")
  write_if_changed(${SDK}/fingerprint.h "${text}")
  write_if_changed(${LIST} "${all}")
  return()
endif()

read_if_there(${LIST} listed)
read_if_there(${FOLDER}/fingerprint.h before)
if("${before}" STREQUAL "${text}" AND "${listed}" STREQUAL "${all}")
  file(TOUCH ${OUTPUT})
  return()
endif()
string(REPLACE "\n" ";" now "${all}")
string(REPLACE "\n" ";" then "${listed}")
set(changed ${now} ${then})
foreach(line IN LISTS now)
  if(line IN_LIST then)
    list(REMOVE_ITEM changed ${line})
  endif()
endforeach()
list(TRANSFORM changed REPLACE " .*" "")
list(REMOVE_DUPLICATES changed)
list(JOIN changed ", " changed)
if(NOT changed)
  set(changed fingerprint.h)
endif()
message(FATAL_ERROR "The headers in ${FOLDER} are not those that this Consist was built with: ${changed} differ. A plugin that is built "
                    "with them would call other functions than it names. Install Consist again; to change a public header, change it in "
                    "Consist's source and build Consist with it.")
