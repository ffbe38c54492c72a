// Parts that make programs and read data, as the host hands them out; see guarded.h.
#include "core/plugin/guarded.h"

#include <set>
#include <string>

#include "consist/error.h"
#include "consist/pass.h"
#include "consist/stage_estimate.h"
#include "core/base/one_line.h"
#include "core/plugin/guarded_part.h"

namespace consist {
namespace {

/// Lets the passes that a plugin has added to `own` run as calls of it.
void add_guarded(PassList& to, const PassList& own, const PluginIdentity& plugin) {
  for (std::size_t p = 0; p < pass_points; ++p) {
    const auto point = static_cast<PassPoint>(p);
    for (const Pass& pass : own.at(point)) {
      to.add(point, {pass.name, [pass, &plugin](Program& program, PassContext& context) {
                       in_plugin(plugin, pass.name.c_str(), [&] { pass.run(program, context); });
                     }});
    }
  }
}

class GuardedArchitecture final : public Guarded<Architecture> {
 public:
  using Guarded::Guarded;
  ModelSizes sizes() const override { return call<&Part::sizes>("sizes"); }
  TensorId build(Builder& builder, TensorId ids, TensorId targets, double loss_scale) const override {
    return call<&Part::build>("build", builder, ids, targets, loss_scale);
  }
  std::string config_json() const override { return call<&Part::config_json>("config_json"); }
};

class GuardedModel final : public Guarded<Model> {
 public:
  using Guarded::Guarded;
  std::vector<ModelPreset> presets() const override { return call<&Part::presets>("presets"); }
  std::unique_ptr<Architecture> from_preset(std::string_view name) const override {
    return guarded_architecture(call<&Part::from_preset>("from_preset", name), "from_preset");
  }
  bool accepts(std::string_view architecture) const override { return call<&Part::accepts>("accepts", architecture); }
  std::unique_ptr<Architecture> from_config(std::string_view json) const override {
    return guarded_architecture(call<&Part::from_config>("from_config", json), "from_config");
  }

