// Any bytes as a DeepSpeed JSON. See foreign_file.h.
#include "launch/import/deepspeed_config.h"
#include "tests/fuzz/foreign_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  consist::read_foreign_file(data, size, consist::apply_deepspeed_config);
  return 0;
}
