// Any bytes as a DeepSpeed JSON: refused with an Error, or taken: then the configuration has legal values, and nothing that a
// terminal would obey stands in the notes.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "consist/error.h"
#include "launch/import/deepspeed_config.h"
#include "tests/fuzz/input_path.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace consist;
  static const InputPath input;
  input.fill(data, size);
  const readers::ReaderContext context{.given = [](const std::string& option) { return option == "seed"; },
                                       .sizes = [] { return ModelSizes{.layers = 4, .hidden = 160}; }};
  RunConfig config;
  config.model = "llama-tiny";
  try {
    apply_deepspeed_config(input.path(), context, config);
    config.check();
    if (!std::isfinite(config.learning_rate)) std::abort();
    for (const auto& [option, value] : config.plugin_options[config.schedule]) {
      if (value.empty()) std::abort();
    }
    for (const std::string& note : config.notes) {
      if (note.size() > 20'000 || std::any_of(note.begin(), note.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
        std::abort();
    }
  } catch (const DataError&) {
  } catch (const UsageError&) {
  }
  return 0;
}
