// Any bytes as Megatron-LM's arguments by --from: scripts, files of arguments, YAML. See foreign_file.h.
#include "launch/import/trainer_file.h"
#include "tests/fuzz/foreign_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace consist;
  read_foreign_file(data, size, apply_megatron_file);
  return 0;
}
