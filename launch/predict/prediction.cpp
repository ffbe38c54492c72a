#include "launch/predict/prediction.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "consist/cost.h"
#include "consist/op.h"
#include "consist/text.h"
#include "core/base/quantity_text.h"
#include "core/base/split.h"
#include "core/config/price.h"
#include "core/plan/machine_choice.h"
#include "core/record/metrics.h"
#include "core/state/training_state.h"
#include "launch/cli/json_values.h"

namespace consist::launch {

std::string without_numbers(const std::string& name) {
  std::string text;
  for (const std::string_view part : split(name, '.')) {
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (!text.empty()) text += '.';
    text += number ? "*" : part;
  }
  return text;
}

namespace {

constexpr std::size_t path_items = 10;

std::string label_of(const Program& program, const Instruction& i) {
  for (const TensorId output : i.outputs) {
    if (output != no_tensor) return std::string(i.op->name()) + " " + without_numbers(program[output].name);
  }
  return std::string(i.op->name());
}

/// From the last instruction back: each began when the latest of those before it, on its queue or that it waits for, was over.
std::vector<PathItem> path_of(const Program& program, const SimulatedRank& rank) {
  const std::size_t count = program.instructions.size();
  std::vector<InstructionId> before(count, -1);
  std::map<Queue, InstructionId> newest;
  InstructionId last = -1;
  const auto end_of = [&](InstructionId i) { return rank.times[static_cast<std::size_t>(i)].end; };
  for (std::size_t n = 0; n < count; ++n) {
    const Instruction& i = program.instructions[n];
    const auto [queue, is_first] = newest.try_emplace(i.queue, static_cast<InstructionId>(n));
    if (!is_first) before[n] = std::exchange(queue->second, static_cast<InstructionId>(n));
    for (const InstructionId waited : i.waits) {
      if (before[n] < 0 || end_of(waited) > end_of(before[n])) before[n] = waited;
    }
    if (last < 0 || end_of(static_cast<InstructionId>(n)) >= end_of(last)) last = static_cast<InstructionId>(n);
  }
  std::map<std::string, PathItem> items;
  for (InstructionId i = last; i >= 0; i = before[static_cast<std::size_t>(i)]) {
    const Instruction& instruction = program.instructions[static_cast<std::size_t>(i)];
    const double seconds = rank.times[static_cast<std::size_t>(i)].seconds();
    if (seconds <= 0) continue;
    PathItem& item = items[label_of(program, instruction)];
    ++item.instructions;
    item.seconds += seconds;
  }
  std::vector<PathItem> all;
  for (auto& [label, item] : items) {
    item.label = label;
    all.push_back(item);
  }
  std::stable_sort(all.begin(), all.end(), [](const PathItem& a, const PathItem& b) { return a.seconds > b.seconds; });
  if (all.size() > path_items) all.resize(path_items);
  return all;
}

std::string milliseconds(double seconds) {
  return milliseconds_text(seconds, seconds < 0.1 ? 2 : 1);
}

/// Bytes that the ranks of a plan write in a checkpoint, each value once.
std::int64_t checkpoint_bytes_of(const std::vector<PlannedRank>& stages, const Layout& layout) {
  std::int64_t bytes = 0;
  std::set<std::string> counted;
  for (const PlannedRank& stage : stages) {
    const Program& program = stage.step->program();
    for (const TrainingState::Value& value : TrainingState::values_of(program, stage.rank)) {
      const std::int64_t of_value = value.shape.elements() * static_cast<std::int64_t>(size_of(value.dtype));
      const std::int64_t ranks = layout.mesh.ranks() / static_cast<std::int64_t>(stages.size());
      if (value.kind == StateKind::per_rank) {
        bytes += of_value * ranks;
      } else if (value.saved_here && counted.insert(value.name).second) {
        bytes += of_value;
      }
    }
  }
  return bytes;
}

}  // namespace

double peak_of(const Plan& plan) {
  const DeviceRates& device = plan.target().machine->device;
  const std::string_view peak = plan.parts().precision->peak();
  return device.peak(peak == "fp8" ? DType::e4m3 : peak == "bf16" ? DType::bf16 : DType::f32);
}

std::int64_t Prediction::most_bytes() const {
  std::int64_t most = 0;
  for (const RankMemory& of_rank : memory) most = std::max(most, of_rank.bytes);
  return most;
}

Prediction predict(const Plan& plan, int threads) {
  const std::vector<PlannedRank> ranks = plan.ranks(0, threads, false);
  return predict(plan, ranks, simulate(ranks));
}

Prediction predict(const Plan& plan, const std::vector<PlannedRank>& ranks, const Simulation& simulation) {
  const RunConfig& config = plan.config();
  const Machine& machine = *plan.target().machine;
  Prediction p{.machine = machine.name,
               .time = step_time(programs_of(ranks), simulation),
               .capacity = static_cast<std::int64_t>(machine.device.memory_bytes.value)};
  p.time.error = error_bar(step_errors_for(config.machine, machine), programs_of(ranks));
  const auto tokens = static_cast<double>(config.global_batch * config.sequence);
  p.tokens_per_second = tokens / p.time.seconds;
  p.model_flops =
      p.tokens_per_second * trained_flops_per_token(*plan.parts().architecture, config.sequence, config.freeze) / config.ranks;
  p.model_flops_utilization = p.model_flops / peak_of(plan);

  std::size_t busiest = 0;
  for (std::size_t s = 0; s < ranks.size(); ++s) {
    p.memory.push_back({ranks[s].rank, config.ranks / static_cast<int>(ranks.size()), ranks[s].step->memory().bytes[0],
                        ranks[s].step->memory().bytes[1]});
    if (simulation.ranks[s].busy > simulation.ranks[busiest].busy) busiest = s;
  }
  p.path = path_of(ranks[busiest].step->program(), simulation.ranks[busiest]);
  p.links = links_of(plan);
  p.transports = chosen_transports(plan);
  p.checkpoint_bytes = checkpoint_bytes_of(ranks, plan.layout());
  return p;
}

double joules_of(const Prediction& p, const Power& power, int ranks) {
  return ranks * joules_of(power, p.time.seconds, p.time.work);
}

Costs costs_of(const Prediction& p, const Plan& plan, const Power& power) {
  const std::string& machine = plan.target().machine->name;
  const int ranks = plan.config().ranks;
  return costs_of(ranks, p.tokens_per_second, Price(plan.config().price).of(machine.substr(0, machine.find(',')), ""),
                  power.is_known() ? std::optional(joules_of(p, power, ranks) / p.time.seconds / ranks) : std::nullopt);
}

namespace {

/// Lines of money and energy: those of which something is known, and what was asked for.
std::string costs_text(const Prediction& p, const Plan& plan, const Power& power) {
  const Costs costs = costs_of(p, plan, power);
  std::string text;
  if (costs.per_billion_tokens) {
    text += "cost       " + price_text(*costs.per_billion_tokens) + " per billion tokens, " + price_text(*costs.per_hour) +
            " an hour" + (power.is_known() ? "" : "; energy is not known: the machine's file has no power") + "\n";
  } else if (!plan.config().price.empty()) {
    text += "cost       --price has none for " + plan.target().machine->name + "\n";
  }
  if (power.is_known())
    text += "energy     " + si_text(*costs.joules_per_billion_tokens) + "J per billion tokens, " + fixed_text(*costs.watts, 0) +
            " W a device; " + origin_of(power) + "\n";
  return text;
}

}  // namespace

std::string scope_text(const std::string& machine) {
  return "Predicted for Consist's own programs and kernels on a machine with the figures of " + machine +
         "; other trainers' speeds are not (docs/predict.md).\n";
}

std::string text_of(const Prediction& p, const Plan& plan, const Power& power) {
  const Machine& machine = *plan.target().machine;
  const auto share = [&](double seconds) { return percent_text(seconds / p.time.seconds, 1); };
  std::string text = "step       " + milliseconds(p.time.seconds);
  if (const std::optional<double> low = p.time.low())
    text += " (" + milliseconds(*low) + " to " + milliseconds(*p.time.high()) + ")";
  text += ", predicted for " + machine.name + ", not measured\nerror      " + text_of(p.time.error) + "\n";
  text += "tokens/s   " + si_text(p.tokens_per_second) + ", " + si_text(p.tokens_per_second / plan.config().ranks) +
          " per rank\nMFU        " + percent_text(p.model_flops_utilization, 1) + " (" + si_text(p.model_flops) +
          "FLOP/s per rank)\n";
  text += costs_text(p, plan, power);
  for (const RankMemory& m : p.memory) {
    text += "memory     rank " + std::to_string(m.rank) +
            (m.ranks > 1 ? " and " + std::to_string(m.ranks - 1) + " like it" : std::string()) + ": " + bytes_text(m.bytes);
    if (p.capacity > 0) text += " of " + bytes_text(p.capacity);
    if (m.host_bytes > 0) text += ", " + bytes_text(m.host_bytes) + " on the host";
    text += "\n";
  }
  text += "time       " + shares_text(p.time) + "\n";
  if (const std::string links = text_of(p.links); !links.empty()) text += "links      " + links + "\n";
  text += unknown_text(p.links) + "Critical path, by op:\n";
  for (const PathItem& item : p.path) {
    char line[200];
    std::snprintf(line, sizeof line, "  %10s %6s %5d x ", milliseconds(item.seconds).c_str(), share(item.seconds).c_str(),
                  item.instructions);
    text += line + item.label + "\n";
  }
  return text + scope_text(machine.name);
}

namespace {

using Json = nlohmann::ordered_json;

Json seconds_json(const Prediction& p) {
  return {{"value", p.time.seconds}, {"low", known(p.time.low())}, {"high", known(p.time.high())}};
}

Json error_json(const ErrorBar& bar) {
  Json json{{"value", known(bar.value)}, {"why", bar.value ? Json() : Json(why_unknown(bar))}, {"kinds", Json::array()}};
  for (const StepError& kind : bar.kinds)
    json["kinds"].push_back(
        {{"kind", kind.kind}, {"value", kind.steps > 0 ? Json(kind.error.value) : Json()}, {"steps", kind.steps}});
  return json;
}

}  // namespace

Json json_of(const Prediction& p, const Plan& plan, const Power& power) {
  const Costs costs = costs_of(p, plan, power);
  nlohmann::ordered_json json{{"version", 1},
                              {"machine", plan.target().machine->name},
                              {"ranks", plan.config().ranks},
                              {"step_seconds", seconds_json(p)},
                              {"step_error", error_json(p.time.error)},
                              {"tokens_per_second", p.tokens_per_second},
                              {"cost_per_billion_tokens", known(costs.per_billion_tokens)},
                              {"joules_per_billion_tokens", known(costs.joules_per_billion_tokens)},
                              {"device_watts", known(costs.watts)},
                              {"energy_origin", power.is_known() ? Json(origin_of(power)) : Json()},
                              {"model_flops_per_second_and_rank", p.model_flops},
                              {"model_flops_utilization", p.model_flops_utilization},
                              {"fits", p.fits()},
                              {"capacity_bytes", p.capacity}};
  for (const RankMemory& m : p.memory)
    json["memory"].push_back({{"rank", m.rank}, {"ranks", m.ranks}, {"device_bytes", m.bytes}, {"host_bytes", m.host_bytes}});
  json["seconds"] = json_of(p.time);
  json["seconds"].erase("copies");  // of archives; here they have another name
  json["seconds"]["host"] = p.time.copies;
  json["links"] = Json::array();
  for (const AxisLinks& links : p.links) {
    json["links"].push_back({{"axis", links.axis},
                             {"transport", links.transport},
                             {"automatic", links.is_automatic},
                             {"crosses_nodes", links.crosses_nodes},
                             {"known", links.unknown.empty()}});
  }
  for (const PathItem& item : p.path)
    json["critical_path"].push_back({{"op", item.label}, {"instructions", item.instructions}, {"seconds", item.seconds}});
  return json;
}

}  // namespace consist::launch
