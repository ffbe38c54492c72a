// Place of an output: through links, and under a name that nothing has.
#pragma once

#include <string>

#include "consist/export.h"

namespace consist {

/// Where a path leads, through any links; the last of them need not lead to a file.
CONSIST_API std::string behind_links(const std::string& path);

/// " (a link to TARGET)", for messages; nothing if the path is no link.
CONSIST_API std::string link_text(const std::string& path);

/// Gives a file a name that nothing has; 0 or the errno, EEXIST if something has it.
CONSIST_API int rename_to_free(const std::string& from, const std::string& to);

}  // namespace consist
