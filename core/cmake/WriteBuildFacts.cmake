# Writes OUTPUT, launch/cli/build_facts.h's texts: FACTS (lines "name=value") and the commit of SOURCE, if that is a checkout. Run in each build, so that
# the commit is the one that was built; the file is touched only if something changed.
set(commit "")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE
                  TIMEOUT 20)
endif()
file(READ ${FACTS} facts)
if(commit)
  string(APPEND facts "commit=${commit}\n")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[// Generated in each build.
#include "launch/cli/build_facts.h"

namespace consist::launch {

const char* build_facts() noexcept {
  return R"facts(@facts@)facts";
}

}  // namespace consist::launch
]] @ONLY)
