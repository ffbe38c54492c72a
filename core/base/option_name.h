// The spelling of options' names.
#pragma once

#include <algorithm>
#include <string>

namespace consist {

/// The name of a plugin's option, without the plugin's, with '-' for '_', which versions before 0.1.0 took beside it:
/// "reduce-bucket-size" of "reduce_bucket_size".
inline std::string with_dashes(std::string option) {
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

}  // namespace consist
