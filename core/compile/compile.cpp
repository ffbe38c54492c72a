#include "core/compile/compile.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "consist/analysis.h"
#include "consist/builder.h"
#include "consist/error.h"
#include "consist/rewrite.h"
#include "core/compile/evaluated_weights.h"
#include "core/compile/pass_manager.h"
#include "core/compile/reduced_step.h"
#include "core/compile/with_cache.h"
#include "core/experts/expert_choices.h"
#include "core/experts/force_routes.h"
#include "core/experts/room_for_rows.h"
#include "core/frozen/frozen_weights.h"
#include "core/passes/fuse.h"
#include "core/passes/gather_quantized.h"
#include "core/passes/hoist_step_invariants.h"
#include "core/passes/keep_layers.h"
#include "core/passes/pack_linears.h"
#include "core/passes/record_amaxes.h"
#include "core/passes/unroll_micro_batches.h"
#include "core/program/own_metrics.h"
#include "core/program/verifier.h"

namespace consist {

const Optimizer& default_optimizer() {
  static const AdamW adamw;
  return adamw;
}

std::shared_ptr<const Machine> reference_machine() {
  static const std::shared_ptr<const Machine> machine = std::make_shared<Machine>(*find_machine("h200"));
  return machine;
}

namespace {

/// Inputs that the trainer writes: "ids", "targets" and the dataset's fields of each micro-batch, what the optimizer needs of a
/// step, the stop requests; and where the tokens of a stretch begin.
bool is_written(const Program& program, const Tensor& input) {
  const std::string name = input.name.substr(0, input.name.find('.'));
  if (is_optimizer_scalars(input.name) || input.name == "stop_requests" || name == "ids" || name == "targets") return true;
  if (input.name == position_name) return true;
  return std::find(program.fields.begin(), program.fields.end(), Field{name, input.dtype}) != program.fields.end();
}

std::string fields_text(const Program& program) {
  std::string text;
  for (const Field& field : program.fields)
    text += (text.empty() ? "" : ", ") + field.name + " " + std::string(name_of(field.dtype));
  return text.empty() ? "none" : text;
}

void check_inputs(const Program& program) {
  std::optional<DefUse> def_use;  // made only for a program that has something to ask, since this runs behind every pass
  for (std::size_t id = 0; id < program.tensors.size(); ++id) {
    const Tensor& tensor = program.tensors[id];
    if (tensor.state || tensor.role != Role::input || is_written(program, tensor)) continue;
    if (!def_use) def_use.emplace(program);
    if (def_use->is_made(static_cast<TensorId>(id))) continue;
    throw ProgramError("nobody writes the input '" + tensor.name + "', " + std::string(name_of(tensor.dtype)) +
                       ": the trainer writes token ids, targets and the fields of the dataset, which are: " +
                       fields_text(program) + "; choose a dataset that has it. What never changes is a Builder::constant");
  }
}

/// A run reads the program's outputs and metrics of its own alone: others would be computed for nobody, or vanish.
void check_metrics(const Program& program) {
  std::set<std::string, std::less<>> recorded{"loss", "grad_norm", "stop", "aux_loss", logits_name};
  for (const StepOutput& output : program.outputs) recorded.insert(output.name);
  std::set<TensorId> storages;  // of these; earlier values in their place are metrics, too
  for (const Tensor& tensor : program.tensors) {
    if (tensor.role == Role::metric && recorded.contains(tensor.name)) storages.insert(tensor.storage);
  }
  for (const Tensor& tensor : program.tensors) {
    if (tensor.role != Role::metric || storages.contains(tensor.storage)) continue;
    throw ProgramError(
        "'" + tensor.name +
        "' is a metric that no run records; of a plugin's own values a run records those of Builder::metric(), and what it is "
        "trained on beside the loss, as aux_loss");
  }
}

/// Behind every pass.
void check_program(const Program& program) {
  verify(program);
  check_inputs(program);
  check_metrics(program);
}
void check_unplaced(const Program& program) {
  verify_unplaced(program);
  check_inputs(program);
  check_metrics(program);
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
                     " positions (max_position_embeddings); use at most that, or --model with a config.json that has more");
  }
}

