// Random configurations, others in every run: 500 in all, in parts that run side by side. CONSIST_SEED=<number> repeats a run.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "consist/error.h"
#include "tests/interpreter/cell.h"
#include "tests/interpreter/random_configuration.h"

namespace consist::interpreter {
namespace {

constexpr int parts = 20, of_each_part = 25;

std::uint64_t seed() {
  static const std::uint64_t chosen = [] {
    if (const char* given = std::getenv("CONSIST_SEED")) return static_cast<std::uint64_t>(std::strtoull(given, nullptr, 10));
    return static_cast<std::uint64_t>(std::random_device()());
  }();
  return chosen;
}

class RandomConfigurations : public testing::TestWithParam<int> {};

TEST_P(RandomConfigurations, TrainAsOneRank) {
  std::printf("CONSIST_SEED=%llu\n", static_cast<unsigned long long>(seed()));
  std::mt19937_64 random(seed() * parts + static_cast<std::uint64_t>(GetParam()));
  int refused = 0;
  for (int done = 0; done < of_each_part;) {
    const RandomConfiguration drawn = draw(random);
    const std::uint64_t order = random();
    const std::string text = "CONSIST_SEED=" + std::to_string(seed()) + ": " + text_of(drawn.model, drawn.words);
    try {
      for (const std::string& wrong : check(drawn.model, drawn.words, order)) ADD_FAILURE() << text << "\n" << wrong;
      ++done;
    } catch (const UsageError&) {
      ASSERT_LT(++refused, 40 * of_each_part) << "hardly any configuration is legal";
    } catch (const std::exception& error) {
      ADD_FAILURE() << text << "\n" << error.what();
      ++done;
    }
  }
  std::printf("%d configurations ran, %d were refused\n", of_each_part, refused);
}

INSTANTIATE_TEST_SUITE_P(Parts, RandomConfigurations, testing::Range(0, parts));

}  // namespace
}  // namespace consist::interpreter
