#include "core/experts/force_routes.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "consist/builder.h"
#include "consist/error.h"
#include "consist/op.h"

namespace consist {
namespace {

constexpr std::size_t statistics_output = 2;

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

std::size_t router_of(const Program& forward, const Instruction& i) {
  const auto router = std::ranges::find(forward.routers, i.outputs.at(statistics_output), &Router::statistics);
  if (router == forward.routers.end()) throw ProgramError("a moe_route that is no router of the program cannot be forced");
  return static_cast<std::size_t>(router - forward.routers.begin());
}

}  // namespace

void force_routes(Program& forward, const SharesOfRouter& shares) {
  static const Op* const route = &registry().get("moe_route");
  const TensorId ids = forward.find("ids");
  for (Instruction& i : forward.instructions) {
    if (i.op != route) continue;
    const std::size_t router = router_of(forward, i);
    const std::int64_t experts = forward.routers[router].experts;
    const std::int64_t choices = i.attributes.integer("choices");
    const std::vector<float> intervals = intervals_of(shares(router, experts, choices), choices, router);
    const TensorId constant = Builder(forward).constant(
        "router." + std::to_string(router) + ".intervals", {static_cast<std::int64_t>(orders), 2, experts},
        [intervals](std::span<float> out) { std::ranges::copy(intervals, out.begin()); });
    i.attributes.set("router", static_cast<std::int64_t>(router));
    i.inputs = {i.inputs[0], ids, constant};
  }
}

}  // namespace consist
