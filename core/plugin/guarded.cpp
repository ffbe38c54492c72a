#include "core/plugin/guarded.h"

#include <set>
#include <string>

#include "consist/error.h"
#include "consist/pass.h"
#include "consist/stage_estimate.h"
#include "core/base/one_line.h"
#include "core/plugin/kernel_sets.h"

namespace consist {
namespace {

constexpr auto limited = PluginCall::Limit::plugin_timeout;
constexpr auto unlimited = PluginCall::Limit::none;  // of what waits for a step, and so for other ranks

/// Lets the passes that a plugin has added to `own` run as calls of it.
void add_guarded(PassList& to, const PassList& own, const PluginIdentity& plugin) {
  for (std::size_t p = 0; p < pass_points; ++p) {
    const auto point = static_cast<PassPoint>(p);
    for (const Pass& pass : own.at(point)) {
      to.add(point, {pass.name, [pass, &plugin](Program& program, PassContext& context) {
                       in_plugin(plugin, pass.name.c_str(), limited, [&] { pass.run(program, context); });
                     }});
    }
  }
}

template <typename Made>
std::unique_ptr<Made> not_null(std::unique_ptr<Made> made, const PluginIdentity& plugin, const char* function) {
  if (made == nullptr) throw Error(plugin.label + " (" + plugin.file + ") returned null from " + function + "()");
  return made;
}

class GuardedArchitecture final : public Architecture {
 public:
  GuardedArchitecture(std::unique_ptr<Architecture> part, std::shared_ptr<Model> model, const PluginIdentity& plugin)
      : model_(std::move(model)), part_(std::move(part)), plugin_(plugin) {}
  ModelSizes sizes() const override {
    return in_plugin(plugin_, "sizes", [&] { return part_->sizes(); });
  }
  TensorId build(Builder& builder, TensorId ids, TensorId targets, double loss_scale) const override {
    return in_plugin(plugin_, "build", limited, [&] { return part_->build(builder, ids, targets, loss_scale); });
  }
  std::string config_json() const override {
    return in_plugin(plugin_, "config_json", [&] { return part_->config_json(); });
  }

 private:
  std::shared_ptr<Model> model_;  // may own what the architecture refers to
  std::unique_ptr<Architecture> part_;
  const PluginIdentity& plugin_;
};

class GuardedModel final : public Model {
 public:
  GuardedModel(std::shared_ptr<Model> part, const PluginIdentity& plugin) : part_(std::move(part)), plugin_(plugin) {}
  std::vector<ModelPreset> presets() const override {
    return in_plugin(plugin_, "presets", limited, [&] { return part_->presets(); });
  }
  std::unique_ptr<Architecture> from_preset(std::string_view name) const override {
    return guarded_architecture(in_plugin(plugin_, "from_preset", limited, [&] { return part_->from_preset(name); }),
                                "from_preset");
  }
  bool accepts(std::string_view architecture) const override {
    return in_plugin(plugin_, "accepts", limited, [&] { return part_->accepts(architecture); });
  }
  std::unique_ptr<Architecture> from_config(std::string_view json) const override {
    return guarded_architecture(in_plugin(plugin_, "from_config", limited, [&] { return part_->from_config(json); }),
                                "from_config");
  }

 private:
  std::unique_ptr<Architecture> guarded_architecture(std::unique_ptr<Architecture> made, const char* function) const {
    return std::make_unique<GuardedArchitecture>(not_null(std::move(made), plugin_, function), part_, plugin_);
  }
  std::shared_ptr<Model> part_;
  const PluginIdentity& plugin_;
};

class GuardedStrategy : public ParallelStrategy {
 public:
  GuardedStrategy(std::shared_ptr<ParallelStrategy> part, const PluginIdentity& plugin)
      : part_(std::move(part)), plugin_(plugin) {}
  AxisRequest axis() const override {
    AxisRequest request = in_plugin(plugin_, "axis", [&] { return part_->axis(); });
    if (request.name.empty()) throw Error(plugin_.label + " (" + plugin_.file + ") has an axis without a name");
    if (request.least_axes < 1 || request.most_axes < request.least_axes)
      throw Error(plugin_.label + " (" + plugin_.file + ") works on " + std::to_string(request.least_axes) + " to " +
                  std::to_string(request.most_axes) + " axes");
    return request;
  }
  void partition(Program& forward, AxisSet axes) const override {
    in_plugin(plugin_, "partition", limited, [&] { part_->partition(forward, axes); });
  }
  void divide(Program& segment, AxisSet axes) const override {
    in_plugin(plugin_, "divide", limited, [&] { part_->divide(segment, axes); });
  }
  void schedule(Program& step, AxisSet axes) const override {
    in_plugin(plugin_, "schedule", limited, [&] { part_->schedule(step, axes); });
  }
  void finish(Program& program, AxisSet axes) const override {
    in_plugin(plugin_, "finish", limited, [&] { part_->finish(program, axes); });
  }
  void add_passes(PassList& passes, AxisSet axes) const override {
    PassList own;
    in_plugin(plugin_, "add_passes", [&] { part_->add_passes(own, axes); });
    add_guarded(passes, own, plugin_);
  }

