#include "tests/interpreter/step_run.h"

#include <cmath>
#include <limits>
#include <random>

#include "consist/error.h"
#include "consist/token_order.h"
#include "core/program/local_ranges.h"
#include "core/state/initial_values.h"
#include "tests/interpreter/interpreter.h"

namespace consist::interpreter {
namespace {

using reference::Value;

constexpr double beta1_power = 0.9 * 0.9, beta2_power = 0.95 * 0.95;  // as in the second step of a run
constexpr double rate = 0.02;

/// Elements of a parameter or one of its states: fixed by name and element, none of them the same for a whole tensor.
std::vector<float> initial(const std::string& name, std::int64_t elements, float mean, float deviation) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  initial_values(values, 1, name, 0, mean, deviation);
  return values;
}

std::vector<float> initial_parameter(const Parameter& p, std::int64_t elements) {
  return initial(p.name, elements, p.init_mean, 0.25F);
}
/// Second moments are positive.
std::vector<float> initial_state(const Parameter& p, const std::string& state, std::int64_t elements) {
  if (state != "moment2") return initial(p.name + "." + state, elements, 0, 0.01F);
  std::vector<float> values = initial(p.name + "." + state, elements, 0, 1);
  for (float& v : values) v = 1e-3F * (1 + v * v);
  return values;
}

/// The newest tensor of that name and role.
TensorId find(const Program& program, const std::string& name, Role role) {
  for (std::size_t t = program.tensors.size(); t-- > 0;) {
    if (program.tensors[t].role == role && program.tensors[t].name == name) return static_cast<TensorId>(t);
  }
  return no_tensor;
}

/// Writes the part of a logical tensor that one rank holds.
void write_logical(Arena& arena, TensorId tensor, const std::vector<float>& logical) {
  const Program& program = arena.planned().program;
  const Tensor& t = program[tensor];
  for (const LocalRange& range : local_ranges(t.shape, t.placements, program.mesh, program.rank)) {
    const auto begin = logical.begin() + range.logical;
    arena.write_elements(tensor, range.local, std::vector<double>(begin, begin + range.count));
  }
}

void write_states(Arena& arena) {
  const Program& program = arena.planned().program;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {  // those of no parameter start from zeros
    const auto id = static_cast<TensorId>(t);
    if (program[id].state && program[id].role == Role::optimizer_state && program[id].dtype != DType::u8)
      arena.write(id, reference::zeros(DType::f32, program.part(id).shape));
  }
  for (const Parameter& p : program.parameters) {
    const std::int64_t elements = program[p.tensor].shape.elements();
    const std::vector<float> weights = initial_parameter(p, elements);
    write_logical(arena, p.tensor, weights);
    if (p.master != no_tensor) write_logical(arena, p.master, weights);
    for (const ParameterState& state : p.states) write_logical(arena, state.tensor, initial_state(p, state.name, elements));
  }
}

void write_constants(Arena& arena) {
  const Program& program = arena.planned().program;
  for (const Constant& constant : program.constants) {
    std::vector<float> values(static_cast<std::size_t>(program[constant.tensor].shape.elements()));
    constant.fill(values);
    write_logical(arena, constant.tensor, values);
  }
}

/// Token `position` of sequence `sequence`.
std::int64_t token(std::int64_t sequence, std::int64_t position, std::int64_t vocabulary) {
  std::seed_seq words{sequence, position};
  std::uint32_t drawn[1];
  words.generate(drawn, drawn + 1);
  return drawn[0] % static_cast<std::uint32_t>(vocabulary);
}

/// Writes the input of that name, if the program has it, as the trainer does. Throws where its size is another.
void write_input(Arena& arena, const std::string& name, const std::vector<double>& values) {
  const TensorId id = find(arena.planned().program, name, Role::input);
  if (id != no_tensor) arena.write(id, {DType::f32, {}, values});
}

/// The same of what the rank holds of an input [sequences, length]; `rows` are its sequences, whole and in order of position.
void write_tokens_of(Arena& arena, const std::string& name, const std::vector<double>& rows, std::int64_t length) {
  const Program& program = arena.planned().program;
  const TensorId id = find(program, name, Role::input);
  if (id == no_tensor) return;
  const LocalPart part = program.part(id);
  std::vector<double> values;
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(rows.size()) / length; ++row) {
    for (std::int64_t at = 0; at < part.shape[1]; ++at)
      values.push_back(rows[static_cast<std::size_t>(row * length + position_of(part.origin[1] + at, length, program.zigzag))]);
  }
  write_input(arena, name, values);
}

