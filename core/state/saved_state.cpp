#include "core/state/saved_state.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/log.h"
#include "consist/text.h"
#include "core/archive/reader.h"
#include "core/checkpoint/save_checkpoint.h"
#include "core/checkpoint/tensor_parts.h"
#include "core/state/export_dtype.h"
#include "core/state/loaded_weights.h"
#include "core/state/resume_checks.h"
#include "core/weights/hub_cache.h"
#include "core/weights/model_weights.h"
#include "core/weights/stored_parts.h"
#include "core/weights/tokenizer_files.h"

namespace consist {
namespace {

bool is_whole(const Program& program, TensorId tensor) {
  return program.local(tensor) == program[tensor].shape;
}

}  // namespace

/// The tensors that a rank writes: its own parts, or all of what no other rank has before it.
struct SavedState::OwnedTensors {
  std::vector<TensorSource> sources;
  std::map<std::string, std::string> parts;  ///< see tensor_parts.h

  /// Adds `tensor` of the program if the rank owns it; `read` gives its elements in `dtype`, counted as they lie on this rank.
  void add(const Program& program, int rank, const std::string& name, TensorId tensor, DType dtype,
           std::function<void(void*, std::int64_t, std::int64_t)> read) {
    const Tensor& t = program[tensor];
    const Shape held = local_part(t.shape, t.placements, program.mesh, rank).shape;
    if (!owns_part(t.placements, program.mesh, rank, program.stage_axis) || (held.elements() == 0 && !is_whole(program, tensor)))
      return;
    sources.push_back({name, dtype, held, std::move(read)});
    if (!is_whole(program, tensor)) parts[name] = part_text(t.shape, t.placements, program.mesh);
  }
  /// Adds a value that every rank has for itself; `name` is this rank's alone.
  void add_own(const std::string& name, const TrainingState::Value& value,
               std::function<void(void*, std::int64_t, std::int64_t)> read) {
    sources.push_back({name, value.dtype, value.shape, std::move(read)});
  }
};

namespace {

/// By parameter of the model, the names of what a checkpoint holds for it: its own first, see TrainingState::Value.
std::vector<std::vector<std::string>> names_of_parameters(const Program& program, const Optimizer& optimizer) {
  std::vector<std::vector<std::string>> names;
  for (const Parameter& parameter : program.parameters) {
    names.push_back({parameter.name});
    if (!parameter.trainable) continue;
    for (const std::string& state : optimizer.states(parameter, program[parameter.tensor].shape))
      names.back().push_back(parameter.name + "." + state);
  }
  return names;
}

/// Returns the tensor that holds a parameter most exactly.
TensorId weights_of(const Parameter& parameter) {
  return parameter.master == no_tensor ? parameter.tensor : parameter.master;
}

constexpr const char* parts_folder = "/parts.partial";

/// Removes a folder and what is in it at the end of a scope; "" is none.
class RemovedFolder {
 public:
  explicit RemovedFolder(std::string path) : path_(std::move(path)) {}
  ~RemovedFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
    if (error) log::warn("cannot remove " + path_ + ": " + error.message());
  }
  RemovedFolder(const RemovedFolder&) = delete;
  RemovedFolder& operator=(const RemovedFolder&) = delete;

 private:
  const std::string path_;
};

/// True, on the rank that writes the run's archive, if the archive lacks its end: the run was ended after its last checkpoint.
bool archive_is_open(const RunConfig& config) {
  std::error_code ignored;
  return !config.archive.empty() && std::filesystem::exists(config.archive, ignored) && !config.overwrite &&
         ArchiveReader(config.archive).status() != "finished";
}

/// Parameters as the tensors that files have of them.
std::vector<TensorSource> as_stored(const std::vector<TensorSource>& parameters) {
  std::vector<TensorSource> stored;
  for (const TensorSource& parameter : parameters) {
    for (TensorSource& part : split_into_parts(parameter)) stored.push_back(std::move(part));
  }
  return stored;
}

}  // namespace

