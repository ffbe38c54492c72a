#include "core/checkpoint/tensor_parts.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "consist/error.h"
#include "core/base/number.h"

namespace consist {
namespace {

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  if (!parse_number(text, value) || value < 0) return std::nullopt;
  return value;
}

std::optional<Shape> parse_shape(std::string_view text) {
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  std::istringstream list(std::string(text.substr(1, text.size() - 2)));
  Shape shape;
  for (std::string extent; std::getline(list, extent, ',');) {
    const std::optional<std::int64_t> value = number(extent);
    if (!value || shape.rank() == Shape::max_rank) return std::nullopt;
    shape.push_back(*value);
  }
  return shape;
}

/// "F", "S0", ...
std::optional<Placement> parse_placement(std::string_view text) {
  if (text == "F") return Placement::flat();
  if (!text.starts_with('S')) return std::nullopt;
  const std::optional<std::int64_t> dim = number(text.substr(1));
  if (!dim || *dim >= Shape::max_rank) return std::nullopt;
  return Placement::shard(static_cast<int>(*dim));
}

/// The tensor that a part belongs to, and how it is divided.
struct Division {
  Shape whole;
  Placements placements;
};

Division parse_part(const std::string& text, const Mesh& mesh, const std::string& name, const std::string& path) {
  const auto refuse = [&]() -> DataError {
    return DataError(path + ": '" + name + "' is said to be the part '" + text +
                     "' of a tensor, which makes no sense in the layout '" + mesh_text(mesh) + "'");
  };
  std::istringstream words(text);
  std::string word;
  words >> word;
  const std::optional<Shape> shape = parse_shape(word);
  if (!shape) throw refuse();
  Division division{*shape, {}};
  while (words >> word) {
    const std::size_t colon = word.find(':');
    const int axis = mesh.find(word.substr(0, colon));
    const std::optional<Placement> placement =
        colon == std::string::npos ? std::nullopt : parse_placement(std::string_view(word).substr(colon + 1));
    if (axis < 0 || !placement) throw refuse();
    division.placements[axis] = *placement;
  }
  return division;
}

}  // namespace

std::string part_text(const Shape& whole, const Placements& placements, const Mesh& mesh) {
  std::string text = whole.text();
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const Placement placement = placements[axis];
    if (placement.is_flat()) text += " " + mesh.axis(axis).name + ":F";
    if (placement.is_shard()) text += " " + mesh.axis(axis).name + ":S" + std::to_string(placement.dim());
  }
  return text;
}

std::string mesh_text(const Mesh& mesh) {
  std::string text;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    text += (text.empty() ? "" : ",") + mesh.axis(axis).name + "=" + std::to_string(mesh.size_of(axis));
  }
  return text;
}

Mesh parse_mesh(std::string_view text, const std::string& path) {
  std::vector<MeshAxis> axes;
  std::istringstream list{std::string(text)};
  for (std::string item; std::getline(list, item, ',');) {
    const std::size_t equals = item.find('=');
    const std::optional<std::int64_t> size =
        equals == std::string::npos ? std::nullopt : number(std::string_view(item).substr(equals + 1));
    if (!size || *size < 1 || *size > 1'000'000) throw DataError(path + ": '" + std::string(text) + "' is no layout of ranks");
    axes.push_back({item.substr(0, equals), static_cast<int>(*size)});
  }
  try {
    return Mesh(std::move(axes));
  } catch (const UsageError& error) {
    throw DataError(path + ": '" + std::string(text) + "' is no layout of ranks: " + error.what());
  }
}

bool owns_part(const Placements& placements, const Mesh& mesh, int rank, int stage_axis) {
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    if (axis != stage_axis && placements[axis].is_replicate() && mesh.coordinate(rank, axis) != 0) return false;
  }
  return true;
}

bool owns_part_among(std::span<const int> ranks, const Placements& placements, const Mesh& mesh, int rank, int stage_axis) {
  const auto holds_the_same = [&](int other) {
    for (int axis = 0; axis < mesh.axes(); ++axis) {
      const bool differs = mesh.coordinate(other, axis) != mesh.coordinate(rank, axis);
      if (differs && (axis == stage_axis || !placements[axis].is_replicate())) return false;
    }
    return true;
  };
  return std::none_of(ranks.begin(), ranks.end(), [&](int other) { return other < rank && holds_the_same(other); });
}

std::string kind_key(std::string_view name) {
  return "kind:" + std::string(name);
}