 private:
  std::unique_ptr<Architecture> guarded_architecture(std::unique_ptr<Architecture> made, const char* function) const {
    return std::make_unique<GuardedArchitecture>(not_null(std::move(made), function), plugin_, part_);
  }
};

class GuardedAdapter final : public Guarded<Adapter> {
 public:
  using Guarded::Guarded;
  void adapt(Program& model) const override { call<&Part::adapt>("adapt", model); }
  std::string describe() const override { return one_line(call<&Part::describe>("describe")); }
  std::string config_json(const Program& adapted, std::string_view base) const override {
    return call<&Part::config_json>("config_json", adapted, base);
  }
  void merge(const Program& adapted, std::string_view parameter, std::int64_t first, std::span<float> values,
             const ReadWeights& read) const override {
    call<&Part::merge>("merge", adapted, parameter, first, values, read);
  }
};

class GuardedLoss final : public Guarded<Loss> {
 public:
  using Guarded::Guarded;
  std::vector<FrozenModel> frozen_models() const override {
    std::vector<FrozenModel> models = call<&Part::frozen_models>("frozen_models");
    for (std::size_t k = 0; k < models.size(); ++k) {
      const auto has_its_name = [&](const FrozenModel& other) { return other.name == models[k].name; };
      if (models[k].name.empty() || models[k].name.find('.') != std::string::npos)
        refuse("names a frozen model '" + models[k].name + "', which is no word");
      if (std::count_if(models.begin(), models.end(), has_its_name) > 1)
        refuse("names two frozen models '" + models[k].name + "'");
    }
    return models;
  }
  TensorId build(Builder& builder, const ModelHead& trained, std::span<const ModelHead> frozen,
                 double loss_scale) const override {
    const TensorId loss = call<&Part::build>("build", builder, trained, frozen, loss_scale);
    if (loss < 0 || loss >= std::ssize(builder.program().tensors))
      refuse("returned no tensor from build(); it must return the loss, such as layers::total makes it");
    if (builder[loss].shape.rank() != 0)
      refuse("returned '" + builder[loss].name + "' from build(), of shape " + builder[loss].shape.text() +
             "; the loss must be a scalar, such as layers::total makes it");
    return loss;
  }
  std::string describe() const override { return one_line(call<&Part::describe>("describe")); }
  std::string unit() const override {
    std::string unit = one_line(call<&Part::unit>("unit"));
    if (unit.empty()) refuse("returned no unit from unit(); of a pure number it is \"1\"");
    return unit;
  }
};

class GuardedStrategy : public Guarded<ParallelStrategy> {
 public:
  using Guarded::Guarded;
  AxisRequest axis() const override {
    AxisRequest request = call<&Part::axis>("axis");
    if (request.name.empty()) refuse("has an axis without a name");
    if (request.least_axes < 1 || request.most_axes < request.least_axes)
      refuse("works on " + std::to_string(request.least_axes) + " to " + std::to_string(request.most_axes) + " axes");
    return request;
  }
  void partition(Program& forward, AxisSet axes) const override { call<&Part::partition>("partition", forward, axes); }
  void divide(Program& segment, AxisSet axes) const override { call<&Part::divide>("divide", segment, axes); }
  void schedule(Program& step, AxisSet axes) const override { call<&Part::schedule>("schedule", step, axes); }
  void finish(Program& program, AxisSet axes) const override { call<&Part::finish>("finish", program, axes); }
  void add_passes(PassList& passes, AxisSet axes) const override {
    PassList own;
    call<&Part::add_passes>("add_passes", own, axes);
    add_guarded(passes, own, plugin_);
  }
};

/// Guards a strategy that is a StageEstimator.
class GuardedStageStrategy final : public GuardedStrategy, public StageEstimator {
 public:
  using GuardedStrategy::GuardedStrategy;
  StageEstimate estimate_stages(const StageRequest& request) const override {
    const auto& estimator = dynamic_cast<const StageEstimator&>(*part_);
    return in_plugin(plugin_, "estimate_stages", [&] { return estimator.estimate_stages(request); });
  }
};

class GuardedPrecision final : public Guarded<Precision> {
 public:
  using Guarded::Guarded;
  DTypes dtypes() const override { return call<&Part::dtypes>("dtypes"); }
  void rewrite(Program& forward) const override { call<&Part::rewrite>("rewrite", forward); }
  void add_passes(PassList& passes) const override {
    PassList own;
    call<&Part::add_passes>("add_passes", own);
    add_guarded(passes, own, plugin_);
  }
  std::string describe() const override { return one_line(call<&Part::describe>("describe")); }
  std::string peak() const override { return call<&Part::peak>("peak"); }
};

class GuardedOptimizer final : public Guarded<Optimizer> {
 public:
  using Guarded::Guarded;
  std::vector<OptimizerState> states(const Parameter& parameter, const Shape& shape) const override {
    return call<&Part::states>("states", parameter, shape);
  }
  std::vector<double> evaluated(const Parameter& parameter, const Shape& shape) const override {
    return call<&Part::evaluated>("evaluated", parameter, shape);
  }
  std::size_t scalar_count() const override { return call<&Part::scalar_count>("scalar_count"); }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    call<&Part::write_scalars>("write_scalars", step, learning_rate, out);
  }
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    call<&Part::update>("update", builder, scalars, clip, group);
  }
  void add_passes(PassList& passes) const override {
    PassList own;
    call<&Part::add_passes>("add_passes", own);
    add_guarded(passes, own, plugin_);
  }
  std::string describe() const override { return one_line(call<&Part::describe>("describe")); }
};

class GuardedSchedule final : public Guarded<Schedule> {
 public:
  using Guarded::Guarded;
  double rate(std::int64_t done, std::int64_t steps, double peak) const override {
    const double rate = call<&Part::rate>("rate", done, steps, peak);
    constexpr double most = 1e6;  // as of --learning-rate
    if (rate >= 0 && rate <= most) return rate;
    refuse("gives step " + std::to_string(done + 1) + " of " + std::to_string(steps) + " the learning rate " +
           std::to_string(rate) + "; it must lie between 0 and 1000000");
  }
  std::string describe() const override { return one_line(call<&Part::describe>("describe")); }
};

class GuardedObserver final : public Guarded<Observer> {
 public:
  using Guarded::Guarded;
  void begin(const ObservedRun& run) override { call<&Part::begin>("begin", run); }
  void step(const ObservedStep& step) override { call<&Part::step>("step", step); }
  void evaluated(const ObservedEvaluation& evaluation) override { call<&Part::evaluated>("evaluated", evaluation); }
  void sample(std::int64_t step, std::string_view text) override { call<&Part::sample>("sample", step, text); }
  void checkpoint(std::int64_t step, std::string_view folder) override { call<&Part::checkpoint>("checkpoint", step, folder); }
  std::string reason_to_end() const override { return one_line(call<&Part::reason_to_end>("reason_to_end")); }
  void result(std::string_view json) override { call<&Part::result>("result", json); }
  void end(std::string_view status, std::string_view reason) override { call<&Part::end>("end", status, reason); }
};