SavedState::SavedState(const RunConfig& config, const Parts& parts, const Layout& layout, JoinedJob& job)
    : config_(config),
      parts_(parts),
      job_(job),
      layout_(mesh_text(layout.mesh)),
      sequences_per_step_(config.batch * config.accumulation * layout.batch_ranks()),
      parameters_(names_of_parameters(whole_model(*parts.architecture, config.freeze), *parts.optimizer)) {
  if (!parts.model_folder.empty() && !config.from_scratch && !ModelWeights::present(parts.model_folder)) {
    if (is_hub_model(config.model))
      throw UsageError("--model " + config.model + " has no weights on this machine; " +
                       how_to_download(hub_model(config.model)) + "; --from-scratch initialises weights");
    throw UsageError("--model " + parts.model_folder + " has a config.json and no weights (model.safetensors or its index)" +
                     ModelWeights::advice(parts.model_folder) + "; --from-scratch initialises weights");
  }
  if (!config.export_folder.empty()) export_dtype_ = export_dtype(config, parts);
  if (config.resume) find_newest_checkpoint();
  if (nothing_left_ || job.rank() != 0) return;
  if (!config.checkpoint.empty()) {
    const std::vector<CheckpointPlace> places = list_checkpoints(config.checkpoint);
    if (!config.resume && !places.empty()) {
      throw UsageError("--checkpoint " + config.checkpoint + " holds a checkpoint of step " +
                       std::to_string(places.front().step) + " already; give --resume to go on from it, or another folder");
    }
    writer_ = std::make_unique<CheckpointWriter>(config.checkpoint, config.checkpoint_keep);
  }
  if (!config.export_folder.empty()) {
    if (std::error_code ignored;
        std::filesystem::exists(config.export_folder, ignored) && !std::filesystem::is_directory(config.export_folder, ignored)) {
      throw UsageError("--export " + config.export_folder + " is a file; name a folder, which is made if it is not there");
    }
    if (!config.overwrite && ModelWeights::present(config.export_folder)) {
      throw UsageError("--export " + config.export_folder + " holds weights already; give another folder, or --overwrite");
    }
    std::error_code error;
    made_export_folder_ = std::filesystem::create_directories(config.export_folder, error);
    if (error) throw SystemError("--export " + config.export_folder + " cannot be made: " + error.message());
    for (const char* name : {"config.json", "tokenizer.json"})
      check_output({"--export", config.export_folder + "/" + name, config.overwrite});
  }
}

SavedState::~SavedState() {
  // A run that failed before its export: the folder is as empty as it was made, and remove() takes no other.
  std::error_code ignored;
  if (made_export_folder_) std::filesystem::remove(config_.export_folder, ignored);
}

void SavedState::begin(const RunConfig& config, const Dataset& data) {
  config_ = config;
  data_ = &data;
}

std::int64_t SavedState::fill(TrainingState& state) {
  if (checkpoint_) {
    resume_from_checkpoint(state);
    return checkpoint_->state().step;
  }
  if (parts_.model_folder.empty() || config_.from_scratch) {
    state.initialize(config_.seed, filling_threads(job_));
  } else {
    load_model_folder(state, parts_, config_.freeze, filling_threads(job_), job_.rank() == 0);
  }
  return 0;
}

void SavedState::find_newest_checkpoint() {
  checkpoint_ = find_checkpoint(job_, config_.checkpoint);
  if (!checkpoint_) {
    if (job_.rank() == 0)
      log::warn("--resume: there is no checkpoint in " + config_.checkpoint + " yet; the run begins at its start");
    return;
  }
  const CheckpointState& saved = checkpoint_->state();
  room_ = saved.room;
  check_same_data(saved, checkpoint_->path(), config_, sequences_per_step_);
  check_same_trained(saved, checkpoint_->path(), config_);
  if (saved.step > config_.steps) {
    throw UsageError("--resume: " + checkpoint_->path() + " is of step " + std::to_string(saved.step) + " and --steps is " +
                     std::to_string(config_.steps) + "; ask for at least as many steps, or give another --checkpoint folder");
  }
  if (saved.step < config_.steps) return;
  if (job_.rank() == 0)  // which has the archive
    nothing_left_ = !archive_is_open(config_) && (config_.export_folder.empty() || ModelWeights::present(config_.export_folder));
  nothing_left_ = job_.broadcast("resume.nothing_left", nothing_left_ ? "yes" : "no", job_.timeout()) == "yes";
  if (nothing_left_ && job_.rank() == 0) {
    std::printf("%s is of step %lld, the last one: the run has finished, nothing is left to do\n",
                printable(checkpoint_->path()).c_str(), static_cast<long long>(saved.step));
  }
}

