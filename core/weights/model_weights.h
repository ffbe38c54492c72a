// The weights of a model as Hugging Face stores them: one safetensors file, or several with an index, in the model's folder.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "core/weights/safetensors.h"

namespace consist {

/// Open weights. Const members may be called from several threads; they throw as those of SafetensorsFile do.
class CONSIST_API ModelWeights {
 public:
  /// From a .safetensors file, a model.safetensors.index.json, or a folder with model.safetensors or (if that is not there) the
  /// index. With an index, it decides which tensor is read from which file. Throws UsageError if there is nothing of this kind;
  /// DataError naming the file or tensor that is missing, cut off or corrupt.
  explicit ModelWeights(const std::string& path);

  /// True if a folder (or path) has weights that the constructor would open, whether or not they are sound.
  static bool present(const std::string& path);
  /// "; it has pytorch_model.bin, ...: how to convert it" if a folder has weights in a format that is not read, else empty.
  static std::string advice(const std::string& folder);

  std::vector<std::string> names() const;  ///< in alphabetical order
  bool has(std::string_view name) const { return files_.contains(name); }
  /// The file with the tensor `name`: its dtype, shape and data. Throws DataError if no file has it.
  const SafetensorsFile& file_of(std::string_view name) const;

  const std::string& stored_dtype(std::string_view name) const { return file_of(name).tensor(name).dtype; }  ///< "BF16"
  Shape shape(std::string_view name) const { return file_of(name).shape(name); }
  void read_f32(std::string_view name, std::int64_t first, std::span<float> out) const {
    file_of(name).read_f32(name, first, out);
  }
  void read_bf16(std::string_view name, std::int64_t first, std::span<std::uint16_t> out) const {
    file_of(name).read_bf16(name, first, out);
  }

 private:
  void open_file(const std::string& path);
  void open_index(const std::string& path);

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> opened_;
  std::map<std::string, const SafetensorsFile*, std::less<>> files_;  // by tensor
};

/// The first element in which two tensors of one shape differ, compared as f32; -1: they are equal. Throws as read_f32 does.
CONSIST_API std::int64_t first_difference(const ModelWeights& weights, std::string_view a, std::string_view b);

/// Writes model.safetensors, or model-00001-of-0000N.safetensors and their index where one file would exceed `max_file_bytes` (a
/// larger single tensor gets a file of its own), with the metadata {"format": "pt"} that `transformers` asks for. The folder is
/// made if it is not there. All files are complete on the disk before the first gets its name. Throws UsageError if the folder
/// has weights already and `overwrite` is false, SystemError as AtomicFile does.
CONSIST_API void write_model_weights(const std::string& folder, std::span<const TensorSource> tensors,
                                     std::int64_t max_file_bytes, bool overwrite);

/// Bytes per file that Hugging Face's tools use by default.
inline constexpr std::int64_t default_max_file_bytes = 5'000'000'000;

}  // namespace consist