/// Says of collectives that placement rules brought about, and that no strategy calls its own, which pass inserted them.
void name_collectives(Program& program, const char* pass) {
  for (Instruction& i : program.instructions) {
    if (i.op->is_collective() && *i.tag.inserted_by == '\0') i.tag.inserted_by = pass;
  }
}

/// An evaluation reports the loss alone.
void drop_auxiliary_losses(Program& program) {
  if (program.output(StepOutput::Kind::auxiliary_loss) == no_tensor) return;
  program.drop_outputs(StepOutput::Kind::auxiliary_loss);
  remove_dead(program);
}

/// The passes of one compilation, in order.
class Passes {
 public:
  /// `kept_periods`: of keep_layers(); 0: all layers stay.
  Passes(const CompileRequest& request, const Layout& layout, bool evaluation, int kept_periods = 0)
      : request_(request),
        layout_(layout),
        kept_periods_(kept_periods),
        context_{.dtypes = request.precision->dtypes(), .micro_batches = request.accumulation, .evaluation = evaluation} {
    for (const StrategyUse& use : layout.active) use.strategy->add_passes(of_strategies_.emplace_back(), use.works_on);
    request.precision->add_passes(of_precision_);
    for (const auto& [optimizer, optimizer_name] : request.optimizers.optimizers())
      optimizer->add_passes(of_optimizers_.emplace_back(optimizer_name, PassList()).second);
  }

  /// Forward of one micro-batch, in the precision's dtypes, laid out on the mesh.
  void forward() {
    passes_.add_call({"build", [this](Program& program, PassContext& /*context*/) { build(program); }}, request_.model_name,
                     "build");
    add("freeze", [this](Program& program) { freeze(program, request_.freeze); });
    if (kept_periods_ > 0) add("keep_layers", [this](Program& program) { keep_layers(program, kept_periods_); });
    add(
        "parameter_dtypes",
        [this](Program& program) {
          if (program.loss == no_tensor || program[program.loss].shape.rank() != 0)
            throw ProgramError(request_.model_name + " made a loss in build() that is no scalar");
          for (const Parameter& parameter : program.parameters) program[parameter.tensor].dtype = context_.dtypes.parameter;
          program.micro_batches = request_.accumulation;  // of the step that is partitioned; an evaluation's parts are the same
        },
        check_unplaced);
    if (request_.expert_shares)
      add(
          "force_routes", [this](Program& program) { force_routes(program, request_.expert_shares); }, check_unplaced);
    each(
        "partition", [](const ParallelStrategy& strategy, Program& program, AxisSet axes) { strategy.partition(program, axes); },
        check_unplaced, layout_.partition_order);
    if (request_.room > 1)
      add("grow_room", [this](Program& program) { grow_room(program, request_.room); }, check_unplaced);
    add("propagate_shardings", [this](Program& program) {
      program.micro_batches = 1;
      program = propagate_shardings(program);
      name_collectives(program, "propagate_shardings");
      may_overflow_ = may_overflow(program);
      if (context_.evaluation) drop_auxiliary_losses(program);
    });
    if (request_.frozen_weights.any())
      add("keep_in_blocks", [this](Program& program) {
        keep_in_blocks(program, request_.frozen_weights);
        name_collectives(program, "propagate_shardings");
      });
    passes_.add_call({"rewrite", [this](Program& program, PassContext& /*context*/) { request_.precision->rewrite(program); }},
                     request_.precision_name, "rewrite");
    if (request_.frozen_weights.any() && !context_.evaluation) add("refuse_copies_of_decoded", refuse_copies_of_decoded);
    if (context_.evaluation)
      add("evaluated_weights",
          [this](Program& program) { read_evaluated_weights(program, context_.dtypes, request_.optimizers); });
    of_plugins(PassPoint::forward);
  }