/// `rows` sequences from `first` on, as "ids" and "targets" with a suffix. Some positions count nothing.
void write_tokens(Arena& arena, const std::string& suffix, std::int64_t first, std::int64_t rows, std::int64_t length,
                  std::int64_t vocabulary) {
  std::vector<double> ids, targets, mask, starts;
  for (std::int64_t sequence = first; sequence < first + rows; ++sequence) {
    for (std::int64_t at = 0; at < length; ++at) {
      ids.push_back(static_cast<double>(token(sequence, at, vocabulary)));
      const bool counts = (sequence * length + at) % 11 != 5;
      targets.push_back(counts ? static_cast<double>(token(sequence, at + 1, vocabulary)) : -1);
      mask.push_back((sequence * length + at) % 3 != 1 ? 1 : 0);
      starts.push_back(static_cast<double>(at - at % (2 + sequence % 3)));  // documents of 2, 3 or 4 tokens
    }
  }
  write_tokens_of(arena, "ids" + suffix, ids, length);
  write_tokens_of(arena, "targets" + suffix, targets, length);
  write_tokens_of(arena, "loss_mask" + suffix, mask, length);
  write_tokens_of(arena, "document_start" + suffix, starts, length);
}

/// A replicated scalar, from all ranks.
double metric(const std::vector<Arena>& ranks, const std::string& name) {
  double value = 0;
  for (const Arena& arena : ranks) {
    const TensorId id = find(arena.planned().program, name, Role::metric);
    if (id == no_tensor)
      throw ProgramError("rank " + std::to_string(arena.planned().program.rank) + " has no metric '" + name + "'");
    const double here = arena.read(id).at(0);
    if (&arena == &ranks.front()) value = here;
    if (!(std::abs(here - value) <= 1e-9 * std::abs(value)))
      throw ProgramError("rank " + std::to_string(arena.planned().program.rank) + " has the metric " + name + " = " +
                         std::to_string(here) + ", rank 0 has " + std::to_string(value));
  }
  return value;
}

bool has_metric(const std::vector<Arena>& ranks, const std::string& name) {
  return find(ranks.front().planned().program, name, Role::metric) != no_tensor;
}

/// The elements of a metric that is no scalar.
std::vector<double> metrics(const std::vector<Arena>& ranks, const std::string& name) {
  std::vector<double> values;
  for (const Arena& arena : ranks) {
    const TensorId id = find(arena.planned().program, name, Role::metric);
    const std::vector<double> here = arena.read(id).data;
    if (&arena == &ranks.front()) values = here;
    if (here != values)
      throw ProgramError("rank " + std::to_string(arena.planned().program.rank) + " has other values of the metric " + name +
                         " than rank 0");
  }
  return values;
}

/// Rows that had no room in what ran last.
double overflow(const std::vector<Arena>& ranks, const RunOptions& options) {
  const double missing = has_metric(ranks, "overflow") ? metric(ranks, "overflow") : 0;
  if (missing != 0 && !options.without_room) throw ProgramError(std::to_string(missing) + " rows had no room");
  return missing;
}

