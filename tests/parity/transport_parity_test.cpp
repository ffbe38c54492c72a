// A transport changes nothing about training: efa (libfabric's provider tcp) gives the losses of one rank, as socket does, and
// the very bits of socket where both cut their messages alike. Every collective of every size: tests/conformance/transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "tests/parity/tolerances.h"
#include "tests/temporary_folder.h"
#include "tests/train_from_scratch.h"

namespace consist {
namespace {

struct TransportCase {
  const char* name;
  const char* strategy;
  const char* model;
  const char* precision;
  int ranks = 4;
};

void PrintTo(const TransportCase& c, std::ostream* stream) {
  *stream << c.name;
}

using Words = std::vector<std::string>;
const Words over_socket{"--transport=socket", "--socket.chunk=64Ki"};
const Words over_efa{"--transport=efa", "--efa.provider=tcp", "--efa.chunk=64Ki"};

class TransportParity : public ::testing::TestWithParam<TransportCase> {
 protected:
  static constexpr int steps = 12;
  static constexpr int global_batch = 24;  // every one of the layouts divides it

  /// Trains in processes of its own; the losses. `topology` gets what the archive says of its axes.
  std::vector<double> train(int ranks, int accumulation, const Words& transport, std::string* topology = nullptr) const {
    return train(GetParam(), ranks, accumulation, transport, topology);
  }
  std::vector<double> train(const TransportCase& c, int ranks, int accumulation, const Words& transport,
                            std::string* topology) const {
    Words options{"--cpu.threads=1",
                  "--sequence=32",
                  "--strategy=" + std::string(c.strategy),
                  "--model=" CONSIST_SOURCE_DIR "/tests/golden/hf/" + std::string(c.model),
                  "--precision=" + std::string(c.precision),
                  "--steps=" + std::to_string(steps),
                  "--global-batch=" + std::to_string(global_batch),
                  "--ranks=" + std::to_string(ranks),
                  "--accumulation=" + std::to_string(accumulation)};
    options.insert(options.end(), transport.begin(), transport.end());
    const ArchiveReader reader = test::train_from_scratch(folder_ / "run.h5", options);
    if (topology != nullptr) *topology = reader.text("/topology");
    return reader.column("loss");
  }

  TemporaryFolder folder_;
};

TEST_P(TransportParity, EfaGivesTheLossesOfOneRankAndTheBitsOfSocket) {
  const std::vector<double> expected = train(1, 1, over_socket);
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(steps));
  ASSERT_LT(expected.back(), expected.front() - 0.1) << "nothing was learnt, so that equal losses would say little";
  const double tolerance = test::layout_loss_tolerance(GetParam().precision);
  double worst = 0;
  std::string topology;
  const std::vector<double> found = train(GetParam().ranks, 1, over_efa, &topology);
  EXPECT_THAT(topology, ::testing::HasSubstr(" tcp;ofi_rxm on lo\"")) << "the archive says which path was taken";
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t s = 0; s < expected.size(); ++s) {
    const double deviation = std::abs(found[s] / expected[s] - 1);
    EXPECT_LE(deviation, tolerance) << "loss of step " << s + 1;
    worst = std::max(worst, deviation);
  }
  EXPECT_EQ(found, train(GetParam().ranks, 1, over_socket));
  std::printf("largest relative deviation of a loss: %.2g (tolerance %.2g)\n", worst, tolerance);
}

/// Parts within a group over one transport, sums across groups over another one.
class HybridTransports : public TransportParity {};

TEST_P(HybridTransports, EachStrategyOfTheDataAxisHasItsOwn) {
  TransportCase one_rank = GetParam();
  one_rank.strategy = "ddp";
  const std::vector<double> expected = train(one_rank, 1, 1, over_socket, nullptr);
  std::string topology;
  const std::vector<double> found = train(4, 1, {"--transport=socket,ddp=efa", "--efa.provider=tcp"}, &topology);
  for (const char* said :
       {R"("transport": "efa")", R"("transport": "socket")", R"( tcp;ofi_rxm on lo")", R"("tcp 127.0.0.1 on lo")"})
    EXPECT_THAT(topology, ::testing::HasSubstr(said));
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t s = 0; s < expected.size(); ++s)
    EXPECT_LE(std::abs(found[s] / expected[s] - 1), test::layout_loss_tolerance(GetParam().precision))
        << "loss of step " << s + 1;
}

INSTANTIATE_TEST_SUITE_P(Configurations, HybridTransports,
                         ::testing::Values(TransportCase{"zero3_bf16", "zero3-offload=2+ddp=2", "qwen3-tied", "bf16"}),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(Configurations, TransportParity,
                         ::testing::Values(TransportCase{"ddp_llama_fp32", "ddp", "llama-untied", "fp32"},
                                           TransportCase{"zero2_qwen3_bf16", "zero2", "qwen3-tied", "bf16", 3}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace consist
