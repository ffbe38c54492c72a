// Helpers that the suites of this folder share.
#pragma once

#include <cctype>
#include <string>

#include "core/compile/compile.h"
#include "core/plan/plan.h"
#include "core/plugin/host.h"
#include "core/plugin/kernel_sets.h"
#include "tests/conformance/candidates.h"
#include "tests/conformance/places.h"

namespace consist::testing {

/// With the ops and kernels of its plugins, which a model may use.
inline PluginHost& host() {
  static PluginHost host({});
  static const bool with_kernels = [] {
    kernel_sets().add(host, false);
    return true;
  }();
  static_cast<void>(with_kernels);
  return host;
}

/// The name of a test of that candidate.
template <typename Info>
std::string test_name(const Info& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name + std::to_string(info.index);
}

/// A step of a few tokens in that configuration, on one rank.
inline RunConfig tiny_config(const std::string& model, const std::string& precision) {
  RunConfig config;
  config.model = model;
  config.precision = precision;
  config.strategies = parse_strategies("ddp");
  config.batch = 2;
  config.sequence = 16;
  config.accumulation = 1;
  return config;
}

}  // namespace consist::testing
