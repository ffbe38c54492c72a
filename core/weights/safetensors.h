// One safetensors file: reading tensors by name and range, and writing a file from tensors that come in pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"
#include "consist/files.h"
#include "consist/shape.h"
#include "core/base/sha256.h"
#include "core/weights/stored_dtype.h"
#include "core/weights/tensor_table.h"

namespace consist {

/// An open file; its header has been read and checked. Const members may be called from several threads. Elements are counted in
/// row-major order; every read throws DataError for an unknown name, a range outside the tensor, a dtype that cannot be had, or a
/// file that has been cut off since; SystemError if the system refuses.
class CONSIST_API SafetensorsFile {
 public:
  /// Throws SystemError if there is no such file, DataError if it is cut off, corrupt or of another format.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const noexcept { return file_.path(); }
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const noexcept { return table_.tensors; }
  const std::map<std::string, std::string, std::less<>>& metadata() const noexcept { return table_.metadata; }
  bool has(std::string_view name) const { return table_.tensors.contains(name); }
  const StoredTensor& tensor(std::string_view name) const;
  Shape shape(std::string_view name) const;  ///< throws DataError beyond Shape::max_rank, too

  /// Elements [first, first + out.size()) of a tensor stored as F32, BF16 or F16, as f32; exact.
  void read_f32(std::string_view name, std::int64_t first, std::span<float> out) const;
  /// The same as bfloat16: exact from BF16, otherwise rounded to nearest, ties to even.
  void read_bf16(std::string_view name, std::int64_t first, std::span<std::uint16_t> out) const;
  /// Elements [first, first + count) in the dtype that they are stored in, which must be `dtype`.
  void read_stored(std::string_view name, StoredDType dtype, std::int64_t first, std::int64_t count, void* out) const;

 private:
  const StoredTensor& range(std::string_view name, std::int64_t first, std::int64_t count) const;
  template <typename To>
  void read_floats(std::string_view name, std::int64_t first, std::span<To> out) const;

  InputFile file_;
  TensorTable table_;
};

/// A tensor to be written: where its elements come from. `read` copies elements [first, first + count) in row-major order to
/// `to`, in `dtype`; it is called from the writer's thread, in increasing order of `first`, and what it throws passes through the
/// writer.
struct TensorSource {
  std::string name;
  StoredDType dtype = DType::f32;
  Shape shape;
  std::function<void(void* to, std::int64_t first, std::int64_t count)> read;
};

/// Size of the file that write_safetensors makes.
CONSIST_API std::int64_t safetensors_bytes(std::span<const TensorSource> tensors,
                                           const std::map<std::string, std::string>& metadata);

/// Writes the tensors to `file`, which must be new, through a buffer of a few megabytes, and finishes it; the caller publishes
/// it. Data starts at a multiple of 8 bytes and wide dtypes come first, so that every tensor is aligned for readers that map the
/// file. If `digest` is given, it gets every byte of the file. Throws UsageError for two tensors of one name, and what `file` and
/// the sources throw.
CONSIST_API void write_safetensors(AtomicFile& file, std::span<const TensorSource> tensors,
                                   const std::map<std::string, std::string>& metadata, BlockedSha256* digest = nullptr);

}  // namespace consist