class GuardedDataset final : public Guarded<Dataset> {
 public:
  using Guarded::Guarded;
  void open(const DatasetRequest& request) override {
    vocabulary_ = request.vocabulary;
    sequence_ = request.sequence_length;
    marked<&Part::open>(PluginCall::Limit::long_work, "open", request);
    train_sequences();
    eval_sequences();
  }
  std::int64_t train_sequences() const override {
    return at_least(1, call<&Part::train_sequences>("train_sequences"), "train_sequences");
  }
  std::int64_t eval_sequences() const override {
    return at_least(0, call<&Part::eval_sequences>("eval_sequences"), "eval_sequences");
  }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override {
    call<&Part::read_train>("read_train", index, tokens);
    check(tokens, "read_train", index);
  }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override {
    call<&Part::read_eval>("read_eval", index, tokens);
    check(tokens, "read_eval", index);
  }
  std::vector<Field> fields() const override {
    std::vector<Field> fields = call<&Part::fields>("fields");
    std::set<std::string> names{"ids", "targets", "optimizer_scalars", "stop_requests"};
    for (const Field& field : fields) {
      if (field.dtype != DType::i32 && field.dtype != DType::f32) refuse_field(field, "must be i32 or f32");
      if (field.name.empty() || field.name.find('.') != std::string::npos) refuse_field(field, "must have a name without dots");
      if (!names.insert(field.name).second) refuse_field(field, "is there already");
    }
    return fields;
  }
  void read_train_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    call<&Part::read_train_fields>("read_train_fields", index, values);
    check(values, "read_train_fields", index);
  }
  void read_eval_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    call<&Part::read_eval_fields>("read_eval_fields", index, values);
    check(values, "read_eval_fields", index);
  }
  std::string describe() const override { return one_line(call<&Part::describe>("describe")); }
  std::string tokenizer() const override { return call<&Part::tokenizer>("tokenizer"); }
  std::vector<std::string> warnings() const override { return call<&Part::warnings>("warnings"); }
  std::string chat_template() const override { return call<&Part::chat_template>("chat_template"); }

 private:
  std::int64_t at_least(std::int64_t least, std::int64_t count, const char* function) const {
    if (count >= least) return count;
    refuse<DataError>("says that it has " + std::to_string(count) + " sequences (" + function + "()); it must have at least " +
                      std::to_string(least));
  }
  [[noreturn]] void refuse_field(const Field& field, const char* why) const {
    refuse<DataError>("has a field '" + field.name + "' in fields() that " + why);
  }
  /// Throws DataError for a document start that is out of range, which attention would not notice.
  void check(std::span<const FieldValues> fields, const char* function, std::int64_t index) const {
    for (const FieldValues& values : fields) {
      if (values.field.name != "document_start") continue;
      const auto* starts = static_cast<const std::int32_t*>(values.data);
      for (std::int64_t t = 0; t < sequence_; ++t) {
        if (starts[t] >= 0 && starts[t] <= t) continue;
        refuse<DataError>("gave the document start " + std::to_string(starts[t]) + " for token " + std::to_string(t) +
                          " of sequence " + std::to_string(index) + " (" + function +
                          "()); a document starts at 0 or later and not behind its tokens");
      }
    }
  }
  void check(std::span<const std::int32_t> tokens, const char* function, std::int64_t index) const {
    for (const std::int32_t token : tokens) {
      if (token >= 0 && token < vocabulary_) continue;
      refuse<DataError>("gave the token " + std::to_string(token) + " in sequence " + std::to_string(index) + " (" + function +
                        "()); the model's vocabulary has " + std::to_string(vocabulary_));
    }
  }
  std::int64_t vocabulary_ = 0, sequence_ = 0;
};

}  // namespace

std::shared_ptr<Model> guarded(std::shared_ptr<Model> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedModel>(std::move(part), plugin);
}
std::shared_ptr<Loss> guarded(std::shared_ptr<Loss> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedLoss>(std::move(part), plugin);
}
std::shared_ptr<Adapter> guarded(std::shared_ptr<Adapter> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedAdapter>(std::move(part), plugin);
}
std::shared_ptr<ParallelStrategy> guarded(std::shared_ptr<ParallelStrategy> part, const PluginIdentity& plugin) {
  if (dynamic_cast<const StageEstimator*>(part.get()) == nullptr)
    return std::make_shared<GuardedStrategy>(std::move(part), plugin);
  return std::make_shared<GuardedStageStrategy>(std::move(part), plugin);
}
std::shared_ptr<Precision> guarded(std::shared_ptr<Precision> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedPrecision>(std::move(part), plugin);
}
std::shared_ptr<Optimizer> guarded(std::shared_ptr<Optimizer> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedOptimizer>(std::move(part), plugin);
}
std::shared_ptr<Schedule> guarded(std::shared_ptr<Schedule> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedSchedule>(std::move(part), plugin);
}
std::shared_ptr<Observer> guarded(std::shared_ptr<Observer> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedObserver>(std::move(part), plugin);
}
std::shared_ptr<Dataset> guarded(std::shared_ptr<Dataset> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedDataset>(std::move(part), plugin);
}

}  // namespace consist
