// The notes at a run's start, and what a run that does not fit hears.
#pragma once

#include "core/training/run.h"

namespace consist::launch {

class RunAdviser {
 public:
  /// The host that has made the run's parts; it must outlive this.
  explicit RunAdviser(PluginHost& host) : host_(host) {}

  /// Notes about faster configurations that fit, the most useful first, at most two. At most a second is spent on them, or a
  /// tenth of what the run is predicted to take, whichever is less: a configuration that takes long to compile gets none (consist
  /// advise has the time). Of machines whose error is not known only gains of a tenth and more are said, and what bf16 products
  /// gain is measured on the device.
  std::vector<std::string> faster(const Plan& plan, const RunMemory& memory, double compile_seconds);
  /// Lines about configurations that fit; empty if none was found.
  std::string fitting(const Plan& plan, const RunMemory& memory);

 private:
  PluginHost& host_;
};

}  // namespace consist::launch
