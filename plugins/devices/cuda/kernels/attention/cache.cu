// rows_at and write_rows: rows of a table, and of a cache of keys or values, from a position on that lies in the device's memory: a step
// that is replayed reads it anew. A thread moves 16 bytes, or 2 where rows do not begin at multiples of 16.
#include "plugins/devices/cuda/kernels/common/launch.h"

namespace consist::cuda {
namespace {

/// Rows of one tensor, in units of what a thread moves.
struct RowsInUnits {
  std::int64_t width;   ///< of a row
  std::int64_t stride;  ///< from row to row of the tensor that holds no more than the rows
  std::int64_t count;   ///< rows of a sequence
  std::int64_t all;     ///< rows of a sequence in the tensor that holds others, too, one behind the other
};

/// Unit i of the rows; `inside`: where it lies in the tensor that holds others, too.
struct Place {
  std::int64_t alone, inside;
  __device__ Place(std::int64_t i, const RowsInUnits& r, std::int64_t position) {
    const std::int64_t column = i % r.width, row = i / r.width, b = row / r.count;
    alone = row * r.stride + column;
    inside = (b * r.all + position + row % r.count) * r.width + column;
  }
};

/// `inwards`: from the tensor that holds no more than the rows into the one that holds others, too; else out of that.
template <bool inwards, typename Unit>
__global__ void __launch_bounds__(threads) move_rows(const Unit* __restrict__ from, const int* __restrict__ position, Unit* __restrict__ to,
                                                     RowsInUnits rows, std::int64_t units) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= units) return;
  const Place place(i, rows, *position);
  if constexpr (inwards)
    to[place.inside] = from[place.alone];
  else
    to[place.alone] = from[place.inside];
}

/// Calls `launch` with a null pointer of the type that a thread moves and with what it moves; every extent of `bytes` is in bytes.
template <typename Launch>
void in_units(const RowsInUnits& bytes, std::int64_t rows, const Launch& launch) {
  const std::int64_t total = rows * bytes.width;
  if (total == 0) return;
  const auto with = [&]<typename Unit>(const Unit* none) {
    constexpr auto size = static_cast<std::int64_t>(sizeof(Unit));
    launch(none, RowsInUnits{bytes.width / size, bytes.stride / size, bytes.count, bytes.all}, total / size);
  };
  if (bytes.width % 16 == 0 && bytes.stride % 16 == 0)
    with(static_cast<const uint4*>(nullptr));
  else
    with(static_cast<const std::uint16_t*>(nullptr));
}

class RowsAt final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const std::int64_t rows = out[0].shape[0], width = out[0].shape[1] * static_cast<std::int64_t>(size_of(out[0].dtype));
    in_units({width, width, rows, in[0].shape[0]}, rows, [&]<typename Unit>(const Unit*, const RowsInUnits& r, std::int64_t units) {
      move_rows<false, Unit><<<blocks_of(divided_up(units, threads)), threads, 0, stream_of(queue)>>>(in[0].as<Unit>(), in[1].as<int>(),
                                                                                            out[0].as<Unit>(), r, units);
    });
    check_launch("rows_at");
  }
};

class WriteRows final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue queue) override {
    const Buffer& rows = in[1];
    const auto size = static_cast<std::int64_t>(size_of(rows.dtype));
    in_units({rows.shape[2] * size, rows.leading_dimension() * size, rows.shape[1], out[0].shape[1]}, rows.shape.rows(),
             [&]<typename Unit>(const Unit*, const RowsInUnits& r, std::int64_t units) {
               move_rows<true, Unit><<<blocks_of(divided_up(units, threads)), threads, 0, stream_of(queue)>>>(rows.as<Unit>(), in[2].as<int>(),
                                                                                                    out[0].as<Unit>(), r, units);
             });
    check_launch("write_rows");
  }
};

Made make_rows_at(const KernelRequest& /*r*/, const KernelSettings& /*s*/) {
  return std::make_unique<RowsAt>();
}
Made make_write_rows(const KernelRequest& /*r*/, const KernelSettings& /*s*/) {
  return std::make_unique<WriteRows>();
}

}  // namespace

CONSIST_KERNEL(rows_at, make_rows_at);
CONSIST_KERNEL(write_rows, make_write_rows);

}  // namespace consist::cuda
