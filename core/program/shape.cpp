#include "consist/shape.h"

#include "consist/error.h"

namespace consist {

Shape::Shape(std::initializer_list<std::int64_t> extents) {
  for (std::int64_t extent : extents) push_back(extent);
}

void Shape::push_back(std::int64_t extent) {
  if (rank_ == max_rank) throw ProgramError("a shape has more than " + std::to_string(max_rank) + " dimensions");
  if (extent < 0) throw ProgramError("a shape has the negative extent " + std::to_string(extent));
  extents_[static_cast<std::size_t>(rank_++)] = extent;
}

std::int64_t Shape::elements() const noexcept {
  std::int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= (*this)[i];
  return product;
}

std::int64_t Shape::rows() const noexcept {
  std::int64_t product = 1;
  for (int i = 0; i + 1 < rank_; ++i) product *= (*this)[i];
  return product;
}

std::string Shape::text() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ',';
    text += std::to_string((*this)[i]);
  }
  return text + "]";
}

}  // namespace consist
