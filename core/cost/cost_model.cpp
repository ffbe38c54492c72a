#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "consist/cost.h"
#include "consist/error.h"
#include "consist/op.h"
#include "core/cost/attention_calls.h"
#include "core/program/operands.h"

namespace consist {
namespace {

constexpr std::string_view any = "*";

std::size_t type_class(DType operand) {
  if (operand == DType::f32) return 0;
  return size_of(operand) == 1 ? 2 : 1;
}
constexpr std::string_view class_names[] = {"fp32", "bf16", "fp8"};

/// Costs are compared by their logarithms; what costs no FLOPs, or moves no bytes, is at 0.
double log_of(double cost) {
  return cost > 1 ? std::log(cost) : 0;
}

constexpr std::size_t neighbours = 4;  // from which an unmeasured instruction's time is estimated

}  // namespace

double DeviceRates::peak(DType operand) const {
  if (operand == DType::f32) return peak_fp32.value;
  return size_of(operand) == 1 && peak_fp8.value > 0 ? peak_fp8.value : peak_bf16.value;
}

double seconds_of(const LinkRates::Curve& curve, double bytes, int members) {
  double from_bytes = 0, from_seconds = curve.latency;
  double seconds = 0;
  for (std::size_t p = 0; p < curve.rates.size(); ++p) {
    const LinkRates::Point& point = curve.rates[p];
    const double here = point.bytes / point.rate;
    if (bytes <= point.bytes) {
      seconds = from_seconds + (here - from_seconds) * (bytes - from_bytes) / (point.bytes - from_bytes);
      break;
    }
    from_bytes = point.bytes;
    from_seconds = here;
    if (p + 1 == curve.rates.size()) seconds = here + (bytes - point.bytes) / point.rate;
  }
  // The rest of a ring's steps, or fewer of them.
  const double steps = static_cast<double>(members - 1) / static_cast<double>(std::max(1, curve.members - 1));
  return seconds + curve.latency * (steps - 1);
}

double CostModel::Shares::at(double flops) const {
  if (points.size() == 1 || flops <= 0) return points.front().second;
  const double x = std::log(flops);
  const auto above = std::find_if(points.begin(), points.end(), [&](const auto& point) { return x < point.first; });
  if (above == points.begin()) return points.front().second;
  if (above == points.end()) return points.back().second;
  const auto below = std::prev(above);
  return below->second + (above->second - below->second) * (x - below->first) / (above->first - below->first);
}

CostModel::SharesByType CostModel::shares_of(std::string_view op) const {
  SharesByType shares;
  for (std::size_t type = 0; type < shares.size(); ++type) {
    // The most specific figure is taken: of this op and type, else of this op, else of this type, else of all.
    for (const auto& [of_op, of_type] : {std::pair{op, class_names[type]}, {op, any}, {any, class_names[type]}, {any, any}}) {
      for (const DeviceRates::Reached& reached : machine_->device.reached) {
        if (reached.op == of_op && reached.dtype == of_type)
          shares[type].points.emplace_back(reached.flops > 0 ? std::log(reached.flops) : 0, reached.share.value);
      }
      if (!shares[type].points.empty()) break;
    }
    if (shares[type].points.empty())
      throw UsageError("machine '" + machine_->name + "' does not say what ops reach in " + std::string(class_names[type]));
    std::sort(shares[type].points.begin(), shares[type].points.end());
  }
  return shares;
}

CostModel::Curves CostModel::curves_of(const LinkRates& links) {
  Curves curves;
  for (const LinkRates::Curve& curve : links.curves) {
    if (const Op* op = curve.op == any ? nullptr : registry().find(curve.op); op != nullptr || curve.op == any)
      curves.emplace_back(op, &curve);
  }
  return curves;
}

const TransportLinks* Machine::find_transport(std::string_view transport) const {
  const auto found = std::find_if(transports.begin(), transports.end(),
                                  [&](const TransportLinks& links) { return links.transport == transport; });
  return found == transports.end() ? nullptr : &*found;
}

void CostModel::add_links(const std::string& transport) {
  if (std::any_of(links_.begin(), links_.end(), [&](const Links& known) { return known.transport == transport; })) return;
  Links links{transport, &machine_->node, &machine_->network};
  if (!transport.empty()) {
    const TransportLinks* known = machine_->find_transport(transport);
    links.knows_node = known != nullptr && known->node.has_value();
    links.knows_network = known != nullptr && known->network.has_value();
    if (links.knows_node) links.node = &*known->node;
    if (links.knows_network) links.network = &*known->network;
  }
  links.node_curves = curves_of(*links.node);
  links.network_curves = curves_of(*links.network);
  links_.push_back(std::move(links));
}

const CostModel::Links& CostModel::links_of(const std::string& transport) const {
  return *std::find_if(links_.begin(), links_.end(), [&](const Links& known) { return known.transport == transport; });
}

CostModel::CostModel(std::shared_ptr<const Machine> machine, const Mesh& mesh, std::vector<AxisTransports> transports)
    : machine_(std::move(machine)), transports_(std::move(transports)), mesh_(mesh) {
  transports_.resize(static_cast<std::size_t>(mesh.axes()));
  add_links("");
  for (const AxisTransports& of_axis : transports_) {
    add_links(of_axis.within);
    add_links(of_axis.across);
  }
  for (int axis = 0; axis < mesh_.axes(); ++axis) {
    if (groups_of(axis).crosses) crossing_ |= axis;
  }

  std::set<std::string> named;
  for (const DeviceRates::Reached& reached : machine_->device.reached) named.insert(reached.op);
  for (const std::string& name : named) {
    if (const Op* op = registry().find(name)) shares_.emplace_back(op, shares_of(name));
  }
  shares_.emplace_back(nullptr, shares_of(any));

  for (const DeviceRates::OpTimes& times : machine_->device.times) {
    const Op* op = registry().find(times.op);
    if (op == nullptr) continue;  // of a plugin that is not loaded
    Measured measured{op, times.dtype, times.depth, times.demand, {}};
    for (const DeviceRates::OpTimes::Point& point : times.points) {
      const double bound = bound_seconds(times.dtype, point.flops, point.bytes);
      measured.points.push_back(
          {log_of(point.flops), log_of(point.bytes), std::log(point.seconds / bound), point.load, point.scratch});
    }
    measured_.push_back(std::move(measured));
  }

  const int copying = std::min(mesh.ranks(), machine_->ranks_per_node);
  host_rate_ = (copying > 1 ? machine_->host_shared : machine_->host_alone).value;
  if (copying > 1 && copying < machine_->host_shared_ranks)
    host_rate_ = std::min(machine_->host_alone.value, host_rate_ * machine_->host_shared_ranks / copying);
}

CostModel::Groups CostModel::groups_over(AxisSet axes) const {
  const std::lock_guard lock(known_->mutex);
  const auto known = known_->of_axes.find(axes);
  if (known != known_->of_axes.end()) return known->second;
  Groups groups = groups_of(axes);
  if (const std::vector<std::string> names = transports_over(axes, groups.crosses); !names.empty())
    groups.links = static_cast<std::size_t>(&links_of(names.front()) - links_.data());
  return known_->of_axes.emplace(axes, groups).first->second;
}

std::vector<std::string> CostModel::transports_over(AxisSet axes, bool several_nodes) const {
  std::vector<std::string> names;
  for (const int axis : axes) {
    if (several_nodes && !crossing_.contains(axis)) continue;
    const AxisTransports& of_axis = transports_.at(static_cast<std::size_t>(axis));
    const std::string& name = several_nodes ? of_axis.across : of_axis.within;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

const std::string& CostModel::transport(AxisSet axes, std::span<const int> group) const {
  const auto node = [&](int rank) { return rank / machine_->ranks_per_node; };
  const bool several = std::any_of(group.begin(), group.end(), [&](int rank) { return node(rank) != node(group.front()); });
  const std::vector<std::string> names = transports_over(axes, several);
  return names.empty() ? links_.front().transport : links_of(names.front()).transport;
}

CostModel::Groups CostModel::groups_of(AxisSet axes) const {
  Groups here;
  here.members = here.together = mesh_.size_of(axes);
  const int ranks = mesh_.ranks(), per_node = machine_->ranks_per_node;
  for (int rank = 0; rank < ranks; ++rank) {
    if (mesh_.coordinate(rank, axes) != 0) continue;
    int last_node = -1, together = 0;
    // In a group ranks rise, so that those of a node follow one another.
    for (int member : mesh_.group(rank, axes)) {
      if (member / per_node != last_node) {
        if (last_node >= 0) here.together = std::min(here.together, together);
        here.crosses = here.crosses || last_node >= 0;
        last_node = member / per_node;
        together = 0;
      }
      ++together;
    }
    here.together = std::min(here.together, together);
  }
  return here;
}

double CostModel::bound_seconds(DType operand, double flops, double bytes) const {
  const DeviceRates& device = machine_->device;
  return std::max(flops / device.peak(operand), bytes / device.memory_rate.value) + device.kernel_seconds.value;
}

/// The op at whose rates one runs that was not measured itself: attention in parts, and log-probabilities of a head, which are
/// made by the products and softmaxes of its loss.
static const Op* rated_as(const Op* op) {
  static const std::pair<const Op*, const Op*> alike[] = {
      {registry().find("attention_part"), registry().find("attention")},
      {registry().find("attention_part_grad"), registry().find("attention_grad")},
      {registry().find("lm_head_log_probability"), registry().find("lm_head_loss_grad")},
      {registry().find("lm_head_log_probability_grad"), registry().find("lm_head_loss_grad")}};
  const auto* const found = std::ranges::find(alike, op, &std::pair<const Op*, const Op*>::first);
  return found == std::end(alike) ? op : found->second;
}

const CostModel::Measured* CostModel::measured(const Op* of, DType operand, int depth) const {
  const auto nearest_of = [&](const Op* op) {
    const Measured* nearest = nullptr;
    double distance = 0;
    for (const Measured& m : measured_) {
      if (m.op != op || m.dtype != operand) continue;
      const double here = std::abs(log_of(m.depth) - log_of(depth));
      if (nearest != nullptr && here >= distance) continue;
      nearest = &m;
      distance = here;
    }
    return nearest;
  };
  const Measured* const own = nearest_of(of);
  return own != nullptr ? own : nearest_of(rated_as(of));
}

CostModel::Measured::Point CostModel::Measured::at(double cost_flops, double cost_bytes) const {
  const double flops = log_of(cost_flops), bytes = log_of(cost_bytes);
  std::array<std::pair<double, const Point*>, neighbours> nearest;  // square of the distance
  std::size_t found = 0;
  for (const Point& point : points) {
    const double by_flops = point.flops - flops, by_bytes = point.bytes - bytes;
    std::pair<double, const Point*> here{by_flops * by_flops + by_bytes * by_bytes, &point};
    for (std::size_t n = 0; n < found; ++n) {
      if (here.first < nearest[n].first) std::swap(here, nearest[n]);
    }
    if (found < nearest.size()) nearest[found++] = here;
  }
  constexpr double same = 1e-12;
  if (nearest[0].first < same) return *nearest[0].second;
  Point mean{.flops = flops, .bytes = bytes};
  double weights = 0;
  for (std::size_t n = 0; n < found; ++n) weights += 1 / nearest[n].first;
  for (std::size_t n = 0; n < found; ++n) {
    const auto& [distance, point] = nearest[n];
    const double weight = 1 / distance / weights;
    mean.ratio += weight * point->ratio;
    mean.load += weight * point->load;
    mean.scratch += weight * point->scratch;
  }
  return mean;
}

double CostModel::flops_rate(const Program& program, const Instruction& instruction, double flops) const {
  const DType operand = program[first_operand(instruction)].dtype;
  const auto of_op = [&](const Op* op) {
    auto shares = shares_.begin();
    while (shares->first != nullptr && shares->first != op) ++shares;
    return shares;
  };
  auto shares = of_op(instruction.op);
  if (shares->first == nullptr) shares = of_op(rated_as(instruction.op));
  return shares->second[type_class(operand)].at(flops) * machine_->device.peak(operand) * machine_->device.sustained_clock.value;
}

double CostModel::seconds(const Program& program, const Instruction& instruction) const {
  if (instruction.op->is_collective()) {
    const AxisSet axes = instruction.attributes.axes("axis");
    const std::int64_t bytes = message_bytes(program, instruction);
    if (instruction.queue.is_communication() && instruction.queue.lane() != Lane::collective)
      return message_seconds(static_cast<double>(bytes), axes);
    const std::int64_t sent = instruction.op->bytes_sent(bytes, program.mesh.size_of(axes));
    return transfer_seconds(*instruction.op, static_cast<double>(sent), axes);
  }
  // Once, what it writes: a copy to memory that is there already has that among its inputs.
  if (instruction.queue.is_copy()) return static_cast<double>(program.bytes(instruction.outputs[0])) / host_rate_;
  return timed(program, instruction).seconds;
}

CostModel::Timed CostModel::timed(const Program& program, const Instruction& instruction) const {
  if (!instruction.op->touches_memory() || first_operand(instruction) == no_tensor) return {};
  const Cost cost = instruction.op->cost(program, instruction);
  const DType operand = program[first_operand(instruction)].dtype;
  const Measured* const of_op = measured(instruction.op, operand, cost.depth);
  const auto of_cost = [&](double flops, double bytes) -> Timed {
    if (of_op != nullptr) {
      const Measured::Point point = of_op->at(flops, bytes);
      return {bound_seconds(operand, flops, bytes) * std::exp(point.ratio), of_op->demand, point.load,
              flops > 0 ? 1 : machine_->device.throttling.memory_bound.value};
    }
    const double moving = bytes / machine_->device.memory_rate.value;
    const double working = flops > 0 ? std::max(moving, flops / flops_rate(program, instruction, flops)) : moving;
    return {.seconds = working + machine_->device.kernel_seconds.value};
  };
  if (machine_->device_kind != "cuda") return of_cost(cost.flops, cost.bytes);
  Timed slowest;  // of the ranks, which wait for each other
  for (const AttentionCalls& of_rank : attention_calls(program, instruction)) {
    Timed sum{.seconds = of_rank.moved > 0 ? moving_seconds(of_rank.moved) : 0};
    for (const AttentionCall& call : of_rank.calls) {
      const Timed one = of_cost(call.flops, call.bytes);
      sum = {sum.seconds + one.seconds, one.demand, sum.load + one.load / static_cast<double>(of_rank.calls.size()),
             one.sensitivity};
    }
    if (sum.seconds > slowest.seconds) slowest = sum;
  }
  return slowest.seconds > 0 ? slowest : of_cost(cost.flops, cost.bytes);
}

double CostModel::compute_seconds(const Program& program, const Instruction& instruction) const {
  return instruction.queue == Queue::compute() ? seconds(program, instruction) : 0;
}

double CostModel::moving_seconds(double bytes) const {
  return bytes / machine_->device.memory_rate.value + machine_->device.kernel_seconds.value;
}

double CostModel::over(const Curves& curves, const Op& op, double bytes, int members) {
  const LinkRates::Curve* nearest = nullptr;
  bool own = false;
  double distance = 0;  // between numbers of members, as a ratio
  for (const auto& [of, curve] : curves) {
    if (of != nullptr ? of != &op : own) continue;
    const auto [fewer, more] = std::minmax(members, curve->members);
    const double ratio = static_cast<double>(more) / std::max(1, fewer);
    const bool first_own = of != nullptr && !own;
    if (nearest != nullptr && !first_own && ratio >= distance) continue;
    nearest = curve;
    distance = ratio;
    own = of != nullptr;
  }
  return seconds_of(*nearest, bytes, members);
}

double CostModel::transfer_seconds(const Op& collective, double bytes, AxisSet axes, Beside beside) const {
  const Groups over_axes = groups_over(axes);
  const Links& links = links_over(axes);
  const auto share_of = [&](const LinkRates& rates) { return beside == Beside::compute ? rates.beside_compute.value : 1; };
  const double inside = over(links.node_curves, collective, bytes, over_axes.members) / share_of(*links.node);
  if (!over_axes.crosses) return inside;
  const double outside =
      over(links.network_curves, collective, bytes / over_axes.together, over_axes.members) / share_of(*links.network);
  return over_axes.together == 1 ? outside : std::max(outside, inside);
}

double CostModel::message_seconds(double bytes, AxisSet axes) const {
  static const Op& send = registry().get("send");
  const Links& links = links_over(axes);
  return over(crosses_nodes(axes) ? links.network_curves : links.node_curves, send, bytes, 2);
}

const CostModel& costs_of(const Program& program) {
  if (!program.costs)
    throw ProgramError(
        "the program was made without a machine that it is planned for; compile_step() names one (Program::costs)");
  return *program.costs;
}

}  // namespace consist