/// Puts the ranks' parts of logical tensors together.
class Assembly {
 public:
  void add(const Arena& arena, const std::string& name, TensorId tensor) {
    if (tensor == no_tensor) return;
    const Program& program = arena.planned().program;
    const Tensor& t = program[tensor];
    std::vector<double>& logical =
        values_.try_emplace(name, static_cast<std::size_t>(t.shape.elements()), std::numeric_limits<double>::quiet_NaN())
            .first->second;
    const Value local = arena.read(tensor);
    for (const LocalRange& range : local_ranges(t.shape, t.placements, program.mesh, program.rank)) {
      for (std::int64_t i = 0; i < range.count; ++i) {
        double& known = logical.at(static_cast<std::size_t>(range.logical + i));
        const double here = local.at(range.local + i);
        if (std::isnan(known)) known = here;
        if (std::abs(known - here) > 1e-9 * std::max(1.0, std::abs(known)))
          throw ProgramError("rank " + std::to_string(program.rank) + " ends with " + std::to_string(here) + " in element " +
                             std::to_string(range.logical + i) + " of '" + name + "', another rank with " +
                             std::to_string(known));
      }
    }
  }

  std::map<std::string, std::vector<double>> finish() {
    for (const auto& [name, values] : values_) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (std::isnan(values[i])) throw ProgramError("no rank holds element " + std::to_string(i) + " of '" + name + "'");
      }
    }
    return std::move(values_);
  }

 private:
  std::map<std::string, std::vector<double>> values_;
};

std::map<std::string, std::vector<double>> states_of(const std::vector<Arena>& ranks) {
  Assembly assembly;
  for (const Arena& arena : ranks) {
    for (const Parameter& p : arena.planned().program.parameters) {
      // Weights that forward reads and those that the optimizer keeps are the same, up to rounding.
      if (p.master == no_tensor || !arena.rounds()) assembly.add(arena, p.name, p.tensor);
      assembly.add(arena, p.name, p.master);
      for (const ParameterState& state : p.states) assembly.add(arena, p.name + "." + state.name, state.tensor);
    }
  }
  return assembly.finish();
}

void run_all(std::vector<Arena>& ranks, std::uint64_t order) {
  std::vector<Arena*> pointers;
  for (Arena& arena : ranks) pointers.push_back(&arena);
  run_step(pointers, order);
  for (Arena& arena : ranks) arena.set_instruction(-1);
}

/// A state that keeps gradients: state = decay state + factor gradient. By suffix of its name.
struct Average {
  double decay, factor;
};
std::map<std::string, Average> averages(const RunConfig& config) {
  const auto option = [&](const char* name, double otherwise) {
    const auto options = config.plugin_options.find(config.optimizer_plugin);
    if (options == config.plugin_options.end()) return otherwise;
    const auto given = options->second.find(name);
    return given == options->second.end() ? otherwise : std::stod(given->second);
  };
  const auto mean = [](double decay) { return Average{decay, 1 - decay}; };
  if (config.optimizer_plugin == "sgd") return {{".momentum", {option("momentum", 0.9), 1}}};
  if (config.optimizer_plugin == "lion") return {{".momentum", mean(option("beta2", 0.99))}};
  const Average moment = mean(option("beta1", 0.9));
  if (config.optimizer_plugin == "muon") return {{".momentum", mean(option("momentum", 0.95))}, {".moment1", moment}};
  return {{".moment1", moment}};
}

void add_gradients(std::map<std::string, std::vector<double>>& after, const std::map<std::string, std::vector<double>>& before,
                   const RunConfig& config) {
  std::map<std::string, std::vector<double>> gradients;
  for (const auto& [suffix, average] : averages(config)) {
    for (const auto& [name, state] : after) {
      if (!name.ends_with(suffix)) continue;
      std::vector<double> gradient = state;
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = (gradient[i] - average.decay * before.at(name)[i]) / average.factor;
      gradients.emplace(name.substr(0, name.size() - suffix.size()) + ".gradient", std::move(gradient));
    }
  }
  after.merge(gradients);
}

}  // namespace

