// The models of torchtitan by name and flavor.
#pragma once

#include <string>

#include "launch/import/common/model_by_sizes.h"

namespace consist::torchtitan {

/// A torchtitan flavor, and the preset or the sizes that stand for it here.
struct Flavor {
  const char* model;   ///< "llama3"
  const char* flavor;  ///< "8B"
  const char* preset;  ///< empty: `sizes`
  readers::ModelBySizes sizes = {};
};

/// Null if there is none. `old`: the layout without [parallelism], whose Llama 3 had no scaling of frequencies.
const Flavor* find_flavor(const std::string& model, const std::string& flavor, bool old);
/// "llama3 8B, llama3 70B, ..."
std::string known_flavors(bool old);

}  // namespace consist::torchtitan
