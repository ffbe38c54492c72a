// Tensors that are divided over the files of ranks. A file holds its rank's parts as they lie there; its metadata says of each
// part of what whole it is: {"model.norm.weight": "[4096] data:F"}. Tensors that are whole have no such entry. States beside the
// parameters have an entry {"kind:<name>": "discardable"} with their StateKind.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consist/export.h"
#include "consist/mesh.h"
#include "consist/program.h"
#include "core/program/local_ranges.h"
#include "core/weights/safetensors.h"

namespace consist {

/// The metadata of a part.
CONSIST_API std::string part_text(const Shape& whole, const Placements& placements, const Mesh& mesh);

/// The metadata's key for the kind of a state, and its value: "logical", "per_rank" or "discardable".
CONSIST_API std::string kind_key(std::string_view name);
CONSIST_API std::string kind_text(StateKind kind);

/// "data=2,tensor=4", "" for one rank.
CONSIST_API std::string mesh_text(const Mesh& mesh);
/// The inverse. Throws DataError naming `path`.
CONSIST_API Mesh parse_mesh(std::string_view text, const std::string& path);

/// True if `rank` writes its part of a tensor with these placements: of ranks that hold the same part, the first one does. Along
/// `stage_axis` (see Program) ranks hold different tensors.
CONSIST_API bool owns_part(const Placements& placements, const Mesh& mesh, int rank, int stage_axis = -1);
/// The same of `ranks`, which write together without the others: of those that hold the same part, the first one writes it.
CONSIST_API bool owns_part_among(std::span<const int> ranks, const Placements& placements, const Mesh& mesh, int rank,
                                 int stage_axis = -1);

/// A rank's part of a tensor.
struct TensorPart {
  Shape whole;
  std::vector<LocalRange> ranges;
};
/// The part of which `rank` of this layout has written the metadata. Throws DataError naming the tensor and `path`.
CONSIST_API TensorPart part_of(const std::string& text, const Mesh& mesh, int rank, const std::string& name,
                               const std::string& path);
/// The metadata of a tensor of this file, also of one that is whole.
CONSIST_API std::string part_text_in(const SafetensorsFile& file, const std::string& name);

/// The tensors of a set of ranks' files, to be read by logical range, whatever layout wrote them.
class CONSIST_API TensorParts {
 public:
  /// `mesh`: the layout of the ranks that wrote. `repeats`: several files may have the same elements, which are equal then.
  explicit TensorParts(Mesh mesh, bool repeats = false) : mesh_(std::move(mesh)), repeats_(repeats) {}

  /// Adds the file that `rank` wrote. Throws DataError for parts of one tensor that contradict each other.
  void add(int rank, SafetensorsFile file);

  std::size_t size() const noexcept { return tensors_.size(); }
  std::vector<std::string> names() const;  ///< in alphabetical order
  bool has(std::string_view name) const { return tensors_.contains(name); }
  /// The logical shape. Throws DataError if there is no such tensor.
  const Shape& shape(std::string_view name) const { return find(name).shape; }
  /// True if its elements are stored as bytes. Throws DataError if there is no such tensor.
  bool is_of_bytes(std::string_view name) const;
  /// kind_text() of a state, "" for what belongs to a parameter (and for everything in checkpoints older than this entry).
  const std::string& kind(std::string_view name) const { return find(name).kind; }
  /// A file with (a part of) the tensor, for messages.
  const std::string& path(std::string_view name) const { return files_[find(name).parts.front().file].path(); }
  /// Elements [first, first + count) of the logical tensor, which must be stored in `dtype`. Throws DataError, also where no file
  /// has some of them.
  void read(std::string_view name, StoredDType dtype, std::int64_t first, std::int64_t count, void* out) const;
  /// The same as f32, whatever float dtype it is stored in.
  void read_f32(std::string_view name, std::int64_t first, std::span<float> out) const;

 private:
  /// Calls `read(file, at, from, count)` for the pieces of a range: elements [from, from + count) of that file's part are the range's
  /// from element `at` on.
  template <typename Read>
  void for_pieces(std::string_view name, std::int64_t first, std::int64_t count, const Read& read) const;
  struct Part {
    std::size_t file;
    std::vector<LocalRange> ranges;  // by their place in the logical tensor
  };
  struct Whole {
    Shape shape;
    std::vector<Part> parts;
    std::string kind;
    std::int64_t elements = 0;  // of all parts
  };
  const Whole& find(std::string_view name) const;

  Mesh mesh_;
  bool repeats_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Whole, std::less<>> tensors_;
};

}  // namespace consist