Outcome run(const RankPrograms& programs, const RunOptions& options) {
  const RunConfig& config = programs.config;
  const std::int64_t vocabulary = programs.parts.architecture->sizes().vocabulary, parts = programs.layout.batch_ranks();
  std::vector<Arena> ranks;
  for (std::size_t rank = 0; rank < programs.steps.size(); ++rank) {
    ranks.emplace_back(std::vector<const Planned*>{&programs.steps[rank], &programs.evaluations[rank]});
    if (options.rounded) ranks.back().round_to_dtypes();
    write_states(ranks.back());
    write_constants(ranks.back());
  }
  const std::vector<double> scalars = programs.parts.optimizer->scalar_count() == 2
                                          ? std::vector<double>{rate, 2}
                                          : std::vector<double>{rate, 1 - beta1_power, 1 - beta2_power, 2};
  Outcome outcome;
  std::map<std::string, std::vector<double>> before = states_of(ranks);
  for (int step = 0; step < options.steps; ++step) {
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::int64_t index = programs.layout.batch_index(static_cast<int>(rank));
      for (int m = 0; m < config.accumulation; ++m) {
        const std::int64_t first = ((step * config.accumulation + m) * parts + index) * config.batch;
        write_tokens(ranks[rank], "." + std::to_string(m), first, config.batch, config.sequence, vocabulary);
      }
      write_input(ranks[rank], "optimizer_scalars", scalars);
      write_input(ranks[rank], "stop_requests", {1});
    }
    run_all(ranks, options.order + static_cast<std::uint64_t>(step));
    outcome.losses.push_back(metric(ranks, "loss"));
    outcome.grad_norms.push_back(metric(ranks, "grad_norm"));
    if (has_metric(ranks, "aux_loss")) outcome.auxiliary_losses.push_back(metric(ranks, "aux_loss"));
    if (has_metric(ranks, "expert_choices"))
      for (const double count : metrics(ranks, "expert_choices")) outcome.expert_choices.push_back(count);
    outcome.overflow += overflow(ranks, options);
    if (metric(ranks, "stop") != config.ranks) throw ProgramError("the stop requests do not sum to the number of ranks");
    if (step > 0 || options.rounded || options.without_room) continue;

    outcome.after_first_step = states_of(ranks);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank].go_on_with(1);
      write_constants(ranks[rank]);
      write_tokens(ranks[rank], "", programs.layout.batch_index(static_cast<int>(rank)) * config.batch, config.batch,
                   config.sequence, vocabulary);
    }
    run_all(ranks, options.order + 1000);
    outcome.evaluation = metric(ranks, "loss");
    overflow(ranks, options);
    for (Arena& arena : ranks) arena.go_on_with(0);
  }
  outcome.values = states_of(ranks);
  if (!options.without_room) add_gradients(outcome.values, options.steps > 1 ? outcome.after_first_step : before, config);
  outcome.before = std::move(before);
  return outcome;
}

double evaluation_of_one_rank(const RunConfig& config, std::int64_t sequences,
                              const std::map<std::string, std::vector<double>>& values) {
  Parts parts = make_parts(config, plugin_host());
  CompileRequest request = parts.compile_request(config);
  request.micro_batch = sequences;
  const Planned program = planned(compile_evaluation(request, lay_out(parts.uses, 1)), 0);
  std::vector<Arena> rank;
  rank.emplace_back(std::vector<const Planned*>{&program});
  write_constants(rank[0]);
  for (const Parameter& p : program.program.parameters) rank[0].write(p.tensor, {DType::f32, {}, values.at(p.name)});
  write_tokens(rank[0], "", 0, sequences, config.sequence, parts.architecture->sizes().vocabulary);
  run_all(rank, 0);
  return metric(rank, "loss");
}

}  // namespace consist::interpreter
