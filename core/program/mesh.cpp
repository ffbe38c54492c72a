#include "consist/mesh.h"

#include <algorithm>

#include "consist/error.h"

namespace consist {

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  if (axes_.size() > max_axes) {
    throw UsageError("the strategies ask for " + std::to_string(axes_.size()) + " mesh axes; at most " +
                     std::to_string(max_axes) + " can be combined");
  }
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].size < 1) {
      throw UsageError("mesh axis '" + axes_[i].name + "' has size " + std::to_string(axes_[i].size) + "; it must be at least 1");
    }
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

int Mesh::coordinate(int rank, int axis) const {
  for (int i = axes() - 1; i > axis; --i) rank /= size_of(i);
  return rank % size_of(axis);
}

std::vector<int> Mesh::group(int rank, int axis) const {
  int stride = 1;
  for (int i = axes() - 1; i > axis; --i) stride *= size_of(i);
  const int first = rank - coordinate(rank, axis) * stride;
  std::vector<int> ranks;
  for (int i = 0; i < size_of(axis); ++i) ranks.push_back(first + i * stride);
  return ranks;
}

bool Placements::all_replicate() const noexcept {
  for (Placement placement : on_) {
    if (!placement.is_replicate()) return false;
  }
  return true;
}

int Placements::flat_axis() const noexcept {
  for (int axis = 0; axis < Mesh::max_axes; ++axis) {
    if ((*this)[axis].is_flat()) return axis;
  }
  return -1;
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
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const Placement placement = placements[axis];
    if (!placement.is_shard()) continue;
    const int size = mesh.size_of(axis);
    if (placement.dim() >= shape.rank() || local[placement.dim()] % size != 0) {
      throw ProgramError("shape " + shape.text() + " cannot be split along dimension " + std::to_string(placement.dim()) +
                         " over the " + std::to_string(size) + " ranks of axis '" + mesh.axis(axis).name + "'");
    }
    local[placement.dim()] /= size;
  }
  const int flat = placements.flat_axis();
  if (flat < 0 || flat >= mesh.axes()) return local;
  for (int axis = flat + 1; axis < mesh.axes(); ++axis) {
    if (placements[axis].is_flat()) throw ProgramError("a tensor of shape " + shape.text() + " is flat along two axes");
  }
  const std::int64_t ranks = mesh.size_of(flat);
  return {(local.elements() + ranks - 1) / ranks};
}

LocalPart local_part(const Shape& shape, const Placements& placements, const Mesh& mesh, int rank) {
  LocalPart part{local_shape(shape, placements, mesh), {}};
  const int flat = placements.flat_axis();
  if (flat >= 0 && flat < mesh.axes()) {
    Placements others = placements;
    others[flat] = Placement::replicate();
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
