// CUDA C++ of an expression: the sources of kernels that map and reduce compile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consist/dtype.h"
#include "consist/expression.h"
#include "plugins/devices/common/reduction.h"

namespace consist::cuda {

/// The arguments of the kernel, in the order in which the source declares them.
struct MapOperands {
  const void* in[Expressions::max_inputs];
  void* out[Expressions::max_inputs];
  long long in_row[Expressions::max_inputs];  ///< elements from row to row
  long long out_row[Expressions::max_inputs];
  long long packs;    ///< of all rows
  long long columns;  ///< packs of a row
};

struct MapForm {
  std::vector<DType> inputs, outputs;
  bool rows = false;   ///< an operand has rows that do not lie side by side, or is read by channels or rows
  int pack = 1;        ///< elements that a thread moves at once
  bool rounds_bf16 = true;  ///< the GPU has an instruction that rounds to bf16 (compute capability 8.0)
  bool large = false;  ///< more packs than 31 bits count
};

static_assert(Expressions::max_inputs == 12, "the source states the arrays of Operands in numbers");

inline constexpr const char* map_kernel_name = "map_elements";
inline constexpr int map_threads = 256, map_unroll = 2;

std::string map_source(const Expressions& f, const MapForm& form);

inline constexpr const char* reduce_kernel_name = "reduce_rows";
inline constexpr int reduce_rows = map_threads / 32;  ///< of a block, a warp each

/// A kernel that reduces the one result over the columns of each row. MapOperands::packs is then the number
/// of rows; packs of `columns` lie side by side.
std::string reduce_source(const Expressions& f, const MapForm& form, kernels::ReduceBy by);

}  // namespace consist::cuda
