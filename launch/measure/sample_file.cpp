#include "launch/measure/sample_file.h"

#include <nlohmann/json.hpp>


namespace consist::launch {

void write_samples(const Output& output, const std::vector<CalibrationStep>& steps,
                   const std::vector<std::vector<OpSample>>& samples) {
  using Json = nlohmann::ordered_json;
  Json all = Json::array();
  for (std::size_t s = 0; s < samples.size(); ++s) {
    Json instructions = Json::array();
    for (const OpSample& i : samples[s])
      instructions.push_back({i.op, name_of(i.dtype), i.kind, i.flops, i.bytes, i.seconds, i.scratch, i.depth});
    all.push_back({{"step", text_of(steps[s])}, {"instructions", std::move(instructions)}});
  }
  write_output(output, all.dump(-1) + "\n");
}

}  // namespace consist::launch
