#include "core/plugin/kernel_sets.h"

#include <algorithm>

#include "consist/error.h"
#include "core/plugin/host.h"

namespace consist {

KernelSet::~KernelSet() = default;

namespace {

/// The dtype of an instruction's first operand.
DType dtype_of(const KernelRequest& request) {
  for (const auto& buffers : {request.inputs, request.outputs}) {
    for (const Buffer& buffer : buffers) {
      if (!buffer.absent()) return buffer.dtype;
    }
  }
  return DType::u8;
}

}  // namespace

void KernelSets::add(PluginHost& host, bool with_cuda) {
  for (const std::string& name : host.names("kernels")) {
    const PluginFile& file = host.find("kernels", name);
    const std::string owner = "kernels '" + name + "' (" + file.path.string() + ")";
    if (file.with_cuda != with_cuda || std::find(added_.begin(), added_.end(), owner) != added_.end()) continue;
    add(host.make<KernelSet>("kernels", name, {}), owner);
  }
}

void KernelSets::add(std::shared_ptr<KernelSet> set, const std::string& owner) {
  std::map<Key, Entry> made;
  for (const KernelKey& key : set->keys()) {
    for (const DType dtype : key.dtypes) {
      const auto [entry, added] = made.try_emplace({key.device, key.op, dtype}, Entry{set, owner});
      const auto other = added ? entries_.find(entry->first) : entry;
      if (added && other == entries_.end()) continue;
      throw UsageError("both " + other->second.owner + " and " + owner + " bring a kernel for op '" + key.op + "' of " +
                       std::string(name_of(dtype)) + " on device '" + key.device +
                       "'; remove one of them or change the search path");
    }
  }
  entries_.merge(made);
  added_.push_back(owner);
}

std::unique_ptr<Kernel> KernelSets::make(const KernelRequest& request) const {
  const auto entry = entries_.find({std::string(request.device), std::string(request.op), dtype_of(request)});
  return entry == entries_.end() ? nullptr : entry->second.set->make_kernel(request);
}

KernelSets& kernel_sets() {
  static auto* const sets = new KernelSets;  // kernels of a plugin may outlive everything
  return *sets;
}

}  // namespace consist