 private:
  std::shared_ptr<ParallelStrategy> part_;
  const PluginIdentity& plugin_;
};

/// Guards a strategy that is a StageEstimator.
class GuardedStageStrategy final : public GuardedStrategy, public StageEstimator {
 public:
  GuardedStageStrategy(std::shared_ptr<ParallelStrategy> part, const StageEstimator& estimator, const PluginIdentity& plugin)
      : GuardedStrategy(std::move(part), plugin), estimator_(estimator), plugin_(plugin) {}
  StageEstimate estimate_stages(const StageRequest& request) const override {
    return in_plugin(plugin_, "estimate_stages", limited, [&] { return estimator_.estimate_stages(request); });
  }

 private:
  const StageEstimator& estimator_;
  const PluginIdentity& plugin_;
};

class GuardedPrecision final : public Precision {
 public:
  GuardedPrecision(std::shared_ptr<Precision> part, const PluginIdentity& plugin) : part_(std::move(part)), plugin_(plugin) {}
  DTypes dtypes() const override {
    return in_plugin(plugin_, "dtypes", [&] { return part_->dtypes(); });
  }
  void rewrite(Program& forward) const override {
    in_plugin(plugin_, "rewrite", limited, [&] { part_->rewrite(forward); });
  }
  void add_passes(PassList& passes) const override {
    PassList own;
    in_plugin(plugin_, "add_passes", [&] { part_->add_passes(own); });
    add_guarded(passes, own, plugin_);
  }
  std::string describe() const override {
    return one_line(in_plugin(plugin_, "describe", [&] { return part_->describe(); }));
  }
  std::string peak() const override {
    return in_plugin(plugin_, "peak", [&] { return part_->peak(); });
  }

 private:
  std::shared_ptr<Precision> part_;
  const PluginIdentity& plugin_;
};

class GuardedOptimizer final : public Optimizer {
 public:
  GuardedOptimizer(std::shared_ptr<Optimizer> part, const PluginIdentity& plugin) : part_(std::move(part)), plugin_(plugin) {}
  std::vector<std::string> states(const Parameter& parameter, const Shape& shape) const override {
    return in_plugin(plugin_, "states", [&] { return part_->states(parameter, shape); });
  }
  std::size_t scalar_count() const override {
    return in_plugin(plugin_, "scalar_count", [&] { return part_->scalar_count(); });
  }
  void write_scalars(std::int64_t step, double learning_rate, std::span<float> out) const override {
    in_plugin(plugin_, "write_scalars", [&] { part_->write_scalars(step, learning_rate, out); });
  }
  void update(Builder& builder, TensorId scalars, TensorId clip, const UpdateGroup& group) const override {
    in_plugin(plugin_, "update", limited, [&] { part_->update(builder, scalars, clip, group); });
  }
  void add_passes(PassList& passes) const override {
    PassList own;
    in_plugin(plugin_, "add_passes", [&] { part_->add_passes(own); });
    add_guarded(passes, own, plugin_);
  }
  std::string describe() const override {
    return one_line(in_plugin(plugin_, "describe", [&] { return part_->describe(); }));
  }

 private:
  std::shared_ptr<Optimizer> part_;
  const PluginIdentity& plugin_;
};

class GuardedSchedule final : public Schedule {
 public:
  GuardedSchedule(std::shared_ptr<Schedule> part, const PluginIdentity& plugin) : part_(std::move(part)), plugin_(plugin) {}
  double rate(std::int64_t done, std::int64_t steps, double peak) const override {
    const double rate = in_plugin(plugin_, "rate", [&] { return part_->rate(done, steps, peak); });
    constexpr double most = 1e6;  // as of --learning-rate
    if (rate >= 0 && rate <= most) return rate;
    throw Error(plugin_.label + " (" + plugin_.file + ") gives step " + std::to_string(done + 1) + " of " + std::to_string(steps) +
                " the learning rate " + std::to_string(rate) + "; it must lie between 0 and 1000000");
  }
  std::string describe() const override {
    return one_line(in_plugin(plugin_, "describe", [&] { return part_->describe(); }));
  }

