// Small checkpoints with known contents.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_reader.h"
#include "core/checkpoint/checkpoint_writer.h"
#include "tests/weights/sources.h"

namespace consist {

inline CheckpointState state_at(std::int64_t step) {
  CheckpointState state;
  state.step = step;
  state.seed = 0xffffffffffffffffU - static_cast<std::uint64_t>(step);
  state.data_position = 8 * step;
  state.layout = "data=1";
  state.config = R"({"model": "llama", "note": "größe \"quoted\""})";
  return state;
}

/// Tensors whose values follow from the step.
inline std::vector<TensorSource> tensors_at(std::int64_t step) {
  const auto scale = static_cast<float>(step);
  return {ramp_source("model.embed_tokens.weight", 1000, scale),
          ramp_source("model.embed_tokens.weight.moment1", 1000, scale / 3),
          source_of<std::uint16_t>("model.norm.weight", DType::bf16, {3}, {0x3f80, 0x7fc1, static_cast<std::uint16_t>(step)})};
}

inline void save(CheckpointWriter& writer, std::int64_t step) {
  CheckpointState state = state_at(step);
  const std::string folder = writer.begin(step);
  state.files = {write_checkpoint_file(folder, checkpoint_file_name(0), tensors_at(step))};
  writer.commit(state);
}

/// Checks state and every bit of the tensors.
inline void expect_sound(const Checkpoint& checkpoint, std::int64_t step) {
  CheckpointState expected = state_at(step);
  expected.files = checkpoint.state().files;
  EXPECT_EQ(checkpoint.state(), expected);
  const SafetensorsFile file = checkpoint.open(checkpoint_file_name(0));
  const std::vector<TensorSource> tensors = tensors_at(step);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const TensorSource& tensor : tensors) {
    const std::int64_t elements = tensor.shape.elements();
    std::vector<char> written(static_cast<std::size_t>(elements) * tensor.dtype.bytes());
    std::vector<char> read(written.size());
    tensor.read(written.data(), 0, elements);
    file.read_stored(tensor.name, tensor.dtype, 0, elements, read.data());
    EXPECT_EQ(read, written) << tensor.name;
  }
}

inline std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const CheckpointPlace& place : list_checkpoints(folder)) steps.push_back(place.step);
  return steps;
}

}  // namespace consist
