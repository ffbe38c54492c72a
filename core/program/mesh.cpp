#include "consist/mesh.h"

#include <algorithm>

#include "consist/error.h"

namespace consist {

void AxisSet::throw_no_such_axis(int axis) {
  throw ProgramError("there is no mesh axis " + std::to_string(axis) + "; a mesh has at most " + std::to_string(max_axes));
}

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  if (axes_.size() > max_axes) {
    throw UsageError("the strategies ask for " + std::to_string(axes_.size()) + " mesh axes; at most " +
                     std::to_string(max_axes) + " can be combined");
  }
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].size < 1) {
      throw UsageError("mesh axis '" + axes_[i].name + "' has size " + std::to_string(axes_[i].size) + "; it must be at least 1");
    }
    if (axes_[i].name.empty() || axes_[i].name.find_first_of("+,: ") != std::string::npos)
      throw UsageError("mesh axis '" + axes_[i].name + "' needs a name without '+', ',', ':' and spaces");
    for (std::size_t j = 0; j < i; ++j) {
      if (axes_[i].name == axes_[j].name) {
        throw UsageError("two strategies work on the mesh axis '" + axes_[i].name + "'; use one of them");
      }
    }
  }
}

int Mesh::find(std::string_view name) const noexcept {
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int Mesh::ranks() const noexcept {
  int product = 1;
  for (const MeshAxis& axis : axes_) product *= axis.size;
  return product;
}

AxisSet Mesh::all_axes() const noexcept {
  AxisSet all;
  for (int axis = 0; axis < axes(); ++axis) all |= axis;
  return all;
}

int Mesh::size_of(AxisSet axes) const {
  int product = 1;
  for (int index : axes) product *= axis(index).size;
  return product;
}

int Mesh::coordinate(int rank, AxisSet axes) const {
  if (axes.last() >= this->axes()) axis(axes.last());  // throws
  int coordinate = 0, stride = 1;
  for (int index = this->axes() - 1; index >= 0; --index) {
    const int size = axis(index).size;
    if (axes.contains(index)) {
      coordinate += rank % size * stride;
      stride *= size;
    }
    rank /= size;
  }
  return coordinate;
}

std::vector<int> Mesh::group(int rank, AxisSet axes) const {
  if (axes.last() >= this->axes()) axis(axes.last());  // throws
  // All members by the coordinates so far; each axis of the set multiplies them.
  std::vector<int> ranks{0};
  for (int index = 0; index < this->axes(); ++index) {
    const int size = axis(index).size, own = coordinate(rank, index);
    std::vector<int> longer;
    for (int before : ranks) {
      for (int at = 0; at < size; ++at) {
        if (axes.contains(index) || at == own) longer.push_back(before * size + at);
      }
    }
    ranks = std::move(longer);
  }
  return ranks;
}

std::string Mesh::text(AxisSet axes) const {
  std::string text;
  for (int index : axes)
    text += (text.empty() ? "" : "+") + (index < this->axes() ? axis(index).name : "axis " + std::to_string(index));
  return text.empty() ? "none" : text;
}

std::optional<AxisSet> Mesh::parse(std::string_view text) const {
  AxisSet axes;
  while (true) {
    const std::size_t plus = text.find('+');
    const int index = find(text.substr(0, plus));
    if (index < 0) return std::nullopt;
    axes |= index;
    if (plus == std::string_view::npos) return axes;
    text.remove_prefix(plus + 1);
  }
}

bool Placements::all_replicate() const noexcept {
  for (Placement placement : on_) {
    if (!placement.is_replicate()) return false;
  }
  return true;
}

std::optional<Placement> Placements::on(AxisSet axes) const noexcept {
  if (axes.empty() || axes.last() >= Mesh::max_axes) return std::nullopt;
  const Placement placement = (*this)[axes.first()];
  for (int axis : axes) {
    if ((*this)[axis] != placement) return std::nullopt;
  }
  return placement;
}

AxisSet Placements::flat_axes() const noexcept {
  AxisSet axes;
  for (int axis = 0; axis < Mesh::max_axes; ++axis) {
    if ((*this)[axis].is_flat()) axes |= axis;
  }
  return axes;
}

std::string Placements::text(const Mesh& mesh) const {
  std::string text;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const Placement placement = (*this)[axis];
    if (placement.is_replicate()) continue;
    text += text.empty() ? "{" : ",";
    text += mesh.axis(axis).name + ":" +
            (placement.is_partial() ? "P"
             : placement.is_flat()  ? "F"
                                    : "S" + std::to_string(placement.dim()));
  }
  return text.empty() ? text : text + "}";
}

Shape local_shape(const Shape& shape, const Placements& placements, const Mesh& mesh) {
  Shape local = shape;
  AxisSet flat;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const Placement placement = placements[axis];
    if (placement.is_flat()) flat |= axis;
    if (!placement.is_shard()) continue;
    const int size = mesh.size_of(axis);
    if (placement.dim() >= shape.rank() || local[placement.dim()] % size != 0) {
      throw ProgramError("shape " + shape.text() + " cannot be split along dimension " + std::to_string(placement.dim()) +
                         " over the " + std::to_string(size) + " ranks of axis '" + mesh.axis(axis).name + "'");
    }
    local[placement.dim()] /= size;
  }
  if (flat.empty()) return local;
  const std::int64_t ranks = mesh.size_of(flat);
  return {(local.elements() + ranks - 1) / ranks};
}

LocalPart local_part(const Shape& shape, const Placements& placements, const Mesh& mesh, int rank) {
  LocalPart part{local_shape(shape, placements, mesh), {}};
  if (const AxisSet flat = placements.flat_axes() & mesh.all_axes(); !flat.empty()) {
    Placements others = placements;
    others.set(flat, Placement::replicate());
    const std::int64_t whole = local_shape(shape, others, mesh).elements();
    part.origin[0] = std::min(whole, part.shape[0] * mesh.coordinate(rank, flat));
    part.shape[0] = std::min(part.shape[0], whole - part.origin[0]);
    return part;
  }
  // Axes that shard the same dimension nest, the first one outermost.
  for (int dim = 0; dim < shape.rank(); ++dim) {
    std::int64_t extent = shape[dim];
    for (int axis = 0; axis < mesh.axes(); ++axis) {
      if (!placements[axis].is_shard(dim)) continue;
      extent /= mesh.size_of(axis);
      part.origin[static_cast<std::size_t>(dim)] += extent * mesh.coordinate(rank, axis);
    }
  }
  return part;
}

}  // namespace consist
