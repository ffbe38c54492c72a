# Writes consist/fingerprint.h: a hash over the names of the public headers and what they declare. Comments and white space do not count: a
# plugin need not be built again because a sentence was mended. Run in script mode with HEADERS and OUTPUT.
list(SORT HEADERS)
set(all "")
foreach(header IN LISTS HEADERS)
  file(READ ${header} text)
  # A literal that holds // or /* is cut off here; what it says past that does not reach the hash.
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" "" text "${text}")
  string(REGEX REPLACE "\\\\\n" " " text "${text}")
  string(REGEX REPLACE "[ \t\r\n]+" " " text "${text}")
  string(SHA256 hash "${text}")
  get_filename_component(name ${header} NAME)
  string(APPEND all "${name} ${hash}\n")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
set(text "// Generated at build time from the public headers.\n#pragma once\n#define CONSIST_HEADERS_HASH \"${hash}\"\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")  # the same text keeps its time, so that nothing is built again
  file(WRITE ${OUTPUT} "${text}")
endif()
