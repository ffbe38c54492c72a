// State of a rank while it trains: the prepared programs, their memory, the values of parameters and optimizer states.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consist/device.h"
#include "consist/error.h"
#include "consist/job.h"
#include "consist/optimizer.h"
#include "consist/precision.h"
#include "consist/program.h"
#include "consist/transport.h"
#include "core/lower/prepared_program.h"
#include "core/state/staged_upload.h"

namespace consist {

/// Reads elements [first, first + out.size()) of the logical tensor `name` as f32. Called from several threads at once.
using ReadElements = std::function<void(const std::string& name, std::int64_t first, std::span<float> out)>;

/// Threads with which each rank of the job best fills its memory: its share of the cores of its host.
CONSIST_API int filling_threads(const Job& job);

/// A plan exceeds the memory that it may take.
class CONSIST_API TooLarge : public UsageError {
 public:
  TooLarge(const std::string& message, std::int64_t bytes) : UsageError(message), bytes_(bytes) {}
  std::int64_t bytes() const noexcept { return bytes_; }  ///< of device memory, per rank

 private:
  std::int64_t bytes_;
};

/// A program that runs on the states of a TrainingState, and what it is called there.
struct NamedProgram {
  std::string name;
  Program program;
};
using NamedPrograms = std::vector<NamedProgram>;

/// Names that the core gives: a training step, an evaluation, and the programs that generate text (see generator.h), of which one
/// reads many tokens of a prompt at once and the other the newest.
inline constexpr const char *train_program = "train", *evaluate_program = "evaluate", *prefill_program = "prefill",
                            *decode_program = "decode";

/// Owned by the trainer, used from its thread. Device and communicators must outlive it.
class CONSIST_API TrainingState {
 public:
  /// Prepares and plans the programs, at least one, which share one arena. The states of the first are kept; others read and
  /// write them by their names. One that has states besides (caches of keys and values) has these and all else behind those of
  /// the first. Throws TooLarge, before anything is allocated, if the plan exceeds `memory_limit` bytes (0: what the device has);
  /// the message names the largest tensors and what makes plans smaller.
  TrainingState(NamedPrograms programs, Device& device, const CommunicatorOfQueue& communicators, int rank,
                std::int64_t memory_limit);
  ~TrainingState();
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  /// Allocates the arenas, fills in constants and hands the programs to the device.
  void allocate(bool profile);

  /// Runs other programs of the same names from now on, with the same parameters and states, whose values stay as they are:
  /// prepares and plans them, gives back the memory and allocates it anew. Values go through the host's memory. Throws TooLarge,
  /// with nothing changed.
  void replace_programs(NamedPrograms programs, const CommunicatorOfQueue& communicators, bool profile);

  /// Initial weights from the seed, made on `threads` threads; optimizer states as at step 0.
  void initialize(std::uint64_t seed, int threads = 1);
  /// Weights from `read`, by parameter name, on `threads` threads; optimizer states as at step 0.
  void load_weights(const ReadElements& read, int threads = 1);

  /// The first program.
  PreparedProgram& step() const { return *programs_.front().program; }
  /// The program of that name; null: there is none.
  PreparedProgram* find(std::string_view name);
  PreparedProgram* evaluation() { return find(evaluate_program); }
  /// To be called before the program of that name runs after another one. If it has states of its own, the first program writes
  /// where they lie: fills in its constants again.
  void restore_constants(std::string_view name);
  std::int64_t planned_bytes() const noexcept { return device_bytes_; }
  std::int64_t planned_host_bytes() const noexcept { return host_bytes_; }

  /// True if the program has an input of that name: a pipeline stage lacks those that others read.
  bool has_input(PreparedProgram& program, std::string_view name);
  /// True if the program has a metric of that name, which read_metric() reads.
  bool has_metric(PreparedProgram& program, std::string_view name) { return has_input(program, name); }
  /// The part of an input that this rank holds.
  LocalPart input_part(PreparedProgram& program, std::string_view name);
  void write_input(PreparedProgram& program, std::string_view name, const void* data, std::int64_t bytes);
  float read_metric(PreparedProgram& program, std::string_view name);
  /// One of several f32 elements; `out` is as large as what this rank holds.
  void read_metric(PreparedProgram& program, std::string_view name, std::span<float> out);
  /// All elements of a metric that is no scalar.
  std::vector<float> read_metrics(PreparedProgram& program, std::string_view name);

