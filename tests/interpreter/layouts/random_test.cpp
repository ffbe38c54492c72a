// Random configurations: 500 in all, in parts that run side by side. The seed is fixed, so that a commit passes or fails alike each
// time; CONSIST_SEED=<number> draws others, CONSIST_SEED=random others in every run (tests/interpreter/campaign.sh does so for hours).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>

#include "consist/error.h"
#include "tests/interpreter/cell.h"
#include "tests/interpreter/random_configuration.h"

namespace consist::interpreter {
namespace {

constexpr int parts = 20, of_each_part = 25;

std::uint64_t seed() {
  static const std::uint64_t chosen = [] {
    const char* given = std::getenv("CONSIST_SEED");
    if (given == nullptr) return std::uint64_t{20261122};
    if (std::string_view(given) == "random") return static_cast<std::uint64_t>(std::random_device()());
    return static_cast<std::uint64_t>(std::strtoull(given, nullptr, 10));
  }();
  return chosen;
}

class RandomConfigurations : public ::testing::TestWithParam<int> {};

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

INSTANTIATE_TEST_SUITE_P(Parts, RandomConfigurations, ::testing::Range(0, parts));

}  // namespace
}  // namespace consist::interpreter
