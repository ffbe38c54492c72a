// The devices of this build, opened for one rank, for tests of their kernels.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "consist/device.h"
#include "consist/error.h"
#include "core/plugin/host.h"

namespace consist::test {

inline PluginHost& plugin_host() {
  static PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  return host;
}

/// Opened once per set of options and kept: a GPU takes a second. Throws UnavailableError where the device cannot work here.
inline std::shared_ptr<Device> device(const std::string& name, const std::map<std::string, std::string>& options) {
  static std::map<std::pair<std::string, std::map<std::string, std::string>>, std::shared_ptr<Device>> opened;
  std::shared_ptr<Device>& found = opened[{name, options}];
  if (!found) {
    std::shared_ptr<Device> made = plugin_host().make<Device>("device", name, options);
    made->open(0, 1);
    found = made;
  }
  return found;
}

/// Nothing is searched for or read from the user's cache.
inline const std::map<std::string, std::string> kCudaOptions{{"algorithm-search", "0"}, {"cache", "none"}};

/// The options that tests open a device of this name with.
inline const std::map<std::string, std::string>& options_of(const std::string& name) {
  static const std::map<std::string, std::string> none;
  return name == "cuda" ? kCudaOptions : none;
}

/// Tests on one device; where that cannot work here they are skipped, with the reason.
template <class Param>
class DeviceTest : public ::testing::TestWithParam<Param> {
 public:
  std::shared_ptr<Device> device_;

 protected:
  /// The last call of SetUp. `needed` is run on the device: what it throws says that this device cannot do it.
  void open_or_skip(const std::string& name, const std::map<std::string, std::string>& options,
                    const std::function<void()>& needed = {}) {
    try {
      device_ = device(name, options);
      if (needed) needed();
    } catch (const UnavailableError& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

/// Parameters of a test of kernels whose instances differ in these two alone.
struct DeviceAndDtype {
  std::string device;
  DType dtype;

  friend void PrintTo(const DeviceAndDtype& setup, std::ostream* out) { *out << setup.device << "_" << name_of(setup.dtype); }
};

inline std::vector<std::string> device_kinds() {
#ifdef CONSIST_HAS_CUDA_DEVICE
  return {"cpu", "cuda"};
#else
  return {"cpu"};
#endif
}

inline std::vector<DeviceAndDtype> devices_and_dtypes() {
  std::vector<DeviceAndDtype> all;
  for (const std::string& device : device_kinds()) all.insert(all.end(), {{device, DType::f32}, {device, DType::bf16}});
  return all;
}

}  // namespace consist::test