void SavedState::resume_from_checkpoint(TrainingState& state) {
  const Checkpoint* checkpoint = &*checkpoint_;
  const CheckpointState& saved = checkpoint->state();
  if (job_.rank() == 0 && saved.layout != layout_) {
    log::warn("--resume: the checkpoint is of the layout '" + saved.layout + "', this run's is '" + layout_ +
              "': sums are rounded in another order");
  }

  const TensorParts saved_tensors = checkpoint->open_all();
  check_names(saved_tensors, parameters_, state, job_.size(), state.step().program().stage_axis >= 0, checkpoint->path());
  std::vector<TrainingState::Value> there;
  bool warned = false;
  for (const TrainingState::Value& value : state.values()) {
    const std::string name = stored_name(value, job_.rank());
    if (value.kind == StateKind::per_rank && saved.layout != layout_) {
      throw UsageError("--resume: the state '" + value.name + "' is each rank's own, and " + checkpoint->path() +
                       " is of the layout '" + saved.layout + "', this run's is '" + layout_ +
                       "'; resume with the ranks and the strategy that were trained");
    }
    if (!saved_tensors.has(name)) {
      if (value.kind != StateKind::discardable)
        throw DataError(checkpoint->path() + " has no state '" + name +
                        "'; resume with the strategy and the precision that were trained");
      if (!std::exchange(warned, true))
        log::warn("--resume: " + checkpoint->path() + " has no '" + name + "'; what this run keeps of steps before begins anew");
      continue;
    }
    check_shape(saved_tensors.shape(name), value.shape, saved_tensors.path(name), name);
    there.push_back(value);
  }
  state.load_values(
      there,
      [&](const TrainingState::Value& value, std::int64_t first, std::int64_t count, void* out) {
        saved_tensors.read(stored_name(value, job_.rank()), value.dtype, first, count, out);
      },
      filling_threads(job_));
}

std::string SavedState::schedule_change(PluginHost& host) const {
  if (!checkpoint_) return "";
  return consist::schedule_change(checkpoint_->state(), checkpoint_->path(), config_, *parts_.schedule, host);
}

std::int64_t SavedState::save(TrainingState& state, std::int64_t step) {
  OwnedTensors mine;
  for (const TrainingState::Value& value : state.values()) {
    if (!value.saved_here) continue;
    const std::string name = stored_name(value, job_.rank());
    const auto read = [&state, &value](void* to, std::int64_t first, std::int64_t count) {
      state.read_value(value, first, count, to);
    };
    if (value.kind == StateKind::per_rank) {
      mine.add_own(name, value, read);
    } else {
      mine.add(state.step().program(), job_.rank(), name, value.tensor, value.dtype, read);
    }
    if (!value.of_parameter || value.kind == StateKind::per_rank) mine.parts[kind_key(name)] = kind_text(value.kind);
  }
  CheckpointState saved;
  saved.step = step;
  saved.seed = config_.seed;
  saved.data_position = step * sequences_per_step_;
  saved.ranks = config_.ranks;
  saved.layout = layout_;
  saved.room = room_;
  saved.config = config_.to_json();
  return save_checkpoint(job_, writer_.get(), std::move(saved), mine.sources, mine.parts);
}