 private:
  std::shared_ptr<Schedule> part_;
  const PluginIdentity& plugin_;
};

class GuardedDataset final : public Dataset {
 public:
  GuardedDataset(std::shared_ptr<Dataset> part, const PluginIdentity& plugin) : part_(std::move(part)), plugin_(plugin) {}
  void open(const DatasetRequest& request) override {
    vocabulary_ = request.vocabulary;
    sequence_ = request.sequence_length;
    in_plugin(plugin_, "open", PluginCall::Limit::long_work, [&] { part_->open(request); });
    train_sequences();
    eval_sequences();
  }
  std::int64_t train_sequences() const override {
    return at_least(1, in_plugin(plugin_, "train_sequences", [&] { return part_->train_sequences(); }), "train_sequences");
  }
  std::int64_t eval_sequences() const override {
    return at_least(0, in_plugin(plugin_, "eval_sequences", [&] { return part_->eval_sequences(); }), "eval_sequences");
  }
  void read_train(std::int64_t index, std::span<std::int32_t> tokens) const override {
    in_plugin(plugin_, "read_train", limited, [&] { part_->read_train(index, tokens); });
    check(tokens, "read_train", index);
  }
  void read_eval(std::int64_t index, std::span<std::int32_t> tokens) const override {
    in_plugin(plugin_, "read_eval", limited, [&] { part_->read_eval(index, tokens); });
    check(tokens, "read_eval", index);
  }
  std::vector<Field> fields() const override {
    std::vector<Field> fields = in_plugin(plugin_, "fields", [&] { return part_->fields(); });
    std::set<std::string> names{"ids", "targets", "optimizer_scalars", "stop_requests"};
    for (const Field& field : fields) {
      if (field.dtype != DType::i32 && field.dtype != DType::f32) refuse_field(field, "must be i32 or f32");
      if (field.name.empty() || field.name.find('.') != std::string::npos) refuse_field(field, "must have a name without dots");
      if (!names.insert(field.name).second) refuse_field(field, "is there already");
    }
    return fields;
  }
  void read_train_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    in_plugin(plugin_, "read_train_fields", limited, [&] { part_->read_train_fields(index, values); });
    check(values, "read_train_fields", index);
  }
  void read_eval_fields(std::int64_t index, std::span<const FieldValues> values) const override {
    in_plugin(plugin_, "read_eval_fields", limited, [&] { part_->read_eval_fields(index, values); });
    check(values, "read_eval_fields", index);
  }
  std::string describe() const override {
    return one_line(in_plugin(plugin_, "describe", [&] { return part_->describe(); }));
  }
  std::string tokenizer() const override {
    return in_plugin(plugin_, "tokenizer", [&] { return part_->tokenizer(); });
  }
  std::vector<std::string> warnings() const override {
    return in_plugin(plugin_, "warnings", limited, [&] { return part_->warnings(); });
  }
  std::string chat_template() const override {
    return in_plugin(plugin_, "chat_template", [&] { return part_->chat_template(); });
  }

 private:
  std::int64_t at_least(std::int64_t least, std::int64_t count, const char* function) const {
    if (count >= least) return count;
    throw DataError(plugin_.label + " (" + plugin_.file + ") says that it has " + std::to_string(count) + " sequences (" +
                    function + "()); it must have at least " + std::to_string(least));
  }
  [[noreturn]] void refuse_field(const Field& field, const char* why) const {
    throw DataError(plugin_.label + " (" + plugin_.file + ") has a field '" + field.name + "' in fields() that " + why);
  }
  /// Throws DataError for a document start that is out of range, which attention would not notice.
  void check(std::span<const FieldValues> fields, const char* function, std::int64_t index) const {
    for (const FieldValues& values : fields) {
      if (values.field.name != "document_start") continue;
      const auto* starts = static_cast<const std::int32_t*>(values.data);
      for (std::int64_t t = 0; t < sequence_; ++t) {
        if (starts[t] >= 0 && starts[t] <= t) continue;
        throw DataError(plugin_.label + " (" + plugin_.file + ") gave the document start " + std::to_string(starts[t]) + " for token " +
                        std::to_string(t) + " of sequence " + std::to_string(index) + " (" + function +
                        "()); a document starts at 0 or later and not behind its tokens");
      }
    }
  }
  void check(std::span<const std::int32_t> tokens, const char* function, std::int64_t index) const {
    for (const std::int32_t token : tokens) {
      if (token >= 0 && token < vocabulary_) continue;
      throw DataError(plugin_.label + " (" + plugin_.file + ") gave the token " + std::to_string(token) + " in sequence " +
                      std::to_string(index) + " (" + function + "()); the model's vocabulary has " + std::to_string(vocabulary_));
    }
  }
  std::shared_ptr<Dataset> part_;
  const PluginIdentity& plugin_;
  std::int64_t vocabulary_ = 0, sequence_ = 0;
};

class GuardedExecutable final : public Executable {
 public:
  GuardedExecutable(std::unique_ptr<Executable> part, std::shared_ptr<Device> device, const PluginIdentity& plugin)
      : device_(std::move(device)), part_(std::move(part)), plugin_(plugin) {}
  void run() override {
    in_plugin(plugin_, "run", unlimited, [&] { part_->run(); });
  }
  void wait() override {
    in_plugin(plugin_, "wait", unlimited, [&] { part_->wait(); });
  }
  std::int32_t position() const noexcept override { return part_->position(); }
  std::vector<LaunchTime> launch_times() const override {
    return in_plugin(plugin_, "launch_times", [&] { return part_->launch_times(); });
  }

