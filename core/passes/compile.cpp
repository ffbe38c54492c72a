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

const StrategyUse& Layout::strategy_of(int axis) const {
  const auto use = std::find_if(active.begin(), active.end(), [&](const StrategyUse& u) { return u.axes.contains(axis); });
  if (axis < 0 || use == active.end()) throw ProgramError("no strategy works on mesh axis " + std::to_string(axis));
  return *use;
}

namespace {

/// The axes of a strategy that spans `use.size` ranks: name and size, without those of size 1.
std::vector<MeshAxis> axes_of(const StrategyUse& use, const AxisRequest& request) {
  std::vector<int> sizes = use.split;
  if (sizes.empty()) sizes = {use.size};
  const auto count = static_cast<int>(sizes.size());
  if (count < request.least_axes || count > request.most_axes) {
    const std::string needed = request.least_axes == request.most_axes
                                   ? std::to_string(request.most_axes)
                                   : std::to_string(request.least_axes) + " to " + std::to_string(request.most_axes);
    throw UsageError("strategy '" + use.name + "' works on " + needed + (needed == "1" ? " axis" : " axes") + ", but is given " +
                     std::to_string(count) +
                     (request.most_axes > 1 ? "; write --strategy " + use.name + "=2x4 for two axes"
                                            : "; write --strategy " + use.name + "=N"));
  }
  int known = 1;
  for (const int size : sizes) known *= std::max(1, size);
  if (use.size % known != 0) {
    throw UsageError("strategy '" + use.name + "' is left " + std::to_string(use.size) + " ranks, which its axes of " +
                     std::to_string(known) + " do not divide");
  }
  std::vector<MeshAxis> axes;
  for (int k = 0; k < count; ++k) {
    const int size = sizes[static_cast<std::size_t>(k)] > 0 ? sizes[static_cast<std::size_t>(k)] : use.size / known;
    if (size > 1) axes.push_back({count == 1 ? request.name : request.name + "." + std::to_string(k), size});
  }
  return axes;
}

}  // namespace

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
    const AxisRequest request = use.strategy->axis();
    const std::vector<MeshAxis> own = axes_of(use, request);
    if (own.empty()) continue;
    for (const MeshAxis& axis : own) {
      const auto index = static_cast<int>(axes.size());
      if (request.splits_batch) layout.batch_axes.push_back(index);
      use.axes |= index;
      axes.push_back(axis);
    }
    layout.schedule_order.push_back(layout.active.size());
    layout.active.push_back(use);
  }
  std::stable_sort(layout.schedule_order.begin(), layout.schedule_order.end(), [&](std::size_t a, std::size_t b) {
    return layout.active[a].strategy->axis().turn < layout.active[b].strategy->axis().turn;
  });
  layout.mesh = Mesh(std::move(axes));
  return layout;
}

namespace {

/// Inputs that the trainer writes: "ids", "targets" and the dataset's fields of each micro-batch, what the optimizer needs of a step,
/// the votes.
bool is_written(const Program& program, const Tensor& input) {
  const std::string name = input.name.substr(0, input.name.find('.'));
  if (input.name == "hyper" || input.name == "votes" || name == "ids" || name == "targets") return true;
  return std::find(program.fields.begin(), program.fields.end(), Field{name, input.dtype}) != program.fields.end();
}

std::string fields_text(const Program& program) {
  std::string text;
  for (const Field& field : program.fields) text += (text.empty() ? "" : ", ") + field.name + " " + std::string(name_of(field.dtype));
  return text.empty() ? "none" : text;
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
    if (made[id] || tensor.state || tensor.role != Role::input || is_written(program, tensor)) continue;
    throw ProgramError("nobody writes the input '" + tensor.name + "', " + std::string(name_of(tensor.dtype)) +
                       ": the trainer writes token ids, targets and the fields of the dataset, which are: " + fields_text(program) +
                       "; choose a dataset that has it. What never changes is a Builder::constant");
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
  for (const StrategyUse& use : layout.active)
    checked(program, "strategy '" + use.name + "'", function, check, [&] { call(*use.strategy, use.axes); });
}

/// Forward of one micro-batch, in the precision's dtypes, laid out on the mesh.
Program forward_program(const CompileRequest& request, const Layout& layout, int rank, double loss_scale) {
  Program program;
  program.mesh = layout.mesh;
  program.rank = rank;
  program.fields = request.fields;
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
               [&](const ParallelStrategy& strategy, AxisSet axes) { strategy.partition(program, axes); });
  program.micro_batches = 1;
  program = rebuild(program);
  checked(program, request.precision_name, "rewrite", verify, [&] { request.precision->rewrite(program); });
  return program;
}

void finish(Program& program, const Layout& layout) {
  checked_each(program, layout, "finish", verify,
               [&](const ParallelStrategy& strategy, AxisSet axes) { strategy.finish(program, axes); });
}

void divide(Program& program, const Layout& layout) {
  checked_each(program, layout, "divide", verify,
               [&](const ParallelStrategy& strategy, AxisSet axes) { strategy.divide(program, axes); });
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
  for (const std::size_t turn : layout.schedule_order) {
    const StrategyUse& use = layout.active[turn];
    checked(program, "strategy '" + use.name + "'", "schedule", verify, [&] { use.strategy->schedule(program, use.axes); });
  }
  reuse(program);
  fuse_amax(program);
  record_amaxes(program);
  if (request.pack_linears) pack_linears(program);
  checked(program, request.optimizer_name, "update", verify, [&] {
    append_optimizer(program, request.precision->dtypes(), *request.optimizer, request.optimizer_settings,
                     tokens_per(request, layout, request.accumulation));
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
  append_metrics(program, tokens_per(request, layout, 1));
  finish(program, layout);
  if (layout.active.empty()) verify(program);  // else the last finish() was checked
  return program;
}

}  // namespace consist
