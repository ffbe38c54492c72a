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
  long long packs;       ///< of all rows, or of a flat slice
  long long columns;     ///< packs of a row
  long long first;       ///< packs of the matrix before a flat slice
  long long rows;        ///< margins: rows that have elements
  long long chunk_rows;  ///< margins: rows that a block adds up
  long long all_rows;    ///< margins: rows whose sums are wanted
};

struct MapForm {
  std::vector<DType> inputs, outputs;
  bool rows = false;   ///< an operand has rows that do not lie side by side, or is read by channels or rows
  bool flat = false;   ///< the elements are a flat slice of the matrix whose rows and channels are read; with `rows`
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

inline constexpr const char* margin_tiles_name = "margin_tiles";
inline constexpr const char* margin_sums_name = "margin_sums";
inline constexpr int margin_columns = 512;  ///< of a block

/// Two kernels that make the sums of rows, in out[0] if it is not null, and of columns, in out[1]. The first one makes those of
/// tiles: `margin_columns` columns of MapOperands::chunk_rows rows each. It leaves sums of columns in out[2], [chunks, columns],
/// and of rows in out[3], [rows, tiles side by side]. The second one, of whose operands `columns` counts elements and `packs`
/// chunks, adds them up.
std::string margin_tiles_source(const Expressions& f, const MapForm& form);
std::string margin_sums_source();

}  // namespace consist::cuda
