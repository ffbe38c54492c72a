#include "launch/tune/space.h"

#include <algorithm>

namespace consist::launch {
namespace {

std::vector<int> divisors(int number) {
  std::vector<int> all;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) all.push_back(d);
  }
  return all;
}

}  // namespace

std::vector<LayoutChoice> layouts(const RunConfig& config, const ModelSizes& sizes, int ranks_per_node) {
  std::vector<LayoutChoice> all;
  for (const int tensor : divisors(config.ranks)) {
    if (tensor > ranks_per_node || sizes.kv_heads % tensor != 0) continue;
    for (const int stages : divisors(config.ranks / tensor)) {
      if (stages > sizes.layers) continue;
      const int data = config.ranks / tensor / stages;
      std::string rest;
      if (tensor > 1) rest += "tp-sp=" + std::to_string(tensor);
      if (stages > 1) rest += (rest.empty() ? "pipeline=" : "+pipeline=") + std::to_string(stages);
      if (data == 1) {
        all.push_back({rest.empty() ? "ddp" : rest, tensor, stages, data});
        continue;
      }
      for (const char* over_data : {"ddp", "zero2", "zero3-offload"})
        all.push_back({rest.empty() ? over_data : rest + "+" + over_data, tensor, stages, data});
    }
  }
  return all;
}

std::vector<std::int64_t> micro_batches(std::int64_t sequences, int stages) {
  constexpr std::int64_t largest = 64;
  std::vector<std::int64_t> all;
  for (std::int64_t batch = std::min(sequences, largest); batch >= 1; --batch) {
    if (sequences % batch != 0) continue;
    if (stages > 1 && sequences / batch < std::min<std::int64_t>(stages, sequences)) continue;
    all.push_back(batch);
  }
  return all;
}

std::vector<Choices> strategy_options(const LayoutChoice& layout) {
  std::vector<Choices> all{{}};
  if (layout.stages > 1) {
    all.push_back({{"pipeline.schedule", "interleaved"}});
    all.push_back({{"pipeline.schedule", "zero-bubble"}});
    all.push_back({{"pipeline.schedule", "zero-bubble-h2"}});
  }
  return all;
}

}  // namespace consist::launch