std::string kind_text(StateKind kind) {
  switch (kind) {
    case StateKind::logical:
      return "logical";
    case StateKind::per_rank:
      return "per_rank";
    case StateKind::discardable:
      return "discardable";
  }
  return "?";
}

TensorPart part_of(const std::string& text, const Mesh& mesh, int rank, const std::string& name, const std::string& path) {
  Division division = parse_part(text, mesh, name, path);
  return {division.whole, local_ranges(division.whole, division.placements, mesh, rank)};
}

std::string part_text_in(const SafetensorsFile& file, const std::string& name) {
  const auto text = file.metadata().find(name);
  return text == file.metadata().end() ? file.shape(name).text() : text->second;
}

void TensorParts::add(int rank, SafetensorsFile file) {
  if (rank >= mesh_.ranks()) {
    throw DataError(file.path() + ": the layout '" + mesh_text(mesh_) + "' has no rank " + std::to_string(rank));
  }
  for (const auto& [name, stored] : file.tensors()) {
    TensorPart found = part_of(part_text_in(file, name), mesh_, rank, name, file.path());
    Part part{files_.size(), std::move(found.ranges)};
    std::int64_t elements = 0;
    for (const LocalRange& range : part.ranges) elements += range.count;
    const auto kind = file.metadata().find(kind_key(name));
    const auto [known, is_new] =
        tensors_.try_emplace(name, Whole{found.whole, {}, kind == file.metadata().end() ? "" : kind->second});
    if (elements != stored.elements || known->second.shape != found.whole) {
      throw DataError(file.path() + ": its part of '" + name + "' does not fit the others");
    }
    known->second.elements += elements;
    if (!repeats_ && known->second.elements > found.whole.elements())
      throw DataError(file.path() + " and the files beside it hold elements of '" + name + "' twice; which are right is unknown");
    std::sort(part.ranges.begin(), part.ranges.end(),
              [](const LocalRange& a, const LocalRange& b) { return a.logical < b.logical; });
    known->second.parts.push_back(std::move(part));
  }
  files_.push_back(std::move(file));
}

std::vector<std::string> TensorParts::names() const {
  std::vector<std::string> names;
  for (const auto& [name, whole] : tensors_) names.push_back(name);
  return names;
}

const TensorParts::Whole& TensorParts::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw DataError((files_.empty() ? "the checkpoint" : files_.front().path() + " and the files beside it") +
                    " have no tensor '" + std::string(name) + "'");
  }
  return found->second;
}

template <typename Read>
void TensorParts::for_pieces(std::string_view name, std::int64_t first, std::int64_t count, const Read& read) const {
  const Whole& whole = find(name);
  for (std::int64_t at = 0; at < count;) {
    // The range, of whichever part, that holds the next element.
    const std::int64_t next = first + at;
    const LocalRange* range = nullptr;
    const Part* holder = nullptr;
    for (const Part& part : whole.parts) {
      auto after = std::upper_bound(part.ranges.begin(), part.ranges.end(), next,
                                    [](std::int64_t element, const LocalRange& r) { return element < r.logical; });
      if (after == part.ranges.begin()) continue;
      --after;
      if (next >= after->logical + after->count) continue;
      range = &*after;
      holder = &part;
      break;
    }
    if (range == nullptr) {
      throw DataError(path(name) + " and the files beside it lack element " + std::to_string(next) + " of '" +
                      std::string(name) + "'");
    }
    const std::int64_t skipped = next - range->logical;
    const std::int64_t here = std::min(count - at, range->count - skipped);
    read(files_[holder->file], at, range->local + skipped, here);
    at += here;
  }
}

void TensorParts::read(std::string_view name, StoredDType dtype, std::int64_t first, std::int64_t count, void* out) const {
  const auto width = static_cast<std::int64_t>(dtype.bytes());
  for_pieces(name, first, count, [&](const SafetensorsFile& file, std::int64_t at, std::int64_t from, std::int64_t here) {
    file.read_stored(name, dtype, from, here, static_cast<char*>(out) + at * width);
  });
}

bool TensorParts::is_of_bytes(std::string_view name) const {
  return files_[find(name).parts.front().file].tensor(name).dtype == stored_name_of(DType::u8);
}

void TensorParts::read_f32(std::string_view name, std::int64_t first, std::span<float> out) const {
  for_pieces(name, first, static_cast<std::int64_t>(out.size()),
             [&](const SafetensorsFile& file, std::int64_t at, std::int64_t from, std::int64_t here) {
               file.read_f32(name, from, out.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(here)));
             });
}

}  // namespace consist