  void add(const char* name, std::function<void(Program&)> pass, PassManager::Check check = nullptr) {
    passes_.add({name, [pass = std::move(pass)](Program& program, PassContext& /*context*/) { pass(program); }}, check);
  }

  /// A function of every strategy that has an axis to work on, in the order of the mesh or that of `order` (indices of Layout::active).
  void each(const char* function, void (*call)(const ParallelStrategy&, Program&, AxisSet), PassManager::Check check = nullptr,
            std::vector<std::size_t> order = {}) {
    for (std::size_t k = order.size(); k < layout_.active.size(); ++k) order.push_back(k);
    for (const std::size_t turn : order) {
      const StrategyUse& use = layout_.active[turn];
      passes_.add_call(
          {use.name + "." + function, [&use, call](Program& program, PassContext& /*context*/) { call(*use.strategy, program, use.works_on); }},
          "strategy '" + use.name + "'", function, check);
    }
  }

  void of_plugins(PassPoint point) {
    for (std::size_t k = 0; k < layout_.active.size(); ++k)
      passes_.add_of_part(of_strategies_[k], point, "strategy '" + layout_.active[k].name + "'");
    passes_.add_of_part(of_precision_, point, request_.precision_name);
    for (const auto& [part, added] : of_optimizers_) passes_.add_of_part(added, point, part);
  }

  /// Sums the rows that had no room, on all ranks if on any: those of a pipeline have different instructions by now.
  void sum_overflow() {
    add("sum_overflow", [this](Program& program) {
      if (may_overflow_) consist::sum_overflow(program);
    });
  }

  /// The optimizer's update.
  void update() {
    passes_.add_call({"update",
                      [this](Program& program, PassContext& context) {
                        append_optimizer(program, context.dtypes, request_.optimizers, request_.optimizer_settings,
                                         tokens_per(request_, layout_, request_.accumulation),
                                         [this](int axis) { return layout_.strategy_of(axis).name; });
                      }},
                     request_.optimizers[0].name, "update");
  }

  Program run(int rank) {
    Program program;
    program.mesh = layout_.mesh;
    program.rank = rank;
    program.fields = request_.fields;
    program.costs =
        std::make_shared<CostModel>(request_.machine ? request_.machine : reference_machine(), layout_.mesh, request_.transports);
    passes_.run(program, context_, check_program, request_.observer, request_.verify_each_pass);
    return program;
  }

 private:
  void build(Program& program) const {
    Builder builder(program);
    const Shape tokens{request_.micro_batch * layout_.batch_ranks(), request_.sequence};
    const TensorId ids = builder.input("ids", DType::i32, tokens);
    const TensorId targets = builder.input("targets", DType::i32, tokens);
    const int summed = context_.evaluation ? 1 : request_.accumulation;  // micro-batches whose losses are added up
    program.loss = request_.architecture->build(builder, ids, targets, 1.0 / tokens_per(request_, layout_, summed));
    place_own_metrics(program);
  }

  const CompileRequest& request_;
  const Layout& layout_;
  int kept_periods_;
  PassContext context_;
  bool may_overflow_ = false;
  PassManager passes_;
  std::vector<PassList> of_strategies_;
  PassList of_precision_;
  std::vector<std::pair<std::string, PassList>> of_optimizers_;  // by name, for messages
};

void divide(const ParallelStrategy& strategy, Program& program, AxisSet axes) {
  strategy.divide(program, axes);
}
void schedule(const ParallelStrategy& strategy, Program& program, AxisSet axes) {
  strategy.schedule(program, axes);
}
void finish(const ParallelStrategy& strategy, Program& program, AxisSet axes) {
  strategy.finish(program, axes);
}