void SavedState::export_model(TrainingState& state) const {
  if (config_.export_folder.empty()) return;
  const Program& program = state.step().program();
  const bool divided =
      program.stage_axis >= 0 || std::any_of(program.parameters.begin(), program.parameters.end(),
                                             [&](const Parameter& p) { return !is_whole(program, weights_of(p)); });
  OwnedTensors mine;
  for (const Parameter& parameter : program.parameters) {
    if (parameter.tied_replica >= 0 && parameter.tied_replica < job_.rank()) continue;  // that one exports it
    mine.add(program, job_.rank(), parameter.name, weights_of(parameter), DType::f32,
             [&state, &parameter](void* to, std::int64_t first, std::int64_t count) {
               state.read_weights(parameter.name, first, {static_cast<float*>(to), static_cast<std::size_t>(count)});
             });
  }
  const StoredDType dtype = dtype_that_holds(mine, divided);
  for (TensorSource& weights : mine.sources) weights = rounded_to(dtype, std::move(weights));
  // Under their names only when the weights are there: an export that fails leaves nothing.
  std::vector<AtomicFile> beside_weights;
  if (job_.rank() == 0) {
    beside_weights = copy_tokenizer(config_.export_folder, parts_.model_folder, data_->tokenizer(), data_->chat_template());
    const std::string text = with_dtype(parts_.architecture->config_json(), dtype);
    AtomicFile& file = beside_weights.emplace_back(config_.export_folder + "/config.json");
    file.write(text.data(), text.size());
    file.finish();
  }
  if (divided) {
    export_parts(mine, dtype);
  } else if (job_.rank() == 0) {
    write_model_weights(config_.export_folder, as_stored(mine.sources), default_max_file_bytes, config_.overwrite);
  }
  for (AtomicFile& file : beside_weights) file.publish();
}

/// The dtype of the export: weights that binary16 cannot hold are not worth losing after the training.
StoredDType SavedState::dtype_that_holds(const OwnedTensors& mine, bool divided) const {
  if (!export_dtype_.is_float16()) return export_dtype_;
  std::string beyond = beyond_float16(mine.sources);
  if (divided) {
    for (std::string& of_rank : job_.all_gather("export.beyond", beyond, checkpoint_timeout)) {
      if (beyond.empty()) beyond = std::move(of_rank);
    }
  }
  if (beyond.empty()) return export_dtype_;
  if (job_.rank() == 0)
    log::warn("--export " + config_.export_folder + " is in float32, not in float16, whose largest number is 65504: " + beyond);
  return DType::f32;
}

void SavedState::export_parts(const OwnedTensors& mine, StoredDType dtype) const {
  namespace fs = std::filesystem;
  const std::string folder = config_.export_folder + parts_folder;
  const RemovedFolder removed(job_.rank() == 0 ? folder : "");  // also where the export fails
  std::error_code error;
  if (job_.rank() == 0) {
    fs::remove_all(folder, error);
    fs::create_directory(folder, error);
    if (error) throw SystemError("cannot make the folder " + folder + ": " + error.message());
  }
  job_.barrier("export.begun", checkpoint_timeout);
  std::string written;
  if (!mine.sources.empty())
    written = write_checkpoint_file(folder, checkpoint_file_name(job_.rank()), mine.sources, mine.parts).name;
  const std::vector<std::string> files = job_.gather("export.files", written, checkpoint_timeout);
  if (job_.rank() == 0) {
    TensorParts parts(parse_mesh(layout_, folder));
    for (std::size_t rank = 0; rank < files.size(); ++rank) {
      if (!files[rank].empty()) parts.add(static_cast<int>(rank), SafetensorsFile(folder + "/" + files[rank]));
    }
    std::vector<TensorSource> sources;
    for (const std::string& name : parts.names()) {
      sources.push_back({name, dtype, parts.shape(name), [&parts, name, dtype](void* to, std::int64_t first, std::int64_t count) {
                           parts.read(name, dtype, first, count, to);
                         }});
    }
    write_model_weights(config_.export_folder, as_stored(sources), default_max_file_bytes, config_.overwrite);
  }
  job_.barrier("export.written", checkpoint_timeout);
}

}  // namespace consist
