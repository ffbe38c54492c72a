// Any bytes as the file of --from: torchtitan's TOML, Megatron's scripts, YAML, JSON. See foreign_file.h.
#include "launch/import/trainer_file.h"
#include "tests/fuzz/foreign_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace consist;
  try {
    read_foreign_file(data, size, apply_trainer_file);
  } catch (const SystemError&) {  // a DeepSpeed JSON that an Accelerate YAML names is not there
  }
  return 0;
}
