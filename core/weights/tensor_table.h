// The header of a safetensors file: which tensor lies where. The format: 8 bytes with the length of the header (little endian),
// the header as JSON {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {"key":
// "text"}}, then the data, which the tensors cover without gap or overlap; offsets count from the start of the data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "consist/export.h"

namespace consist {

struct StoredTensor {
  std::string dtype;  ///< as the format names it: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;
  std::int64_t offset = 0;  ///< of its first byte in the file
  std::int64_t bytes = 0;
};

struct TensorTable {
  std::map<std::string, StoredTensor, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
};

/// The longest header that is read, as in the reference implementation.
inline constexpr std::int64_t max_header_bytes = 100'000'000;

/// Reads the header `json` of the file `path` (for messages), whose data starts at `data_offset` and has `data_bytes` bytes.
/// Everything is checked: after it, every tensor's range lies in the file, and its size follows from dtype and shape. Throws
/// DataError naming the file, the tensor and what is wrong.
CONSIST_API TensorTable parse_tensor_table(std::string_view json, std::int64_t data_offset, std::int64_t data_bytes,
                                           const std::string& path);

}  // namespace consist
