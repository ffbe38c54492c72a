// Any text as a checkpoint's state.json, as it is and with a valid checksum put around it: it is refused with a DataError, or it
// is a state that can be written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "consist/error.h"
#include "core/base/sha256.h"
#include "core/checkpoint/checkpoint_state.h"

namespace {

void parse(const std::string& text) {
  using namespace consist;
  try {
    const CheckpointState state = parse_checkpoint_state(text, "state.json");
    if (parse_checkpoint_state(to_text(state), "state.json") != state) std::abort();
    for (const CheckpointFile& file : state.files) {
      if (file.name.find('/') != std::string::npos || parse_checkpoint_file(to_text(file)) != file) std::abort();
    }
  } catch (const DataError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  parse(text);
  // The checksum would stop nearly all inputs at the door.
  const nlohmann::json inner = nlohmann::json::parse(text, nullptr, false);
  if (inner.is_discarded()) return 0;
  const std::string canonical = inner.dump();
  parse(R"({"format":"consist checkpoint","version":1,"state":)" + canonical + R"(,"sha256":")" + consist::sha256_of(canonical) +
        "\"}");
  return 0;
}
