// The kernels that plugins bring (consist/kernel_registry.h), by device, op and dtype.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "consist/export.h"
#include "consist/kernel_registry.h"

namespace consist {

class PluginHost;

/// Thread-safe for make() after add().
class CONSIST_API KernelSets {
 public:
  /// Loads the host's plugins of kind "kernels" that were built without CUDA, or with it. One that is there already is left as it
  /// is. Throws UsageError where two have the same key, naming both, and what a plugin throws.
  void add(PluginHost& host, bool with_cuda);
  /// Takes in one set; `owner` names it in messages: "kernels 'gelu' (/path/kernels-gelu.so)".
  void add(std::shared_ptr<KernelSet> set, const std::string& owner);

  /// Null if no set has one. Throws what the set throws.
  std::unique_ptr<Kernel> make(const KernelRequest& request) const;

 private:
  using Key = std::tuple<std::string, std::string, DType>;  // device, op, dtype
  struct Entry {
    std::shared_ptr<KernelSet> set;
    std::string owner;
  };
  std::map<Key, Entry> entries_;
  std::vector<std::string> added_;
};

/// Those of the process.
CONSIST_API KernelSets& kernel_sets();

}  // namespace consist