  /// A value that a checkpoint must hold: f32 parameters or masters, their states, bf16 parameters without master, and the states
  /// that strategies and precisions keep beside them (Builder::state), if the step writes them.
  struct Value {
    std::string name;  ///< "<parameter>" or "<parameter>.<state>" (ParameterState), the same under every precision; else the
                       ///< state's own
    TensorId tensor = no_tensor;
    DType dtype = DType::f32;
    Shape shape;               ///< logical; of StateKind::per_rank what this rank holds
    bool saved_here = true;    ///< false: a rank before this one trains the same parameter (Parameter::tied_replica) and saves it
    bool of_parameter = true;  ///< false: a state beside the parameters
    StateKind kind = StateKind::logical;
  };
  const std::vector<Value>& values() const noexcept { return values_; }
  /// The values of a rank whose step is this program.
  static std::vector<Value> values_of(const Program& program, int rank);
  /// States beside the weights that the step reads or writes, those of parameters among them. Of an evaluation those that it only
  /// reads are not among values() unless they are a parameter's: a checkpoint of a run that trains has them.
  std::vector<Value> states_read() const;
  /// Copies this rank's elements [first, first+count) (local) of a value out of the device, in the value's dtype.
  void read_value(const Value& value, std::int64_t first, std::int64_t count, void* out);
  /// Reads elements [first, first+count) of the logical value, in its dtype. Called from several threads at once.
  using ReadValue = std::function<void(const Value& value, std::int64_t first, std::int64_t count, void* out)>;
  /// These values from `read`, on `threads` threads, with the parameters that forward reads rounded from masters among them.
  void load_values(std::span<const Value> values, const ReadValue& read, int threads = 1);
  /// Elements of the parameter as training holds it most exactly (master or parameter), converted to f32; local elements.
  void read_weights(const std::string& parameter, std::int64_t first, std::span<float> out);
  /// The same of the weights that evaluations read (Optimizer::evaluated()).
  void read_evaluated_weights(const Parameter& parameter, const Optimizer& optimizer, std::int64_t first, std::span<float> out);

 private:
  struct Entry {
    std::string name;
    std::unique_ptr<PreparedProgram> program;
    bool has_states = false;  ///< of its own, behind those of the first
  };
  struct Prepared {
    std::vector<Entry> programs;
    std::int64_t device_bytes = 0, host_bytes = 0;
  };
  /// Prepares and plans them, and checks them against the limit.
  Prepared prepare(NamedPrograms programs, const CommunicatorOfQueue& communicators) const;
  void release_arenas();
  /// Parameters, masters, and all states that the step writes, by name.
  std::map<std::string, TensorId> kept_tensors() const;
  void check_limit(const Prepared& prepared) const;
  void fill_constants(PreparedProgram& program);
  using MakeFloats = std::function<void(std::int64_t logical, std::span<float> out)>;
  using MakeElements = std::function<void(std::int64_t logical, std::int64_t count, char* out)>;
  /// Parameter, master and moments as at step 0; `make` is called from the upload's threads.
  void set_parameter(StagedUpload& upload, const Parameter& parameter, const MakeFloats& make);
  /// Writes a tensor from `make`, which gives elements in the tensor's dtype: of the logical tensor, or of what is this rank's
  /// `own` (StateKind::per_rank). `rounded`, if there is one, is divided alike, and gets the same values from a tensor of f32.
  void write_tensor(StagedUpload& upload, TensorId tensor, TensorId rounded, MakeElements make, bool own = false);
  void zero(TensorId tensor);
  void zero_states();
  TensorId find_named(PreparedProgram& program, std::string_view name);  // no_tensor if there is none
  TensorId named(PreparedProgram& program, std::string_view name);

  Device& device_;
  int rank_;
  std::int64_t memory_limit_ = 0;  // bytes; 0: none
  std::vector<Entry> programs_;
  std::vector<std::unique_ptr<PreparedProgram>> replaced_;  // the job's thread may still look at them
  std::vector<Value> values_;
  std::int64_t device_bytes_ = 0, host_bytes_ = 0;
  void* device_arena_ = nullptr;
  void* host_arena_ = nullptr;
  bool as_allocated_ = true;  ///< states are zero still, as device memory is handed out
  std::map<const PreparedProgram*, std::map<std::string, TensorId, std::less<>>> named_;  // a step looks up without a copy
};

}  // namespace consist
