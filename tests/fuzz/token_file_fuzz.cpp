// Any bytes as a token file, in each format: refused with a DataError, or every token can be read and none is negative.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "consist/error.h"
#include "datasets/packing/token_file.h"
#include "tests/fuzz/input_path.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace consist;
  using namespace consist::packing;
  static const InputPath input;
  input.fill(data, size);
  for (TokenFileFormat format : {TokenFileFormat::header, TokenFileFormat::u16, TokenFileFormat::u32}) {
    try {
      const TokenFile file(input.path(), format);
      if (file.size() < 0 || file.size() > static_cast<std::int64_t>(size)) std::abort();
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.size()));
      file.read(0, tokens);
      for (std::int32_t token : tokens) {
        if (token < 0) std::abort();
      }
    } catch (const DataError&) {
    }
  }
  return 0;
}
