// Any bytes as a safetensors file: they are refused with a DataError, or every tensor of a readable dtype can be read in whole.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "consist/error.h"
#include "core/weights/safetensors.h"
#include "tests/fuzz/input_path.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace consist;
  static const InputPath input;
  input.fill(data, size);
  try {
    const SafetensorsFile file(input.path());
    for (const auto& [name, tensor] : file.tensors()) {
      if (tensor.offset < 0 || tensor.bytes < 0 || tensor.offset + tensor.bytes > static_cast<std::int64_t>(size)) std::abort();
      if (tensor.dtype != "F32" && tensor.dtype != "BF16" && tensor.dtype != "F16") continue;
      if (tensor.elements > static_cast<std::int64_t>(size)) std::abort();
      std::vector<float> wide(static_cast<std::size_t>(tensor.elements));
      std::vector<std::uint16_t> narrow(wide.size());
      file.read_f32(name, 0, wide);
      file.read_bf16(name, 0, narrow);
    }
  } catch (const DataError&) {
  }
  return 0;
}
