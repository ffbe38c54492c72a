// Several transports of one calibration, which are measured one after the other.
#pragma once

#include <string>
#include <vector>

namespace consist::launch {

/// The command line that measures `transport` of those that `given` lists (`all`): without options of the other ones. Of the
/// first, `add_to` is empty: it makes the file. For the others it is that file, to which their links are added, and what only the
/// first needs (--output, --overwrite, --samples) is left out.
std::vector<std::string> arguments_for(const std::string& transport, const std::vector<std::string>& all,
                                       const std::vector<std::string>& given, const std::string& add_to);

}  // namespace consist::launch
