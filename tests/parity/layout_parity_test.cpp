// Every layout of the same run starts from the same weights and gives the same losses, in processes of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/compile/compile.h"
#include "core/plan/parts.h"
#include "core/plugin/host.h"
#include "core/state/training_state.h"
#include "tests/parity/tolerances.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

constexpr int steps = 20;
constexpr int global_batch = 48;  // every one of the layouts divides it
constexpr int ranks_tried[] = {1, 2, 3, 4};
constexpr int accumulations_tried[] = {1, 2, 4};

const std::string untied_llama = CONSIST_SOURCE_DIR "/tests/golden/hf/llama-untied";
const std::string tied_qwen = CONSIST_SOURCE_DIR "/tests/golden/hf/qwen3-tied";

struct Case {
  const char* name;
  std::string model;
  const char* precision;
  int sequence;
  std::string dataset = "synthetic";
};

struct LayoutChoice {
  int ranks = 1, accumulation = 1;
  std::vector<std::string> strategy{"--strategy=ddp"};  ///< with its options
  std::string text() const {
    std::string text = std::to_string(ranks) + " ranks x accumulation " + std::to_string(accumulation);
    for (const std::string& word : strategy) text += " " + word;
    return text;
  }
};

/// One of each kind: every combination runs in the interpreter (tests/interpreter). Here are the kernels, the threads of queues
/// and what each precision rounds over many steps; gradients that travel in bf16 are within the tolerances of bf16 and fp8 alone.
std::vector<LayoutChoice> layouts(const std::string& precision) {
  return {
      {4, 2, {"--strategy=ddp", "--ddp.bucket-size=20Ki"}},
      {3, 1, {"--strategy=zero2", "--zero2.reduce-bucket-size=4000", "--zero2.allgather-bucket-size=4000"}},
      {4,
       2,
       {"--strategy=zero3-offload", "--zero3-offload.reduce-bucket-size=4000", "--zero3-offload.prefetch-bucket-size=4000",
        "--zero3-offload.param-persistence-threshold=100", "--zero3-offload.max-reuse-distance=0"}},
      {2,
       2,
       {"--strategy=zero3-offload", "--zero3-offload.reduce-bucket-size=4000", "--zero3-offload.reduce-each-micro-batch=false",
        std::string("--zero3-offload.communication-data-type=") + (precision == "fp32" ? "fp32" : "bf16")}},
      {2,
       2,
       {"--strategy=zero3-offload", "--zero3-offload.max-reuse-distance=0", "--zero3-offload.prefetch-bucket-size=4000",
        "--zero3-offload.param-persistence-threshold=100", "--zero3-offload.offload-param.device=cpu",
        "--zero3-offload.offload-optimizer.device=cpu", "--zero3-offload.sub-group-size=3000",
        "--zero3-offload.offload-optimizer.update=cpu"}}};
}

/// The columns of a finished run that must not depend on its layout.
struct Curves {
  std::vector<double> loss, tokens;
};

class LayoutParity : public testing::TestWithParam<Case> {
 protected:
  /// Trains in processes of their own.
  Curves train(const LayoutChoice& run) const {
    const Case& c = GetParam();
    std::vector<std::string> options{"--dataset=" + c.dataset,
                                     "--model=" + c.model,
                                     "--precision=" + std::string(c.precision),
                                     "--sequence=" + std::to_string(c.sequence),
                                     "--steps=" + std::to_string(steps),
                                     "--global-batch=" + std::to_string(global_batch),
                                     "--ranks=" + std::to_string(run.ranks),
                                     "--accumulation=" + std::to_string(run.accumulation)};
    options.insert(options.end(), run.strategy.begin(), run.strategy.end());
    const ArchiveReader reader = test::train_from_scratch(folder_ / "run.h5", options);
    return {reader.column("loss"), reader.column("tokens")};
  }

  TemporaryFolder folder_;
};

