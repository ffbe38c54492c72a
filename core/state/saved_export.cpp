// The part of SavedState that writes the trained model.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "consist/error.h"
#include "consist/files.h"
#include "consist/log.h"
#include "core/checkpoint/save_checkpoint.h"
#include "core/checkpoint/tensor_parts.h"
#include "core/state/adapter_export.h"
#include "core/state/export_dtype.h"
#include "core/state/owned_tensors.h"
#include "core/state/saved_state.h"
#include "core/state/weights_in_blocks.h"
#include "core/weights/model_weights.h"
#include "core/weights/stored_parts.h"
#include "core/weights/tokenizer_files.h"

namespace consist {
namespace {

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

/// Parameters as the tensors that files have of them.
std::vector<TensorSource> as_stored(const std::vector<TensorSource>& parameters) {
  std::vector<TensorSource> stored;
  for (const TensorSource& parameter : parameters) {
    for (TensorSource& part : split_into_parts(parameter)) stored.push_back(std::move(part));
  }
  return stored;
}

bool is_of_bytes(const TensorSource& source) {
  return source.dtype == DType::u8;
}

void round_all(std::vector<TensorSource>& weights, StoredDType dtype) {
  for (TensorSource& source : weights) {
    if (!is_of_bytes(source)) source = rounded_to(dtype, std::move(source));
  }
}

/// Adds the bytes of a parameter in blocks, of which a rank may hold no whole ones.
void add_bytes(OwnedTensors& mine, TrainingState& state, int rank, const Parameter& parameter) {
  const auto value = std::ranges::find(state.values(), parameter.name, &TrainingState::Value::name);
  mine.add(state.step().program(), rank, parameter.name, parameter.tensor, DType::u8,
           [&state, value](void* to, std::int64_t first, std::int64_t count) { state.read_value(*value, first, count, to); });
}

}  // namespace

void SavedState::export_model(TrainingState& state) const {
  if (config_.export_folder.empty()) return;
  const Program& program = state.step().program();
  const bool divided = program.stage_axis >= 0 ||
                       std::any_of(program.parameters.begin(), program.parameters.end(),
                                   [&](const Parameter& p) { return is_exported(p) && !is_whole(program, weights_of(p)); });
  const OptimizerUses optimizers = parts_.optimizers(config_);
  OwnedTensors mine;
  for (const Parameter& parameter : program.parameters) {
    if (!is_exported(parameter)) continue;
    if (parameter.tied_replica >= 0 && parameter.tied_replica < job_.rank()) continue;  // that one exports it
    if (parameter.blocks.any()) {
      add_bytes(mine, state, job_.rank(), parameter);
      continue;
    }
    mine.add(
        program, job_.rank(), parameter.name, weights_of(parameter), DType::f32,
        [&state, &parameter, optimizer = optimizers.of(parameter.name).optimizer](void* to, std::int64_t first,
                                                                                  std::int64_t count) {
          state.read_evaluated_weights(parameter, *optimizer, first, {static_cast<float*>(to), static_cast<std::size_t>(count)});
        });
  }
  if (!divided) {
    for (TensorSource& source : mine.sources) {
      if (is_of_bytes(source)) source = decoded(config_.frozen_weights, std::move(source));
    }
  }
  const StoredDType dtype = dtype_that_holds(mine, divided);
  if (!parts_.adapted) round_all(mine.sources, dtype);
  // Under their names only when the weights are there: an export that fails leaves nothing.
  std::vector<AtomicFile> beside_weights;
  if (job_.rank() == 0) {
    beside_weights = copy_tokenizer(config_.export_folder, parts_.model_folder, data_->tokenizer(), data_->chat_template());
    if (!exports_adapter_alone()) {
      const std::string text = with_dtype(parts_.architecture->config_json(), dtype);
      AtomicFile& file = beside_weights.emplace_back(config_.export_folder + "/config.json");
      file.write(text.data(), text.size());
      file.finish();
    }
  }
  if (divided) {
    export_parts(mine, dtype);
  } else if (job_.rank() == 0) {
    write_export(mine.sources, dtype);
  }
  for (AtomicFile& file : beside_weights) file.publish();
}

bool SavedState::exports_adapter_alone() const noexcept {
  return parts_.adapted && !config_.export_merged;
}

bool SavedState::is_exported(const Parameter& parameter) const {
  if (!parameter.model.empty()) return false;  // of a frozen model
  return !exports_adapter_alone() || !parts_.adapted->is_of_base(parameter.name);
}

/// Writes what is exported of all that was trained; with an adapter `trained` is in f32.
void SavedState::write_export(std::vector<TensorSource> trained, StoredDType dtype) const {
  if (exports_adapter_alone()) {
    trained = of_adapter_alone(*parts_.adapted, trained);
    round_all(trained, dtype);
    std::vector<AtomicFile> files = write_adapter(config_.export_folder, *parts_.adapted, config_, trained);
    for (AtomicFile& file : files) file.publish();
    return;
  }
  if (parts_.adapted) {
    trained = with_adapter_added(*parts_.adapted, trained);
    round_all(trained, dtype);
  }
  write_model_weights(config_.export_folder, as_stored(trained), default_max_file_bytes, may_replace_export());
}

/// The dtype of the export: weights that binary16 cannot hold are not worth losing after the training.
StoredDType SavedState::dtype_that_holds(const OwnedTensors& mine, bool divided) const {
  if (!export_dtype_.is_float16()) return export_dtype_;
  std::vector<TensorSource> numbers;
  std::ranges::copy_if(mine.sources, std::back_inserter(numbers), [](const TensorSource& s) { return !is_of_bytes(s); });
  std::string beyond = beyond_float16(numbers);
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
    const StoredDType stored = parts_.adapted ? StoredDType(DType::f32) : dtype;
    std::vector<TensorSource> sources;
    for (const std::string& name : parts.names()) {
      const StoredDType as = parts.is_of_bytes(name) ? DType::u8 : stored;
      TensorSource source{name, as, parts.shape(name), [&parts, name, as](void* to, std::int64_t first, std::int64_t count) {
                            parts.read(name, as, first, count, to);
                          }};
      if (is_of_bytes(source)) source = rounded_to(stored, decoded(config_.frozen_weights, std::move(source)));
      sources.push_back(std::move(source));
    }
    write_export(std::move(sources), dtype);
  }
  job_.barrier("export.written", checkpoint_timeout);
}

}  // namespace consist