 private:
  std::shared_ptr<Device> device_;
  std::unique_ptr<Executable> part_;
  const PluginIdentity& plugin_;
};

class GuardedDevice final : public Device {
 public:
  GuardedDevice(std::shared_ptr<Device> part, const PluginIdentity& plugin) : part_(std::move(part)), plugin_(plugin) {}
  void open(int local_rank, int local_ranks) override {
    in_plugin(plugin_, "open", limited, [&] { part_->open(local_rank, local_ranks); });
  }
  DeviceInfo info() const override {
    return in_plugin(plugin_, "info", [&] { return part_->info(); });
  }
  void* allocate(MemorySpace space, std::int64_t bytes) override {
    void* memory = in_plugin(plugin_, "allocate", limited, [&] { return part_->allocate(space, bytes); });
    if (memory == nullptr && bytes > 0)
      throw SystemError(plugin_.label + " (" + plugin_.file + ") returned null from allocate() of " + std::to_string(bytes) +
                        " bytes");
    return memory;
  }
  void release(MemorySpace space, void* memory) noexcept override {
    const PluginCall call(plugin_, "release");
    part_->release(space, memory);
  }
  void upload(void* device_memory, const void* host, std::int64_t bytes) override {
    in_plugin(plugin_, "upload", unlimited, [&] { part_->upload(device_memory, host, bytes); });
  }
  void download(void* host, const void* device_memory, std::int64_t bytes) override {
    in_plugin(plugin_, "download", unlimited, [&] { part_->download(host, device_memory, bytes); });
  }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override {
    auto made = in_plugin(plugin_, "make_kernel", limited, [&] { return part_->make_kernel(request); });
    return made != nullptr ? std::move(made) : kernel_sets().make(request);
  }
  std::unique_ptr<Executable> prepare(std::vector<Launch> launches, bool profile) override {
    auto made = in_plugin(plugin_, "prepare", limited, [&] { return part_->prepare(std::move(launches), profile); });
    return std::make_unique<GuardedExecutable>(not_null(std::move(made), plugin_, "prepare"), part_, plugin_);
  }
  std::map<std::string, std::string> choose_options(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) override {
    return in_plugin(plugin_, "choose_options", limited, [&] { return part_->choose_options(dtype, m, n, k); });
  }
  DeviceCounters counters() const override {
    return in_plugin(plugin_, "counters", [&] { return part_->counters(); });
  }
  std::vector<DeviceReading> readings() override {
    return in_plugin(plugin_, "readings", [&] { return part_->readings(); });
  }
  double measure_matmul(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) override {
    return in_plugin(plugin_, "measure_matmul", limited, [&] { return part_->measure_matmul(dtype, m, n, k); });
  }

 private:
  std::shared_ptr<Device> part_;
  const PluginIdentity& plugin_;
};

}  // namespace

std::shared_ptr<Model> guarded(std::shared_ptr<Model> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedModel>(std::move(part), plugin);
}
std::shared_ptr<ParallelStrategy> guarded(std::shared_ptr<ParallelStrategy> part, const PluginIdentity& plugin) {
  if (const auto* const estimator = dynamic_cast<const StageEstimator*>(part.get()))
    return std::make_shared<GuardedStageStrategy>(std::move(part), *estimator, plugin);
  return std::make_shared<GuardedStrategy>(std::move(part), plugin);
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
std::shared_ptr<Dataset> guarded(std::shared_ptr<Dataset> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedDataset>(std::move(part), plugin);
}
std::shared_ptr<Device> guarded(std::shared_ptr<Device> part, const PluginIdentity& plugin) {
  return std::make_shared<GuardedDevice>(std::move(part), plugin);
}

}  // namespace consist
