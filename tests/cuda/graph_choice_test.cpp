// Choice of the steps that are replayed as CUDA graphs.
#include "plugins/devices/cuda/graph_choice.h"

#include <gtest/gtest.h>

namespace consist::cuda {
namespace {

constexpr double launch_seconds = 5e-6;

bool becomes_graph(GraphChoice choice, const std::vector<Launch>& launches) {
  return cuda::becomes_graph(choice, launches, launch_seconds);
}

/// `count` launches on `queue`, each of which takes so many microseconds.
std::vector<Launch> launches(int count, double microseconds, Queue queue) {
  Launch launch;
  launch.seconds = 1e-6 * microseconds;
  launch.queue = queue;
  return std::vector<Launch>(static_cast<std::size_t>(count), launch);
}

std::vector<Launch> join(std::vector<Launch> first, const std::vector<Launch>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(GraphChoice, OneQueueAlwaysBecomesAGraph) {
  EXPECT_TRUE(becomes_graph(GraphChoice::automatic, launches(100, 100, Queue::compute())));
  EXPECT_TRUE(becomes_graph(GraphChoice::automatic, launches(100, 1, Queue::compute())));
  EXPECT_FALSE(becomes_graph(GraphChoice::never, launches(100, 1, Queue::compute())));
}

TEST(GraphChoice, BesideCommunicationOnlyShortLaunchesDo) {
  const auto all_reduces = launches(10, 1, Queue::communication(0));
  EXPECT_FALSE(becomes_graph(GraphChoice::automatic, join(launches(100, 100, Queue::compute()), all_reduces)));
  EXPECT_TRUE(becomes_graph(GraphChoice::automatic, join(launches(100, 1, Queue::compute()), all_reduces)));
  EXPECT_TRUE(becomes_graph(GraphChoice::always, join(launches(100, 100, Queue::compute()), all_reduces)));
  EXPECT_FALSE(becomes_graph(GraphChoice::never, join(launches(100, 1, Queue::compute()), all_reduces)));
}

TEST(GraphChoice, MessagesBetweenNeighboursNeverDo) {
  const auto step = join(launches(100, 1, Queue::compute()), launches(1, 1, Queue::communication(0, Lane::to_next)));
  EXPECT_FALSE(becomes_graph(GraphChoice::automatic, step));
  EXPECT_FALSE(becomes_graph(GraphChoice::always, step));
}

TEST(GraphChoice, IsReadFromItsOption) {
  EXPECT_EQ(graph_choice_of("auto"), GraphChoice::automatic);
  EXPECT_EQ(graph_choice_of("true"), GraphChoice::always);
  EXPECT_EQ(graph_choice_of("false"), GraphChoice::never);
}

}  // namespace
}  // namespace consist::cuda
