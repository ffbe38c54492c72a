// Kernels that plugins bring for ops of their own on devices that exist already: the plugin kind "kernels".
//
// A device is asked for a kernel first, then the kernel sets. All of them that were found (--plugin,
// CONSIST_PLUGIN_PATH, the plugin folder) are loaded before a model is built, so that an op whose class lies in the same plugin
// (registry(), consist/op.h) is known by then. A set that was built with CUDA is loaded only where the device is "cuda": it
// brings kernels and no ops, which a plugin without CUDA registers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "consist/export.h"
#include "consist/kernel.h"
#include "consist/op.h"

namespace consist {

/// A device, an op and dtypes for which a set has kernels. Two sets with a key in common are an error that names both.
struct KernelKey {
  std::string device;         ///< kind of the device, as DeviceInfo::kind has it: "cpu", "cuda"
  std::string op;             ///< Op::name()
  std::vector<DType> dtypes;  ///< of the instruction's first operand: its first input that is there, else its first output
};

/// Operands with which an op can be tried: `consist check` does so.
struct KernelExample {
  std::string op;
  Types inputs;
  Attributes attributes;
};

/// The plugin kind "kernels". One object per process. THREADS: one; kernels are launched as consist/kernel.h says.
class CONSIST_API KernelSet {
 public:
  virtual ~KernelSet();
  /// The keys of this set: at least one, the same each time.
  virtual std::vector<KernelKey> keys() const = 0;
  /// The kernel for a request of one of keys(); null if it has none for the other operands. ERRORS: those of Device::make_kernel.
  virtual std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) = 0;
  /// At least one example for every op of keys().
  virtual std::vector<KernelExample> examples() const = 0;
};

}  // namespace consist
