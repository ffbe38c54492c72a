// Shapes: up to four extents, stored in place. Activations are [batch, sequence, channels]; weights of linears are
// [out, in] as Hugging Face stores them; vectors are [n]; scalars have rank 0.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "consist/export.h"

namespace consist {

class CONSIST_API Shape {
 public:
  static constexpr int max_rank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);  ///< throws ProgramError beyond max_rank or below 0

  int rank() const noexcept { return rank_; }
  std::int64_t operator[](int dim) const noexcept { return extents_[static_cast<std::size_t>(dim)]; }
  std::int64_t& operator[](int dim) noexcept { return extents_[static_cast<std::size_t>(dim)]; }
  std::int64_t last() const noexcept { return rank_ == 0 ? 1 : (*this)[rank_ - 1]; }

  /// Product of all extents; 1 for a scalar.
  std::int64_t elements() const noexcept;
  /// Product of all extents but the last: the rows of the tensor seen as a matrix [rows, last()].
  std::int64_t rows() const noexcept;

  void push_back(std::int64_t extent);  ///< throws ProgramError beyond max_rank or below 0
  bool operator==(const Shape&) const noexcept = default;
  std::string text() const;  ///< "[8,512,1024]"

 private:
  std::array<std::int64_t, max_rank> extents_{};  // unused extents stay 0, so that == is memberwise
  int rank_ = 0;
};

}  // namespace consist
