// Options that an archive or a checkpoint states and that are not taken over from it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "consist/options.h"

namespace consist {

/// Collects them, to tell the user.
class LeftOut {
 public:
  /// An option of role code or results, and the value that it had. An empty value, and the default, are of no interest.
  void add(OptionRole role, const OptionSpec& spec, const std::string& name, const nlohmann::json& value);
  /// A line for each role: what was left out of `where` ("--config run.h5"), why, and how to give it.
  void say(const std::string& where, std::vector<std::string>& notes) const;

 private:
  std::string code_, results_;
};

}  // namespace consist
