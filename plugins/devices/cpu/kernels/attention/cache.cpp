// rows_at and write_rows: rows of a table, and of a cache of keys or values, from a position on that is read when the step runs.
#include <algorithm>
#include <cstring>

#include "consist/error.h"
#include "plugins/devices/cpu/kernels/common/kernels.h"

namespace consist::cpu {
namespace {

/// The position, for `rows` rows of a tensor that has `all`. Throws ProgramError where they would lie outside of it.
std::int64_t position_in(const Buffer& position, std::int64_t rows, std::int64_t all) {
  const std::int64_t at = position.as<const std::int32_t>()[0];
  if (at < 0 || at + rows > all)
    throw ProgramError("rows " + std::to_string(at) + " to " + std::to_string(at + rows - 1) + " of " + std::to_string(all));
  return at;
}

class RowsAt final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const std::int64_t rows = out[0].shape[0], bytes = out[0].shape[1] * static_cast<std::int64_t>(size_of(out[0].dtype));
    const std::int64_t at = position_in(in[1], rows, in[0].shape[0]);
    std::memcpy(out[0].data, in[0].as<char>() + at * bytes, static_cast<std::size_t>(rows * bytes));
  }
};

class WriteRows final : public Kernel {
 public:
  void launch(std::span<const Buffer> in, std::span<const Buffer> out, void*, NativeQueue) override {
    const Buffer& rows = in[1];
    const auto size = static_cast<std::int64_t>(size_of(rows.dtype));
    const std::int64_t batch = rows.shape[0], count = rows.shape[1], all = out[0].shape[1], bytes = rows.shape[2] * size,
                       stride = rows.leading_dimension() * size, at = position_in(in[2], count, all);
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t r = 0; r < count; ++r) {
        std::memcpy(out[0].as<char>() + (b * all + at + r) * bytes, rows.as<char>() + (b * count + r) * stride,
                    static_cast<std::size_t>(bytes));
      }
    }
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

}  // namespace consist::cpu