TEST_P(LayoutParity, EveryLayoutGivesTheLossesOfOneRank) {
  const Curves expected = train(LayoutChoice{});
  ASSERT_EQ(expected.loss.size(), static_cast<std::size_t>(steps));
  ASSERT_LT(expected.loss.back(), expected.loss.front() - 0.1) << "nothing was learnt, so that equal losses would say little";
  const double tolerance = test::layout_loss_tolerance(GetParam().precision);
  double worst = 0;
  for (const LayoutChoice& run : layouts(GetParam().precision)) {
    SCOPED_TRACE(run.text());
    const Curves found = train(run);
    ASSERT_EQ(found.loss.size(), expected.loss.size());
    EXPECT_EQ(found.tokens, expected.tokens);
    for (std::size_t s = 0; s < expected.loss.size(); ++s) {
      const double deviation = std::abs(found.loss[s] / expected.loss[s] - 1);
      EXPECT_LE(deviation, tolerance) << "loss of step " << s + 1;
      worst = std::max(worst, deviation);
    }
  }
  RecordProperty("worst_relative_deviation", std::to_string(worst));
  std::printf("largest relative deviation of a loss: %.2g (tolerance %.2g)\n", worst, tolerance);
}

/// A state's values, as bytes.
std::vector<std::string> values_of(TrainingState& state) {
  std::vector<std::string> values;
  for (const TrainingState::Value& value : state.values()) {
    const Program& program = state.step().program();
    const std::int64_t elements = program.local(value.tensor).elements();
    std::string bytes(static_cast<std::size_t>(elements) * size_of(value.dtype), '\0');
    state.read_value(value, 0, elements, bytes.data());
    values.push_back(std::move(bytes));
  }
  for (const Parameter& parameter : state.step().program().parameters) {  // what forward reads, where that is not the master
    const Buffer buffer = state.step().buffer(parameter.tensor);
    values.emplace_back(buffer.as<char>(), static_cast<std::size_t>(state.step().program().bytes(parameter.tensor)));
  }
  return values;
}

TEST_P(LayoutParity, EveryRankOfEveryLayoutStartsFromTheSameBits) {
  const Case& c = GetParam();
  PluginHost host({CONSIST_BINARY_DIR "/lib/consist/plugins"});
  RunConfig config;
  config.model = c.model;
  config.device = "cpu";
  config.precision = c.precision;
  config.sequence = c.sequence;
  const Parts parts = make_parts(config, host);
  const std::shared_ptr<Device> device = make_device(config, host).device;
  device->open(0, 1);

  const auto initial = [&](int ranks, int accumulation, int rank, std::uint64_t seed) {
    config.ranks = ranks;
    config.accumulation = accumulation;
    config.batch = global_batch / ranks / accumulation;
    const Layout layout = lay_out(parts.uses, ranks);
    TrainingState state({{train_program, compile_step(parts.compile_request(config), layout)}}, *device, {}, rank, 0);
    state.allocate(false);
    state.initialize(seed);
    return values_of(state);
  };
  const std::vector<std::string> expected = initial(1, 1, 0, 7);
  ASSERT_FALSE(expected.empty());
  for (const int ranks : ranks_tried) {
    for (const int accumulation : accumulations_tried) {
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_TRUE(initial(ranks, accumulation, rank, 7) == expected)
            << "rank " << rank << " of " << ranks << ", accumulation " << accumulation;
      }
    }
  }
  EXPECT_FALSE(initial(1, 1, 0, 8) == expected) << "another seed gives other weights";
}

INSTANTIATE_TEST_SUITE_P(Configurations, LayoutParity,
                         testing::Values(Case{"llama_fp32", untied_llama, "fp32", 32}, Case{"qwen3_bf16", tied_qwen, "bf16", 32},
                                         Case{"llama_fp8", untied_llama, "fp8", 32},
                                         Case{"llama_tiny_bf16", "llama-tiny", "bf16", 8, "text"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
