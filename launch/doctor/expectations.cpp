#include "launch/doctor/expectations.h"

#include <algorithm>

#include "consist/error.h"
#include "consist/text.h"
#include "core/base/number.h"
#include "launch/doctor/facts.h"

namespace consist::doctor {
namespace {

constexpr struct {
  const char* thing;
  int (*count)(const Facts& facts);
  const char* remedy;
} counted[] = {
    {"gpus", [](const Facts& facts) { return visible_gpus(facts.gpus, facts.machine.variable("CUDA_VISIBLE_DEVICES")).count; },
     "see gpu-count and gpu-visible; the container or the job may have been given another number"},
    {"efa",
     [](const Facts& facts) {
       return static_cast<int>(
           std::count_if(facts.rdma.begin(), facts.rdma.end(), [](const RdmaDevice& device) { return device.is_of("efa"); }));
     },
     "look at the instance's interfaces, and at what the container is given (Kubernetes: vpc.amazonaws.com/efa)"},
    {"rdma",
     [](const Facts& facts) {
       return static_cast<int>(std::count_if(facts.rdma.begin(), facts.rdma.end(), [](const RdmaDevice& device) {
         return std::any_of(device.ports.begin(), device.ports.end(), [](const RdmaPort& port) { return port.active(); });
       }));
     },
     "see rdma-ports; the container may not be given all devices"},
    {"processors", [](const Facts& facts) { return facts.machine.processors; },
     "look at the process's affinity (taskset -p $$) and at what the job asks for (Slurm: --cpus-per-task)"},
};

}  // namespace

Expectation read_expectation(const std::string& text) {
  const std::size_t equals = text.find('=');
  Expectation expected{.thing = text.substr(0, equals), .count = -1};
  const bool known =
      std::any_of(std::begin(counted), std::end(counted), [&](const auto& row) { return row.thing == expected.thing; });
  if (!known || equals == std::string::npos || !parse_number(text.substr(equals + 1), expected.count) || expected.count < 0)
    throw UsageError("--expect is " + in_quotes(text) + "; it must be THING=COUNT, a thing being one of " + countable);
  return expected;
}

Finding compare_with(const Expectation& expected, const Facts& facts) {
  for (const auto& [thing, count, remedy] : counted) {
    if (thing != expected.thing) continue;
    const int here = count(facts);
    const std::string found = std::to_string(here);
    return here == expected.count ? ok(found) : wrong(found + " instead of " + std::to_string(expected.count), remedy);
  }
  return unknown("it is not counted");
}

}  // namespace consist::doctor
