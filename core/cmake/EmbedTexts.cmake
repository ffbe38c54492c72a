# Writes a source with the texts of files: a function FUNCTION in NAMESPACE that returns a vector of TYPE{name, text}, as HEADER
# declares it. Run in script mode with FILES, OUTPUT, HEADER, NAMESPACE, TYPE and FUNCTION.
set(text "// Generated at build time.\n#include \"${HEADER}\"\n\n")
string(APPEND text "namespace ${NAMESPACE} {\n\nconst std::vector<${TYPE}>& ${FUNCTION}() {\n  static const std::vector<${TYPE}> texts{\n")
foreach(file IN LISTS FILES)
  file(READ ${file} content)
  get_filename_component(name ${file} NAME)
  string(APPEND text "{\"${name}\", R\"consist(${content})consist\"},\n")
endforeach()
string(APPEND text "  };\n  return texts;\n}\n\n}  // namespace ${NAMESPACE}\n")
file(WRITE ${OUTPUT} "${text}")
