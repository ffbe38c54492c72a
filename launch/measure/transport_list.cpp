#include "launch/measure/transport_list.h"

#include <algorithm>
#include <set>

namespace consist::launch {

std::vector<std::string> arguments_for(const std::string& transport, const std::vector<std::string>& all,
                                       const std::vector<std::string>& given, const std::string& add_to) {
  static const std::set<std::string> of_the_first{"--output", "--overwrite", "--samples"};
  const auto is_left_out = [&](const std::string& name) {
    return name == "--transport" || (!add_to.empty() && of_the_first.contains(name)) ||
           std::any_of(all.begin(), all.end(),
                       [&](const std::string& other) { return other != transport && name.starts_with("--" + other + "."); });
  };
  std::vector<std::string> arguments;
  for (std::size_t n = 0; n < given.size(); ++n) {
    const std::string name = given[n].substr(0, given[n].find('='));
    if (!is_left_out(name)) {
      arguments.push_back(given[n]);
    } else if (name == given[n] && n + 1 < given.size() && !given[n + 1].starts_with("--")) {
      ++n;  // its value
    }
  }
  arguments.insert(arguments.end(), {"--transport", transport});
  if (!add_to.empty()) arguments.insert(arguments.end(), {"--add-links", add_to});
  return arguments;
}

}  // namespace consist::launch
