#include "core/passes/compile.h"

#include <algorithm>

#include "consist/builder.h"
#include "consist/error.h"
#include "core/passes/accumulate.h"
#include "core/passes/differentiate.h"
#include "core/passes/fuse_amax.h"
#include "core/passes/gather_quantized.h"
#include "core/passes/pack_linears.h"
#include "core/passes/rebuild.h"
#include "core/passes/record_amaxes.h"
#include "core/passes/reuse.h"
#include "core/program/verifier.h"

namespace consist {

const Optimizer& default_optimizer() {
  static const AdamW adamw;
  return adamw;
}

int Layout::batch_ranks() const {
  int product = 1;
  for (int axis : batch_axes) product *= mesh.size_of(axis);
  return product;
}

int Layout::batch_index(int rank) const {
  int index = 0;
  for (int axis : batch_axes) index = index * mesh.size_of(axis) + mesh.coordinate(rank, axis);
  return index;
}

std::shared_ptr<const Machine> reference_machine() {
  static const std::shared_ptr<const Machine> machine = std::make_shared<Machine>(*find_machine("h200"));
  return machine;
}

Layout lay_out(const std::vector<StrategyUse>& strategies, int ranks) {
  int fixed = 1;
  const StrategyUse* rest = nullptr;
  for (const StrategyUse& use : strategies) {
    if (use.size > 0) {
      fixed *= use.size;
      continue;
    }
    if (!use.strategy->axis().takes_rest) {
      throw UsageError("strategy '" + use.name + "' needs a number of ranks: write --strategy " + use.name + "=N");
    }
    if (rest != nullptr) {
      throw UsageError("both '" + rest->name + "' and '" + use.name +
                       "' would take the remaining ranks; give one of them a size (" + use.name + "=N)");
    }
    rest = &use;
  }
  if (ranks % fixed != 0 || (rest == nullptr && ranks != fixed)) {
    throw UsageError("the strategies' sizes multiply to " + std::to_string(fixed) + ", but the job has " + std::to_string(ranks) +
                     " ranks; " + (rest == nullptr ? "they must be equal" : "the one must divide the other"));
  }
  Layout layout;
  std::vector<MeshAxis> axes;
  std::vector<StrategyUse> ordered = strategies;
  std::stable_sort(ordered.begin(), ordered.end(), [](const StrategyUse& a, const StrategyUse& b) {
    return a.strategy->axis().distance > b.strategy->axis().distance;
  });
  for (StrategyUse use : ordered) {
    if (use.size == 0) use.size = ranks / fixed;
    if (use.size == 1) continue;
    const AxisRequest request = use.strategy->axis();
    if (request.splits_batch) layout.batch_axes.push_back(static_cast<int>(axes.size()));
    axes.push_back({request.name, use.size});
    layout.active.push_back(use);
  }
  layout.mesh = Mesh(std::move(axes));
  return layout;
}

namespace {

/// Inputs that the trainer writes: "ids" and "targets" of each micro-batch, what the optimizer needs of a step, the votes.
bool is_written(const std::string& input) {
  return input == "ids" || input == "targets" || input == "hyper" || input == "votes" || input.starts_with("ids.") ||
         input.starts_with("targets.");
}

void check_inputs(const Program& program) {
  std::vector<bool> made(program.tensors.size(), false);
  for (const Instruction& i : program.instructions) {
    for (TensorId id : i.outputs) {
      if (id != no_tensor) made[static_cast<std::size_t>(id)] = true;
    }
  }
  for (std::size_t id = 0; id < program.tensors.size(); ++id) {
    const Tensor& tensor = program.tensors[id];
    if (made[id] || tensor.state || tensor.role != Role::input || is_written(tensor.name)) continue;
    throw ProgramError("nobody writes the input '" + tensor.name +
                       "': the trainer writes token ids and targets; what never changes is a Builder::constant");
  }
}

/// Calls into a plugin, and checks what it made of the program before any pass depends on it.
template <typename Call>
void checked(Program& program, const std::string& plugin, const char* function, void (*check)(const Program&), const Call& call) {
  call();
  try {
    check(program);
    check_inputs(program);
  } catch (const ProgramError& error) {
    throw ProgramError(plugin + " left an illegal program in " + function + "(): " + error.what());
  }
}

/// The same for each strategy that has an axis.
template <typename Call>
void checked_each(Program& program, const Layout& layout, const char* function, void (*check)(const Program&), const Call& call) {
  for (std::size_t axis = 0; axis < layout.active.size(); ++axis) {
    const StrategyUse& use = layout.active[axis];
    checked(program, "strategy '" + use.name + "'", function, check, [&] { call(*use.strategy, static_cast<int>(axis)); });
  }
}

/// Forward of one micro-batch, in the precision's dtypes, laid out on the mesh.
Program forward_program(const CompileRequest& request, const Layout& layout, int rank, double loss_scale) {
  Program program;
  program.mesh = layout.mesh;
  program.rank = rank;
  program.costs = std::make_shared<CostModel>(request.machine ? request.machine : reference_machine(), layout.mesh);
  Builder builder(program);
  const Shape tokens{request.micro_batch * layout.batch_ranks(), request.sequence};
  const TensorId ids = builder.input("ids", DType::i32, tokens);
  const TensorId targets = builder.input("targets", DType::i32, tokens);
  checked(program, request.model_name, "build", verify,
          [&] { program.loss = request.architecture->build(builder, ids, targets, loss_scale); });
  if (program.loss == no_tensor || program[program.loss].shape.rank() != 0)
    throw ProgramError(request.model_name + " made a loss in build() that is no scalar");

  freeze(program, request.freeze);
  for (const Parameter& parameter : program.parameters) program[parameter.tensor].dtype = request.precision->dtypes().parameter;
  program.micro_batches = request.accumulation;  // of the step that is partitioned; an evaluation's parts are the same
  checked_each(program, layout, "partition", verify_unplaced,
               [&](const ParallelStrategy& strategy, int axis) { strategy.partition(program, axis); });
  program.micro_batches = 1;
  program = rebuild(program);
  checked(program, request.precision_name, "rewrite", verify, [&] { request.precision->rewrite(program); });
  return program;
}

void finish(Program& program, const Layout& layout) {
  checked_each(program, layout, "finish", verify,
               [&](const ParallelStrategy& strategy, int axis) { strategy.finish(program, axis); });
}

void divide(Program& program, const Layout& layout) {
  checked_each(program, layout, "divide", verify,
               [&](const ParallelStrategy& strategy, int axis) { strategy.divide(program, axis); });
}

double tokens_per(const CompileRequest& request, const Layout& layout, int micro_batches) {
  return static_cast<double>(request.micro_batch) * static_cast<double>(request.sequence) * layout.batch_ranks() * micro_batches;
}

constexpr std::int64_t most_tokens = std::int64_t{1} << 32;
constexpr std::int64_t most_instructions = 1'000'000;  // a gigabyte of program

void check(const CompileRequest& request) {
  if (request.micro_batch < 1) throw UsageError("--batch is " + std::to_string(request.micro_batch) + "; it must be at least 1");
  if (request.sequence < 1) throw UsageError("--sequence is " + std::to_string(request.sequence) + "; it must be at least 1");
  if (request.accumulation < 1)
    throw UsageError("--accumulation is " + std::to_string(request.accumulation) + "; it must be at least 1");
  if (request.micro_batch > most_tokens / request.sequence) {
    throw UsageError("--batch " + std::to_string(request.micro_batch) + " x --sequence " + std::to_string(request.sequence) +
                     " is more than " + std::to_string(most_tokens) + " tokens per rank and micro-batch, which no machine holds");
  }
  const std::int64_t most = request.architecture->sizes().max_sequence;
  if (most > 0 && request.sequence > most) {
    throw UsageError("--sequence is " + std::to_string(request.sequence) + ", but the model has " + std::to_string(most) +
                     " positions (max_position_embeddings); use at most that");
  }
}

}  // namespace

Program compile_step(const CompileRequest& request, const Layout& layout, int rank) {
  check(request);
  Program program = forward_program(request, layout, rank, 1.0 / tokens_per(request, layout, request.accumulation));
  differentiate(program, request.precision->dtypes().gradient);
  recompute(program, request.recompute);
  divide(program, layout);
  gather_quantized(program);
  const auto instructions = static_cast<std::int64_t>(program.instructions.size());
  if (instructions > most_instructions / request.accumulation) {
    throw UsageError("--accumulation " + std::to_string(request.accumulation) + " would make a program of about " +
                     std::to_string(instructions * request.accumulation) + " instructions, at most " +
                     std::to_string(most_instructions) + " are allowed: choose a larger --batch and fewer micro-batches");
  }
  accumulate(program, request.accumulation);
  reuse(program);  // what strategies gather is then the same for all micro-batches
  checked_each(program, layout, "schedule", verify,
               [&](const ParallelStrategy& strategy, int axis) { strategy.schedule(program, axis); });
  reuse(program);
  fuse_amax(program);
  record_amaxes(program);
  if (request.pack_linears) pack_linears(program);
  checked(program, request.optimizer_name, "update", verify, [&] {
    append_optimizer(program, request.precision->dtypes(), *request.optimizer, request.optimizer_settings);
  });
  finish(program, layout);
  if (layout.active.empty()) verify(program);  // else the last finish() was checked
  return program;
}

Program compile_evaluation(const CompileRequest& request, const Layout& layout, int rank) {
  check(request);
  Program program = forward_program(request, layout, rank, 1.0 / tokens_per(request, layout, 1));
  divide(program, layout);
  gather_quantized(program);
  fuse_amax(program);
  append_metrics(program);
  finish(program, layout);
  if (layout.active.empty()) verify(program);  // else the last finish() was checked
  return program;
}

}  // namespace consist
