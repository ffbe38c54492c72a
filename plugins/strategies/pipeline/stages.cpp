#include "plugins/strategies/pipeline/stages.h"

#include <algorithm>
#include <limits>
#include <string>

#include "consist/error.h"
#include "consist/op.h"

namespace consist::pipeline {
namespace {

/// Matrix work that takes a device as long as moving one byte does; that of current GPUs in bf16 lies between 100 and 300. Layers are
/// mostly matrix work, so that the value decides little.
constexpr double flops_per_byte = 150;

double cost_of(const Program& program, const Instruction& i) {
  const Cost cost = i.op->cost(program, i);
  return std::max(cost.flops, cost.bytes * flops_per_byte);
}

}  // namespace

std::vector<int> balanced(const std::vector<double>& costs, int parts) {
  struct Best {
    double largest = std::numeric_limits<double>::infinity(), squares = 0;
    std::size_t cut = 0;  // where the last group begins
    bool operator<(const Best& other) const {
      return largest != other.largest ? largest < other.largest : squares < other.squares;
    }
  };
  const std::size_t n = costs.size();
  std::vector<double> before(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) before[i + 1] = before[i] + costs[i];
  std::vector<std::vector<Best>> best(static_cast<std::size_t>(parts) + 1, std::vector<Best>(n + 1));
  best[0][0].largest = 0;
  for (std::size_t p = 1; p < best.size(); ++p) {
    for (std::size_t end = p; end <= n; ++end) {
      for (std::size_t cut = p - 1; cut < end; ++cut) {
        const Best& rest = best[p - 1][cut];
        const double sum = before[end] - before[cut];
        best[p][end] = std::min(best[p][end], Best{std::max(rest.largest, sum), rest.squares + sum * sum, cut});
      }
    }
  }
  std::vector<int> group(n, 0);
  for (std::size_t p = best.size() - 1, end = n; p > 0; --p) {
    const std::size_t cut = best[p][end].cut;
    std::fill(group.begin() + static_cast<std::ptrdiff_t>(cut), group.begin() + static_cast<std::ptrdiff_t>(end), static_cast<int>(p) - 1);
    end = cut;
  }
  return group;
}

void assign_stages(Program& forward, int stages) {
  std::int16_t layers = 0;
  for (const Instruction& i : forward.instructions) layers = std::max(layers, static_cast<std::int16_t>(i.tag.layer + 1));
  if (layers < stages) {
    throw UsageError("strategy 'pipeline' would cut the model into " + std::to_string(stages) + " stages, but it has " +
                     std::to_string(layers) + " layers, and every stage needs one; choose fewer ranks or chunks");
  }
  std::vector<double> costs(static_cast<std::size_t>(layers), 0);
  std::vector<std::int16_t> layer_of;  // by instruction; those outside of layers go with the first or the last one
  std::int16_t newest = 0;
  for (const Instruction& i : forward.instructions) {
    if (i.tag.layer >= 0) newest = i.tag.layer;
    layer_of.push_back(newest);
    costs[static_cast<std::size_t>(newest)] += cost_of(forward, i);
  }
  const std::vector<int> stage_of = balanced(costs, stages);
  for (std::size_t i = 0; i < layer_of.size(); ++i) {
    forward.instructions[i].tag.stage = static_cast<std::int16_t>(stage_of[static_cast<std::size_t>(layer_of[i])]);
  }
}

}  // namespace consist::pipeline
