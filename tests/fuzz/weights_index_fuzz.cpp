// Any text as model.safetensors.index.json beside two sound files: it is refused with a DataError, or every tensor that it names
// is there.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "consist/error.h"
#include "core/weights/model_weights.h"
#include "tests/fuzz/input_path.h"
#include "tests/temporary_folder.h"

namespace {

/// A folder with the shards of tests/golden/safetensors.
struct Shards {
  Shards() {
    for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
      std::filesystem::copy(CONSIST_SOURCE_DIR "/tests/golden/safetensors/sharded/" + std::string(name), folder / name);
    }
    std::filesystem::create_symlink(index.path(), folder / "model.safetensors.index.json");
  }
  consist::TemporaryFolder folder;
  consist::InputPath index;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace consist;
  static const Shards shards;
  shards.index.fill(data, size);
  try {
    const ModelWeights weights(shards.folder.path());
    for (const std::string& name : weights.names()) {
      if (weights.shape(name).elements() > 4) std::abort();
    }
  } catch (const DataError&) {
  } catch (const SystemError&) {  // it names a folder or a file that may not be read
  }
  return 0;
}
