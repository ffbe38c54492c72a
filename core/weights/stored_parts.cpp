#include "core/weights/stored_parts.h"

#include <algorithm>
#include <utility>

#include "consist/error.h"

namespace consist {
namespace {

constexpr std::string_view index_mark = ".*.";

Shape without_first(const Shape& shape) {
  Shape rest;
  for (int dim = 1; dim < shape.rank(); ++dim) rest.push_back(shape[dim]);
  return rest;
}

/// The names that the first "{a,b}" of a name stands for; the name itself if it has none.
std::vector<std::string> alternatives(const std::string& name) {
  const std::size_t open = name.find('{'), close = name.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {name};
  std::vector<std::string> names;
  std::size_t at = open + 1;
  while (at <= close) {
    const std::size_t end = std::min(name.find(',', at), close);
    names.push_back(name.substr(0, open) + name.substr(at, end - at) + name.substr(close + 1));
    at = end + 1;
  }
  return names;
}

}  // namespace

std::vector<StoredPart> stored_parts(std::string_view name, const Shape& shape) {
  const auto refuse = [&](const char* why) {
    throw ProgramError("parameter '" + std::string(name) + "' of the shape " + shape.text() + " " + why);
  };
  std::vector<std::string> indexed{std::string(name)};
  Shape one = shape;
  if (const std::size_t mark = name.find(index_mark); mark != std::string_view::npos) {
    if (shape.rank() < 2) refuse("stacks tensors, for which it has too few dimensions");
    indexed.clear();
    for (std::int64_t i = 0; i < shape[0]; ++i) {
      indexed.push_back(std::string(name.substr(0, mark + 1)) + std::to_string(i) +
                        std::string(name.substr(mark + index_mark.size() - 1)));
    }
    one = without_first(shape);
  }
  std::vector<StoredPart> parts;
  std::int64_t first = 0;
  for (const std::string& each : indexed) {
    const std::vector<std::string> names = alternatives(each);
    const auto count = static_cast<std::int64_t>(names.size());
    Shape part = one;
    if (count > 1) {
      if (one.rank() == 0 || one[0] % count != 0) refuse("cannot be divided into the tensors that its name lists");
      part[0] = one[0] / count;
    }
    for (const std::string& stored : names) {
      parts.push_back({stored, part, first});
      first += part.elements();
    }
  }
  return parts;
}

void read_parts(const ModelWeights& weights, std::span<const StoredPart> parts, std::int64_t first, std::span<float> out) {
  auto part = std::upper_bound(parts.begin(), parts.end(), first,
                               [](std::int64_t element, const StoredPart& p) { return element < p.first; });
  for (--part; !out.empty(); ++part) {
    const std::int64_t skipped = first - part->first;
    const auto here =
        static_cast<std::size_t>(std::min<std::int64_t>(static_cast<std::int64_t>(out.size()), part->shape.elements() - skipped));
    weights.read_f32(part->name, skipped, out.first(here));
    out = out.subspan(here);
    first += static_cast<std::int64_t>(here);
  }
}

std::vector<TensorSource> split_into_parts(const TensorSource& whole) {
  std::vector<TensorSource> sources;
  for (StoredPart& part : stored_parts(whole.name, whole.shape)) {
    sources.push_back({std::move(part.name), whole.dtype, part.shape,
                       [read = whole.read, begin = part.first](void* to, std::int64_t first, std::int64_t count) {
                         read(to, begin + first, count);
                       }});
  }
  return sources;
}

}  // namespace consist