void unroll(Program& program, int accumulation) {
  const auto instructions = static_cast<std::int64_t>(program.instructions.size());
  if (instructions > most_instructions / accumulation) {
    throw UsageError("--accumulation " + std::to_string(accumulation) + " would make a program of about " +
                     std::to_string(instructions * accumulation) + " instructions, at most " + std::to_string(most_instructions) +
                     " are allowed: choose a larger --batch and fewer micro-batches");
  }
  unroll_micro_batches(program, accumulation);
}

}  // namespace

namespace {

Program step_of(const CompileRequest& request, const Layout& layout, int rank, int kept_periods) {
  check(request);
  Passes passes(request, layout, false, kept_periods);
  passes.forward();
  passes.add("differentiate", [&](Program& program) {
    differentiate(program, request.precision->dtypes().gradient);
    name_collectives(program, "differentiate");
  });
  passes.add("recompute", [&](Program& program) { recompute(program, request.recompute); });
  if (request.offload.any())
    passes.add("check_offloaded_layers", [&](Program& program) { check_offloaded_layers(program, request.offload); });
  passes.each("divide", divide);
  passes.sum_overflow();
  passes.add("count_expert_choices", count_expert_choices);
  passes.add("gather_quantized", gather_quantized);
  passes.of_plugins(PassPoint::micro_batch);
  passes.add("unroll_micro_batches", [&](Program& program) { unroll(program, request.accumulation); });
  passes.add("hoist_step_invariants", hoist_step_invariants);  // what strategies gather is then the same for all micro-batches
  passes.of_plugins(PassPoint::before_schedule);
  passes.each("schedule", schedule, nullptr, layout.schedule_order);
  passes.of_plugins(PassPoint::after_schedule);
  passes.add("hoist_step_invariants", hoist_step_invariants);
  passes.add("fuse_amax", fuse_amax);
  passes.add("record_amaxes", record_amaxes);
  passes.add("fuse_sums", fuse_sums);
  if (request.pack_linears) passes.add("pack_linears", pack_linears);
  if (request.offload.any())
    passes.add("offload_activations", [&](Program& program) { offload_activations(program, request.offload); });
  passes.update();
  passes.each("finish", finish);
  passes.of_plugins(PassPoint::finished);
  return passes.run(rank);
}

}  // namespace

Program compile_step(const CompileRequest& request, const Layout& layout, int rank) {
  return step_of(request, layout, rank, 0);
}

Program compile_reduced_step(const CompileRequest& request, const Layout& layout, int periods) {
  return step_of(request, without_stages(layout), 0, periods);
}

Program compile_evaluation(const CompileRequest& request, const Layout& layout, int rank) {
  check(request);
  Passes passes(request, layout, true);
  passes.forward();
  passes.each("divide", divide);
  passes.sum_overflow();
  passes.add("gather_quantized", gather_quantized);
  passes.of_plugins(PassPoint::micro_batch);
  passes.add("fuse_amax", fuse_amax);
  passes.add("append_metrics", [&](Program& program) { append_metrics(program, tokens_per(request, layout, 1)); });
  passes.each("finish", finish);
  passes.of_plugins(PassPoint::finished);
  return passes.run(rank);
}

Program compile_stretch(const CompileRequest& request, const Layout& layout, std::int64_t tokens, bool logits, int rank) {
  check(request);
  CompileRequest without_fields = request;
  without_fields.fields.clear();
  Passes passes(without_fields, layout, true);
  passes.forward();
  passes.add("with_cache", [&](Program& program) { with_cache(program, tokens, logits); });
  passes.add("gather_quantized", gather_quantized);
  passes.of_plugins(PassPoint::micro_batch);
  passes.add("fuse_amax", fuse_amax);
  passes.each("finish", finish);
  passes.of_plugins(PassPoint::finished);
  return passes.run(rank);
}

}  // namespace consist
