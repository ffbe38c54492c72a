#include "core/experts/force_routes.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "consist/analysis.h"
#include "consist/builder.h"

namespace consist {
namespace {

/// Orders in which the experts' intervals lie, so that experts that lie together in one do not in others: each two meet at a
/// token about as often as by chance.
constexpr std::size_t orders = 16;

/// The numbers below `count`, shuffled: alike on all ranks and with all standard libraries.
std::vector<std::size_t> shuffled(std::size_t count, std::mt19937& random) {
  std::vector<std::size_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  for (std::size_t left = count; left > 1; --left) std::swap(numbers[left - 1], numbers[random() % left]);
  return numbers;
}

/// [orders, 2, experts]: upper ends of the experts' intervals of [0, choices), each as long as the expert's share times the
/// choices, and the experts that have them.
std::vector<float> intervals_of(const std::vector<double>& shares, std::int64_t choices, std::size_t router) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(router));
  std::vector<float> intervals;
  for (std::size_t n = 0; n < orders; ++n) {
    const std::vector<std::size_t> order = shuffled(shares.size(), random);
    double end = 0;
    for (const std::size_t expert : order)
      intervals.push_back(static_cast<float>(end += shares[expert] * static_cast<double>(choices)));
    for (const std::size_t expert : order) intervals.push_back(static_cast<float>(expert));
  }
  return intervals;
}

}  // namespace

void force_routes(Program& forward, const SharesOfRouter& shares) {
  const TensorId ids = forward.find("ids");
  const DefUse def_use(forward);
  for (std::size_t router = 0; router < forward.routers.size(); ++router) {
    Instruction& route = forward.instructions[static_cast<std::size_t>(def_use.producer(forward.routers[router].statistics))];
    const std::int64_t experts = forward.routers[router].experts, choices = route.attributes.integer("choices");
    const std::vector<float> intervals = intervals_of(shares(router, experts, choices), choices, router);
    const TensorId constant = Builder(forward).constant(
        "router." + std::to_string(router) + ".intervals", {static_cast<std::int64_t>(orders), 2, experts},
        [intervals](std::span<float> out) { std::ranges::copy(intervals, out.begin()); });
    route.attributes.set("router", static_cast<std::int64_t>(router));
    route.inputs.resize(std::max<std::size_t>(route.inputs.size(), 3), no_tensor);  // a bias behind them stays
    route.inputs[1] = ids;
    route.inputs[2] = constant;
  }
}

}  // namespace consist
