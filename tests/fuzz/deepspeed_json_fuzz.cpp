// Any bytes as a DeepSpeed JSON. See foreign_file.h.
#include "launch/import/deepspeed_config.h"
#include "tests/fuzz/foreign_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace consist;
  read_foreign_file(data, size, [](const std::string& path, const readers::ReaderContext& context, RunConfig& config) {
    apply_deepspeed_config(path, context, config);
  });
  return 0;
}
