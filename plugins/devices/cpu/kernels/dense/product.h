// Matrix products on oneDNN.
#pragma once

#include <dnnl.hpp>

#include "plugins/devices/cpu/kernels/common/kernels.h"

namespace consist::cpu {

/// C = A B or C += A B; A is [m, k], B is [k, n], C is [m, n], row-major; a transposed operand is stored the other way round.
/// Each may be columns of a wider matrix.
/// bf16 operands without native instructions are widened to f32 in the scratch first, some rows of A at a time, which is exact:
/// their products are sums of fp32 either way. A transposed operand with gaps between its rows is copied there without them.
class Product {
 public:
  struct Operand {
    DType dtype;
    bool transposed = false;
    std::int64_t row_stride = 0;  ///< elements from row to row as it is stored; 0: rows lie one behind the other
  };
  Product(std::int64_t m, std::int64_t n, std::int64_t k, Operand a, Operand b, DType c, bool accumulate,
          const KernelSettings& settings, std::int64_t c_row_stride = 0);

  /// Scratch of run(), 64-byte aligned.
  std::int64_t workspace_bytes() const;
  void run(const void* a, const void* b, void* c, void* workspace);

 private:
  struct Stored : Operand {
    bool moved = false;  // to the scratch first, without gaps
  };
  std::int64_t moved_size(const Operand& operand) const;  // bytes of an element in the scratch
  /// Writes what is stored as a [rows, columns] operand to the scratch, without gaps, and widened where that is asked for.
  void move(const void* from, const Stored& operand, std::int64_t rows, std::int64_t columns, void* to) const;
  void multiply();
  void store_narrow(const float* wide, bf16* c) const;  // a block of C

  std::int64_t m_, n_, k_;
  Stored a_, b_;
  DType c_;
  std::int64_t c_row_;
  bool accumulate_, widen_;
  std::int64_t block_;  // rows of A and C that are made at a time; divides m
  std::int64_t library_bytes_ = 0;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  dnnl::memory source_, weights_, destination_, scratch_;
};

/// to[i] = from[i], between f32 and bf16 buffers; uses the threads of the calling thread's OpenMP pool.
void convert(const void* from, DType from_type, void* to, DType to_type, std::int64_t count);

}  // namespace consist::cpu
